"""When does the next save commit, and with how much work, if the fast level survives announced stops?

Letters are those of `simulator.run.outlived`. The work of an up-time grows piecewise: at the rate of its age up to a save, not
at all during the stall, at 1/(1 + gamma) of the rate up to the commit, and at the full rate again up to the next save. For a
piece of length l that begins with work w and grows by g per second, stops need the integrals up to l of

    (w + g u)^n exp(-s u)      with those of u^n exp(-s u) = n! P(n + 1, s l)/s^(n + 1), P the regularized gamma function

K is where p I + a H = 1, with I the integral of exp(K w - s x) over the ages x of an up-time, and H the same with w its
committed work; each cycle of saves adds exp(K tau - s c) times the contribution of the cycle before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.special import gammainc

from simulator.run import renewal
from simulator.run.announced import MOST_EXPONENT, unsaved_up_time_s
from simulator.run.columns import Runs
from simulator.table import Floats, Table, TableGroup

_NUM_SECANTS = 24
"""Secant steps between two bounds for the root of a nearly straight function, to full single precision."""


@dataclass(frozen=True, kw_only=True)
class Rates(Table):
    """Interruptions per second of up-time, `(n,)`; letters as at the head of `simulator.run.outlived`."""

    fast: Floats
    """a."""
    kept: Floats
    """p, above 0."""
    durable: Floats
    """b, above 0."""
    saved: Floats
    """Announced stops that are saved durably."""

    @property
    def again(self) -> Floats:
        """Rate of those after which the fast level continues: a + p."""
        return self.fast + self.kept

    @property
    def all(self) -> Floats:
        """Rate of all except those that are saved durably: s."""
        return self.fast + self.kept + self.durable

    @property
    def ends(self) -> Self:
        """Rate of those that matter while a save is awaited: b includes all that begin anew from a durable save."""
        return replace(self, durable=self.durable + self.saved)


@dataclass(frozen=True, kw_only=True)
class NextSave(Table):
    """The next save, `(n,)`, given that no failure needs the durable level first."""

    weight: Floats
    """A or C: the probability of that."""
    missed: Floats
    """1 - A or 1 - C, to full precision where it is small."""
    work_s: Floats
    """Mean of W."""
    variance_s2: Floats
    """Variance of W."""

    @classmethod
    def of(cls, weight: Floats, missed: Floats, work_s: Floats, square_s2: Floats) -> Self:
        """Returns a save with these means of the work and of its square."""
        variance_s2 = np.maximum(0.0, square_s2 - work_s**2)
        return cls(weight=weight, missed=missed, work_s=work_s, variance_s2=variance_s2)


@dataclass(frozen=True, kw_only=True)
class NextSaves(TableGroup):
    """The next saves of runs."""

    first: NextSave
    """After a restart."""
    later: NextSave
    """After a commit."""

    @classmethod
    def of(cls, runs: Runs, rates: Rates) -> Self:
        """Returns the next saves of all runs. Exponentials are relative to E1, which may be too small for a number."""
        again, per_s = rates.again, rates.all
        growth = _Growth.of(runs, rates)
        first, later = per_s * growth.first_s, per_s * growth.cycle.length_s
        gain_s, ended_s = growth.cycle.gain_s, -np.expm1(-later) / per_s
        restarted = per_s / (rates.durable + again * np.exp(-first))
        kept = rates.kept * restarted
        kept_s, kept_s2 = _moments(per_s, np.zeros(len(runs)), growth.first)
        first_work_s = runs.interval_s + kept * kept_s
        first_work_s2 = runs.interval_s**2 + kept * (kept_s2 + 2.0 * first_work_s * kept_s)
        kept_s, kept_s2 = _moments(per_s, growth.left_s, growth.later)
        at_once, ended = np.exp(np.minimum(MOST_EXPONENT, first - later)), again * ended_s * restarted
        reached = at_once + ended
        later_work_s = at_once * gain_s + kept * kept_s + ended * first_work_s
        later_work_s2 = (
            at_once * gain_s**2 + kept * (kept_s2 + 2.0 * first_work_s * kept_s) + ended * first_work_s2
        )
        missed = rates.durable * restarted / per_s  # in an up-time that ends before its commit
        return cls(
            first=NextSave.of(
                restarted * np.exp(-first), missed * -np.expm1(-first), first_work_s, first_work_s2
            ),
            later=NextSave.of(
                reached * np.exp(-first),
                missed * -np.expm1(-later),
                later_work_s / reached,
                later_work_s2 / reached,
            ),
        )


@dataclass(frozen=True, kw_only=True)
class Clock(Table):
    """Time that runs take without durable saves and without failures that need them, `(n,)`."""

    kept_per_s: Floats
    """p + b."""
    per_s: Floats
    """s."""
    interval_s: Floats
    per_work: Floats
    """F' of long work."""

    @classmethod
    def of(cls, runs: Runs, rates: Rates) -> Self:
        """Returns the clock of all runs; where no save is durable, all stops keep work alike, wherever it is saved."""
        rates = replace(rates, kept=rates.kept + rates.saved)
        return cls(
            kept_per_s=rates.kept + rates.durable,
            per_s=rates.all,
            interval_s=runs.interval_s,
            per_work=_clock_per_work(runs, rates),
        )

    def at_s(self, work_s: Floats) -> Floats:
        """Returns F of some work, `(n,)`."""
        first_s = unsaved_up_time_s(self.kept_per_s, self.per_s, np.minimum(work_s, self.interval_s))
        return first_s + np.maximum(0.0, work_s - self.interval_s) * self.per_work


_Piece = tuple[Floats, Floats]
"""Length, and growth of the work per second, `(n,)`."""


@dataclass(frozen=True, kw_only=True)
class _Growth:
    """Growth of the work of up-times with their age."""

    cycle: renewal.Cycle
    first_s: Floats
    """t1, `(n,)`."""
    left_s: Floats
    """Work since a save when it commits, `(n,)`."""
    first: tuple[_Piece, ...]
    """Up to the first commit."""
    later: tuple[_Piece, ...]
    """From commit to commit."""
    begun: tuple[_Piece, ...]
    """From save to save."""

    @classmethod
    def of(cls, runs: Runs, rates: Rates) -> Self:
        """Returns the growth of all runs; with several saves under way, each cycle ends with a commit."""
        cycle = renewal.Cycle.of(replace(runs, mtbf_s=1.0 / rates.again))
        slower, steady = 1.0 / (1.0 + runs.tax_fraction), np.ones(len(runs))
        stall = runs.stall_s, np.zeros(len(runs))
        taxed = np.minimum(runs.commit_s, cycle.length_s - runs.stall_s), slower
        ahead = cycle.length_s - runs.stall_s - taxed[0], steady
        return cls(
            cycle=cycle,
            first_s=runs.first_commit_s,
            left_s=runs.commit_s * slower,
            first=((runs.interval_s, steady), stall, (runs.commit_s, slower)),
            later=(ahead, stall, taxed),
            begun=(stall, taxed, ahead),
        )


def _moments(per_s: Floats, work_s: Floats, pieces: tuple[_Piece, ...]) -> tuple[Floats, Floats]:
    """Returns the integrals of w exp(-s x) and w^2 exp(-s x) over pieces of an up-time that begins with this work, `(n,)`."""
    first_s2, second_s3, left = np.zeros(len(per_s)), np.zeros(len(per_s)), np.ones(len(per_s))
    for length_s, growth in pieces:
        none, one, two = (gammainc(n, per_s * length_s) / per_s**n for n in (1.0, 2.0, 3.0))
        first_s2 = first_s2 + left * (work_s * none + growth * one)
        second_s3 = second_s3 + left * (work_s**2 * none + 2.0 * growth * (work_s * one + growth * two))
        left, work_s = left * np.exp(-per_s * length_s), work_s + growth * length_s
    return first_s2, second_s3


def _clock_per_work(runs: Runs, rates: Rates) -> Floats:
    """Returns F' = K/b, `(n,)`: 1/(p I + a H) falls from s/(a + p) to nothing up to the pole of both, and is 1 at K."""
    growth = _Growth.of(runs, rates)
    low, high = np.zeros(len(runs)), rates.all * growth.cycle.length_s / growth.cycle.gain_s
    above, below = rates.durable / rates.again, np.full(len(runs), -1.0)
    for _ in range(_NUM_SECANTS):
        root = (above * high - below * low) / (above - below)
        value = 1.0 / _transform(runs, rates, growth, root) - 1.0
        is_low = value > 0.0
        # A bound that stays is halved in weight, so that neither stays for long.
        below, above = np.where(is_low, 0.5 * below, value), np.where(is_low, value, 0.5 * above)
        low, high = np.where(is_low, root, low), np.where(is_low, high, root)
    return np.asarray(root / rates.durable)


def _transform(runs: Runs, rates: Rates, growth: _Growth, exponent: Floats) -> Floats:
    """Returns p I + a H, `(n,)`, at an exponent below the pole."""
    per_s, cycle = rates.all, growth.cycle
    cycles = 1.0 / -np.expm1(exponent * cycle.gain_s - per_s * cycle.length_s)
    begun_s = _integral_s(exponent - per_s, runs.interval_s)
    reached, cycle_s = _exp((exponent - per_s) * runs.interval_s), np.zeros(len(runs))
    for length_s, slope in growth.begun:
        per_age = exponent * slope - per_s
        cycle_s = cycle_s + reached * _integral_s(per_age, length_s)
        reached = reached * _exp(per_age * length_s)
    committed = _exp(exponent * runs.interval_s - per_s * growth.first_s)
    fast_s = _integral_s(-per_s, growth.first_s) + cycles * committed * _integral_s(-per_s, cycle.length_s)
    return rates.kept * (begun_s + cycles * cycle_s) + rates.fast * fast_s


def _integral_s(per_s: Floats, length_s: Floats) -> Floats:
    """Returns the integral of exp(r x) up to a length, `(n,)`."""
    grown = np.expm1(np.minimum(per_s * length_s, MOST_EXPONENT))
    return np.divide(grown, per_s, out=length_s.copy(), where=per_s != 0.0)


def _exp(exponent: Floats) -> Floats:
    return np.exp(np.minimum(exponent, MOST_EXPONENT))
