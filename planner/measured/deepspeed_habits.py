"""How do DeepSpeed and frameworks with a ZeRO of its kind train? DeepSpeed, InternEvo, Colossal-AI."""

from __future__ import annotations

from dataclasses import replace

from planner.measured import deepspeed_bytes
from planner.measured.habits import Habits

DEEPSPEED = Habits(
    name="DeepSpeed",
    attention="flash-2",
    has_sequence_parallel=False,
    gathers_cast_inputs=False,
    gradient_bytes=deepspeed_bytes.BF16_GRADIENT,
    sync_bytes=2,
    sync_buffer_bytes=deepspeed_bytes.BUFFERS,
    fp16_update_bytes=deepspeed_bytes.UPDATE,
    fp16_step_bytes=deepspeed_bytes.STEP,
    most_gathered_weights=deepspeed_bytes.LIVE_WEIGHTS,
    offloads_gradients=True,
    keeps_stage_outputs=True,
    memory_kind="device",
)
EARLY_DEEPSPEED = replace(
    DEEPSPEED,
    name="Megatron-DeepSpeed of 2021-22",
    attention="unfused",
    kernel_launch="blocking-2022",
    overlaps_gradient_sync=False,
    zero_stage=1,
)
EARLY_ZERO_3 = replace(
    EARLY_DEEPSPEED,
    name="DeepSpeed's ZeRO-3 of 2021",
    kernel_launch="eager-2022",
    zero_stage=3,
    weight_prefetch="none",
)
"""Each of its gathers waited for the one before, host included (DeepSpeed pull request 1188, June 2021); prefetching that
overlaps came with pull request 1453 (October 2021). Megatron-LM had no ZeRO-3 of its own then."""
SIXTEEN_BIT_ZERO = Habits(
    name="InternEvo, Colossal-AI",
    attention="flash-2",
    pads_vocabulary=False,
    has_sequence_parallel=False,
    gathers_cast_inputs=False,
    overlaps_parameter_gather=False,
    gradient_bytes=2,
    sync_bytes=2,
)
"""Gradients are reduced in their 16 bits in buckets behind the backward pass, and cast to 32 bits for the update
(`HybridZeroOptimizer` of InternEvo, `overlap_sync_grad` in its configurations; the optimizer is Colossal-AI's). Updated weights
are sent before the next step begins (`overlap_sync_param`, off unless asked for; Colossal-AI's `overlap_allgather` too). Tensor
parallelism does not split norms by sequence in its default mode, `mtp`. Attention is FlashAttention-2 (`flash_attn`) since
January 2024, and 1.0.5 before (InternLM's `third_party/flash-attention`). Norms and rotary positions are fused (apex,
`rotary_emb`); SwiGLU was not until September 2023, which is left out."""
