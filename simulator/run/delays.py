"""How are the delays caused by interruptions distributed? Their moments, and the chance of none; one row per run.

A run that takes F without interruptions meets them at the rate 1/M, so it meets none with probability exp(-F/M). The delay by
one interruption is the sum of independent parts:

    lost work    the commit time of the newest save, and an exponential time that is cut at the end of a cycle: uniform in one
                 far shorter than M. With a live replica its lag, and the capacity that is missing
    way back     a lognormal restart, a load, and a wait for a node: that for a spare, or a longer one where none is left

Delays come in two classes. Near ones go back to the fast level of saves and wait at most for a spare; far ones go back to the
durable level, or find no spare. The parts are known by kind of interruption; scale factors match lost work and recovery to the
expected run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from simulator.compiled import compiled_uncounted, inlined_uncounted
from simulator.run.announced import LEAST_SHARE
from simulator.run.columns import NUM_KINDS, PLANNED, Interruption, Runs
from simulator.run.course import Course
from simulator.run.late_waits import LateWaits
from simulator.run.levels import saves_per_durable
from simulator.run.renewal import Cycle
from simulator.run.shares import has_same_saves
from simulator.run.spares import spare_waits_s
from simulator.run.way_back import WayBack
from simulator.table import Booleans, Floats, Table

CLASSES = ("near", "far")
_NUM_CLASSES = len(CLASSES)
MOMENTS = ("share", "mean_s", "variance_s2", "third_s3")
_SMALL = 1e-2
"""Window length over mean up-time below which the series of its moments is accurate to all relevant digits."""


@dataclass(frozen=True, kw_only=True)
class Delays(Table):
    """Delays by interruptions; columns of classes are `(n, 2)`: near and far."""

    calm_s: Floats
    """F: the run without interruptions, `(n,)`."""
    num_calm: Floats
    """F/M: expected interruptions within F, `(n,)`."""
    share: Floats
    """Share of the interruptions."""
    mean_s: Floats
    variance_s2: Floats
    third_s3: Floats
    """Third central moment."""

    @classmethod
    def of(cls, runs: Runs, course: Course, ahead_s: Floats) -> Self:
        """Returns the delays of runs.

        Args:
            runs: the runs.
            course: their up-times and recoveries.
            ahead_s: mean time to save before planned interruptions, per interruption of any kind, `(n,)`.
        """
        cases, up_time = _cases(runs, course, ahead_s), course.up_time
        share, mean_s, variance_s2, third_s3 = (np.zeros((len(runs), _NUM_CLASSES)) for _ in range(4))
        _sum_up(cases, share, mean_s, variance_s2, third_s3)
        return cls(
            calm_s=up_time.calm_s,
            num_calm=up_time.calm_s / runs.mtbf_s,
            share=share,
            mean_s=mean_s,
            variance_s2=variance_s2,
            third_s3=third_s3,
        )

    def by_class(self) -> dict[str, Floats]:
        """Returns share and moments of each class as separate columns, `(n,)`, such as `near_mean_s`."""
        return {
            f"{name_of_class}_{name}": np.ascontiguousarray(getattr(self, name)[:, number])
            for number, name_of_class in enumerate(CLASSES)
            for name in MOMENTS
        }


class _Cases(NamedTuple):
    """Cases of an interruption of each kind and their times, `(n,)`; by kind `(n, 4)`, by level `(n, 2)`: fast, durable."""

    kind_share: Floats
    kind_restart_s: Floats
    kind_spare_s: Floats
    """Wait if a spare is left."""
    late: LateWaits
    kind_goes_on: Booleans
    """Whether there is no wait if the fast level survives the interruption."""
    kind_survival: Floats
    """Probability that the fast level survives the interruption."""
    load_s: Floats
    """By level."""
    lost_s: Floats
    lost_s2: Floats
    """Variance of the lost work."""
    is_same: Booleans
    """See `simulator.run.shares.has_same_saves`."""
    has_saves: Booleans
    redone_s: Floats
    """Mean up-time per interruption that does not count."""
    back_s: Floats
    """Mean recovery time,"""
    attempts_s2: Floats
    """and its additional variance from attempts that fail."""
    ahead_s: Floats
    log_deviation: Floats


def _cases(runs: Runs, course: Course, ahead_s: Floats) -> _Cases:
    way_back, up_time = course.way_back, course.up_time
    lost_s, lost_s2 = _lost(runs, up_time.calm_s)
    return _Cases(
        kind_share=np.ascontiguousarray(runs.kind_share),
        kind_restart_s=np.ascontiguousarray(runs.kind_restart_s),
        kind_spare_s=spare_waits_s(runs),
        late=LateWaits.of(runs, course),
        kind_goes_on=runs.kind_goes_on,
        kind_survival=np.ascontiguousarray(runs.kind_fast_survival),
        load_s=np.stack([runs.fast_load_s, runs.durable_load_s], axis=1),
        lost_s=lost_s,
        lost_s2=lost_s2,
        is_same=has_same_saves(runs),
        has_saves=runs.has_saves,
        redone_s=np.maximum(0.0, up_time.total_s - up_time.calm_s) * runs.mtbf_s / up_time.total_s,
        back_s=way_back.total_s,
        attempts_s2=_attempts_s2(runs, way_back),
        ahead_s=ahead_s,
        # A copy: a broadcast column of one run is contiguous but read-only, and the kernel would be compiled again for it.
        log_deviation=np.array(runs.restart_log_deviation, order="C"),
    )


def _lost(runs: Runs, calm_s: Floats) -> tuple[Floats, Floats]:
    """Returns mean and variance of the work that an interruption loses, `(n, 2)` by level."""
    cycle_s = np.where(runs.has_saves, Cycle.of(runs).length_s, np.inf)
    durable_s = np.where(runs.has_saves, cycle_s * saves_per_durable(runs, cycle_s), np.inf)
    fast = _in_window(runs, cycle_s, runs.commit_s, calm_s)
    durable = _in_window(runs, durable_s, runs.durable_commit_s, calm_s)
    live_s = runs.live_lag_s + runs.reduced_capacity_s
    fast = np.where(runs.has_live_replicas, live_s, fast[0]), np.where(runs.has_live_replicas, 0.0, fast[1])
    return np.stack([fast[0], durable[0]], axis=1), np.stack([fast[1], durable[1]], axis=1)


def _in_window(runs: Runs, cycle_s: Floats, commit_s: Floats, calm_s: Floats) -> tuple[Floats, Floats]:
    """Returns mean and variance of the time since the newest committed save, `(n,)` each.

    It is the commit time plus an exponential time truncated at the end of the cycle; neither is longer than the run.
    """
    window_s = np.minimum(cycle_s, calm_s)
    end = window_s / runs.mtbf_s
    mean, variance = 0.5 - end / 12.0, 1.0 / 12.0 - end**2 / 240.0
    rows = np.flatnonzero(end >= _SMALL)
    long = end[rows]
    mean[rows] = 1.0 / long - 1.0 / np.expm1(long)
    variance[rows] = 1.0 / long**2 - 0.25 / np.sinh(0.5 * long) ** 2
    return np.minimum(commit_s, calm_s - window_s) + window_s * mean, window_s**2 * variance


def _attempts_s2(runs: Runs, way_back: WayBack) -> Floats:
    """Returns the variance added by failed recovery attempts, `(n,)`: the number of attempts is geometric."""
    unplanned = 1.0 - runs.kind_share[:, Interruption.PLANNED]
    # Failures while the run waits for nodes are in the waits.
    again = way_back.num_failures - unplanned * (1.0 + way_back.replacement_wait_s / runs.mtbf_s)
    again = np.where(runs.fails_during_restart == 1.0, np.maximum(0.0, again), 0.0)
    return np.asarray(again / (1.0 + again) * way_back.total_s**2)


@compiled_uncounted
def _sum_up(cases: _Cases, share: Floats, mean_s: Floats, variance_s2: Floats, third_s3: Floats) -> None:
    """Fills in shares and moments of both classes, `(n, 2)` each: first sums of powers, then central moments."""
    for row in range(len(share)):
        factors = _factors(cases, row)
        for case in range(4 * NUM_KINDS):
            kind, level, is_late = case // 4, (case // 2) % 2, case % 2
            weight = _weight(cases, row, kind, level, is_late)
            if weight > LEAST_SHARE:
                of = 1 if is_late == 1 or (level == 1 and not cases.is_same[row]) else 0
                mean, variance, third = _moments(cases, row, kind, level, is_late, factors)
                share[row, of] += weight
                mean_s[row, of] += weight * mean
                variance_s2[row, of] += weight * (variance + mean**2)
                third_s3[row, of] += weight * (third + mean * (3.0 * variance + mean**2))
        for of in range(_NUM_CLASSES):
            if share[row, of] > 0.0:
                mean = mean_s[row, of] / share[row, of]
                variance = max(0.0, variance_s2[row, of] / share[row, of] - mean**2)
                mean_s[row, of], variance_s2[row, of] = mean, variance
                third_s3[row, of] = third_s3[row, of] / share[row, of] - mean * (3.0 * variance + mean**2)


@inlined_uncounted
def _moments(
    cases: _Cases, row: int, kind: int, level: int, is_late: int, factors: tuple[float, float, float]
) -> tuple[float, float, float]:
    """Returns mean, variance and third central moment of a case's delay; restarts are lognormal."""
    lost, back, ahead = factors
    spread = math.expm1(cases.log_deviation[row] ** 2)
    mean = back * _way_back_s(cases, row, kind, level, is_late)
    variance = spread * (back * cases.kind_restart_s[row, kind]) ** 2 + cases.attempts_s2[row]
    third = spread**2 * (spread + 3.0) * (back * cases.kind_restart_s[row, kind]) ** 3
    if is_late == 1:
        variance += back**2 * cases.late.variance_s2[row, kind]
        third += back**3 * cases.late.third_s3[row, kind]
    if kind == PLANNED:
        mean += ahead
    mean += lost * _lost_s(cases, row, kind, level)
    if not (kind == PLANNED and cases.has_saves[row]):
        variance += lost**2 * cases.lost_s2[row, _level(cases, row, level)]
    return mean, variance, third


@inlined_uncounted
def _factors(cases: _Cases, row: int) -> tuple[float, float, float]:
    """Returns the factors of lost work and recoveries, and the time to save before a planned interruption."""
    lost_s = back_s = planned = 0.0
    for case in range(4 * NUM_KINDS):
        kind, level, is_late = case // 4, (case // 2) % 2, case % 2
        weight = _weight(cases, row, kind, level, is_late)
        if weight > LEAST_SHARE:
            lost_s += weight * _lost_s(cases, row, kind, level)
            back_s += weight * _way_back_s(cases, row, kind, level, is_late)
            if kind == PLANNED:
                planned += weight
    lost = cases.redone_s[row] / lost_s if lost_s > 0.0 else 0.0
    back = cases.back_s[row] / back_s if back_s > 0.0 else 0.0
    return lost, back, cases.ahead_s[row] / planned if planned > 0.0 else 0.0


@inlined_uncounted
def _weight(cases: _Cases, row: int, kind: int, level: int, is_late: int) -> float:
    """Probability of a case."""
    if cases.kind_share[row, kind] == 0.0:
        return 0.0
    survival = cases.kind_survival[row, kind]
    if kind == PLANNED and cases.has_saves[row]:
        survival = 1.0  # Before an announced interruption the run saves on the level that survives it.
    late = 0.0 if level == 0 and cases.kind_goes_on[row, kind] else cases.late.share[row, kind]
    weight = cases.kind_share[row, kind] * (survival if level == 0 else 1.0 - survival)
    found: float = weight * (late if is_late == 1 else 1.0 - late)
    return found


@inlined_uncounted
def _way_back_s(cases: _Cases, row: int, kind: int, level: int, is_late: int) -> float:
    """Recovery time without failures during it."""
    late_s = cases.late.mean_s[row, kind] if is_late == 1 else 0.0
    spare_s = 0.0 if level == 0 and cases.kind_goes_on[row, kind] else cases.kind_spare_s[row, kind]
    found_s: float = cases.kind_restart_s[row, kind] + spare_s + late_s + cases.load_s[row, level]
    return found_s


@inlined_uncounted
def _lost_s(cases: _Cases, row: int, kind: int, level: int) -> float:
    """Lost work; none for announced interruptions."""
    if kind == PLANNED and cases.has_saves[row]:
        return 0.0
    lost_s: float = cases.lost_s[row, _level(cases, row, level)]
    return lost_s


@inlined_uncounted
def _level(cases: _Cases, row: int, level: int) -> int:
    return 0 if cases.is_same[row] else level
