"""How much do a fleet's stragglers slow down the designs of a job? From the prior over jobs, or from causes if they are known.

The prior compares with identical accelerators (arXiv 2505.05713), whereas a simulated step already waits for the slowest of its
N, through the factor g(N) (`simulator.machine.training`). The remaining share of the prior's excess X is

    kappa = max(0, (1 + E[X])/g - 1) / E[X],    S = 1 + kappa X,

so that g E[S] is the mean slow-down of the published jobs. A measured spread of ranks includes that of their accelerators, too:
only the rest of it lengthens the step, as the slowest of N is later in proportion to the spread.
"""

from __future__ import annotations

import math

import numpy as np

from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.domain.straggler_causes import StragglerPrior, Stragglers
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
    return expected_slowdown(_beyond_accelerators(model), _designs(job, plans, steps))


def draw_straggler_slowdowns(
    job: Job, plans: PlanTable, steps: StepTable, *, num_replications: int, seed: int
) -> Floats:
    """Draws slow-downs of whole runs, `(n, R)`; replication r has the same luck in every design."""
    model = job.reliability.straggler_model
    if model is None:
        return np.ones((len(plans), num_replications))
    run_s = job.workload.num_steps * steps.step_time_s
    is_prior = isinstance(model, StragglerPrior)
    remaining = _beyond_accelerators(model) if isinstance(model, Stragglers) else model
    slowdowns = draw_slowdowns(
        remaining, _designs(job, plans, steps), num_replications=num_replications, seed=seed, run_s=run_s
    )
    return 1.0 + excess_share(job, plans)[:, None] * (slowdowns - 1.0) if is_prior else slowdowns


def _beyond_accelerators(causes: Stragglers) -> Stragglers:
    """Returns the causes with as much of the spread of ranks as a simulated step does not already wait for."""
    spread = training_constants().accelerator_spread_fraction
    left = max(0.0, causes.rank_log_deviation - spread)
    return causes.model_copy(update={"rank_log_deviation": left})


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
