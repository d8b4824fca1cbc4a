"""Which software computes experts as a job does that names none? Not that whose habits hold for the rest of it."""

from __future__ import annotations

import math

from constraints.evaluation import evaluate
from planner.text import human
from simulator.domain.job import Job
from simulator.domain.plan import Plan, PlanTable
from simulator.units import DAY

NOTEWORTHY_FRACTION = 0.01
"""Smaller changes of the time to train are not told."""


def expert_notes(job: Job, plan: Plan) -> list[str]:
    """Returns a note if a plan of a job without a framework takes longer with a product for each expert."""
    workload = job.workload
    if (
        workload.framework is not None
        or workload.model.experts is None
        or workload.expert_products != "grouped"
    ):
        return []
    separate = workload.model_copy(update={"expert_products": "separate"})
    other = job.model_copy(update={"workload": separate})
    one_s, each_s = (
        float(evaluate(asked, PlanTable.from_plans([plan])).scores.time_to_train_s[0])
        for asked in (job, other)
    )
    if not math.isfinite(each_s) or each_s < one_s * (1.0 + NOTEWORTHY_FRACTION):
        return []
    note = (
        "The job names no framework, so the experts of a rank are one kernel (workload.expert_products=grouped). Megatron-LM, "
        f"NeMo and Megatron-Bridge have a product for each, with which the run takes {human.days(each_s / DAY)} "
        f"({human.change(each_s / one_s - 1.0)}): workload.framework names one of them."
    )
    return [note]
