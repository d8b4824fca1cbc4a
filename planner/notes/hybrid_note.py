"""Can the blocks of a hybrid be spread over the stages of a pipeline as evenly as they are simulated?"""

from __future__ import annotations

from math import ceil, floor

import numpy as np

from constraints.best_cut import present_cut
from planner.text import human
from simulator.cuts import stage_figures
from simulator.domain.job import Job
from simulator.domain.linear_attention import LinearAttention
from simulator.domain.plan import Plan, PlanTable
from simulator.layers.layer_costs import dense_layer
from simulator.machine.rank import Rank

NOTEWORTHY_FRACTION = 0.01
"""Stages that are longer by a smaller share are not told."""


def hybrid_notes(job: Job, plan: Plan) -> list[str]:
    """Returns a note where whole blocks make some stage slower than the average blocks that are simulated."""
    linear, num_stages = job.workload.model.linear_attention, plan.pipeline_parallel
    if (
        linear is None
        or linear.num_attention_blocks % num_stages == 0
        or (cut := present_cut(job, plan)) is None
    ):
        return []
    mean = linear.num_attention_blocks / num_stages
    attention_s, linear_s = _block_s(job, plan, linear)
    # Where every layer has one block, one more that attends is one less of the other kind.
    has_one_each = linear.num_mixers == job.workload.model.num_layers
    more_s = attention_s - linear_s if has_one_each else attention_s
    longer_s = max((ceil(mean) - mean) * more_s, (floor(mean) - mean) * more_s)
    longer = longer_s / float(np.max(stage_figures(job, plan, np.array(cut)).micro_batch_s))
    if longer < NOTEWORTHY_FRACTION:
        return []
    note = (
        f"The {human.count(linear.num_attention_blocks)} blocks that attend are simulated as spread evenly, "
        f"{mean:.3g} on each of {num_stages} stages. With whole blocks, {floor(mean)} or {ceil(mean)}, the slowest "
        f"stage takes about {human.percent(longer)} longer for a micro-batch (docs/model/hybrids.md)."
    )
    return [note]


def _block_s(job: Job, plan: Plan, linear: LinearAttention) -> tuple[float, float]:
    """Seconds of a micro-batch, forward and backward, in a block that attends and in one of the other kind."""
    num_layers = job.workload.model.num_layers
    more_attending = {"num_attention_blocks": linear.num_attention_blocks + num_layers}
    more_linear = {"num_blocks": linear.num_blocks + num_layers}
    least_s = _layer_s(job, plan, linear)
    attention_s, linear_s = (
        _layer_s(job, plan, linear.model_copy(update=more)) - least_s
        for more in (more_attending, more_linear)
    )
    return attention_s, linear_s


def _layer_s(job: Job, plan: Plan, linear: LinearAttention) -> float:
    """Seconds of a micro-batch, forward and backward, in a layer of a hybrid with these blocks."""
    model = job.workload.model.model_copy(update={"linear_attention": linear})
    workload = job.workload.model_copy(update={"model": model})
    times = dense_layer(Rank.of(job.model_copy(update={"workload": workload}), PlanTable.from_plans([plan])))
    return float(times.forward_s[0] + times.backward_s[0])
