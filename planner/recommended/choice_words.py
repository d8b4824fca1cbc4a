"""What are the choices of a plan called, and how are their values written?"""

from __future__ import annotations

from simulator.domain.plan import Plan, Recompute, Schedule

CHOICE_WORDS = {
    "tensor_parallel": "TP",
    "pipeline_parallel": "PP",
    "virtual_pipeline": "VPP",
    "pipeline_schedule": "schedule",
    "interleaved_group_size": "group of VPP",
    "context_parallel": "CP",
    "expert_parallel": "EP",
    "micro_batch_size": "micro-batch",
    "recompute": "recomputation",
    "recompute_num_layers": "recomputed layers",
    "zero_stage": "ZeRO stage",
    "shard_ranks": "sharded over",
    "precision": "number format",
    "checkpoint_scheme": "checkpoints",
}
"""Choices for readers, by their fields."""
PRODUCT_WORDS = {"data_parallel": "DP", "num_gpus": "accelerators"}
"""What follows from degrees and from each other, for readers, by their fields."""


def written(plan: Plan, name: str) -> str:
    """Returns what a plan chooses, for readers; `none` where other choices leave nothing to choose."""
    value = getattr(plan, name)
    if value is not None:
        return str(value)
    match name:
        case "interleaved_group_size":
            is_interleaved = plan.virtual_pipeline > 1 and plan.pipeline_schedule is Schedule.ONE_F_ONE_B
            return "PP" if is_interleaved else "none"
        case "recompute_num_layers":
            return "all" if plan.recompute is Recompute.FULL else "none"
        case _:
            return "all"
