"""How far may the wall time of a run be from its mean? Quantiles of every design, without playing it.

The wall time is the first start plus work that is slowed down by S and stretched by saves and failures:

    T = start + A (1 + kappa X) + s N,    X = e^(mu + sigma Z),  Z and N standard normal

S = 1 + kappa X (`simulator.run.stragglers`) is the slow-down of the job by stragglers, A the wall time of a run without
them, and s^2 the variance of the time that interruptions take: a Poisson number n of losses L has variance n E[L^2]. Of a
loss, the work that a failure undoes is uniform between nothing and twice its mean, the restart lognormal, and the wait for
a node either that for a spare or the longest one. Where the causes of stragglers are known, the quantile of S is that of
drawn fleets, and both deviations from the mean add up as squares.
`simulator.run.wall_time.replicate_runs` is the judge.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.special import ndtr, ndtri

from simulator.interruptions import node_loss_share
from simulator.job import Job
from simulator.plan import PlanTable, distinct_layouts
from simulator.run.stragglers import (
    draw_straggler_slowdowns,
    excess_share,
    expected_straggler_slowdown,
)
from simulator.run.strata import Strata, strata_of
from simulator.run.wall_time import RunTable
from simulator.step import StepTable
from simulator.stragglers.causes import StragglerPrior
from simulator.table import Floats
from simulator.units import DAY

_UNIFORM_SECOND_MOMENT = 4.0 / 3.0
"""E[l^2] / E[l]^2 of a loss that is uniform from 0 to twice its mean."""
_NUM_HALVINGS = 50
_NOISE_RATIOS = np.concatenate([[1e-9], np.geomspace(1e-4, 1e3, 113)])
"""Values of s / A at which the quantile is tabulated; the rest is interpolated, beyond them it is that of noise alone."""

_NUM_FLEETS, _FLEET_SEED, _FLEET_ROWS = 200, 0, 2048
"""Fleets that are drawn per design, from which seed, and designs that share the memory for them."""
_LEAST_FLEET_RISK = 1.0 / _NUM_FLEETS
"""Where fleets are drawn, nothing is known of a run that is later than with the slowest one."""

LEAST_RISK = 1e-4
"""Risks below one in ten thousand count as this: so far out replays were compared (docs/model.md), no farther."""
_LEAST_NOISE = 1e-9
"""Share of the wall time that stands for no failures at all."""
_LEAST_SHARE = 1e-12
"""Share kappa of the prior's excess that stands for none."""


def wall_time_quantile_s(
    job: Job, plans: PlanTable, steps: StepTable, run: RunTable, probability: float
) -> Floats:
    """Returns the wall time that a run stays below with a probability, `(n,)`; infinite without progress.

    Against replays of the event kernel it is within 2 % of the median, the 90th and the 95th percentile of runs with some
    ten failures or more, and within 3 % where causes of stragglers are given (tests/simulator/test_run_spread.py). With
    the prior of stragglers it holds as far as `LEAST_RISK`; drawn fleets say little beyond their 95th percentile.

    Args:
        job: the job, for its stragglers and restarts.
        plans: the designs.
        steps: their steps.
        run: their expected runs.
        probability: between 0 and 1, both left out.
    """
    assert 0.0 < probability < 1.0, "checked by the types of a job"
    model, ends = job.reliability.straggler_model, run.makes_progress
    wall_s = np.where(ends, run.wall_time_s, 1.0)
    deviation_s, sureness = _failure_deviation_s(job, plans, run), float(ndtri(probability))
    work_s = wall_s - run.initialization_s
    if isinstance(model, StragglerPrior):
        # S = 1 + kappa X: what noise adds to kappa X is kappa times what noise of 1/kappa the size adds to X.
        share = excess_share(job, plans)
        unhindered_s = work_s / expected_straggler_slowdown(job, plans, steps)
        table = _quantile_table(model.log_mean, model.log_deviation, probability)
        noise = deviation_s / unhindered_s
        ratio = np.divide(noise, share, out=np.full(len(share), _NOISE_RATIOS[-1]), where=share > 0.0)
        slowness = share * np.interp(ratio, _NOISE_RATIOS, table)
        quantile_s = run.initialization_s + unhindered_s * (1.0 + slowness) + sureness * deviation_s
    else:
        above_s = work_s * (_drawn_quantile(job, plans, steps, probability) - 1.0)
        squares = above_s * np.abs(above_s) + sureness * abs(sureness) * deviation_s**2
        quantile_s = wall_s + np.sign(squares) * np.sqrt(np.abs(squares))
    return np.where(ends, np.maximum(quantile_s, run.initialization_s + run.productive_s), np.inf)


def miss_probability(
    job: Job, plans: PlanTable, steps: StepTable, run: RunTable, wall_s: Floats | float
) -> Floats:
    """Returns how likely a run takes longer than a time, `(n,)`; 1 without progress, never below `_least_risk`.

    With the prior of stragglers it is the inverse of `wall_time_quantile_s`: both sum over the same strata.

    Args:
        job: the job, for its stragglers and restarts.
        plans: the designs.
        steps: their steps.
        run: their expected runs.
        wall_s: the time, `(n,)` or one.
    """
    limit_s = np.broadcast_to(np.asarray(wall_s, dtype=np.float64), len(plans))
    risks = [
        _miss_probability(job, plans.take(rows), steps.take(rows), run.take(rows), limit_s[rows])
        for rows in _blocks(len(plans))
    ]
    return np.where(run.makes_progress, np.maximum(_least_risk(job), np.concatenate(risks)), 1.0)


def _least_risk(job: Job) -> float:
    """Returns the risk that stands for itself and all smaller ones: where causes of stragglers are given one in 200."""
    model = job.reliability.straggler_model
    return LEAST_RISK if model is None or isinstance(model, StragglerPrior) else _LEAST_FLEET_RISK


def _miss_probability(job: Job, plans: PlanTable, steps: StepTable, run: RunTable, limit_s: Floats) -> Floats:
    expected = np.where(run.makes_progress, run.wall_time_s, 1.0)
    share, slowdown, strata = _excess(job, plans, steps)
    unhindered_s = (expected - run.initialization_s) / slowdown
    noise_s = np.maximum(_failure_deviation_s(job, plans, run), _LEAST_NOISE * expected)
    # Everything over kappa A: what X may be, and what noise adds to it.
    unit_s = np.maximum(share, _LEAST_SHARE) * unhindered_s
    allowed = (limit_s - run.initialization_s - unhindered_s) / unit_s
    widths = np.sqrt((noise_s / unit_s)[:, None] ** 2 + strata.deviations**2)
    risk = ndtr((strata.means - allowed[:, None]) / widths) @ strata.weights
    # No run is shorter than one in which nothing fails, as the quantile has it, too.
    return np.where(limit_s < run.initialization_s + run.productive_s, 1.0, risk)


def _excess(job: Job, plans: PlanTable, steps: StepTable) -> tuple[Floats, Floats, Strata]:
    """Share kappa of X, mean slow-down by stragglers, `(n,)` each, and X itself; of drawn fleets both are one."""
    model, ones = job.reliability.straggler_model, np.ones(len(plans))
    if model is None:
        return ones, ones, Strata(weights=np.ones(1), means=np.zeros(1), deviations=np.zeros(1))
    if isinstance(model, StragglerPrior):
        slowdown = expected_straggler_slowdown(job, plans, steps)
        return excess_share(job, plans), slowdown, strata_of(model.log_mean, model.log_deviation)
    first, layout = distinct_layouts(plans)
    fleets = _drawn_fleets(job, plans.take(first), steps.take(first))
    relative = (fleets / fleets.mean(axis=1, keepdims=True))[layout]
    weights = np.full(_NUM_FLEETS, 1.0 / _NUM_FLEETS)
    return ones, ones, Strata(weights=weights, means=relative - 1.0, deviations=np.zeros(1))


def _blocks(num_rows: int) -> list[slice]:
    return [slice(start, start + _FLEET_ROWS) for start in range(0, max(1, num_rows), _FLEET_ROWS)]


def _drawn_fleets(job: Job, plans: PlanTable, steps: StepTable) -> Floats:
    """Slow-downs by stragglers of drawn fleets, `(n, k)`."""
    return draw_straggler_slowdowns(job, plans, steps, num_replications=_NUM_FLEETS, seed=_FLEET_SEED)


def _drawn_quantile(job: Job, plans: PlanTable, steps: StepTable, probability: float) -> Floats:
    """Quantile of the slow-down by stragglers of drawn fleets over their mean, `(n,)`; once for each layout."""
    if job.reliability.straggler_model is None:
        return np.ones(len(plans))
    first, layout = distinct_layouts(plans)
    drawn = [
        _drawn_fleets(job, plans.take(first[rows]), steps.take(first[rows])) for rows in _blocks(len(first))
    ]
    of_layout = np.concatenate(
        [np.quantile(fleets, probability, axis=1) / fleets.mean(axis=1) for fleets in drawn]
    )
    return np.asarray(of_layout[layout])


def _failure_deviation_s(job: Job, plans: PlanTable, run: RunTable) -> Floats:
    """Standard deviation of the time that interruptions take, `(n,)`: sqrt(n E[L^2]); 0 without progress or failures."""
    with np.errstate(invalid="ignore", divide="ignore"):
        # A planned stop comes back as a failure does, but loses no work where anything is saved.
        losing = np.where(np.isfinite(run.checkpoint_interval_s), run.num_failures, _num_interruptions(run))
        redone_s = np.where(losing > 0.0, run.lost_work_s / losing, 0.0)
        way_back_s = run.way_back_s / _num_interruptions(run)
        of_failures = losing * (_UNIFORM_SECOND_MOMENT * redone_s**2 + 2.0 * redone_s * way_back_s)
        variance = of_failures + _num_interruptions(run) * _way_back_second_moment(job, plans, run)
    return np.sqrt(np.where(np.isfinite(variance), variance, 0.0))


def _num_interruptions(run: RunTable) -> Floats:
    return run.num_failures + run.num_planned_stops


def _way_back_second_moment(job: Job, plans: PlanTable, run: RunTable) -> Floats:
    """E[l^2] of the ways back, `(n,)`: a lognormal restart, a load, and a wait for a spare or, if none is left, the longest."""
    restart, num = job.reliability.restart, _num_interruptions(run)
    restart_s, load_s, wait_s = (
        run.restart_s / num,
        run.checkpoint_restore_s / num,
        run.replacement_wait_s / num,
    )
    spare_s = restart.replace_from_spare_s
    longest_s = max(spare_s, min(restart.replace_from_queue_s, job.reliability.repair_days * DAY + spare_s))
    for_spare_s = np.minimum(wait_s, node_loss_share(job, plans) * spare_s)
    wait_squared = for_spare_s * spare_s + (wait_s - for_spare_s) * (spare_s + longest_s)
    spread = math.exp(restart.log_deviation**2)
    return (
        spread * restart_s**2
        + 2.0 * restart_s * (load_s + wait_s)
        + load_s**2
        + 2.0 * load_s * wait_s
        + wait_squared
    )


@lru_cache(maxsize=64)
def _quantile_table(log_mean: float, log_deviation: float, probability: float) -> Floats:
    """Quantile of X + r N less that of r N alone, for every r of `_NOISE_RATIOS`."""
    strata = strata_of(log_mean, log_deviation)
    widths = np.sqrt(_NOISE_RATIOS[:, None] ** 2 + strata.deviations**2)
    low = (strata.means - 10.0 * widths).min(axis=1)
    high = (strata.means + 10.0 * widths).max(axis=1)
    for _ in range(_NUM_HALVINGS):
        middle = 0.5 * (low + high)
        is_below = ndtr((middle[:, None] - strata.means) / widths) @ strata.weights < probability
        low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
    return np.asarray(0.5 * (low + high) - ndtri(probability) * _NOISE_RATIOS)
