"""By how much do a fleet's stragglers slow the designs of a job down? The prior over jobs; causes, where they are known."""

from __future__ import annotations

import math

import numpy as np

from simulator.activations import num_micro_batches
from simulator.job import Job
from simulator.offer_table import OfferTable
from simulator.plan import PlanTable
from simulator.step import StepTable
from simulator.straggler_slowdown import StragglerDesigns, draw_slowdowns, expected_slowdown
from simulator.stragglers import StragglerPrior
from simulator.table import Floats


def expected_straggler_slowdown(job: Job, plans: PlanTable, steps: StepTable) -> Floats:
    """Returns the expected slow-down S >= 1 of each design's step, `(n,)`."""
    model = job.reliability.straggler_model
    if model is None:
        return np.ones(len(plans))
    if isinstance(model, StragglerPrior):
        return np.full(len(plans), job.reliability.straggler_slowdown)
    return expected_slowdown(model, _designs(job, plans, steps))


def draw_straggler_slowdowns(
    job: Job, plans: PlanTable, steps: StepTable, *, num_replications: int, seed: int
) -> Floats:
    """Draws slow-downs of whole runs, `(n, R)`; replication r has the same luck in every design."""
    model = job.reliability.straggler_model
    if model is None:
        return np.ones((len(plans), num_replications))
    run_s = job.workload.num_steps * steps.step_time_s
    return draw_slowdowns(
        model, _designs(job, plans, steps), num_replications=num_replications, seed=seed, run_s=run_s
    )


def least_slowdown(job: Job) -> float:
    """Returns a slow-down that neither the expected run of any design nor a limited quantile of it stays below.

    A quantile from the median on is at least that of the stragglers alone.
    """
    model, limits = job.reliability.straggler_model, job.limits
    is_quantile_limited = limits.deadline_probability is not None or limits.budget_probability is not None
    if not isinstance(model, StragglerPrior) or not is_quantile_limited:
        return job.reliability.straggler_slowdown
    return min(job.reliability.straggler_slowdown, 1.0 + math.exp(model.log_mean))


def _designs(job: Job, plans: PlanTable, steps: StepTable) -> StragglerDesigns:
    gpus_per_node = OfferTable.from_job(job).gpus_per_node[plans.offer]
    return StragglerDesigns.of(plans, steps, num_micro_batches(job.workload, plans), gpus_per_node)
