"""Can the reader's framework shard as the plan does? Few shard gradients in a pipeline."""

from __future__ import annotations

from simulator.domain.plan import Plan

FEW_FRAMEWORKS = (
    "ZeRO stage 2 in a pipeline is not in every framework: Llama 3 405B was trained so (arXiv 2407.21783, section 3.3.2), but "
    "DeepSpeed refuses it, Megatron Core's distributed optimizer is stage 1, and PyTorch's pipelines reduce gradients once a "
    "step, which is stage 1, too (docs/model.md, Replicas). Try zero_stage 1, or leave stage 2 out with "
    "search.zero_stages [1, 3]."
)


def sharding_notes(plan: Plan) -> list[str]:
    """Returns a remark where gradients are sharded beside a pipeline."""
    has_replicas = plan.data_parallel * plan.context_parallel > 1
    return [FEW_FRAMEWORKS] if plan.zero_stage == 2 and plan.pipeline_parallel > 1 and has_replicas else []
