"""Are the stragglers of published jobs those of a job as small as this one? They come from at least 128 accelerators."""

from __future__ import annotations

from planner.text import human
from simulator.domain.job import Job
from simulator.domain.plan import Plan, PlanTable
from simulator.domain.reliability import Reliability
from simulator.run.stragglers import excess_share

LEAST_GPUS = 128
"""Accelerators of the smallest jobs behind the distribution over jobs (arXiv 2505.05713)."""
_PUBLISHED = Reliability.model_fields["straggler_log_mean"].default


def straggler_notes(job: Job, plan: Plan) -> list[str]:
    """Returns a note on a design that is smaller than all published jobs whose slow-down it is charged with."""
    model, known = job.reliability, job.reliability.straggler_slowdown
    if plan.num_gpus >= LEAST_GPUS or model.stragglers is not None or model.straggler_log_mean != _PUBLISHED:
        return []
    added = float(excess_share(job, PlanTable.from_plans([plan]))[0]) * (known - 1.0)
    doubt = (
        f"probably too much for {plan.num_gpus}" if plan.num_gpus > 1 else "but a single one waits for none"
    )
    note = (
        f"Stragglers lengthen the steps by {human.percent(added)}, the mean of published jobs of at least {LEAST_GPUS} "
        f"accelerators (docs/model/stragglers.md), {doubt}: reliability.straggler_log_mean=null leaves them out."
    )
    return [note]
