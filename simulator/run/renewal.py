"""How often does a run fail, and how long is every account in expectation? Renewal theory, one row per run.

With M the mean up-time between failures, tau the interval, and s, P, R stall, commit and restart: after a restart the first
save starts at tau and commits at t1 = tau + s + P; the following ones are c apart. Up-times are memoryless, so the expected
number of failures f(n) from a restart with n saves to go is a sum over the saves committed when the job fails. Subtracting
exp(-c/M) f(n - 1) from f(n) leaves

    f(n) - f(n - 1) = (1 - exp(-c/M)) exp(t1/M),

a straight line. It begins at d, the largest number of saves to go for which the rest of the run, of length F, ends before its
first commit: f(d) = exp(F/M) - 1. The expected up-time is M f (failures minus up-time over M is a martingale), and every other
account follows a line in the same way, with its seconds discounted by exp(-t/M).

Exact if saves never queue for a slot, and with one slot and `WAIT`. Otherwise the first interval differs from the later ones,
or saves come in bursts: k = `slots` saves b apart, bursts C apart, with L work from the last save of a burst to the next one.
In a long run failures per work are then exactly

    exp(t1/M) (1 - exp(-C/M)) / ((tau + B) (1 - exp(-C/M)) + (L + B) exp(-C/M))

with B = tau (exp(-b/M) + ... + exp(-(k - 1) b/M)). All other accounts spread the saves evenly, as do runs of a few bursts,
whose error can be a good part of a burst. The limit of long runs is the goodput of Daly (FGCS 22, 2006) when P = 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from simulator.run.columns import BackPressure, Runs
from simulator.run.up_time import LAST_FRACTION, TIE_FRACTION
from simulator.table import Booleans, Floats, Table

_NUM_NEWTON_STEPS = 12
"""Seven reach full precision with taxes below a half; those near 1 converge slowly."""


@dataclass(frozen=True, kw_only=True)
class Cycle(Table):
    """From the start of a stall to the next, with commits but no failures in between, `(n,)`."""

    length_s: Floats
    """c: wall time."""
    gain_s: Floats
    """Work; the interval unless saves are skipped or late."""
    taxed_s: Floats
    """Wall time of work with a save in the background, right after the stall."""
    wait_s: Floats
    """Waiting for a slot, at the end."""
    failures: Floats
    """Growth of f per cycle in a long run."""

    @classmethod
    def of(cls, runs: Runs) -> Self:
        """Returns the cycles of all runs; with bursts of saves, the mean over a burst."""
        length_s, gain_s, failures = _steady_cycle(runs)
        tax_s = np.minimum(runs.tax_share * runs.commit_s, runs.tax_fraction * gain_s)
        return cls(
            length_s=length_s,
            gain_s=gain_s,
            taxed_s=np.minimum(runs.commit_s, gain_s + tax_s),
            wait_s=np.maximum(0.0, length_s - runs.stall_s - gain_s - tax_s),
            failures=failures,
        )

    @classmethod
    def regular(cls, runs: Runs, length_s: Floats) -> Self:
        """Returns cycles of work alone, of any length."""
        none_s = np.zeros(len(runs))
        failures = _failures_per_cycle(runs, length_s, length_s)
        return cls(length_s=length_s, gain_s=length_s, taxed_s=none_s, wait_s=none_s, failures=failures)

    def up_time_per_work(self, runs: Runs) -> Floats:
        """Returns up-time per second of work in a long run, `(n,)`: 1 at best."""
        return runs.mtbf_s * self.failures / self.gain_s


def _failures_per_cycle(runs: Runs, length_s: Floats, gain_s: Floats) -> Floats:
    end_s = length_s / runs.mtbf_s
    # The first commit after a restart gains one interval, the following ones `gain_s`.
    return _per_first_commit(runs) * gain_s * _over_committed(end_s, runs.interval_s, gain_s)


def _failures_per_burst(runs: Runs, free_s: Floats, late_work_s: Floats, length_s: Floats) -> Floats:
    """Failures per burst of saves, `free_s` apart, with `length_s` from the first save of one burst to that of the next."""
    between, burst_s = free_s / runs.mtbf_s, (runs.slots - 1.0) * free_s
    # After the first commit of a burst, each further one gains an interval if the up-time lasts.
    later_s = runs.interval_s * np.expm1(-burst_s / runs.mtbf_s) * np.exp(-between) / np.expm1(-between)
    gain_s = (runs.slots - 1.0) * runs.interval_s + late_work_s
    over_committed = _over_committed(length_s / runs.mtbf_s, runs.interval_s + later_s, late_work_s + later_s)
    return _per_first_commit(runs) * gain_s * over_committed


def _over_committed(end: Floats, first_s: Floats, later_s: Floats) -> Floats:
    """One over the work that an up-time with a first commit commits: `first_s`, then `later_s` for each `end` mean up-times."""
    return -np.expm1(-end) / (first_s * -np.expm1(-end) + later_s * np.exp(-end))


def _steady_cycle(runs: Runs) -> tuple[Floats, Floats, Floats]:
    """Returns length and gain of the cycles, and the growth of f per cycle.

    If `slots` cycles are shorter than a save is under way, saves come in bursts of `slots`, and the next one is due before the
    first of them has committed.
    """
    taxed_interval_s = runs.interval_s * (1.0 + runs.tax_fraction)
    free_s = runs.stall_s + np.minimum(runs.interval_s + runs.tax_share * runs.commit_s, taxed_interval_s)
    under_way_s = runs.stall_s + runs.commit_s
    queues = runs.slots * free_s < under_way_s - TIE_FRACTION * runs.interval_s
    if not np.any(queues):
        return free_s, runs.interval_s, _failures_per_cycle(runs, free_s, runs.interval_s)
    burst_s = (runs.slots - 1.0) * free_s
    late_s = np.maximum(0.0, runs.commit_s - burst_s)
    late_work_s = np.select(
        [runs.policy == BackPressure.WAIT, runs.policy == BackPressure.WIDEN],
        [runs.interval_s, late_s / (1.0 + runs.tax_fraction)],
        runs.interval_s * np.ceil(late_s / taxed_interval_s - TIE_FRACTION),
    )
    skipping_s = late_work_s + np.minimum(runs.tax_share * runs.commit_s, runs.tax_fraction * late_work_s)
    last_s = np.where(runs.policy == BackPressure.SKIP, skipping_s, late_s)
    all_s = burst_s + runs.stall_s + last_s
    length_s = np.where(queues, all_s / runs.slots, free_s)
    gain_s = np.where(
        queues, ((runs.slots - 1.0) * runs.interval_s + late_work_s) / runs.slots, runs.interval_s
    )
    in_burst = _failures_per_burst(runs, free_s, late_work_s, all_s) / runs.slots
    return length_s, gain_s, np.where(queues, in_burst, _failures_per_cycle(runs, length_s, gain_s))


@dataclass(frozen=True, kw_only=True)
class Ends(Table):
    """The saves of a run, split into the last ones, which are never used, and the steady others, `(n,)`."""

    num_base: Floats
    """min(d, saves of the run)."""
    is_only_rest: Booleans
    """d = 0 although there are saves: the step from f(0) to f(1) has a length of its own."""
    num_steady: Floats
    """Saves on the line."""
    base_s: Floats
    """F: length of an undisturbed run with `num_base` saves to go."""
    step_s: Floats
    """F(1) - F(0)."""
    taxed_rest_s: Floats
    """Wall time under tax after the last save."""

    @classmethod
    def of(cls, runs: Runs, cycle: Cycle) -> Self:
        """Returns the ends of all runs."""
        later_s = runs.work_s - runs.interval_s
        num_saves = np.maximum(0.0, np.ceil(later_s / cycle.gain_s - LAST_FRACTION))
        rest_s = np.where(num_saves > 0, later_s - (num_saves - 1.0) * cycle.gain_s, runs.work_s)
        rest_s = np.clip(rest_s, 0.0, np.where(num_saves > 0, cycle.gain_s, runs.work_s))
        tax_s = np.minimum(runs.tax_share * runs.commit_s, runs.tax_fraction * rest_s)
        end_s = rest_s + tax_s
        num_useless = np.floor(1.0 + (runs.commit_s - end_s) / cycle.length_s)
        num_base = np.minimum(num_saves, np.where(runs.commit_s >= end_s, num_useless, 0.0))
        first_s = runs.interval_s + runs.stall_s + end_s
        is_only_rest = (num_base == 0) & (num_saves > 0)
        return cls(
            num_base=num_base,
            is_only_rest=is_only_rest,
            num_steady=num_saves - num_base - is_only_rest,
            base_s=np.where(num_base > 0, first_s + (num_base - 1.0) * cycle.length_s, rest_s),
            step_s=first_s - rest_s,
            taxed_rest_s=np.minimum(runs.commit_s, end_s),
        )


def up_time_s(runs: Runs, cycle: Cycle, ends: Ends) -> Floats:
    """Returns the expected time between restarts, M f, `(n,)`."""
    base = np.expm1(ends.base_s / runs.mtbf_s)
    step = -np.expm1(-ends.step_s / runs.mtbf_s) * _per_first_commit(runs)
    return runs.mtbf_s * (base + _if(ends.is_only_rest, step) + _steady_failures(cycle, ends))


def num_steps(runs: Runs, cycle: Cycle, ends: Ends) -> Floats:
    """Returns the number of long-run cycles that the saves add to the up-time, `(n,)`; the last one may be partial."""
    step = np.expm1(-ends.step_s / runs.mtbf_s) / np.expm1(-cycle.length_s / runs.mtbf_s)
    return ends.num_steady + _if(ends.is_only_rest, step)


def calm_s(cycle: Cycle, ends: Ends) -> Floats:
    """Returns the length of an uninterrupted run, `(n,)`."""
    steady_s = _if(ends.num_steady > 0, ends.num_steady * cycle.length_s)
    return ends.base_s + _if(ends.is_only_rest, ends.step_s) + steady_s


def stall_s(runs: Runs, cycle: Cycle, ends: Ends) -> Floats:
    """Returns the expected time stopped for saves, `(n,)`."""
    window = _Window(offset_s=np.zeros(len(runs)), length_s=runs.stall_s, last_length_s=runs.stall_s)
    return _account_s(runs, cycle, ends, window)


def tax_s(runs: Runs, cycle: Cycle, ends: Ends) -> Floats:
    """Returns the expected slow-down by saves in the background, `(n,)`."""
    window = _Window(offset_s=runs.stall_s, length_s=cycle.taxed_s, last_length_s=ends.taxed_rest_s)
    return runs.tax_share * _account_s(runs, cycle, ends, window)


def wait_s(runs: Runs, cycle: Cycle, ends: Ends) -> Floats:
    """Returns the expected time waiting for a slot, `(n,)`."""
    none_s = np.zeros(len(runs))
    offset_s = cycle.length_s - cycle.wait_s
    window = _Window(offset_s=offset_s, length_s=cycle.wait_s, last_length_s=none_s)
    return _account_s(runs, cycle, ends, window)


def per_up_time_s(runs: Runs, cycle: Cycle) -> tuple[Floats, Floats, Floats]:
    """Returns the expected stalls, tax and wait per up-time of a long run, each `(n,)`."""
    num_cycles = 1.0 / -np.expm1(-cycle.length_s / runs.mtbf_s)
    offset_s = cycle.length_s - cycle.wait_s
    return (
        num_cycles * _discounted_s(runs, np.zeros(len(runs)), runs.stall_s),
        num_cycles * runs.tax_share * _discounted_s(runs, runs.stall_s, cycle.taxed_s),
        num_cycles * _discounted_s(runs, offset_s, cycle.wait_s),
    )


@dataclass(frozen=True, kw_only=True)
class _Window(Table):
    """The part of every cycle that is charged to an account, `(n,)`."""

    offset_s: Floats
    """After the start of the stall."""
    length_s: Floats
    last_length_s: Floats
    """In the cycle after the last save, truncated by the end of the run."""


def _account_s(runs: Runs, cycle: Cycle, ends: Ends, window: _Window) -> Floats:
    """Returns the expected seconds of the whole run that fall in a window of its cycles, `(n,)`.

    A(n), the seconds in the first up-time with n saves to go, is a geometric sum of discounted windows; then H(d) = A(d)
    exp(F/M), as the run starts over after each failure, and H grows by a constant per cycle.
    """
    per_cycle_s = _discounted_s(runs, window.offset_s, window.length_s)
    per_last_s = _discounted_s(runs, window.offset_s, window.last_length_s)
    end = cycle.length_s / runs.mtbf_s
    num_before = np.maximum(0.0, ends.num_base - 1.0)
    whole = np.expm1(-num_before * end) / np.expm1(-end)
    one_try_s = whole * per_cycle_s + np.exp(-num_before * end) * per_last_s
    base_s = one_try_s * np.exp(ends.base_s / runs.mtbf_s)
    steady_s = _steady_failures(cycle, ends) * per_cycle_s / -np.expm1(-end)
    return (
        _if(ends.num_base > 0, base_s)
        + _if(ends.is_only_rest, per_last_s * _per_first_commit(runs))
        + _if(ends.num_steady > 0, steady_s)
    )


def best_interval_s(cost_s: Floats, tax_fraction: Floats, mtbf_s: Floats) -> Floats:
    """Returns the interval with the least up-time per work, `(n,)`, if saves never queue; 0 if they are free.

    With d = cost/M of one save, a tax of the fraction g on all work and x = tau/M, up-time per work is
    proportional to (exp(x) - exp(-d - g x)) / x, least where

        (1 + g) x + ln(1 - x) - ln(1 + g x) + d = 0.

    The left side is concave near its root, so that Newton's steps from a point beyond the root stay beyond
    it. One such point is sqrt(2 d / (1 - g^2)), Young's interval (CACM 17, 1974) when g = 0; the root is then
    1 + W(-exp(-d - 1)) with Lambert's W.
    """
    d, g = cost_s / mtbf_s, tax_fraction
    x = np.minimum(-np.expm1(-(1.0 + g + d)), np.sqrt(2.0 * d / np.maximum(0.0, 1.0 - g**2)))
    for _ in range(_NUM_NEWTON_STEPS):
        value = (1.0 + g) * x + np.log1p(-x) - np.log1p(g * x) + d
        x = x - value / (1.0 + g - 1.0 / (1.0 - x) - g / (1.0 + g * x))
    # If saves take many up-times, 1 - x has no digits left: the interval is then the whole up-time.
    return np.where(d > 0, mtbf_s * np.where(np.isnan(x), 1.0, x), 0.0 * d)


def _discounted_s(runs: Runs, offset_s: Floats, window_s: Floats) -> Floats:
    """Integral of exp(-t/M) over a window after the start of the first stall, which comes at tau."""
    start = (runs.interval_s + offset_s) / runs.mtbf_s
    return runs.mtbf_s * np.exp(-start) * -np.expm1(-window_s / runs.mtbf_s)


def _per_first_commit(runs: Runs) -> Floats:
    """Expected number of up-times until one reaches its first commit."""
    return np.exp(runs.first_commit_s / runs.mtbf_s)


def _steady_failures(cycle: Cycle, ends: Ends) -> Floats:
    return _if(ends.num_steady > 0, ends.num_steady * cycle.failures)


def _if(condition: Booleans, values: Floats) -> Floats:
    """Zero where the condition is false, even if the value there is infinite or nan."""
    return np.where(condition, values, 0.0)
