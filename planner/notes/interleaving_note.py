"""Would a pipeline be faster with one chunk per stage? Interleaving shrinks the bubble, but at a cost."""

from __future__ import annotations

from planner.text import human
from simulator.domain.job import Job
from simulator.domain.plan import Plan, PlanTable, Schedule
from simulator.layout.chunks import split_layers
from simulator.machine.rank import Rank
from simulator.step.step import StepTable, simulate_step

NOTEWORTHY_FRACTION = 0.001
"""Smaller differences, as a share of the step, are not reported."""

_NOT_INTERLEAVED = {"virtual_pipeline": 1, "interleaved_group_size": None}
_CAUSES = {
    "shard_comm_s": "shard traffic: under ZeRO stage 2 gradients are reduced after every group of micro-batches of a "
    "chunk, not once per step (docs/model/replicas.md)",
    "pipeline_send_s": "pipeline transfers",
    "gradient_sync_s": "exposed gradient and weight synchronisation",
    "pipeline_bubble_s": "waiting for other stages, through which every micro-batch passes several times",
}
"""Parts of a step that more chunks can lengthen, in words."""


def interleaving_notes(job: Job, plan: Plan) -> list[str]:
    """Returns a note if the plan's step is longer than it would be with one chunk per stage."""
    is_interleaved = plan.virtual_pipeline > 1 and plan.pipeline_schedule is Schedule.ONE_F_ONE_B
    lists_chunks = isinstance(job.workload.stage_layers, tuple)
    if not is_interleaved or lists_chunks:
        return []
    steps = _steps(job, plan, plan.model_copy(update=_NOT_INTERLEAVED))
    chunked_s, plain_s = steps.step_time_s.tolist()
    if not chunked_s > (1.0 + NOTEWORTHY_FRACTION) * plain_s:
        return []
    grown, name = max(
        (float(times_s[0] - times_s[1]), name) for name, times_s in steps.columns().items() if name in _CAUSES
    )
    slower = human.percent(chunked_s / plain_s - 1.0)
    note = (
        f"A step with virtual_pipeline {plan.virtual_pipeline} takes {slower} longer than with 1 ({chunked_s:.4g} s instead "
        f"of {plain_s:.4g} s), because it adds {grown:.3g} s of {_CAUSES[name]}; try virtual_pipeline 1."
    )
    return [note]


def _steps(job: Job, *plans: Plan) -> StepTable:
    table = PlanTable.from_plans(plans)
    return simulate_step(
        Rank.of(job, table), split_layers(job.workload.model, table, job.workload.stage_layers)
    )
