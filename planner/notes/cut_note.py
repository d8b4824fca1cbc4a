"""Does a plan cut its layers into unequal chunks, and how is a framework told so?"""

from __future__ import annotations

from constraints.best_cut import present_cut
from planner.text import human
from planner.text.cut_words import in_short, megatron_layout
from simulator.domain.job import Job
from simulator.domain.plan import Plan


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
