"""How far may the wall time of a run be from its mean? Quantiles and risks of every design, without playing it.

The wall time is the first start, work and saves that S slows down, and a delay D for every interruption:

    T = start + F S/E[S] + sum of N delays D,    N negative binomial, e^(-a) the chance of none, a = F S/E[S] / M

F is the expected time of an uninterrupted run (`simulator.run.delays`). A run of n segments between saves, each tried until it
succeeds, has exactly such an N: with c the time of a segment and y = c/M, P(N = 0) = e^(-n y) and

    E[N] = a (e^y - 1)/y,    Var[N] = E[N] e^y.

Here y is chosen so that the mean of T is the expected wall time. S is summed over strata: of the prior over jobs
(`simulator.run.strata`), or of drawn fleets where the causes of stragglers are given. Risk and quantile sum the same terms
(`simulator.run.spread_kernel`) and are inverses of each other. `simulator.simulate.replicate` is the reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.special import ndtri

from simulator.domain.job import Job
from simulator.domain.plan import PlanTable, distinct_layouts
from simulator.domain.straggler_causes import StragglerPrior
from simulator.run.spread_kernel import Memory, RunSpread, exceedances, quantiles
from simulator.run.stragglers import (
    draw_straggler_slowdowns,
    excess_share,
    expected_straggler_slowdown,
)
from simulator.run.strata import strata_of
from simulator.run.wall_time import RunTable
from simulator.step.step import StepTable
from simulator.table import Floats, Integers, row_blocks

_NUM_FLEETS, _FLEET_SEED, _FLEET_ROWS = 200, 0, 2048
"""Fleets drawn per design, their seed, and the number of designs that share the memory for them."""
_FIRST_FLEETS = np.concatenate([np.arange(0, 180, 20), np.arange(180, _NUM_FLEETS, 2)])
"""The first of the fleets, sorted from the fastest, in each stratum: strata have twenty fleets, or two of the slowest, which
matter for late runs."""
_LEAST_FLEET_RISK = 1.0 / _NUM_FLEETS
"""Limit of knowledge with drawn fleets: nothing is known of runs later than with the slowest one."""

LEAST_RISK = 1e-4
"""Risks below one in ten thousand are reported as this: replays were compared up to here (docs/model/run.md), not beyond."""


def wall_time_quantile_s(
    job: Job, plans: PlanTable, steps: StepTable, run: RunTable, probability: float
) -> Floats:
    """Returns the wall time that a run stays below with a given probability, `(n,)`; infinite without progress.

    Compared with replays of the event kernel, it is within 2 % for the median, the 90th and the 95th percentile of runs with at
    least some ten failures, and within 3 % where causes of stragglers are given (tests/simulator/run/test_run_spread.py). It
    holds down to `LEAST_RISK`; drawn fleets say little beyond their 95th percentile.

    Args:
        job: the job, for its stragglers.
        plans: the designs.
        steps: their steps.
        run: their expected runs.
        probability: between 0 and 1, exclusive.
    """
    assert 0.0 < probability < 1.0, "checked by the types of a job"
    late_s = np.concatenate(
        [
            quantile_s(run.take(rows), Slowdowns.of(job, plans.take(rows), steps.take(rows)), probability)
            for rows in _blocks(job, len(plans))
        ]
    )
    return np.where(run.makes_progress, np.maximum(late_s, run.initialization_s + run.productive_s), np.inf)


def miss_probability(
    job: Job, plans: PlanTable, steps: StepTable, run: RunTable, wall_s: Floats | float
) -> Floats:
    """Returns the probability that a run takes longer than a time, `(n,)`; 1 without progress, never below `_least_risk`.

    It is the inverse of `wall_time_quantile_s`.

    Args:
        job: the job, for its stragglers.
        plans: the designs.
        steps: their steps.
        run: their expected runs.
        wall_s: the time, `(n,)` or one.
    """
    limit_s = np.broadcast_to(np.asarray(wall_s, dtype=np.float64), len(plans))
    risk = np.concatenate(
        [
            exceedance(run.take(rows), Slowdowns.of(job, plans.take(rows), steps.take(rows)), limit_s[rows])
            for rows in _blocks(job, len(plans))
        ]
    )
    # No run is shorter than one without failures; the quantile makes the same assumption.
    is_sure = ~run.makes_progress | (limit_s < run.initialization_s + run.productive_s)
    return np.where(is_sure, 1.0, np.maximum(_least_risk(job), risk))


def _least_risk(job: Job) -> float:
    """Returns the risk that stands for itself and all smaller ones: one in 200 where causes of stragglers are given."""
    return _LEAST_FLEET_RISK if _draws_fleets(job) else LEAST_RISK


def _draws_fleets(job: Job) -> bool:
    model = job.reliability.straggler_model
    return not (model is None or isinstance(model, StragglerPrior))


def _blocks(job: Job, num_rows: int) -> list[slice]:
    return row_blocks(num_rows, _FLEET_ROWS if _draws_fleets(job) else max(1, num_rows))


@dataclass(frozen=True, kw_only=True)
class Slowdowns:
    """Distribution of the straggler slow-downs of n runs over their mean: base + slope x, with x one of the strata of a row."""

    base: Floats
    """`(n,)`"""
    slope: Floats
    """`(n,)`"""
    row: Integers
    """Row of the strata of each run, `(n,)`."""
    weights: Floats
    """Probability of the strata, `(k,)`."""
    means: Floats
    """x in each, rising, `(m, k)`."""
    deviations: Floats
    """Standard deviation of x in each, `(m, k)`."""

    @classmethod
    def of(cls, job: Job, plans: PlanTable, steps: StepTable) -> Self:
        """Returns the slow-downs of designs."""
        model, num = job.reliability.straggler_model, len(plans)
        if model is None:
            return cls.none(num)
        if isinstance(model, StragglerPrior):
            mean = expected_straggler_slowdown(job, plans, steps)
            return cls.prior(model, excess_share(job, plans), mean)
        return cls.fleets(job, plans, steps)

    @classmethod
    def none(cls, num_runs: int) -> Self:
        """Returns the slow-downs of runs without stragglers."""
        ones, nothing = np.ones(num_runs), np.zeros((1, 1))
        rows = np.zeros(num_runs, dtype=np.int64)
        return cls(base=ones, slope=ones, row=rows, weights=np.ones(1), means=nothing, deviations=nothing)

    @classmethod
    def prior(cls, model: StragglerPrior, share: Floats, mean: Floats) -> Self:
        """Returns the slow-downs of the prior: (1 + kappa X)/E[S] with the share kappa, `(n,)`, and E[S], `(n,)`."""
        strata = strata_of(model.log_mean, model.log_deviation)
        return cls(
            base=1.0 / mean,
            slope=share / mean,
            row=np.zeros(len(mean), dtype=np.int64),
            weights=strata.weights,
            means=strata.means[None],
            deviations=strata.deviations[None],
        )

    @classmethod
    def fleets(cls, job: Job, plans: PlanTable, steps: StepTable) -> Self:
        """Returns the slow-downs of drawn fleets, several per stratum.

        Each fleet extends halfway to its neighbours on both sides.
        """
        first, layout = distinct_layouts(plans)
        drawn = draw_straggler_slowdowns(
            job, plans.take(first), steps.take(first), num_replications=_NUM_FLEETS, seed=_FLEET_SEED
        )
        fleets = np.sort(drawn / drawn.mean(axis=1, keepdims=True), axis=1)
        wide = np.pad(fleets, ((0, 0), (1, 1)), mode="edge")
        squares = fleets**2 + (0.25 * (wide[:, 2:] - wide[:, :-2])) ** 2
        counts = np.diff(_FIRST_FLEETS, append=_NUM_FLEETS)
        means = np.add.reduceat(fleets, _FIRST_FLEETS, axis=1) / counts
        variances = np.add.reduceat(squares, _FIRST_FLEETS, axis=1) / counts - means**2
        return cls(
            base=np.zeros(len(plans)),
            slope=np.ones(len(plans)),
            row=np.asarray(layout, dtype=np.int64),
            weights=counts / _NUM_FLEETS,
            means=means,
            deviations=np.sqrt(np.maximum(0.0, variances)),
        )

    def quantile(self, probability: float) -> Floats:
        """Returns an approximate slow-down over its mean that runs stay below with a probability, `(n,)`."""
        middles = np.cumsum(self.weights) - 0.5 * self.weights
        x = np.array([np.interp(probability, middles, means) for means in self.means])
        return np.asarray(self.base + self.slope * x[self.row])


def quantile_s(run: RunTable, slowdowns: Slowdowns, probability: float) -> Floats:
    """Returns the wall time that runs that end stay below with a probability, `(n,)`."""
    found_s, slower = np.empty(len(run)), slowdowns.quantile(probability)
    quantiles(
        _spread_of(run, slowdowns), 1.0 - probability, ndtri(probability), slower, Memory.empty(), found_s
    )
    return run.initialization_s + found_s


def exceedance(run: RunTable, slowdowns: Slowdowns, limit_s: Floats) -> Floats:
    """Returns the probability that runs that end take longer than a time, `(n,)`."""
    found = np.empty(len(run))
    exceedances(_spread_of(run, slowdowns), limit_s - run.initialization_s, Memory.empty(), found)
    return found


def _later_s(run: RunTable) -> Floats:
    """Expected wall time without the first start, `(n,)`; 1 for a run that never ends."""
    return np.where(run.makes_progress, run.wall_time_s - run.initialization_s, 1.0)


def _spread_of(run: RunTable, slowdowns: Slowdowns) -> RunSpread:
    """Returns the numbers that the kernel sums over; a run that never ends has no delays."""
    ends = run.makes_progress
    calm_s = np.where(ends, run.calm_s, 1.0)
    num_calm = np.where(ends, run.num_calm, 0.0)
    share = np.stack([run.near_share, run.far_share], axis=1)
    mean_s = np.where(ends[:, None], np.stack([run.near_mean_s, run.far_mean_s], axis=1), 0.0)
    delay_s = num_calm * (share[:, 0] * mean_s[:, 0] + share[:, 1] * mean_s[:, 1])
    growth = np.divide(_later_s(run) - calm_s, delay_s, out=np.ones(len(run)), where=ends & (delay_s > 0.0))
    return RunSpread(
        calm_s=calm_s,
        num_calm=num_calm,
        growth=growth,
        share=share,
        mean_s=mean_s,
        variance_s2=np.stack([run.near_variance_s2, run.far_variance_s2], axis=1),
        third_s3=np.stack([run.near_third_s3, run.far_third_s3], axis=1),
        row=slowdowns.row,
        base=slowdowns.base,
        slope=slowdowns.slope,
        weights=slowdowns.weights,
        means=slowdowns.means,
        deviations=slowdowns.deviations,
    )
