"""How long is a run up if some of its interruptions are announced? These keep all work, and a new interval begins.

Let a be the rate of interruptions that lose work, p that of announced ones, and q = a + p. A run of length F with no save to go
back to is up for f0(F), the solution of its renewal equation with f0' = q exp(q F) / (p exp(q F) + a):

    f0(F) = ln((p exp(q F) + a) / q) / p                            (exp(a F) - 1) / a without announced ones

If a save commits after every T, without delay, then with E = exp(-q T) the sum

    (p + a E)/q f(w) - E f(w - T) + a E (integral of f from w - T to w) - (1 - E) w

is the same for all w >= T, so the up-time f(w) of work w approaches the line b w + A, where, with g(w) = f0(w) - b w,

    b = (1 - E)/D,    D = p/q (1 - E) + a T E,    A = ((p + a E)/q g(T) + a E (integral of g from 0 to T)) / D

The end of a run, in which saves no longer help, takes f0(F) if its saves are where they would be without announced stops, and b
F + A on average if an announced stop has moved them; q / (p exp(q T) + a) is the probability that none comes before an up-time
reaches T. Here T is the first commit, including stall and commit. Each earlier save adds what it does in a long run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from simulator.run.columns import Runs
from simulator.run.renewal import Cycle, Ends, num_steps
from simulator.table import Floats, Table, total

_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(3)
"""Quadrature of the integral over an interval: within 1 % for an interval of six up-times; beyond that it matters less and
less."""
LEAST_SHARE = 1e-12
"""Announced interruptions below this share count as none: they come from rounding."""
MOST_EXPONENT = 700.0
"""Exponent from which exp(x) - 1 has no digits in common with what is added to it, and beyond which it would overflow."""


@dataclass(frozen=True, kw_only=True)
class Announced(Table):
    """The announced interruptions of runs, `(n,)`."""

    per_second: Floats
    """p, above 0."""
    per_work: Floats
    """Up-time per second of work of a long run."""

    @classmethod
    def of(cls, runs: Runs, share: Floats, per_work: Floats) -> Self:
        """Returns the interruptions with this share of all; where there are none, the rate is too small to matter."""
        return cls(per_second=np.maximum(share, LEAST_SHARE) / runs.mtbf_s, per_work=per_work)


def announced_up_time_s(runs: Runs, cycle: Cycle, ends: Ends, announced: Announced) -> Floats:
    """Returns the expected time between restarts, `(n,)`.

    Args:
        runs: the runs; `mtbf_s` is the mean up-time between interruptions that lose work.
        cycle: of their saves.
        ends: of their saves.
        announced: the others.
    """
    steps = num_steps(runs, cycle, ends)
    line = _Line.of(runs, announced)
    is_unmoved = np.where(steps > 0.0, np.exp(-line.announced_per_s * line.unsaved_s(line.first_s)), 1.0)
    end_s = is_unmoved * line.unsaved_s(ends.base_s) + (1.0 - is_unmoved) * line.up_time_s(ends.base_s)
    return end_s + steps * cycle.gain_s * announced.per_work


def unsaved_up_time_s(announced_per_s: Floats, per_s: Floats, length_s: Floats) -> Floats:
    """Returns f0, `(n,)`, with q interruptions per second, of which p > 0 are announced."""
    exponent = per_s * length_s
    grown = announced_per_s / per_s * np.expm1(np.minimum(exponent, MOST_EXPONENT))
    return (np.log1p(grown) + np.maximum(0.0, exponent - MOST_EXPONENT)) / announced_per_s


@dataclass(frozen=True, kw_only=True)
class _Line(Table):
    """Asymptotic up-time for large amounts of work, `(n,)`; letters as at the head of this module."""

    announced_per_s: Floats
    """p."""
    per_s: Floats
    """q."""
    first_s: Floats
    """T."""

    @classmethod
    def of(cls, runs: Runs, announced: Announced) -> Self:
        """Returns the line of all runs."""
        return cls(
            announced_per_s=announced.per_second,
            per_s=announced.per_second + 1.0 / runs.mtbf_s,
            first_s=runs.first_commit_s,
        )

    def unsaved_s(self, length_s: Floats) -> Floats:
        """Returns f0."""
        return unsaved_up_time_s(self.announced_per_s, self.per_s, length_s)

    def up_time_s(self, length_s: Floats) -> Floats:
        """Returns b F + A."""
        share, exponent = self.announced_per_s / self.per_s, self.per_s * self.first_s
        lasts, ends = np.exp(-exponent), -np.expm1(-exponent)
        loses = (1.0 - share) * exponent * lasts
        divisor = share * ends + loses
        slope = ends / divisor
        whole_s = self.unsaved_s(self.first_s) - slope * self.first_s
        times_s = (point * self.first_s for point in 0.5 * (1.0 + _POINTS))
        mean_s = total(
            0.5 * weight * self.unsaved_s(time_s) for weight, time_s in zip(_WEIGHTS, times_s, strict=True)
        )
        mean_s -= 0.5 * slope * self.first_s
        return slope * length_s + ((share + (1.0 - share) * lasts) * whole_s + loses * mean_s) / divisor
