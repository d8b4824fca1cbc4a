"""Can the reader's framework shard as the plan does, and what would a plan cost that more of them run?"""

from __future__ import annotations

from constraints.evaluation import evaluate
from constraints.limits import usable_memory_bytes
from planner.text import human
from simulator.domain.job import Job
from simulator.domain.plan import Plan, PlanTable

FEW_FRAMEWORKS = {
    2: "Llama 3 405B was trained this way (arXiv 2407.21783, section 3.3.2), but DeepSpeed refuses it, Megatron Core's "
    "distributed optimizer is stage 1, and PyTorch's pipelines reduce gradients once per step, which is also stage 1",
    3: "torchtitan has it where asked (`fsdp_reshard_after_forward: always`), but DeepSpeed refuses it, and Megatron-FSDP is "
    "described without pipelines",
}
"""What runs each ZeRO stage in a pipeline, and what does not."""


def sharding_doubt(plan: Plan, notes: str) -> str:
    """Returns a warning for a plan that few frameworks run, to show at once; empty for others.

    Args:
        plan: the plan.
        notes: heading of the notes, which say more.
    """
    if not _shards_more_in_pipeline(plan):
        return ""
    return f"Few frameworks can run it: ZeRO stage {plan.zero_stage} in a pipeline ({notes})."


def sharding_notes(job: Job, plan: Plan) -> list[str]:
    """Returns a note if the plan shards more than the optimizer in a pipeline, with what the same layout does at stage 1."""
    if not _shards_more_in_pipeline(plan):
        return []
    stage = plan.zero_stage
    listed = job.search.shards_more_in_pipelines
    way_out = "; without search.zero_stages, pipelines are searched with stage 1 alone" if listed else ""
    note = (
        f"Few frameworks support ZeRO stage {stage} in a pipeline: {FEW_FRAMEWORKS[stage]} (docs/model/replicas.md). "
        f"{_at_stage_1(job, plan)}{way_out}."
    )
    return [note]


def _shards_more_in_pipeline(plan: Plan) -> bool:
    has_replicas = plan.data_parallel * plan.context_parallel > 1
    return plan.zero_stage in FEW_FRAMEWORKS and plan.pipeline_parallel > 1 and has_replicas


def _at_stage_1(job: Job, plan: Plan) -> str:
    """What becomes of the layout where gradients stay whole."""
    both = evaluate(job, PlanTable.from_plans([plan, plan.model_copy(update={"zero_stage": 1})]))
    summary, times_s = both.outcomes.summary, both.scores.time_to_train_s
    needed, capacity = (float(each[1]) for each in (summary.peak_memory_bytes, summary.memory_capacity_bytes))
    if needed > usable_memory_bytes(job)[plan.offer]:
        usable = f"{human.usable_share(job.search.memory_headroom_fraction)}{human.memory(capacity)}"
        return f"With stage 1 this layout does not fit ({human.memory(needed)} of {usable})"
    change = human.change(float(times_s[1] / times_s[0]) - 1.0)
    return f"With stage 1 this layout trains in {human.duration(float(times_s[1]))} ({change})"
