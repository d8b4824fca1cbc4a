"""What changes if failures come early or late in an up-time? Renewal sums for Weibull up-times.

One level. With S the survival function of an up-time, t1 the first commit after a restart, c the time between commits, and
n(t1) = sum_{j >= 0} S(t1 + j c) the saves that an up-time commits, the goodput of a long run is

    G = tau n(t1) / (M + R)

Two levels. An interruption that needs the durable level, with a share d of all, puts a run back to a durable save and sets all
clocks to zero. The up-times since the previous one, geometric in number, have committed Q saves, of which every k-th is
durable. For the last up-time only those count that are written by its end, from the age t2 on. Of all, Q mod k are lost:

    G = tau ((1 - d) n(t1) + d n(t2) - d E[Q mod k]) / (M + R)

With P1 and P2 the generating functions of the numbers of saves that an up-time commits and writes, that of Q is

    Phi = d P2 / (1 - (1 - d) P1)

    E[Q mod k] = (k - 1)/2 + sum of w/(1 - w) Phi(w) over the roots of unity w of order k but 1

If stops keep all work, what they keep beyond the saves is spread over these; those that save durably also begin anew.

Runs without saves are known exactly, whatever their length: `goodput_without_saves`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from simulator.run import renewal
from simulator.run.columns import FOREVER_S, Runs
from simulator.run.levels import saves_per_durable
from simulator.run.shares import Shares, saved_ahead_share
from simulator.run.up_time_law import committed_s, mean_within_s, scale_s
from simulator.run.weibull_replicas import kept_by_replicas_s
from simulator.table import Floats, Table

_NUM_SINGLE = 64
_NUM_CLASSES = 256
"""Classes of numbers of saves in an up-time: one number each at first, then ever wider."""
_LEAST_SURVIVAL = 1e-6
"""Share of the up-times that reach the last class."""
_LEAST_FRACTION = 1e-3
"""Smallest share of an up-time that counts: below it, the difference between committed and lost work has no digits left."""
_NUM_ROOTS = 32
"""Pairs of roots of unity that are summed: all for up to 65 saves; beyond that, the others hardly contribute."""


def memory_factor(runs: Runs, shares: Shares) -> Floats:
    """Returns the factor by which up-times with memory change the goodput of a long run, `(n,)`.

    With one level, exact if saves never queue for a slot, and with one slot and `WAIT`; the saves of a burst are spread evenly,
    and stops that keep all work count like other interruptions.
    """
    has_memory = (runs.weibull_shape != 1.0) & runs.has_saves & (runs.mtbf_s < FOREVER_S)
    if not np.any(has_memory):
        return np.ones(len(runs))
    is_live = runs.has_live_replicas
    factor = np.ones(len(runs))
    has_two = has_memory & (shares.durable > 0.0) & ~runs.is_unknown
    for has_law, kept in (
        (has_memory & ~is_live, _fast_s),
        (has_two & ~is_live, _durable_s),
        (has_memory & is_live, kept_by_replicas_s),
    ):
        rows = np.flatnonzero(has_law)
        if len(rows):
            some, of = runs.take(rows), shares.take(rows)
            memoryless = replace(some, weibull_shape=np.ones(len(rows)))
            factor[rows] = kept(some, of) / kept(memoryless, of)
    return factor


def goodput_without_saves(runs: Runs, apart_s: Floats) -> Floats:
    """Returns work over expected wall time of runs that start over after each interruption, `(n,)`.

    An up-time lasts for all of the work F with probability S(F). So (1 - S)/S up-times before it do not, each with the time
    `apart_s` to the next one, and all of them together take E[min(U, F)]/S.
    """
    lasts = np.exp(-((runs.work_s / scale_s(runs)) ** runs.weibull_shape))
    return runs.work_s * lasts / (mean_within_s(runs, runs.work_s) + (1.0 - lasts) * apart_s)


def _fast_s(runs: Runs, _: Shares) -> Floats:
    """Returns the work that an up-time commits, `(n,)`."""
    return committed_s(runs, renewal.Cycle.of(runs), runs.first_commit_s)


def _durable_s(runs: Runs, shares: Shares) -> Floats:
    """Returns the work of an up-time that no interruption undoes, `(n,)`."""
    cycle = renewal.Cycle.of(runs)
    written_s = runs.interval_s + runs.stall_s + runs.durable_commit_s
    fast_s = committed_s(runs, cycle, runs.first_commit_s)
    all_s = np.maximum(fast_s, runs.mtbf_s * cycle.gain_s / cycle.length_s)
    begins = np.minimum(saved_ahead_share(runs), shares.planned)
    saves = _Saves.of(runs, cycle, written_s)
    lost = saves.behind_durable(saves_per_durable(runs, cycle.length_s), shares.durable + begins)
    kept_s = (shares.planned - begins) * (all_s - fast_s)
    each_s = cycle.gain_s * (1.0 + kept_s / fast_s)
    last_s = committed_s(runs, cycle, written_s) - lost * each_s
    found_s = shares.planned * all_s + shares.fast * fast_s + shares.durable * last_s
    return np.maximum(found_s, _LEAST_FRACTION * runs.mtbf_s)


@dataclass(frozen=True, kw_only=True)
class _Saves(Table):
    """Number of saves in an up-time, in classes, `(n, m)`."""

    number: Floats
    """Mean of the class."""
    committed: Floats
    """Probability that this number have committed,"""
    written: Floats
    """and that this number are written."""

    @classmethod
    def of(cls, runs: Runs, cycle: renewal.Cycle, written_s: Floats) -> Self:
        """Returns the saves of up-times in which the first write ends at an age."""
        longest_s = scale_s(runs) * (-np.log(_LEAST_SURVIVAL)) ** (1.0 / runs.weibull_shape)
        growth = np.maximum(1.0, longest_s / cycle.length_s / _NUM_SINGLE) ** (
            1.0 / (_NUM_CLASSES - _NUM_SINGLE)
        )
        later = np.arange(1, _NUM_CLASSES - _NUM_SINGLE + 1)
        single = np.broadcast_to(np.arange(_NUM_SINGLE + 1.0), (len(runs), _NUM_SINGLE + 1))
        least = np.concatenate([single, np.round(_NUM_SINGLE * growth[:, None] ** later)], axis=1)
        return cls(
            number=0.5 * (least[:, :-1] + least[:, 1:] - 1.0),
            committed=_probability(runs, cycle, runs.first_commit_s, least),
            written=_probability(runs, cycle, written_s, least),
        )

    def behind_durable(self, apart: Floats, share: Floats) -> Floats:
        """Returns the mean number of saves after the newest durable one, E[Q mod k], `(n,)`.

        Args:
            apart: k.
            share: d, of the interruptions after which all clocks are at zero.
        """
        none = share * self.written[:, 0] / (1.0 - (1.0 - share) * self.committed[:, 0])
        lost = 0.5 * (1.0 - none) * (apart - 1.0)
        step = np.exp(2j * np.pi * self.number / apart[:, None])
        root = np.ones_like(step)
        for number in range(1, int(min(_NUM_ROOTS, np.max(apart) // 2.0)) + 1):
            root = root * step
            written, committed = (self.written * root).sum(axis=1), (self.committed * root).sum(axis=1)
            found = share * written / (1.0 - (1.0 - share) * committed) - none
            cotangent = 1.0 / np.tan(np.pi * number / np.maximum(apart, 2.0 * number))
            # Each root with its conjugate; minus one is its own. The last terms of a truncated sum are damped.
            times = np.select([2.0 * number < apart, 2.0 * number == apart], [1.0, 0.5], 0.0)
            damping = np.where(apart > 2.0 * _NUM_ROOTS + 1.0, np.sinc(number / (_NUM_ROOTS + 1.0)), 1.0)
            lost -= times * damping * (found.real + cotangent * found.imag)
        return lost


def _probability(runs: Runs, cycle: renewal.Cycle, first_s: Floats, least: Floats) -> Floats:
    """Returns the probability of each class: at least its first number of saves and below that of the next, `(n, m)`."""
    age_s = first_s[:, None] + (least - 1.0) * cycle.length_s[:, None]
    survival = np.exp(-((np.maximum(0.0, age_s) / scale_s(runs)[:, None]) ** runs.weibull_shape[:, None]))
    survival[:, 0], survival[:, -1] = 1.0, 0.0
    return -np.diff(survival, axis=1)
