"""Can the accelerator have run what a row says? It must support the number format, and cannot exceed its peak."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from simulator.domain.hardware import Accelerator, Precision
from simulator.domain.job import Job
from simulator.domain.plan import Plan
from simulator.layout.casts import computes_in
from simulator.layout.trained_weights import trained_flop_per_token

_TOO_FAST = "step_time_s = "
"""Beginning of the reason that applies to every layout of a run."""


def format_reason(job: Job, plan: Plan) -> str:
    """Returns why the accelerator cannot compute in the number format of a run; empty where it can."""
    accelerator = job.offers[plan.offer].accelerator
    if accelerator.peak_flop_per_s(plan.precision) is None:
        return f"precision {plan.precision.value}: {accelerator.id} has only {_formats(accelerator)}"
    if not computes_in(job.workload, accelerator, plan.precision):
        return f"precision mxfp8: {accelerator.id} scales no blocks of 8-bit products; it has {_formats(accelerator)}"
    return ""


def speed_reason(job: Job, plan: Plan, step_time_s: float) -> str:
    """Returns why a step cannot have been so short, its model FLOP exceeding the peak; empty if it can."""
    accelerator = job.offers[plan.offer].accelerator
    peak_flop_per_s = accelerator.peak_flop_per_s(plan.precision)
    if peak_flop_per_s is None:
        return ""
    flop = trained_flop_per_token(job.workload) * job.workload.tokens_per_step
    shortest_s = flop / (peak_flop_per_s * plan.num_gpus)
    if step_time_s >= shortest_s:
        return ""
    return (
        f"{_TOO_FAST}{step_time_s:.4g}: {plan.num_gpus} {accelerator.id} at their peak need {shortest_s:.4g} s for the "
        "products of this step (an MFU above 1); check unit, batch and sequence length"
    )


def reason_of_most(reasons: Sequence[str]) -> str:
    """Returns why no layout is possible: the step is too short, or else the commonest reason.

    Args:
        reasons: why each layout is impossible; at least one.
    """
    too_fast = (reason for reason in reasons if reason.startswith(_TOO_FAST))
    parts = Counter(part for reason in reasons for part in reason.split("; "))
    return next(too_fast, max(parts, key=parts.__getitem__))


def _formats(accelerator: Accelerator) -> str:
    known = [each.value for each in Precision if accelerator.peak_flop_per_s(each) is not None]
    return ", ".join(known)
