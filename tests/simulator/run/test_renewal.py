"""Do the closed forms of one level of saves have the sums over what a plain loop does until a failure?

An undisturbed up-time is played in plain Python. A failure at a memoryless age leaves the last save that has committed, so that
all accounts of a run follow, without any closed form, from those of the runs that begin at its saves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from benchmarks.run_reference import SlowRun, columns
from simulator.run.columns import BackPressure, RunColumns, Runs
from simulator.run.course import Course
from simulator.run.events import expected_goodput, expected_ledger
from simulator.run.renewal import best_interval_s

SKIP, WAIT, WIDEN = BackPressure.SKIP, BackPressure.WAIT, BackPressure.WIDEN
ACCOUNTS = ("checkpoint_stall_s", "checkpoint_tax_s", "backpressure_wait_s")


@dataclass(kw_only=True)
class Undisturbed(SlowRun):
    """A run that meets no interruption, in units of the mean up-time, and how its accounts grow."""

    parts: list[tuple[float, float, str, float]] = field(default_factory=list)
    """Begin, end, account, and its seconds per second from the one to the other."""

    def spend(self, account: str, time_s: float) -> None:
        self._recorded(account, lambda: super(Undisturbed, self).spend(account, time_s))

    def work(self, limits_s: list[float], slowdown: float) -> None:
        self._recorded("checkpoint_tax_s", lambda: super(Undisturbed, self).work(limits_s, slowdown))

    def _recorded(self, account: str, play: Callable[[], None]) -> None:
        begin_s, before_s = self.wall_s, self.ledger[account]
        play()
        if self.wall_s > begin_s:
            per_s = (self.ledger[account] - before_s) / (self.wall_s - begin_s)
            self.parts.append((begin_s, self.wall_s, account, per_s))

    @property
    def commits(self) -> list[tuple[float, float]]:
        """Times from which saves can be restored, and their work; the first is the restart."""
        return [(commit, work) for commit, work, _ in self.fast if commit < self.wall_s]

    @property
    def seen(self) -> dict[str, float]:
        """What an up-time with a memoryless end meets of each account on average, and of itself."""
        seen = dict.fromkeys((*ACCOUNTS, "up_time_s"), 0.0)
        for begin, end, account, share in self.parts:
            seen[account] += share * (math.exp(-begin) - math.exp(-end))
        seen["up_time_s"] = -math.expm1(-self.wall_s)
        return seen


def undisturbed(row: RunColumns, work: float) -> Undisturbed:
    one_level = {"durable_every": 1.0, "durable_commit_s": row["commit_s"], "live_lag_s": math.inf}
    run = Undisturbed(row={**row, **one_level, "work_s": work})  # type: ignore[dict-item]
    run.play_up_time(math.inf, is_live=False)
    return run


def summed(row: RunColumns) -> dict[str, float]:
    """Expected accounts of a whole run in mean up-times, by the saves that its first failure leaves."""

    @cache
    def accounts(work: float) -> dict[str, float]:
        run = undisturbed(row, work)
        total = run.seen
        times = [time for time, _ in run.commits] + [run.wall_s]
        left = [math.exp(-begin) - math.exp(-end) for begin, end in pairwise(times)]
        for (_, saved), share in zip(run.commits[1:], left[1:], strict=True):
            rest = accounts(round(work - saved, 9))
            total = {name: value + share * rest[name] for name, value in total.items()}
        # Before its first commit a run starts over.
        return {name: value / (1.0 - left[0]) for name, value in total.items()}

    return accounts(float(np.asarray(row["work_s"])))


def row_of(
    interval: float, stall: float, commit: float, tax: float, slots: int, policy: BackPressure
) -> RunColumns:
    return columns(
        mtbf_s=1.0, restart_s=0.0, interval_s=interval, stall_s=stall, commit_s=commit, tax_fraction=tax, slots=slots,
        policy=policy,
    )  # fmt: skip


EXACT = {
    "the last save is of use": row_of(0.3, 0.02, 0.1, 0.25, 1, WAIT),
    "commits take as long as an interval with its tax": row_of(0.3, 0.04, 0.36, 0.25, 1, SKIP),
    "commits take as long as an interval": row_of(0.3, 0.0, 0.3, 0.0, 1, SKIP),
    "each save waits for the one before": row_of(0.3, 0.02, 0.5, 0.25, 1, WAIT),
    "three saves at a time": row_of(0.3, 0.05, 0.7, 0.25, 4, SKIP),
    "two saves at a time": row_of(0.3, 0.05, 0.45, 0.5, 2, WIDEN),
}


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("work", [0.2, 0.3, 0.65, 1.5, 1.56, 1.6, 1.75])
def test_a_run_has_the_sum_over_the_saves_that_failures_leave(name: str, work: float) -> None:
    row = EXACT[name] | {"work_s": work}
    exact, ledger = summed(row), expected_ledger(**row)
    assert ledger.num_failures == pytest.approx(exact["up_time_s"], rel=1e-9)
    for account in ACCOUNTS:
        assert getattr(ledger, account) == pytest.approx(exact[account], rel=1e-9, abs=1e-12), account


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("work", [0.2, 0.3, 0.65, 1.5, 1.56, 1.6, 1.75])
def test_without_failures_a_run_is_as_long_as_in_the_plain_loop(name: str, work: float) -> None:
    row = EXACT[name] | {"work_s": work}
    calm_s = Course.of(Runs.of(row)).up_time.calm_s
    assert calm_s == pytest.approx(undisturbed(row, work).wall_s, rel=1e-12)


def test_rounding_adds_no_save_at_the_end_of_the_work() -> None:
    row = row_of(0.1, 0.02, 0.05, 0.0, 1, WAIT) | {"work_s": 3 * 0.1}
    assert 3 * 0.1 > 0.3  # by rounding
    assert undisturbed(row, 3 * 0.1).num_saved == 2
    assert Course.of(Runs.of(row)).up_time.calm_s == pytest.approx(0.3 + 2 * 0.02, rel=1e-12)


def test_a_run_whose_only_save_makes_others_late_has_the_sum_over_what_failures_leave() -> None:
    # The save is under way for two and a half intervals, so that the next two are left out, and 2.9 are left to do.
    row = row_of(0.3, 0.0, 2.5 * 0.3, 0.0, 1, SKIP) | {"work_s": 3.9 * 0.3}
    assert expected_ledger(**row).num_failures == pytest.approx(summed(row)["up_time_s"], rel=1e-9)


@pytest.mark.parametrize("tax", [0.0, 0.3, 0.9, 1.5])
@pytest.mark.parametrize("cost", [1e-4, 0.01, 0.5, 3.0])
def test_the_best_interval_of_saves_that_never_queue_is_where_up_time_per_work_is_least(
    tax: float, cost: float
) -> None:
    # All work is taxed. With M = 1, up-time per work is exp(tau + s + P) (1 - exp(-c)) / tau with c = (1 + g) tau + s.
    best = minimize_scalar(
        lambda x: (math.exp(x) - math.exp(-cost - tax * x)) / x, bounds=(1e-6, 1.0), method="bounded",
        options={"xatol": 1e-9},
    )  # fmt: skip
    with np.errstate(divide="ignore"):
        found = best_interval_s(*(np.array([value]) for value in (cost, tax, 1.0)))
    # A minimum is flat: half of the digits of the least value are known.
    assert found == pytest.approx(best.x, rel=1e-4)


@pytest.mark.parametrize("policy", BackPressure)
@pytest.mark.parametrize("slots", [1, 2, 3])
@pytest.mark.parametrize(
    ("interval", "stall", "commit", "tax"),
    [
        (0.1, 0.03, 0.75, 0.0),
        (0.1, 0.03, 0.75, 0.4),
        (0.2, 0.01, 0.24, 0.25),  # one interval with its tax leaves no time to wait for a slot
        (0.1, 0.03, 0.24, 0.0),  # two cycles are longer than a commit, but not than a commit with its stall
        (0.1, 0.0, 3 * 0.1, 0.0),  # three are as long as a commit, but for rounding up
    ],
)
def test_long_runs_commit_what_the_plain_loop_has_committed_at_a_failure(
    interval: float, stall: float, commit: float, tax: float, slots: int, policy: BackPressure
) -> None:
    row = row_of(interval, stall, commit, tax, slots, policy)
    # After 45 mean up-times 1e-20 of them are left.
    commits = undisturbed(row, 45.0).commits
    gains = [(time, work - before) for (_, before), (time, work) in pairwise(commits)]
    committed = math.fsum(math.exp(-time) * gain for time, gain in gains)
    assert expected_goodput(**row | {"work_s": np.inf}) == pytest.approx(committed, rel=1e-9)


@pytest.mark.parametrize("name", EXACT)
def test_a_long_run_whose_stops_are_announced_has_what_an_up_time_sees(name: str) -> None:
    # Nothing is lost, so that the work of an up-time is all of it but for what its saves take.
    row = EXACT[name]
    seen = undisturbed(row, 45.0).seen
    work = seen["up_time_s"] - sum(seen[account] for account in ACCOUNTS)
    ledger = expected_ledger(**row | {"work_s": 1e6, "kind_share": [0.0, 0.0, 0.0, 1.0]})
    stops = ledger.num_planned
    assert stops == pytest.approx(1e6 / work, rel=1e-5)
    assert ledger.checkpoint_tax_s == pytest.approx(1e6 * seen["checkpoint_tax_s"] / work, rel=1e-5)
    assert ledger.backpressure_wait_s == pytest.approx(
        1e6 * seen["backpressure_wait_s"] / work, rel=1e-5, abs=1e-9
    )
    saving = stops * (float(row["stall_s"]) + float(row["commit_s"]))  # type: ignore[arg-type]
    assert ledger.checkpoint_stall_s - saving == pytest.approx(
        1e6 * seen["checkpoint_stall_s"] / work, rel=1e-5
    )
