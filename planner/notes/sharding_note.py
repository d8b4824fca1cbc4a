"""Can the reader's framework shard as the plan does? Few frameworks shard gradients in a pipeline."""

from __future__ import annotations

from simulator.domain.plan import Plan

FEW_FRAMEWORKS = (
    "Few frameworks support ZeRO stage 2 in a pipeline: Llama 3 405B was trained this way (arXiv 2407.21783, section 3.3.2), "
    "but DeepSpeed refuses it, Megatron Core's distributed optimizer is stage 1, and PyTorch's pipelines reduce gradients "
    "once per step, which is also stage 1 (docs/model/replicas.md). Try zero_stage 1, or exclude stage 2 with "
    "search.zero_stages [1, 3]."
)


def sharding_notes(plan: Plan) -> list[str]:
    """Returns a note if the plan shards gradients in a pipeline."""
    has_replicas = plan.data_parallel * plan.context_parallel > 1
    return [FEW_FRAMEWORKS] if plan.zero_stage == 2 and plan.pipeline_parallel > 1 and has_replicas else []
