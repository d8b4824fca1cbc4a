"""Why does a model fit in no layout, and how many accelerators would it need? A proof by CP-SAT, in words."""

from __future__ import annotations

import numpy as np

from constraints.memory_model import LeastMemory, explain_memory
from planner.recommended.design_words import layout
from planner.recommended.recommendation import Infeasibility
from planner.text import human
from simulator.domain.job import Job
from simulator.memory.peak import memory_by_stage


def no_memory(job: Job, num_layouts: int) -> Infeasibility:
    """Returns the answer for a job whose layouts all need more memory than the accelerators on offer have.

    Args:
        job: the question.
        num_layouts: layouts that it has, at least one.
    """
    found = explain_memory(job)
    assert found.least is not None, "a job with layouts has one that needs least"
    too_large = (
        f"{job.workload.model.name} does not fit the memory of the accelerators on offer in any of {num_layouts:,} "
        "layouts; offer more of them or larger ones, or allow more splits (search)"
    )
    nearest = "no number of these accelerators has a layout that fits"
    if found.nearest is not None:
        nearest = (
            f"the nearest number of accelerators that has a layout that fits: {_need(job, found.nearest)}"
        )
    reasons = [
        too_large,
        f"the layout on offer with the lowest memory needs {_need(job, found.least)}",
        nearest,
    ]
    has_pipelines = max(job.search.pipeline_parallel or (2,)) > 1
    if has_pipelines and not job.search.shards_more_in_pipelines:
        reasons.append(
            "pipelines were tried with ZeRO stage 1 alone; search.zero_stages=[1, 2, 3] tries all in them, too"
        )
    return Infeasibility(
        conflict=found.conflict,
        reasons=tuple(reasons),
        proof="memory of every layout; CP-SAT over the least memory needed at any number of accelerators",
        relaxations=(),
    )


def _need(job: Job, one: LeastMemory) -> str:
    """What a layout needs, where, and which it is."""
    plan = one.layouts.plan(0)
    stage = int(np.argmax(memory_by_stage(job.workload, plan).peak_bytes))
    accelerator = job.offers[plan.offer].accelerator
    kept = human.usable_share(job.search.memory_headroom_fraction)
    where = f", stage {stage} of 0 to {plan.pipeline_parallel - 1}" if plan.pipeline_parallel > 1 else ""
    return (
        f"{human.memory(float(one.needs.memory_bytes[0]))} on each of {plan.num_gpus:,} {accelerator.id}, which may use "
        f"{kept}{human.memory(accelerator.memory_bytes)} ({layout(plan)}{where})"
    )
