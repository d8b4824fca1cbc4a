"""Would products in 8 bits be faster? What the recommended layout would gain where a job searches 16 bits alone."""

from __future__ import annotations

from constraints.evaluation import evaluate
from constraints.layout import is_valid_layout
from planner.text import human
from simulator.domain.hardware import CAST_FORMATS, Precision
from simulator.domain.job import Job
from simulator.domain.plan import Plan, PlanTable

NOTEWORTHY_FRACTION = 0.02
"""Smaller gains, as a share of the time to train, are not told: they are within the error of nearly every step."""

OF_INTEGERS = frozenset({"tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e"})
"""Accelerators whose 8 bits are integers, which MaxText trains in by AQT (docs/catalog-sources.md, narrow formats on TPUs)."""

_AQT = "AQT in MaxText; 8-bit floating point is no faster than bf16 there"


def precision_notes(job: Job, plan: Plan) -> list[str]:
    """Returns a note if the layout of a plan may run in fp8, the job does not search it, and the layout gains by it.

    A plan in 8 bits that are integers has a note that says so.
    """
    searched = job.workload.precisions
    has_integers = job.offers[plan.offer].accelerator.id in OF_INTEGERS
    if has_integers and plan.precision is Precision.FP8:
        return [f"On {job.offers[plan.offer].accelerator.id} fp8 stands for 8-bit integers ({_AQT})."]
    if any(precision in CAST_FORMATS for precision in searched):
        return []
    plans = PlanTable.from_plans([plan, plan.model_copy(update={"precision": Precision.FP8})])
    if not is_valid_layout(job, plans).all():
        return []
    both = evaluate(job, plans)
    times_s, costs_usd = both.scores.time_to_train_s, both.scores.cost_usd
    gain = 1.0 - float(times_s[1] / times_s[0])
    if not both.is_feasible[1] or gain < NOTEWORTHY_FRACTION:
        return []
    wider = ", ".join(precision.value for precision in (*searched, Precision.FP8))
    note = (
        f"Designs in fp8 were not searched. The recommended layout would train in {human.duration(float(times_s[1]))} with it "
        f"({human.change(-gain)}), for {human.dollars(float(costs_usd[1]))}, if the model converges as in "
        f"{plan.precision.value}: workload.precisions=[{wider}] searches both."
    )
    return [f"{note} On these accelerators fp8 stands for 8-bit integers ({_AQT})." if has_integers else note]
