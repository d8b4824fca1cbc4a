"""Does a played run lose, second by second and on average, what a plain loop and the theory say?"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from benchmarks.run_reference import (
    MONTE_CARLO,
    SKIP,
    WAIT,
    Interruption,
    columns,
    columns_of,
    play_kinds_slowly,
    play_slowly,
    wall_s,
)
from simulator import threads
from simulator.errors import InputError
from simulator.run import events
from simulator.run import kernel as run_kernel
from simulator.run.columns import RunOptions
from simulator.run.draws import KIND, SURVIVAL, luck_of, uniform, unit_exponential
from simulator.run.events import (
    BackPressure,
    RunColumns,
    RunLedger,
    RunReplications,
    expected_ledger,
    simulate_runs,
)


def random_runs(longest_interval: float, longest_commit: float) -> st.SearchStrategy[Any]:
    """Runs by the longest interval, as a share of the mean up-time, and the longest commit, as one of the interval."""
    return st.builds(
        lambda mtbf_s, work, interval, stall, commit, **rest: columns(
            mtbf_s=mtbf_s,
            work_s=work * mtbf_s,
            interval_s=interval * mtbf_s,
            stall_s=stall * interval * mtbf_s,
            commit_s=commit * interval * mtbf_s,
            **rest,
        ),
        mtbf_s=st.floats(100, 1e5),
        work=st.floats(0.01, 10),
        interval=st.floats(0.01, longest_interval),
        stall=st.floats(0, 1),
        commit=st.floats(0, longest_commit),
        tax_fraction=st.floats(0, 1),
        slots=st.integers(1, 4),
        policy=st.sampled_from(BackPressure),
        restart_s=st.floats(0, 1e4),
    )


RUNS = random_runs(longest_interval=1.0, longest_commit=5.0)

LEVELS: st.SearchStrategy[Any] = st.builds(
    lambda planned, survival, **rest: (
        rest
        | {
            "kind_share": [0.5 * (1 - planned), 0.3 * (1 - planned), 0.2 * (1 - planned), planned],
            "kind_fast_survival": [1.0, survival, 0.0, 0.5],
        }
    ),
    planned=st.sampled_from([0.0, 0.3]),
    survival=st.floats(0, 1),
    durable_every=st.integers(1, 9),
    durable_commit_s=st.floats(0, 20),
    fast_load_s=st.floats(0, 100),
    durable_load_s=st.floats(0, 1000),
    live_lag_s=st.sampled_from([0.0, 10.0, 1000.0, math.inf]),
    reduced_capacity_s=st.floats(0, 100),
)

USUAL = columns(mtbf_s=1000.0, work_s=9000.5, interval_s=280.0, stall_s=10.0, commit_s=560.0)
ONE_LEVEL: RunOptions = {
    "kind_share": [0.0, 0.5, 0.0, 0.5],
    "kind_fast_survival": [1.0, 0.5, 1.0, 1.0],
    "durable_every": 1,
    "durable_commit_s": 2.0,
    "live_lag_s": math.inf,
}
WAITING = columns(mtbf_s=400.0, work_s=2700.0, interval_s=280.0, stall_s=0.0, commit_s=1000.0, policy=WAIT)
REPLICAS: RunOptions = {
    "kind_share": [1.0, 0.0, 0.0, 0.0],
    "kind_fast_survival": [1.0, 1.0, 1.0, 1.0],
    "durable_every": 5,
    "durable_commit_s": 6.0,
    "live_lag_s": 0.0,
    "reduced_capacity_s": 60.0,
}


def interruptions(row: RunColumns, seed: int, num: int) -> list[Interruption]:
    """The luck of replication 0: what interrupts each up-time, and whether the fast level survives it."""
    luck = np.uint64(luck_of(seed, 0))
    kinds = np.searchsorted(
        np.cumsum(row["kind_share"]), [uniform(luck, KIND, i) for i in range(num)], "right"
    )
    survival = np.asarray(row["kind_fast_survival"])[kinds]
    if np.isfinite(row["live_lag_s"]):
        survival[kinds == 3] = 0.0  # no replica outlives a stop
    return [
        Interruption(
            up_s=np.asarray(row["mtbf_s"]).item() * unit_exponential(seed, 0, i),
            is_planned=bool(kinds[i] == 3),
            is_fast_alive=bool(uniform(luck, SURVIVAL, i) < survival[i]),
        )
        for i in range(num)
    ]


def assume_work_ends_between_saves(row: RunColumns) -> None:
    """Leaves out runs whose work ends at a save: rounding decides whether that one is made."""
    num_intervals = np.divide(row["work_s"], row["interval_s"]).item()
    assume(abs(num_intervals - round(num_intervals)) > 1e-6)


class TestReplications:
    @given(RUNS, st.integers(0, 2**63 - 1))
    def test_every_second_is_in_one_account(self, row: RunColumns, seed: int) -> None:
        runs = simulate_runs(num_replications=3, seed=seed, **row)
        finite = np.isfinite(runs.wall_s)
        assert wall_s(runs)[finite] == pytest.approx(runs.wall_s[finite], rel=1e-9)

    @given(RUNS, st.integers(0, 2**63 - 1))
    def test_the_kernel_plays_what_a_plain_loop_plays(self, row: RunColumns, seed: int) -> None:
        assume_work_ends_between_saves(row)
        runs = simulate_runs(num_replications=1, seed=seed, **row)
        mtbf_s = np.asarray(row["mtbf_s"]).item()
        up_times_s = [mtbf_s * unit_exponential(seed, 0, index) for index in range(2000)]
        if not runs.num_failures[0, 0] < len(up_times_s):
            return
        expected = play_slowly(row, up_times_s)
        for name, value in expected.items():
            # Sums in another order; the accounts are of the size of the mean up-time.
            assert getattr(runs, name)[0, 0] == pytest.approx(value, rel=1e-6, abs=1e-6 * mtbf_s), name

    @pytest.mark.long
    @given(RUNS, LEVELS, st.integers(0, 2**63 - 1))
    @example(WAITING, REPLICAS, 6).via("a save that waits for a slot when a live replica goes on")
    @example(USUAL, ONE_LEVEL, 3).via("a save before a planned stop is durable where all are")
    def test_the_kernel_plays_levels_replicas_and_kinds_as_a_plain_loop_does(
        self, run: RunColumns, levels: RunOptions, seed: int
    ) -> None:
        durable_commit_s = np.multiply(levels["durable_commit_s"], run["interval_s"]).item()
        durable_commit_s = max(durable_commit_s, run["commit_s"])
        row = cast(RunColumns, {**run, **levels, "durable_commit_s": durable_commit_s})
        assume_work_ends_between_saves(row)
        runs = simulate_runs(num_replications=1, seed=seed, **row)
        num_ends = (
            int((runs.num_failures + runs.num_planned)[0, 0]) if np.isfinite(runs.wall_s[0, 0]) else 3000
        )
        if num_ends >= 2000:
            return
        mtbf_s = np.asarray(row["mtbf_s"]).item()
        ends = interruptions(row, seed, num_ends + 1)
        for name, value in play_kinds_slowly(row, ends).items():
            # Sums in another order; the accounts are of the size of the mean up-time.
            assert getattr(runs, name)[0, 0] == pytest.approx(value, rel=1e-6, abs=1e-6 * mtbf_s), name

    @pytest.mark.parametrize(("row", "_goodput"), MONTE_CARLO)
    def test_the_mean_of_many_runs_is_the_expectation(self, row: tuple[float, ...], _goodput: float) -> None:
        num_replications = 400
        c = columns_of(row, work_s=50.3 * row[0])
        runs, ledger = simulate_runs(num_replications=num_replications, seed=7, **c), expected_ledger(**c)
        for name in RunLedger.names():
            sample = getattr(runs, name)[0]
            error = 4.0 * sample.std() / math.sqrt(num_replications)  # missed by chance once in 16,000
            # Where saves come in bursts the expectation spreads them: up to 1 % of the wall time.
            allowance = (
                0.01 * runs.wall_s.mean() if row[6] > 1 or row[7] == SKIP else 1e-9 * runs.wall_s.mean()
            )
            if name == "num_failures":
                allowance /= row[0]
            assert getattr(ledger, name)[0] == pytest.approx(sample.mean(), abs=error + allowance), name

    @settings(max_examples=10)
    @given(random_runs(longest_interval=0.3, longest_commit=0.99))
    def test_runs_whose_saves_never_queue_have_the_exact_expectation(self, row: RunColumns) -> None:
        num_replications = 2000
        runs, ledger = simulate_runs(num_replications=num_replications, seed=3, **row), expected_ledger(**row)
        error = 5.0 * runs.wall_s.std() / math.sqrt(num_replications)  # missed by chance once in 1.7 million
        assert wall_s(ledger)[0] == pytest.approx(runs.wall_s.mean(), abs=error + 1e-9 * runs.wall_s.mean())

    def test_no_machine_code_is_kept_that_is_older_than_what_it_was_made_from(self) -> None:
        # The compiler looks at the module of the outermost function only.
        folder = Path(run_kernel.__file__).parent
        newest = max(folder.joinpath(f"{name}.py").stat().st_mtime for name in ("up_time", "pool", "draws"))
        stale = [path for path in folder.glob("__pycache__/kernel.*.nbi") if path.stat().st_mtime < newest]
        assert not stale, f"delete {folder / '__pycache__'}: it holds the event loop of other source code"

    def test_the_same_seed_gives_the_same_bytes_and_another_seed_other_ones(self) -> None:
        first, again, other = (
            simulate_runs(num_replications=8, seed=seed, **columns()) for seed in (1, 1, 2)
        )
        for name in RunReplications.names():
            assert getattr(first, name).tobytes() == getattr(again, name).tobytes()
        assert (first.wall_s != other.wall_s).all()

    def test_the_number_of_threads_changes_no_byte(self, monkeypatch: pytest.MonkeyPatch) -> None:
        shared: list[int] = []

        def watched(function: Callable[[int], None], blocks: Sequence[int]) -> None:
            shared.append(len(blocks))
            threads.on_threads(function, blocks)

        single = simulate_runs(num_replications=9, seed=1, **columns())
        monkeypatch.setattr(events, "RUNS_PER_THREAD", 1)
        monkeypatch.setattr(events, "on_threads", watched)
        monkeypatch.setattr(threads, "get_num_threads", lambda: 2)
        several = simulate_runs(num_replications=9, seed=1, **columns())
        assert shared == [2]
        assert several.wall_s.tobytes() == single.wall_s.tobytes()

    def test_a_design_alone_or_in_a_batch_with_more_replications_meets_the_same_luck(self) -> None:
        alone = simulate_runs(num_replications=1, seed=5, **columns())
        batch = simulate_runs(num_replications=9, seed=5, **columns(interval_s=[100.0, 600.0, 1e4]))
        for name in RunReplications.names():
            assert getattr(batch, name)[1, 0] == getattr(alone, name)[0, 0]

    def test_common_failures_make_differences_of_designs_sharper_than_the_designs(self) -> None:
        runs = simulate_runs(num_replications=200, seed=5, **columns(interval_s=[500.0, 600.0]))
        one, two = runs.wall_s
        assert (one - two).var() < 0.1 * (one.var() + two.var())  # equal for independent failures
        assert np.asarray(np.corrcoef(runs.num_failures))[0, 1] > 0.9

    def test_the_draws_are_exponential_with_mean_one(self) -> None:
        draws = np.array([unit_exponential(1, r, i) for r in range(100) for i in range(200)])
        # Four standard errors of 20,000 draws: mean 1, variance 1 (fourth central moment 9), median ln 2.
        assert draws.mean() == pytest.approx(1.0, abs=4 / math.sqrt(20_000))
        assert draws.var() == pytest.approx(1.0, abs=4 * math.sqrt(8 / 20_000))
        assert (draws < math.log(2)).mean() == pytest.approx(0.5, abs=4 * 0.5 / math.sqrt(20_000))

    def test_work_can_differ_by_replication(self) -> None:
        work_s = np.array([[1e4, 2e4, 0.0]])
        runs = simulate_runs(
            num_replications=3, seed=1, **columns(work_s=work_s, mtbf_s=np.inf, interval_s=np.inf)
        )
        assert runs.wall_s.tolist() == work_s.tolist()

    def test_a_run_without_progress_ends_as_infinite(self) -> None:
        runs = simulate_runs(num_replications=2, seed=1, **columns(interval_s=np.inf, mtbf_s=100.0))
        assert np.isinf(runs.wall_s).all()
        assert np.isinf(runs.num_failures).all()
        assert (runs.productive_s == 1e6).all()

    def test_a_save_that_never_commits_is_waited_for_without_end(self) -> None:
        row = columns(mtbf_s=np.inf, commit_s=np.inf, policy=WAIT)
        assert np.isinf(simulate_runs(num_replications=1, seed=1, **row).wall_s).all()
        assert np.isinf(wall_s(expected_ledger(**row))).all()

    def test_unknown_numbers_stay_unknown(self) -> None:
        runs = simulate_runs(num_replications=2, seed=1, **columns(stall_s=[np.nan, 1.0]))
        assert np.isnan(runs.wall_s).tolist() == [[True, True], [False, False]]

    def test_an_interval_equal_to_the_commit_time_needs_no_skipping(self) -> None:
        # Rounding must not decide: 0.1 has no exact binary form, and a thousand sums of it drift.
        row = columns(work_s=1e3, mtbf_s=np.inf, interval_s=0.1, stall_s=0.01, commit_s=0.1)
        runs = simulate_runs(num_replications=1, seed=1, **row)
        assert runs.checkpoint_stall_s == pytest.approx(9_999 * 0.01)
        assert expected_ledger(**row).checkpoint_stall_s == pytest.approx(9_999 * 0.01)

    def test_work_of_a_whole_number_of_intervals_does_not_end_with_a_save(self) -> None:
        # Rounding must not decide here either: sums of thirds of a second miss the end of the work by some digits.
        number = np.arange(1, 1001)
        row = columns(work_s=number * (1 / 3), mtbf_s=np.inf, interval_s=1 / 3, stall_s=1.0, commit_s=0.1)
        runs = simulate_runs(num_replications=1, seed=1, **row)
        assert runs.checkpoint_stall_s[:, 0] == pytest.approx(number - 1.0)
        assert expected_ledger(**row).checkpoint_stall_s == pytest.approx(number - 1.0)

    def test_wrong_replications_are_refused(self) -> None:
        with pytest.raises(InputError, match=r"num_replications = 0: must be at least 1(.|\n)*seed = -1"):
            simulate_runs(num_replications=0, seed=-1, **columns())
        with pytest.raises(InputError, match=rf"seed = {2**63}: must be from 0 to 2\*\*63 - 1"):
            simulate_runs(num_replications=1, seed=2**63, **columns())
        with pytest.raises(InputError, match=r"work_s = shape \(1, 2\): must have one row per design"):
            simulate_runs(num_replications=3, seed=1, **columns(work_s=[[1.0, 2.0]]))
