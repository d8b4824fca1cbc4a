"""Does `capplan goodput` reproduce published and derived goodputs, and refuse runs that it cannot simulate?"""

from __future__ import annotations

import json
import re
from typing import get_args

import pytest

from planner.cli import commands as cli
from planner.cli import goodput_options
from planner.goodput.answer import Goodput, Policy, RunInputs, play_goodput, run_inputs
from simulator.errors import InputError
from simulator.run.columns import BackPressure
from tests.planner.imports import printed_without_heavy_imports

MTBF_OF_LLAMA_S = {419: 11135.0, 466: 10012.0}
"""54 days over 419 unexpected, or all 466, interruptions (arXiv 2407.21783, section 3.3.4)."""
LAST_DIGIT = 0.00006
"""Goodputs are printed with five digits; the runs here are long, but not endless."""


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> Goodput:
    assert cli.main(["goodput", *arguments, "--json"]) == 0
    return Goodput.model_validate(json.loads(capsys.readouterr().out))


def run(**values: object) -> Goodput:
    return play_goodput(run_inputs({"num_replications": 20, **values}))


# reliability.md, section 7.3: closed form, and Monte Carlo by an independent program over 4e8 s or more.
@pytest.mark.parametrize(
    ("arguments", "closed_form", "monte_carlo"),
    [
        ("--mtbf-s 10980 --interval-s 371 --stall-s .8 --commit-s 60 --restart-s 390", 0.94224, 0.94251),
        (
            "--mtbf-s 10980 --interval-s 371 --stall-s .8 --commit-s 210 --restart-s 390 --tax .03",
            0.91466,
            0.91424,
        ),
        ("--mtbf-s 10980 --interval-s 1108 --stall-s 60 --restart-s 390", 0.86823, 0.86787),
        ("--mtbf-s 1080 --interval-s 120 --stall-s 3 --commit-s 60 --restart-s 180", 0.74686, 0.74656),
        (
            "--mtbf-s 10980 --interval-s 100 --stall-s 1 --commit-s 300 --restart-s 390 --policy wait",
            0.31358,
            0.31359,
        ),
        (
            "--mtbf-s 3600 --interval-s 50 --stall-s 1 --commit-s 200 --restart-s 300 --tax .1 --policy wait",
            0.22019,
            0.22027,
        ),
    ],
)
def test_closed_form_and_replications_give_the_goodputs_of_the_reference(
    arguments: str, closed_form: float, monte_carlo: float, capsys: pytest.CaptureFixture[str]
) -> None:
    found = answer(capsys, *arguments.split(), "--seed", "1")
    assert found.expected_goodput == pytest.approx(closed_form, abs=LAST_DIGIT)
    assert found.goodput == pytest.approx(monte_carlo, rel=0.003)  # the reference's tolerance, its table X3
    assert found.goodput_standard_error is not None
    assert abs(found.goodput - found.expected_goodput) < 4 * found.goodput_standard_error


# The same section; with several slots, and where saves are left out, the closed form is an approximation.
@pytest.mark.parametrize(
    ("changes", "monte_carlo"),
    [
        ({"policy": "wait", "slots": 2, "commit_s": 300}, 0.62460),
        ({"policy": "wait", "slots": 4, "commit_s": 300}, 0.92646),
        ({"policy": "skip", "commit_s": 250}, 0.92824),
    ],
)
def test_slots_and_policies_change_what_a_slow_commit_costs(
    changes: dict[str, object], monte_carlo: float
) -> None:
    found = run(mtbf_s=10980, interval_s=100, stall_s=1, restart_s=390, num_replications=100, **changes)
    assert found.goodput == pytest.approx(monte_carlo, rel=0.005)


# reliability.md, section 15, case C1: Llama 3 405B, stall 0.6 s and commit 60 s.
@pytest.mark.parametrize(
    ("interval_s", "restart_s", "goodputs"),
    [
        (300, 300, (0.9536, 0.9488)),
        (600, 300, (0.9417, 0.9355)),
        (600, 600, (0.9176, 0.9091)),
        (1200, 300, (0.9168, 0.9079)),
        (1200, 600, (0.8934, 0.8823)),
        (1800, 600, (0.8692, 0.8557)),
    ],
)
def test_llama_3_keeps_90_percent_with_the_saves_and_restarts_of_the_reference(
    interval_s: float, restart_s: float, goodputs: tuple[float, float]
) -> None:
    for mtbf_s, goodput in zip(MTBF_OF_LLAMA_S.values(), goodputs, strict=True):
        found = run(mtbf_s=mtbf_s, interval_s=interval_s, restart_s=restart_s, stall_s=0.6, commit_s=60)
        assert found.expected_goodput == pytest.approx(goodput, abs=LAST_DIGIT)
        assert found.goodput == pytest.approx(goodput, rel=0.003)


def test_bloom_stood_still_for_its_saves_for_0_379_percent_of_its_steps() -> None:
    # Case C7: 40 s for 100 iterations of 105.5 s (chronicles of the BLOOM training).
    found = run(mtbf_s=1e12, interval_s=100 * 105.5, stall_s=40)
    assert found.ledger is not None
    assert found.ledger["checkpoint_stall_s"] / found.ledger["productive_s"] == pytest.approx(
        0.00379, abs=5e-6
    )


def test_a_failure_of_geminis_530b_example_wastes_105_minutes() -> None:
    # Case C8 (SOSP 2023): saving, retrieving and the interval take 42 minutes each: 21 + 42 of work and 42 to load.
    minutes_42 = 42 * 60.0
    found = run(
        mtbf_s=864e3, interval_s=minutes_42, commit_s=minutes_42, restart_s=minutes_42, num_replications=400
    )
    assert found.ledger is not None
    assert found.num_failures is not None
    wasted_s = (found.ledger["lost_work_s"] + found.ledger["restart_s"]) / found.num_failures
    assert wasted_s / 60 == pytest.approx(105, abs=1)


# reliability.md, section 7.1: best intervals of blocking saves, by Lambert's function.
@pytest.mark.parametrize(
    ("stall_s", "mtbf_s", "best_s"),
    [(5, 10980, 328.0), (60, 10980, 1108.2), (300, 10980, 2370.6), (60, 1080, 321.1)],
)
def test_auto_takes_the_interval_of_the_largest_goodput(
    stall_s: float, mtbf_s: float, best_s: float, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = ["--mtbf-s", str(mtbf_s), "--stall-s", str(stall_s), "--replications", "10"]
    found = answer(capsys, *numbers, "--interval-s", "auto")
    assert found.optimal_interval_s == pytest.approx(best_s, abs=0.15)
    assert found.inputs.interval_s == found.optimal_interval_s
    for factor in (0.8, 1.25):
        other = run(mtbf_s=mtbf_s, stall_s=stall_s, interval_s=factor * found.optimal_interval_s)
        assert other.expected_goodput < found.optimal_goodput
        assert other.optimal_interval_s == found.optimal_interval_s


@pytest.mark.parametrize(
    "saves",
    [
        {"stall_s": 1.0, "tax_fraction": 0.5, "commit_s": 120.0},
        {"stall_s": 1.0, "tax_fraction": 0.2, "commit_s": 900.0, "slots": 3},
        {"stall_s": 20.0, "commit_s": 60.0, "restart_s": 900.0},
    ],
)
def test_no_interval_beats_the_best_whatever_saves_cost(saves: dict[str, object]) -> None:
    one = {"mtbf_s": 5000.0, "num_replications": 1, **saves}
    best = run(**one)
    for factor in (0.9, 0.95, 1.05, 1.1):
        interval_s = factor * best.optimal_interval_s
        if interval_s >= float(str(saves["commit_s"])) / int(
            str(saves.get("slots", 1))
        ):  # none waits for a slot
            assert run(**one, interval_s=interval_s).expected_goodput < best.optimal_goodput


def test_saves_that_cost_nothing_are_made_every_second_or_as_often_as_slots_become_free() -> None:
    assert run(mtbf_s=5000.0, num_replications=1).optimal_interval_s == pytest.approx(1.0)
    for slots in (1, 4):
        found = run(mtbf_s=5000.0, commit_s=120.0, slots=slots, num_replications=1)
        assert found.optimal_interval_s == pytest.approx(120.0 / slots, rel=1e-3)


def test_work_is_enough_for_a_thousand_failures_within_bounds_of_its_saves() -> None:
    # Failures come once in 1,000 s of up-time, of which saves and lost work take a half; nothing fails in the long restarts.
    found = run(mtbf_s=1000.0, interval_s=600.0, stall_s=200.0, restart_s=5000.0, num_replications=40)
    # The mean of 40,000 failures is known to half a per cent.
    assert found.num_failures == pytest.approx(1000.0, rel=0.02)
    for mtbf_s, interval_s, intervals in ((1e9, 50.0, 30_000), (2.0, 20.0, 100)):
        inputs = run(mtbf_s=mtbf_s, interval_s=interval_s, num_replications=1).inputs
        assert inputs.work_s == intervals * interval_s


def test_two_replications_have_a_mean_between_them_and_half_their_difference_as_its_error() -> None:
    found = run(mtbf_s=10980, interval_s=371, stall_s=0.8, num_replications=2, work_s=1e5)
    low, high = found.percentiles.p5, found.percentiles.p95
    assert low < high
    assert found.goodput == pytest.approx((low + high) / 2, rel=1e-12)
    assert found.goodput_standard_error == pytest.approx((high - low) / 2, rel=1e-9)


def test_percentiles_of_long_runs_are_those_of_a_normal_distribution() -> None:
    found = run(mtbf_s=1000, interval_s=100, stall_s=1, restart_s=100, num_replications=1000)
    assert found.goodput_standard_error is not None
    deviation = found.goodput_standard_error * 1000**0.5
    # Tails of 1,000 are known to 2.1 / 1.645 / sqrt(1000) each, 4 %.
    assert found.percentiles.p95 - found.percentiles.p5 == pytest.approx(2 * 1.645 * deviation, rel=0.08)


def test_a_run_that_takes_hours_is_told_its_saves_those_of_lost_work_included() -> None:
    # Saves of every second that commit after a quarter of an hour: every failure loses hundreds of them.
    often = {"mtbf_s": 2000.0, "interval_s": 1.0, "commit_s": 900.0, "slots": 1000, "work_s": 1e6}
    one = run(**often, num_replications=10)
    assert one.ledger is not None
    assert one.num_failures is not None
    assert one.ledger["lost_work_s"] > 3e5
    events = one.ledger["productive_s"] + one.ledger["lost_work_s"] + one.num_failures
    with pytest.raises(InputError, match="saves and failures in") as caught:
        run(**often, num_replications=1000)
    told = re.search(r"makes (\S+) saves and failures", str(caught.value))
    assert told is not None
    assert float(told[1]) == pytest.approx(1000 * events, rel=0.04)  # told in two digits


def test_the_ledger_sums_to_the_wall_time_and_the_inputs_come_back(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run_of = "--mtbf-s 5000 --interval-s 100 --stall-s 2 --commit-s 150 --restart-s 300 --tax .1 --slots 1"
    played = "--policy wait --work-days 30 --replications 50 --seed 3"
    found = answer(capsys, *f"{run_of} {played}".split())
    assert found.ledger is not None
    assert sum(found.ledger.values()) == pytest.approx(found.wall_time_s, rel=1e-9)
    # Typed numbers have one way back; a job's run tells waits, loads and missing replicas apart.
    of_jobs = {"reduced_capacity_s", "replacement_wait_s", "checkpoint_restore_s"}
    assert {name for name, seconds in found.ledger.items() if seconds == 0.0} == of_jobs
    assert found.inputs == RunInputs(
        mtbf_s=5000,
        interval_s=100,
        stall_s=2,
        commit_s=150,
        restart_s=300,
        tax_fraction=0.1,
        slots=1,
        policy="wait",
        work_s=30 * 86400,
        num_replications=50,
        seed=3,
    )
    assert found == play_goodput(found.inputs)


def test_work_in_seconds_and_in_days_is_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    numbers = ["--mtbf-s", "5000", "--interval-s", "600", "--replications", "5"]
    assert answer(capsys, *numbers, "--work-days", "2") == answer(capsys, *numbers, "--work-s", "172800")


def test_percentiles_surround_the_mean_and_more_replications_know_it_better() -> None:
    few, many = (
        run(mtbf_s=10980, interval_s=371, stall_s=0.8, restart_s=390, num_replications=count)
        for count in (25, 400)
    )
    assert many.percentiles.p5 < many.percentiles.p50 < many.percentiles.p95
    assert many.percentiles.p5 < many.goodput < many.percentiles.p95
    assert many.goodput_standard_error is not None
    assert few.goodput_standard_error is not None
    assert few.goodput_standard_error / many.goodput_standard_error == pytest.approx(4, rel=0.5)
    assert many.goodput_standard_error < 0.0002


def test_the_seed_decides_about_the_failures_and_one_replication_has_no_standard_error() -> None:
    first, again, other = (
        run(mtbf_s=10980, interval_s=371, seed=seed, num_replications=1) for seed in (1, 1, 2)
    )
    assert first == again
    assert first.goodput != other.goodput
    assert first.goodput_standard_error is None


def test_a_run_that_never_ends_has_no_goodput_and_no_ledger(capsys: pytest.CaptureFixture[str]) -> None:
    numbers = ["--mtbf-s", "10", "--interval-s", "3600", "--stall-s", "60", "--replications", "2"]
    found = answer(capsys, *numbers)
    assert (found.goodput, found.ledger, found.wall_time_s, found.num_failures) == (0.0, None, None, None)
    assert found.expected_goodput == pytest.approx(0.0, abs=1e-9)
    assert cli.main(["goodput", *numbers]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Goodput: none; 200,000 failures do not end a run\n")
    assert re.search(r"closed form +< 0\.001 %", out)


def test_shares_of_next_to_nothing_and_of_almost_all_are_told_as_such(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert (
        cli.main(
            ["goodput", "--mtbf-s", "100", "--interval-s", "100", "--restart-s", "1e9", "--replications", "2"]
        )
        == 0
    )
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "Goodput: < 0.001 %"
    assert any("restarts" in line and "> 99.999 %" in line for line in lines)
    assert "interval 100 s" in lines


def test_only_what_takes_time_is_a_part_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    for stall, is_told in (("0", False), ("5", True)):
        assert cli.main(["goodput", "--mtbf-s", "9e3", "--interval-s", "300", "--stall-s", stall]) == 0
        assert ("stalled by saves" in capsys.readouterr().out) is is_told


def test_people_read_the_goodput_its_parts_and_the_best_interval(capsys: pytest.CaptureFixture[str]) -> None:
    numbers = "--mtbf-s 10980 --interval-s 371 --stall-s .8 --commit-s 60 --restart-s 390 --seed 1"
    assert cli.main(["goodput", *numbers.split()]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "Goodput: 94.218 %"  # the mean of shares, unlike shares of the mean time
    assert any(line.startswith("Breakdown of the mean wall time, ") for line in lines)
    assert "closed form 94.224 %" in lines
    assert "best interval 2.20 min, with 94.889 % by the closed form" in lines
    assert "interval 6.18 min (371 s)" in lines
    assert any(line.startswith("repeating lost work 2.8") for line in lines)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "Missing option '--mtbf-s'"),
        ("--mtbf-s -1", "--mtbf-s = -1: must be at least 0.001"),
        ("--mtbf-s nan", "--mtbf-s = nan: must be a finite number"),
        ("--mtbf-s inf", "--mtbf-s = inf: must be a finite number"),
        ("--mtbf-s 1e13", "--mtbf-s = 10000000000000: must be at most 1000000000000"),
        ("--mtbf-s soon", "Invalid value for '--mtbf-s': 'soon' is not a valid float"),
        ("--mtbf-s 9e3 --interval-s 0", "'--interval-s' / '--interval': '0' must be seconds above 0"),
        ("--mtbf-s 9e3 --interval-s often", "'often' must be seconds above 0 such as 600"),
        ("--mtbf-s 9e3 --stall-s -1", "--stall-s = -1: must be at least 0"),
        ("--mtbf-s 9e3 --tax -1", "--tax = -1: must be at least 0"),
        ("--mtbf-s 9e3 --slots 0", "--slots = 0: must be at least 1"),
        ("--mtbf-s 9e3 --slots 1.5", "Invalid value for '--slots'"),
        ("--mtbf-s 9e3 --policy never", "'never' is not one of 'skip', 'wait', 'widen'"),
        ("--mtbf-s 9e3 --replications 0", "--replications = 0: must be at least 1"),
        ("--mtbf-s 9e3 --seed -1", "--seed = -1: must be at least 0"),
        ("--mtbf-s 9e3 --work-s 0", "--work-s = 0: must be greater than 0"),
        ("--mtbf-s 9e3 --work-days 0", "Invalid value for '--work-days'"),
        ("--mtbf-s 9e3 --work-s 9 --work-days 9", "--work-s and --work-days contradict each other"),
        (
            "--mtbf-s 9e3 --interval-s 1e-6 --work-days 10",
            "--interval-s = 1e-06: must be at least 0.001",
        ),
        # 10 days of milliseconds, 400 times: 864,000 s / 0.001 s x 400 = 3.456e11.
        (
            "--mtbf-s 9e9 --interval-s 1e-3 --work-days 10",
            "--interval-s = 0.001: makes 3.5e+11 saves and failures",
        ),
        (
            "--mtbf-s 9e9 --interval-s 1 --work-days 100",
            "at most 1e+09 are simulated: give a longer interval",
        ),
    ],
)
def test_bad_values_end_with_two_and_a_message_that_names_option_value_and_rule(
    arguments: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["goodput", *arguments.split()]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert "Traceback" not in err


def test_python_callers_are_told_the_names_of_fields() -> None:
    with pytest.raises(InputError, match="stall_s = -1: must be at least 0"):
        run_inputs({"mtbf_s": 9e3, "stall_s": -1})
    with pytest.raises(InputError, match=r"interval_s = 0.01: makes .* saves and failures"):
        play_goodput(RunInputs(mtbf_s=9e3, interval_s=0.01, work_s=1e6))


def test_the_policies_are_those_of_the_simulator() -> None:
    policies = tuple(policy.name.lower() for policy in BackPressure)
    assert goodput_options.POLICIES == get_args(Policy) == policies
    assert set(goodput_options.OPTION_NAMES) == set(RunInputs.model_fields)


@pytest.mark.parametrize("command", ["goodput", "simulate"])
def test_help_of_the_smaller_commands_answers_without_any_heavy_import(command: str) -> None:
    shown = printed_without_heavy_imports(
        f"from planner.cli.commands import main\nassert main(['{command}', '--help']) == 0\n"
    )
    assert f"Usage: capplan {command} [OPTIONS]" in shown
