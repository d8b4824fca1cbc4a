"""How much do a fleet's stragglers slow down the designs of a job? From the prior over jobs, or from causes if they are known.

The prior compares with identical accelerators (arXiv 2505.05713), whereas a simulated step already waits for the slowest of its
N, through the factor g(N) (`simulator.machine.training`). The remaining share of the prior's excess X is

    kappa = max(0, (1 + E[X])/g - 1) / E[X],    S = 1 + kappa X,

so that g E[S] is the mean slow-down of the published jobs.
"""

from __future__ import annotations

import math

import numpy as np

from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.domain.straggler_causes import StragglerPrior
from simulator.machine.offer_table import OfferTable
from simulator.machine.training import training_constants
from simulator.step.step import StepTable
from simulator.stragglers.slowdown import StragglerDesigns, draw_slowdowns, expected_slowdown
from simulator.table import Floats

_NO_EXCESS = 1e-300
"""Stands for no excess, so that there is no division by zero."""


def expected_straggler_slowdown(job: Job, plans: PlanTable, steps: StepTable) -> Floats:
    """Returns the expected slow-down S >= 1 of each design's step, `(n,)`."""
    model = job.reliability.straggler_model
    if model is None:
        return np.ones(len(plans))
    if isinstance(model, StragglerPrior):
        return 1.0 + excess_share(job, plans) * (job.reliability.straggler_slowdown - 1.0)
    return expected_slowdown(model, _designs(job, plans, steps))


def draw_straggler_slowdowns(
    job: Job, plans: PlanTable, steps: StepTable, *, num_replications: int, seed: int
) -> Floats:
    """Draws slow-downs of whole runs, `(n, R)`; replication r has the same luck in every design."""
    model = job.reliability.straggler_model
    if model is None:
        return np.ones((len(plans), num_replications))
    run_s = job.workload.num_steps * steps.step_time_s
    slowdowns = draw_slowdowns(
        model, _designs(job, plans, steps), num_replications=num_replications, seed=seed, run_s=run_s
    )
    if isinstance(model, StragglerPrior):
        return 1.0 + excess_share(job, plans)[:, None] * (slowdowns - 1.0)
    return slowdowns


def excess_share(job: Job, plans: PlanTable) -> Floats:
    """Returns kappa, the share of the prior's excess that a simulated step does not already include, `(n,)`."""
    expected = job.reliability.straggler_slowdown
    slowest = training_constants().slowest_of(plans.num_gpus)
    return np.maximum(0.0, expected / slowest - 1.0) / max(expected - 1.0, _NO_EXCESS)


def least_slowdown(job: Job, plans: PlanTable) -> Floats:
    """Returns a lower bound on the slow-down of the expected run of a design and of a limited quantile of it, `(n,)`.

    From the median on, a quantile is at least that of the stragglers alone.
    """
    model, limits = job.reliability.straggler_model, job.limits
    if not isinstance(model, StragglerPrior):
        return np.ones(len(plans))
    is_quantile_limited = limits.deadline_probability is not None or limits.budget_probability is not None
    excess = job.reliability.straggler_slowdown - 1.0
    least = min(excess, math.exp(model.log_mean)) if is_quantile_limited else excess
    return 1.0 + excess_share(job, plans) * least


def _designs(job: Job, plans: PlanTable, steps: StepTable) -> StragglerDesigns:
    gpus_per_node = OfferTable.from_job(job).gpus_per_node[plans.offer]
    return StragglerDesigns.of(job.workload, plans, steps, gpus_per_node)
