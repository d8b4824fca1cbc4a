"""What are the choices of a plan called, and how are their values written?"""

from __future__ import annotations

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
    "recompute_num_layers": "of layers",
    "zero_stage": "ZeRO stage",
    "shard_ranks": "sharded over",
    "precision": "number format",
    "checkpoint_scheme": "checkpoints",
}
"""Choices for readers, by their fields."""


def written(value: int | str | None) -> str:
    """Returns a value for readers: a number that is left out stands for all."""
    return "all" if value is None else str(value)
