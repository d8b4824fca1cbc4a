"""How long is the up-time of a run with a few durable saves, each after random work? The renewal equation of its failures.

Letters are those of `simulator.run.outlived`. Failures that go back to the newest durable save have the rate b. If none comes
first, a run makes its next durable save after the work W, with the weight phi(x) per work, which includes exp(-b T), for the
first save after a failure, and psi(x) for later ones of an up-time. A save is durable d after its stall, and the run is ahead
by as much then. With F(w) the time of work w without durable saves, the probabilities that no failure comes before the next
durable save or the end of the run are

    S(w) = exp(-b F(w)) + integral of phi(x) (1 - D(w - x)) dx        D(w) = exp(-b max(0, F(w) - d))
    Z(w) = D(w) + integral of psi(x) (1 - D(w - x)) dx

after a failure and after a durable save. So the up-time f(w) of work w after a failure, and h(w) after a durable save, are

    f(w) S(w) = (1 - S(w))/b + integral of phi(x) h(w - x) dx
    h(w) = (1 - Z(w)) (1/b + f(w)) + integral of psi(x) h(w - x) dx    where F(w) > d, else 0

W is at least k tau; the excess is approximated by a gamma law with its mean and variance. Up to k tau, f is (exp(b F) - 1)/b.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.special import gammainc

from simulator.run.columns import Runs
from simulator.run.next_save import Clock, NextSaves, Rates
from simulator.table import Floats, Table

_NUM_STEPS = 32
"""Steps of the work for the integrals, by the trapezoidal rule."""
_LEAST_SPREAD = 1e-9
"""Mean and deviation of the excess over k tau, relative to k tau, below which they are rounding."""


@dataclass(frozen=True, kw_only=True)
class DurableSaves(Table):
    """The durable saves of runs, `(n,)`, where nothing else is saved durably."""

    failures_per_s: Floats
    """b."""
    ahead_s: Floats
    """d."""
    least_s: Floats
    """k tau."""
    first: Floats
    """Integral of phi."""
    first_work_s: Floats
    first_variance_s2: Floats
    later: Floats
    """Integral of psi."""
    later_work_s: Floats
    later_variance_s2: Floats

    @classmethod
    def of(cls, runs: Runs, rates: Rates, saves: NextSaves, num_apart: Floats) -> Self:
        """Returns the durable saves that come every `num_apart` saves, k."""
        first, later = saves.first, saves.later
        ahead_s = runs.durable_commit_s
        share = np.exp(-rates.durable * (ahead_s - runs.commit_s))
        return cls(
            failures_per_s=rates.durable,
            ahead_s=ahead_s,
            least_s=num_apart * runs.interval_s,
            first=first.weight * later.weight ** (num_apart - 1.0) * share,
            first_work_s=first.work_s + (num_apart - 1.0) * later.work_s,
            first_variance_s2=first.variance_s2 + (num_apart - 1.0) * later.variance_s2,
            later=later.weight**num_apart,
            later_work_s=num_apart * later.work_s,
            later_variance_s2=num_apart * later.variance_s2,
        )

    def up_time_s(self, work_s: Floats, clock: Clock) -> Floats:
        """Returns f, `(n,)`, step by step up to the work."""
        works_s = work_s * np.linspace(0.0, 1.0, _NUM_STEPS + 1)[:, None]
        phi = self.first * self._within(works_s, self.first_work_s, self.first_variance_s2)
        psi = self.later * self._within(works_s, self.later_work_s, self.later_variance_s2)
        clock_s, per_s = np.array([clock.at_s(some_s) for some_s in works_s]), self.failures_per_s
        calm, fails = np.exp(-per_s * clock_s), -np.expm1(-per_s * np.maximum(0.0, clock_s - self.ahead_s))
        failed_s, saved_s = np.zeros_like(works_s), np.zeros_like(works_s)
        for step in range(1, _NUM_STEPS + 1):
            first = calm[step] + _integral(phi, fails, step)
            later = 1.0 - fails[step] + _integral(psi, fails, step)
            failed_s[step] = ((1.0 - first) / per_s + _integral(phi, saved_s, step)) / first
            again_s = (1.0 - later) * (1.0 / per_s + failed_s[step]) + _integral(psi, saved_s, step)
            saved_s[step] = np.where(fails[step] > 0.0, again_s, 0.0)
        return np.asarray(failed_s[-1])

    def _within(self, works_s: Floats, mean_s: Floats, variance_s2: Floats) -> Floats:
        """Returns the probability of a durable save within each step of the work, `(steps, n)`."""
        beyond_s = np.maximum(mean_s - self.least_s, _LEAST_SPREAD * self.least_s)
        variance_s2 = np.maximum(variance_s2, (_LEAST_SPREAD * self.least_s) ** 2)
        excess = np.maximum(0.0, works_s - self.least_s) * (beyond_s / variance_s2)
        return np.diff(gammainc(beyond_s**2 / variance_s2, excess), axis=0)


def _integral(weights: Floats, values: Floats, step: int) -> Floats:
    """Returns, over the steps so far, the sum of weights times values at the remaining work, `(n,)`."""
    left = values[step::-1]
    return np.asarray(np.einsum("ij,ij->j", weights[:step], 0.5 * (left[:-1] + left[1:])))
