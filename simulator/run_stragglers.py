"""By how much do a fleet's stragglers slow the designs of a job down? The prior over jobs; causes, where they are known."""

from __future__ import annotations

import math

import numpy as np

from simulator.job import Job
from simulator.plan import PlanTable
from simulator.step import StepTable
from simulator.table import Floats


def expected_straggler_slowdown(job: Job, plans: PlanTable, steps: StepTable) -> Floats:
    """Returns the expected slow-down S >= 1 of each design's step, `(n,)`."""
    return np.full(len(plans), job.reliability.straggler_slowdown)


def draw_straggler_slowdowns(
    job: Job, plans: PlanTable, steps: StepTable, *, num_replications: int, seed: int
) -> Floats:
    """Draws slow-downs `(n, R)` or `(1, R)`; replication r has the same luck in every design."""
    reliability = job.reliability
    if reliability.straggler_log_mean is None:
        return np.ones((1, num_replications))
    normal = np.random.Generator(np.random.PCG64(seed)).standard_normal((1, num_replications))
    return 1.0 + np.exp(reliability.straggler_log_mean + reliability.straggler_log_deviation * normal)


def least_slowdown(job: Job) -> float:
    """Returns a slow-down that neither the expected run of any design nor a limited quantile of it stays below.

    A quantile from the median on is at least that of the stragglers alone.
    """
    reliability, limits = job.reliability, job.limits
    is_quantile_limited = limits.deadline_probability is not None or limits.budget_probability is not None
    if reliability.straggler_log_mean is None or not is_quantile_limited:
        return reliability.straggler_slowdown
    return min(reliability.straggler_slowdown, 1.0 + math.exp(reliability.straggler_log_mean))
