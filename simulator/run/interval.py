"""How much work should lie between two saves? The interval with the largest expected goodput."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

import numpy as np
import numpy.typing as npt

from simulator.domain.checkpointing import Checkpointing
from simulator.run import renewal
from simulator.run.columns import FOREVER_S, BackPressure, RunOptions, Runs
from simulator.run.levels import UpTime
from simulator.run.shares import Shares
from simulator.run.way_back import WayBack
from simulator.table import Floats
from simulator.units import DAY

LONGEST_LINE = 0.1
"""Time between durable saves, in up-times between interruptions that need one, from which intervals are tried."""
MOST_STALLED_FRACTION = 0.01
"""Share of the time that saves may stop a run without need: usual intervals are no shorter."""
_TRIED_OCTAVES = (-3, -2, -1, 1, 2, 3, 4, 5)
"""Intervals that are tried then: the one found without trial times these powers of two."""


def longest_interval_s(checkpointing: Checkpointing, stall_s: Floats) -> Floats:
    """Returns the longest interval that is chosen if none is requested, for saves that stop the run so long, `(n,)`."""
    if checkpointing.longest_interval_s is not None:
        return np.asarray(checkpointing.longest_interval_s)
    return np.maximum(DAY, stall_s / MOST_STALLED_FRACTION)


def optimal_interval_s(
    *,
    mtbf_s: npt.ArrayLike,
    stall_s: npt.ArrayLike,
    commit_s: npt.ArrayLike,
    tax_fraction: npt.ArrayLike,
    slots: npt.ArrayLike,
    restart_s: npt.ArrayLike,
    minimum_interval_s: npt.ArrayLike,
    **options: Unpack[RunOptions],
) -> Floats:
    """Returns the interval with the largest expected goodput of a long run, `(n,)`.

    It is never below `minimum_interval_s`, nor so short that saves queue for slots; where a save costs nothing, the answer is
    this lower bound. The equations are in `simulator.run.renewal.best_interval_s`. The mean up-time there is that between
    interruptions that go back to a save, where one that goes back to the durable level counts `durable_every` times. Where
    durable saves are far apart, other intervals are tried with the expected up-time of long runs. Up-times are treated as
    memoryless.

    Raises:
        InputError: as `expected_ledger`.
    """
    runs = Runs.of(
        {
            "work_s": np.inf,
            "mtbf_s": mtbf_s,
            "interval_s": minimum_interval_s,
            "stall_s": stall_s,
            "commit_s": commit_s,
            "tax_fraction": tax_fraction,
            "slots": slots,
            "policy": BackPressure.SKIP,
            "restart_s": restart_s,
            **options,
        }
    )
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        # If restarts fail while they wait for spares, the level of saves used hardly depends on the wait.
        shares = Shares.of(runs, WayBack.with_spares(runs))
        low_s = _shortest_s(runs)
        best_s = _best_s(replace(runs, mtbf_s=_mean_between_roll_backs_s(runs, shares)), low_s)
        # What a roll-back to the durable level loses is in proportion to the interval while it is short.
        apart_s = np.maximum(runs.durable_every * best_s, runs.stall_s + runs.durable_commit_s)
        rows = np.flatnonzero(apart_s * shares.durable > LONGEST_LINE * runs.mtbf_s)
        if len(rows):
            best_s[rows] = _by_trial(runs.take(rows), shares.take(rows), best_s[rows], low_s[rows])
        return best_s


def _shortest_s(runs: Runs) -> Floats:
    """Returns the shortest allowed interval with which no save queues for a slot, `(n,)`."""
    queueing_s = ((runs.stall_s + runs.commit_s) / runs.slots - runs.stall_s) / (1.0 + runs.tax_fraction)
    return np.maximum(runs.interval_s, queueing_s)


def _best_s(runs: Runs, low_s: Floats) -> Floats:
    """Returns the best interval of runs with one level of saves, `(n,)`."""
    kink_s = np.maximum(low_s, runs.commit_s / (1.0 + runs.tax_fraction))
    # Beyond the commit time the tax is a cost per save, below it a constant share of all time: two hills,
    # of which only several slots can reach the lower one.
    cost_s = runs.stall_s + runs.tax_share * runs.commit_s
    long_s = np.maximum(kink_s, renewal.best_interval_s(cost_s, np.zeros(len(runs)), runs.mtbf_s))
    if not np.any(low_s < kink_s):
        return long_s
    short_s = renewal.best_interval_s(runs.stall_s, runs.tax_fraction, runs.mtbf_s)
    short_s = np.clip(short_s, low_s, kink_s)
    return np.where(_up_time_per_work(runs, short_s) < _up_time_per_work(runs, long_s), short_s, long_s)


def _by_trial(runs: Runs, shares: Shares, best_s: Floats, low_s: Floats) -> Floats:
    """Returns the best of the intervals around one that assumes a loss in proportion to the interval, `(n,)`.

    Where saves wait for the durable level, it pays to fit a whole number of them into one write: the one above or below.
    """
    found = best_s, _up_time_of_long_run(runs, shares, best_s)
    for octave in _TRIED_OCTAVES:
        found = _better(runs, shares, np.maximum(low_s, 2.0**octave * best_s), found)
    # Goodput is flat at its maximum.
    for between_s in (np.sqrt(0.5) * found[0], np.sqrt(2.0) * found[0]):
        found = _better(runs, shares, np.maximum(low_s, between_s), found)
    writing_s = runs.stall_s + runs.durable_commit_s
    cost_s = runs.stall_s + runs.tax_share * runs.commit_s
    num_saves = np.ceil(writing_s / (found[0] + cost_s))
    for number in (num_saves, num_saves - 1.0):
        tried_s = np.maximum(low_s, writing_s / np.maximum(1.0, number) - cost_s)
        found = _better(runs, shares, tried_s, found)
    return found[0]


def _better(
    runs: Runs, shares: Shares, tried_s: Floats, found: tuple[Floats, Floats]
) -> tuple[Floats, Floats]:
    """Returns the better of two intervals and its up-time, `(n,)` each."""
    up_time_s = _up_time_of_long_run(runs, shares, tried_s)
    is_better = up_time_s < found[1]
    return np.where(is_better, tried_s, found[0]), np.where(is_better, up_time_s, found[1])


def _mean_between_roll_backs_s(runs: Runs, shares: Shares) -> Floats:
    """Returns the mean up-time between interruptions that lose half an interval, `(n,)`."""
    num_intervals = np.where(runs.has_live_replicas, 0.0, shares.fast) + shares.durable * runs.durable_every
    return np.minimum(FOREVER_S, runs.mtbf_s / np.maximum(num_intervals, 1.0 / FOREVER_S))


def _up_time_per_work(runs: Runs, interval_s: Floats) -> Floats:
    """Returns up-time per second of work, which the best interval minimises; restarts take the same share at any interval."""
    changed = replace(runs, interval_s=interval_s)
    return renewal.Cycle.of(changed).up_time_per_work(changed)


def _up_time_of_long_run(runs: Runs, shares: Shares, interval_s: Floats) -> Floats:
    """Returns the up-time of runs with two levels of saves, which the best interval minimises."""
    return UpTime.of(replace(runs, interval_s=interval_s), shares).total_s
