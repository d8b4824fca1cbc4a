"""Does a plan cut its layers into unequal chunks, how is a framework told so, and would balanced stages be faster?"""

from __future__ import annotations

from constraints.best_cut import present_cut
from constraints.evaluation import evaluate
from planner.text import human
from planner.text.cut_words import in_short, megatron_layout
from simulator.domain.job import Job
from simulator.domain.plan import Plan, PlanTable

NOTEWORTHY_FRACTION = 0.01
"""Smaller gains by balanced stages, as a share of the time to train, are not told."""


def cut_notes(job: Job, plan: Plan) -> list[str]:
    """Returns a note on the layers of each chunk if they differ and the job does not list them."""
    model, listed = job.workload.model, job.workload.stage_layers
    cut = present_cut(job, plan)
    if cut is None or len(set(cut)) == 1 or isinstance(listed, tuple):
        return []
    note = f"{human.count(model.num_layers)} layers on {len(cut)} chunks are cut as {in_short(cut)}"
    if layout := megatron_layout(model, plan, cut):
        note += f' (Megatron Core: --pipeline-model-parallel-layout "{layout}")'
    return [f"{note}."]


def balance_notes(job: Job, plan: Plan) -> list[str]:
    """Returns a note if the job leaves the cut open, and one that counts embedding and output layer gains by it."""
    if plan.pipeline_parallel == 1 or job.workload.stage_layers is not None:
        return []
    workload = job.workload.model_copy(update={"stage_layers": "balanced"})
    balanced, plans = job.model_copy(update={"workload": workload}), PlanTable.from_plans([plan])
    present, other = evaluate(job, plans), evaluate(balanced, plans)
    cut = present_cut(balanced, plan)
    gain = 1.0 - float(other.scores.time_to_train_s[0] / present.scores.time_to_train_s[0])
    if cut is None or not other.is_feasible[0] or not gain >= NOTEWORTHY_FRACTION:
        return []
    time_s, cost_usd = float(other.scores.time_to_train_s[0]), float(other.scores.cost_usd[0])
    note = (
        f"With embedding and output layer counted as layers, and so cut as {in_short(cut)}, the recommended layout would "
        f"train in {human.duration(time_s)} ({human.change(-gain)}), for {human.dollars(cost_usd)}: "
        "workload.stage_layers=balanced searches such cuts (docs/how-to/uneven-stages.md)."
    )
    return [note]
