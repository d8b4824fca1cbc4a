"""How much longer than for a spare does a failure wait that finds none left?

It waits until the first node is back, or until the queue has one. While c losses are in repair, each has been for a time that
is uniform over the repair time T: in M/G/inf, and in Erlang's loss system where only repairs end waits
(`simulator.run.spares`). So the first of them is back after T times a Beta(1, c) variate B. In a run that is shorter than T, of
length A, none is before T - A, and the first after T - A + A B. The wait is the shorter of this and the queue. With x A the
part of the queue after T - A,

    E[min(x, B)^k] = k times the integral of u^(k-1) (1 - u)^c from 0 to x.

How often no spare is left follows from the mean waits. Waits that were played have the moments of the play.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simulator.run.columns import Runs
from simulator.run.course import Course
from simulator.run.spares import losses_that_leave_none
from simulator.table import Floats

_LEAST_S = 1e-12
"""Divisor for the mean of longer waits if there are none."""
_MOST_LOSSES = 1e9
"""Losses in repair after which the first node is back at once; more of them have no digits left."""


class LateWaits(NamedTuple):
    """Waits that find no spare left, by kind of interruption, `(n, 4)`."""

    share: Floats
    """Probability that none is left."""
    mean_s: Floats
    """How much longer the wait then is than that for a spare,"""
    variance_s2: Floats
    third_s3: Floats
    """and its third central moment."""

    @classmethod
    def of(cls, runs: Runs, course: Course) -> LateWaits:
        """Returns the waits of runs."""
        share, powers = _by_formula(runs, course)
        waits = course.waits
        if len(waits.played_rows):
            rows, played = waits.played_rows, waits.played
            occurred = ~np.isnan(played.late_share)
            share[rows] = np.where(occurred, played.late_share, share[rows])
            for power, found in zip(powers, (played.late_s, played.late_s2, played.late_s3), strict=True):
                power[rows] = np.where(occurred & (played.late_share > 0.0), found, power[rows])
        mean_s, square_s2, cube_s3 = powers
        variance_s2 = np.maximum(0.0, square_s2 - mean_s**2)
        third_s3 = cube_s3 - mean_s * (3.0 * variance_s2 + mean_s**2)
        return cls(share=share, mean_s=mean_s, variance_s2=variance_s2, third_s3=third_s3)


def _by_formula(runs: Runs, course: Course) -> tuple[Floats, list[Floats]]:
    """Returns the share of late waits, and the means of what they are longer by, its square and its cube, `(n, 4)`."""
    run_s = course.up_time.total_s * (1.0 + course.way_back.total_s / runs.mtbf_s)
    full_s = np.fmin(runs.repair_s, run_s)
    mean = course.waits.mean
    longest_s = np.clip(runs.queue_wait_s - runs.spare_wait_s, 0.0, runs.repair_s)
    lent = _moments(runs, runs.num_spares, longest_s, full_s)
    share = _share(np.maximum(0.0, mean.for_queue_s), lent[0])
    if not np.any(mean.for_repairs_s > 0.0):
        return share, list(lent)
    not_lent = _moments(runs, runs.num_spares + runs.max_loans, runs.repair_s, full_s)
    of_repairs = _share(mean.for_repairs_s, not_lent[0])
    share = np.minimum(share, 1.0 - of_repairs)
    both = share + of_repairs
    # Where nothing waits for repairs, the moments are the same to the last bit in any company.
    return both, [
        np.divide(share * of_lent + of_repairs * other, both, out=of_lent.copy(), where=of_repairs > 0.0)
        for of_lent, other in zip(lent, not_lent, strict=True)
    ]


def _share(extra_s: Floats, late_s: Floats) -> Floats:
    return np.minimum(1.0, extra_s / np.maximum(late_s, _LEAST_S))


def _moments(
    runs: Runs, num_nodes: Floats, longest_s: Floats, full_s: Floats
) -> tuple[Floats, Floats, Floats]:
    """Returns the means of a wait, of its square and of its cube, `(n, 4)`, by which kind finds `num_nodes` in repair.

    Args:
        runs: the runs.
        num_nodes: see above, `(n,)`.
        longest_s: when the wait ends if no node is back, `(n,)`.
        full_s: for how long a node may have been in repair, A, `(n,)`.
    """
    sure_s = np.minimum(longest_s, runs.repair_s - full_s)
    part = np.divide(longest_s - sure_s, full_s, out=np.zeros(len(runs)), where=full_s > 0.0)[:, None]
    sure_s, full_s = sure_s[:, None], full_s[:, None]
    enough = np.minimum(losses_that_leave_none(runs, num_nodes), _MOST_LOSSES)
    with np.errstate(divide="ignore"):
        later = np.exp((enough + 1.0) * np.log1p(-np.minimum(1.0, part)))
    # Integrals of (1 - u)^c, (1 - u)^(c+1) and (1 - u)^(c+2).
    first = (1.0 - later) / (enough + 1.0)
    second = (1.0 - later * (1.0 - part)) / (enough + 2.0)
    third = (1.0 - later * (1.0 - part) ** 2) / (enough + 3.0)
    mean_s, square_s2 = full_s * first, 2.0 * full_s**2 * (first - second)
    cube_s3 = 3.0 * full_s**3 * (first - 2.0 * second + third)
    return (
        sure_s + mean_s,
        sure_s * (sure_s + 2.0 * mean_s) + square_s2,
        sure_s * (sure_s * (sure_s + 3.0 * mean_s) + 3.0 * square_s2) + cube_s3,
    )
