"""Does `capplan goodput --job` use the numbers of the job's run, and say which checkpoint scheme is best?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from docs.answer_page import GOODPUT_PAGE, SIMULATE_PAGE, goodput_reference, simulate_reference
from planner import load_job, simulate_plan
from planner.cli import commands as cli
from planner.cli.terminal.output import rendered
from planner.explain.runnable_plan import plan_that_runs
from planner.goodput.answer import Goodput
from planner.goodput.job import play_job_goodput
from planner.goodput.schemes import JobRun, SchemeGoodput
from planner.goodput.view import show_goodput
from planner.input.plan_input import read_plan
from planner.one_design.plan_saves import with_saves
from planner.text.interval_text import Interval, parse_interval
from simulator.domain.plan import CheckpointScheme, PlanTable
from simulator.errors import InputError
from simulator.simulate import replicate, simulate

EXAMPLES = Path(__file__).parents[3] / "examples"
BLOOM = str(EXAMPLES / "bloom-176b.yaml")
PLAN = "tp=4,pp=12,dp=8,mbs=2,recompute=full,checkpoint_scheme=sync_sharded"
LLAMA = str(EXAMPLES / "llama-3.1-70b.yaml")
ONE_NODE = "offer=1,tp=8,cp=1,pp=1,dp=1,zero_stage=3,recompute=full"
FEW = ("--replications", "20")


def answer(capsys: pytest.CaptureFixture[str], *options: str, plan: str = PLAN, job: str = BLOOM) -> Goodput:
    assert cli.main(["goodput", "--job", job, "--plan", plan, *FEW, "--json", *options]) == 0
    return Goodput.model_validate(json.loads(capsys.readouterr().out))


def of_job(found: Goodput) -> JobRun:
    assert found.of_job is not None
    return found.of_job


def scheme_of(found: Goodput, scheme: CheckpointScheme) -> SchemeGoodput:
    return next(row for row in of_job(found).schemes if row.scheme is scheme)


def test_bloom_stands_still_for_its_saves_as_long_as_was_logged(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "--interval", "100steps", "--replications", "400")
    # 40 s for 100 iterations of 105.5 s (chronicles of the BLOOM training); steps are 14 % too fast on A100, and the copy
    # to host memory comes on top of 40 s of writing.
    assert found.ledger is not None
    assert found.ledger["checkpoint_stall_s"] / found.ledger["productive_s"] == pytest.approx(
        0.00379, rel=0.17
    )
    # About one GPU was lost in each of the 15 weeks.
    assert found.num_failures == pytest.approx(15, abs=1)
    assert of_job(found).interval_steps == pytest.approx(100, rel=1e-9)


def test_the_numbers_are_those_of_the_simulated_design(capsys: pytest.CaptureFixture[str]) -> None:
    found, run = (answer(capsys), simulate_plan(load_job(BLOOM), read_plan(PLAN), with_sensitivities=False))
    design = run.design
    assert design is not None
    assert of_job(found).plan == run.plan
    assert of_job(found).iteration_time_s == pytest.approx(design.iteration_time_s, rel=1e-12)
    assert found.inputs.interval_s == pytest.approx(design.checkpoint_interval_s, rel=1e-12)
    assert of_job(found).design_goodput_fraction == pytest.approx(design.goodput_fraction, rel=1e-12)
    # The closed form has all of the expected run but its first start.
    seconds = design.run_seconds
    worked_s = seconds["productive_s"] + seconds["straggler_s"]
    wall_s = design.time_to_train_days * 86400 - seconds["initialization_s"]
    assert found.inputs.work_s == pytest.approx(worked_s, rel=1e-12)
    assert found.expected_goodput == pytest.approx(worked_s / wall_s, rel=1e-9)


def test_a_load_reads_a_save_at_the_rate_of_the_storage(capsys: pytest.CaptureFixture[str]) -> None:
    for bytes_per_s in (57e9, 30e9):
        found = answer(capsys, "--set", f"storage.read_bytes_per_s={bytes_per_s}")
        assert of_job(found).load_s == pytest.approx(of_job(found).bytes_per_save / bytes_per_s, rel=1e-3)
        assert of_job(found).load_s < found.inputs.restart_s


@pytest.mark.parametrize("shape", [0.5, 3.0])
def test_up_times_have_the_shape_of_the_jobs(shape: float, capsys: pytest.CaptureFixture[str]) -> None:
    # Without stragglers, which replays of a design draw, the run is that of the design's replays.
    fleet = {"weibull_shape": shape, "failures_per_1000_node_days": 50.0, "straggler_log_mean": None}
    options = [f"reliability.{name}={'null' if value is None else value}" for name, value in fleet.items()]
    found, usual = (
        answer(capsys, *(text for option in chosen for text in ("--set", option)))
        for chosen in (options, options[1:])
    )
    job = load_job(BLOOM)
    job = job.model_copy(update={"reliability": job.reliability.model_copy(update=fleet)})
    plans = PlanTable.from_plans([plan_that_runs(job, read_plan(PLAN))])
    replays = replicate(job, plans, simulate(job, plans), num_replications=20, seed=0)
    assert found.wall_time_s == pytest.approx(replays.wall_s.mean(), rel=1e-12)
    assert found.num_failures == pytest.approx(replays.num_failures.mean(), rel=1e-12)
    assert found.num_failures != usual.num_failures
    assert found.expected_goodput != usual.expected_goodput
    assert found.expected_goodput == pytest.approx(found.goodput, rel=0.01)


@pytest.mark.parametrize("changes", [(), ("--scheme", "async", "--commit-s", "9000")])
def test_the_same_numbers_typed_by_hand_give_the_same_goodput(
    changes: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    # One way back for all interruptions, without chance of its own; lost nodes go back to the same saves as lost processes.
    found = answer(capsys, "--seed", "4", "--restart-s", "5000", *changes)
    names = {"mtbf_s", "interval_s", "stall_s", "commit_s", "restart_s", "slots", "policy", "work_s", "seed"}
    typed = {f"--{name.replace('_', '-')}": getattr(found.inputs, name) for name in names}
    words = [word for option, value in typed.items() for word in (option, str(value))]
    assert cli.main(["goodput", *words, "--tax", str(found.inputs.tax_fraction), *FEW, "--json"]) == 0
    by_hand = Goodput.model_validate(json.loads(capsys.readouterr().out))
    assert by_hand.goodput == pytest.approx(found.goodput, rel=1e-12)
    assert by_hand.expected_goodput == pytest.approx(found.expected_goodput, rel=1e-12)
    assert by_hand.ledger == pytest.approx(found.ledger)
    assert by_hand.of_job is None


def test_a_job_that_hardly_ever_fails_is_answered(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "--set", "reliability.failures_per_1000_node_days=1e-12")
    assert found.inputs.mtbf_s == 1e12
    assert found.num_failures == 0


def test_every_scheme_is_compared_at_its_best_interval(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys)
    rows = of_job(found).schemes
    assert {row.scheme for row in rows} == set(CheckpointScheme)
    goodputs = [row.goodput or 0.0 for row in rows if not row.problem]
    assert goodputs == sorted(goodputs, reverse=True)
    for row in rows:
        if row.problem:
            continue
        alone = answer(capsys, "--scheme", row.scheme.value, "--interval", "auto")
        assert alone.optimal_goodput == pytest.approx(row.goodput, rel=1e-12)
        assert alone.inputs.stall_s == pytest.approx(row.stall_s, rel=1e-12)
        assert alone.inputs.restart_s == pytest.approx(row.restart_s, rel=1e-12)
        assert of_job(alone).host_memory_bytes == row.host_memory_bytes
        assert of_job(alone).plan.checkpoint_scheme is row.scheme


def test_no_other_interval_makes_more_good(capsys: pytest.CaptureFixture[str]) -> None:
    best = answer(capsys, "--interval", "auto")
    assert best.inputs.interval_s == best.optimal_interval_s
    for factor in (0.7, 1.4):
        other = answer(capsys, "--interval", str(factor * best.optimal_interval_s))
        assert other.optimal_interval_s == best.optimal_interval_s
        assert other.expected_goodput < best.expected_goodput


@pytest.mark.parametrize("numbers", [(), ("--restart-s", "300")])
def test_an_interval_of_the_job_is_that_of_its_run_and_no_schemes_best(
    capsys: pytest.CaptureFixture[str], numbers: tuple[str, ...]
) -> None:
    best = answer(capsys, *numbers)
    asked_s = 3.0 * best.optimal_interval_s
    found = answer(capsys, *numbers, "--set", f"checkpointing.interval_s={asked_s}")
    assert found.inputs.interval_s == pytest.approx(asked_s, rel=1e-12)
    assert found.optimal_interval_s == pytest.approx(best.optimal_interval_s, rel=1e-12)
    assert of_job(found).schemes == of_job(best).schemes


@pytest.mark.parametrize("numbers", [(), ("--stall-s", "3")])
def test_no_best_interval_is_longer_than_the_longest_of_the_job(
    capsys: pytest.CaptureFixture[str], numbers: tuple[str, ...]
) -> None:
    longest = ("--set", "checkpointing.longest_interval_s=900")
    found = answer(capsys, *numbers, *longest)
    assert (found.inputs.interval_s, found.optimal_interval_s) == (900.0, 900.0)


def test_a_run_that_never_saves_has_no_interval(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "--scheme", "none", "--set", "workload.tokens=1e9")
    none = scheme_of(found, CheckpointScheme.NONE)
    assert (none.interval_s, of_job(found).interval_steps, of_job(found).minimum_interval_s) == (None,) * 3
    assert found.ledger is not None
    assert found.ledger["checkpoint_stall_s"] == 0.0
    # Work W without saves takes (M + R)(exp(W/M) - 1) on average (Daly, FGCS 22, 2006).
    run = found.inputs
    assert run.work_s is not None
    grown = 2.718281828459045 ** (run.work_s / run.mtbf_s) - 1.0
    expected = run.work_s / (run.mtbf_s * grown * (1.0 + run.restart_s / run.mtbf_s))
    assert found.expected_goodput == pytest.approx(expected, rel=1e-9)
    assert cli.main(["goodput", "--job", BLOOM, "--plan", PLAN, "--scheme", "none", *FEW]) == 0
    assert "never saves" in capsys.readouterr().out


def test_numbers_that_are_given_count_instead_of_the_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    usual = answer(capsys)
    given = answer(capsys, "--restart-s", "60", "--stall-s", "3", "--tax", "0.5", "--work-days", "20")
    assert (given.inputs.restart_s, given.inputs.stall_s, given.inputs.tax_fraction) == (60.0, 3.0, 0.5)
    assert given.inputs.work_s == 20 * 86400
    assert given.inputs.mtbf_s == usual.inputs.mtbf_s
    assert set(of_job(given).overridden) == {"restart_s", "stall_s", "tax_fraction", "work_s"}
    assert given.optimal_interval_s < usual.optimal_interval_s
    # Restarts and work are those of the run, stalls those of the plan's scheme.
    sync, other = (
        scheme_of(given, scheme) for scheme in (CheckpointScheme.SYNC_SHARDED, CheckpointScheme.ASYNC)
    )
    assert (sync.restart_s, other.restart_s) == (60.0, 60.0)
    assert (sync.stall_s, other.stall_s) == (3.0, scheme_of(usual, CheckpointScheme.ASYNC).stall_s)
    assert sync.goodput == pytest.approx(given.optimal_goodput, rel=1e-12)


@pytest.mark.parametrize("scheme", ["tiered", "async", "local_nvme"])
def test_numbers_of_the_scheme_that_are_given_as_they_are_change_nothing(
    scheme: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # A slow storage, on which saves are durable long after they are in main memory.
    slow = ("--scheme", scheme, "--interval", "3600", "--set", "storage.write_bytes_per_s=2e9")
    usual = answer(capsys, *slow)
    own = usual.inputs
    typed = [
        *("--stall-s", repr(own.stall_s), "--commit-s", repr(own.commit_s)),
        *("--tax", repr(own.tax_fraction), "--slots", str(own.slots)),
    ]
    given = answer(capsys, *slow, *typed)
    assert given.inputs == own
    assert given.goodput == pytest.approx(usual.goodput, rel=1e-12)
    assert given.expected_goodput == pytest.approx(usual.expected_goodput, rel=1e-12)


def test_defaults_that_are_not_typed_do_not_count_as_given(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys)
    assert of_job(found).overridden == ()
    assert found.inputs.stall_s > 40
    assert answer(capsys, "--stall-s", "0").inputs.stall_s == 0.0


def test_a_faster_commit_lifts_the_shortest_interval_of_the_scheme(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # 2.5 TB at 1 GB/s take 41 minutes, and something fails every hour.
    changes = [
        "--set",
        "storage.write_bytes_per_s=1e9",
        "--set",
        "reliability.failures_per_1000_node_days=500",
    ]
    usual = answer(capsys, "--scheme", "async", *changes)
    assert usual.optimal_interval_s == of_job(usual).minimum_interval_s
    given = answer(capsys, "--scheme", "async", *changes, "--commit-s", "1")
    assert given.optimal_interval_s < usual.optimal_interval_s


def test_a_scheme_that_the_plan_cannot_use_is_named_with_its_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = answer(capsys, plan=ONE_NODE, job=LLAMA)
    row = scheme_of(found, CheckpointScheme.IN_MEMORY_PEER)
    assert (row.goodput, row.interval_s) == (None, None)
    assert "needs a node for each of checkpointing.peer_copies copies" in row.problem
    assert of_job(found).schemes[-1].problem
    # Half of 80 layers' states do not fit into one node either, which is said, too.
    assert any(
        sentence.startswith("the most loaded accelerator needs") for sentence in of_job(found).warnings
    )


def test_a_scheme_that_needs_more_main_memory_than_there_is_has_no_goodput() -> None:
    job = load_job(BLOOM)
    # 2.5 TB on 48 nodes are 51 GB each: one copy fits into 60 GB, two or four do not.
    node = job.offers[0].node.model_copy(update={"host_memory_bytes": 60e9})
    small = job.model_copy(update={"offers": (job.offers[0].model_copy(update={"node": node}),)})
    found = play_job_goodput(small, read_plan(PLAN), num_replications=5)
    usable = {row.scheme for row in of_job(found).schemes if not row.problem}
    assert {CheckpointScheme.SYNC_SHARDED, CheckpointScheme.NONE} <= usable
    assert not usable & {CheckpointScheme.ASYNC, CheckpointScheme.IN_MEMORY_PEER, CheckpointScheme.TIERED}
    row = scheme_of(found, CheckpointScheme.ASYNC)
    assert (row.goodput, row.problem) == (
        None,
        "saves in flight and offloading need more host memory than a node has",
    )
    assert of_job(found).host_memory_capacity_bytes == 60e9


def test_people_read_the_answer_the_table_and_where_the_numbers_are_from(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["goodput", "--job", BLOOM, "--plan", PLAN, "--interval", "100steps", *FEW]) == 0
    out = capsys.readouterr().out
    assert "Job bloom-176b, 384 GPUs, TP4 PP12 DP8, saving with sync_sharded." in out
    table = out.partition("Checkpoint schemes")[2].partition("\n\n")[0].splitlines()
    assert [line.split()[0] for line in table[2:]].count("*") == 1
    # Sharded optimizer states leave no replica, which takes a sentence for each of the two schemes.
    assert sum(line.startswith(("     ", "  *")) for line in table) == len(CheckpointScheme) - 1
    assert "would reach a goodput of" in out
    assert "The interval is 100 steps of " in out
    assert ", the best interval" not in out
    assert cli.main(["goodput", "--job", BLOOM, "--plan", PLAN, *FEW]) == 0
    assert ", the best interval; restarts include " in " ".join(capsys.readouterr().out.split())


def test_another_scheme_is_told_of_if_the_table_shows_that_it_is_better(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = answer(capsys)
    best = of_job(found).schemes[0]
    assert best.scheme is not CheckpointScheme.SYNC_SHARDED
    for gain, is_told in ((4e-5, False), (6e-5, True)):
        rows = (
            best.model_copy(update={"goodput": found.expected_goodput + gain}),
            *of_job(found).schemes[1:],
        )
        run = of_job(found).model_copy(update={"schemes": rows})
        shown = rendered(lambda console: show_goodput(found.model_copy(update={"of_job": run}), console))  # noqa: B023
        assert (f"{best.scheme.value} would reach a goodput of" in shown) is is_told


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--mtbf-s", "9e3", "--job", BLOOM, "--plan", PLAN], "--mtbf-s and --job exclude each other"),
        (["--job", BLOOM], "--job needs --plan, which says how the job is run"),
        (["--mtbf-s", "9e3", "--plan", PLAN], "--plan needs --job, to which it belongs"),
        (["--mtbf-s", "9e3", "--scheme", "async"], "--scheme needs --job, to which it belongs"),
        (["--mtbf-s", "9e3", "--set", "a=1"], "--set needs --job, to which it belongs"),
        (["--mtbf-s", "9e3", "--interval", "100steps"], "an interval in steps needs --job"),
        (["--job", "missing.yaml", "--plan", PLAN], "missing.yaml"),
        (["--job", BLOOM, "--plan", "tp=4,pp=8,vpp=10,dp=8"], "must be at most num_layers"),
        (["--job", BLOOM, "--plan", "tp=4,pp=12,num_gpus=400"], "must equal num_gpus"),
        (["--job", BLOOM, "--plan", PLAN, "--scheme", "often"], "checkpoint_scheme = 'often': must be"),
        (["--job", BLOOM, "--plan", PLAN, "--stall-s", "-1"], "--stall-s = -1: must be at least 0"),
        (["--job", BLOOM, "--plan", PLAN, "--work-days", "1e-99", "--slots", "0"], "--slots = 0: must be"),
        (["--job", BLOOM, "--plan", PLAN, "--replications", "0"], "--replications = 0: must be at least 1"),
        (["--job", BLOOM, "--plan", PLAN, "--set", "workload.tokens=1e18"], "\n  work_s = "),
        (["--job", BLOOM, "--plan", PLAN, "--interval", "sometimes"], "'sometimes' must be seconds above 0"),
        (
            ["--job", LLAMA, "--plan", ONE_NODE, "--scheme", "in_memory_peer"],
            "needs a node for each of checkpointing.peer_copies copies",
        ),
    ],
)
def test_what_contradicts_itself_ends_with_two_and_one_message(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["goodput", *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert "Traceback" not in err


def test_programs_are_told_which_numbers_can_be_given() -> None:
    job, plan = load_job(BLOOM), read_plan(PLAN)
    with pytest.raises(InputError, match="mtbf_s: is none of restart_s, policy, work_s, stall_s"):
        play_job_goodput(job, plan, {"mtbf_s": 3600.0})
    assert of_job(play_job_goodput(job, plan, {"work_s": None}, num_replications=1)).overridden == ()
    with pytest.raises(InputError, match="tax_fraction = -1: must be at least 0"):
        play_job_goodput(job, plan, {"tax_fraction": -1})


@pytest.mark.parametrize(
    ("text", "interval"),
    [
        ("600", Interval(seconds=600.0)),
        ("1e3", Interval(seconds=1000.0)),
        ("100steps", Interval(steps=100)),
        (" 100 Steps ", Interval(steps=100)),
        ("1step", Interval(steps=1)),
        ("auto", Interval()),
    ],
)
def test_an_interval_is_seconds_steps_or_auto(text: str, interval: Interval) -> None:
    assert parse_interval(text) == interval


@pytest.mark.parametrize(
    "text", ["", "0", "-5", "nan", "inf", "steps", "0steps", "1.5steps", "-1steps", "9" * 5000 + "steps", "x"]
)
def test_other_intervals_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be seconds above 0 such as 600, whole steps such as 100steps"):
        parse_interval(text)


class TestPlanSaves:
    def test_scheme_and_interval_count_instead_of_those_in_the_plan(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        words = [
            "simulate",
            BLOOM,
            "--plan",
            f"{PLAN},checkpoint_interval_s=9",
            "--no-sensitivities",
            "--json",
        ]
        assert cli.main([*words, "--scheme", "async", "--interval", "1800"]) == 0
        plan = json.loads(capsys.readouterr().out)["plan"]
        assert (plan["checkpoint_scheme"], plan["checkpoint_interval_s"]) == ("async", 1800)
        assert cli.main([*words, "--interval", "auto"]) == 0
        plan = json.loads(capsys.readouterr().out)["plan"]
        assert (plan["checkpoint_scheme"], plan["checkpoint_interval_s"]) == ("sync_sharded", None)

    def test_steps_are_as_long_as_the_run_takes_for_them(self) -> None:
        job = load_job(BLOOM)
        design = simulate_plan(job, read_plan(PLAN), with_sensitivities=False).design
        assert design is not None
        written = with_saves(job, read_plan(PLAN), interval=Interval(steps=250))
        assert written["checkpoint_interval_s"] == pytest.approx(250 * design.iteration_time_s, rel=1e-12)

    def test_a_layout_that_cannot_run_is_reported_as_ever(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main(["simulate", BLOOM, "--plan", "tp=3,pp=35", "--interval", "100steps", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["design"] is None
        assert found["violations"]

    @pytest.mark.parametrize(
        ("option", "message"),
        [
            (["--scheme", "often"], "checkpoint_scheme = 'often': must be"),
            (["--interval", "0"], "'0' must be seconds above 0"),
        ],
    )
    def test_an_unknown_scheme_or_interval_ends_with_two(
        self, option: list[str], message: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert cli.main(["simulate", BLOOM, "--plan", PLAN, *option]) == 2
        assert message in capsys.readouterr().err


def test_the_pages_are_written_from_the_types() -> None:
    assert SIMULATE_PAGE.read_text(encoding="utf-8") == simulate_reference(), "run: python -m docs.generate"
    assert GOODPUT_PAGE.read_text(encoding="utf-8") == goodput_reference(), "run: python -m docs.generate"


OF_JOB = [
    "--job",
    "examples/llama-3.1-405b.yaml",
    "--plan",
    "tp=8,pp=16,dp=128,spares=55",
    "--replications",
    "100",
]
OFTEN = ["--set", "reliability.failures_per_1000_node_days=23.7"]


SHORT_AND_SLOW = [
    *["--mtbf-s", "3600", "--interval-s", "60", "--commit-s", "7200", "--slots", "2"],
    *["--work-s", "10800", "--replications", "20000"],
]


@pytest.mark.short(2)
@pytest.mark.parametrize(
    ("arguments", "is_told"),
    [
        # 16,384 accelerators of the preset `harsh` have 65 nodes in repair where none waits, and 55 spares: such waits are
        # played (`simulator.run.pool_play`).
        ([*OF_JOB, *OFTEN], False),
        ([*OF_JOB, *OFTEN, "--set", "reliability.fails_during_restart=true"], False),
        # A run of three up-times, whose saves take two of them to commit and come in pairs, which the form spreads.
        (SHORT_AND_SLOW, True),
        ([*SHORT_AND_SLOW, "--replications", "2000"], False),  # chance alone may be as far off
    ],
)
def test_a_closed_form_that_is_off_what_was_played_says_so(
    arguments: list[str], capsys: pytest.CaptureFixture[str], *, is_told: bool
) -> None:
    assert cli.main(["goodput", *arguments]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert ("The closed form is " in out) == is_told
