"""How do frameworks that are built on none of the others train? JAX, Meta's, DeepSeek's, and unknown ones."""

from __future__ import annotations

from dataclasses import replace

from planner.measured.frameworks.habits import Habits
from simulator.domain.plan import Schedule

JAX = Habits(
    name="JAX",
    kernel_launch="graph",
    pads_vocabulary=False,
    has_sequence_parallel=False,
    gathers_cast_inputs=False,
    zero_stage=3,
)
ALPA = replace(JAX, name="Alpa", attention="unfused", overlaps_gradient_sync=False, zero_stage=1)
"""Its models compute attention by Flax's `dot_product_attention_weights`; gradients are reduced once, after all micro-batches,
and states of the optimizer are sharded (`prefer_reduce_scatter`)."""
META = Habits(
    name="Meta's of Llama 3",
    frees_stage_inputs=True,
    chunk_layers=1,
    zero_stage=2,
    pipeline_zero_stage=2,
    context_exchange="all_gather",
)
"""An interleaved schedule whose first chunk has the embedding only, and the last the output layer, after a layer less on
either; inputs and outputs of stages are freed; FSDP shards gradients, but keeps gathered weights; keys and values are gathered
for context parallelism; gradients are summed and reduced in 32 bits (arXiv 2407.21783, 3.3.2)."""
HAI_LLM_16_BITS = Habits(
    name="HAI-LLM",
    pads_vocabulary=False,
    has_sequence_parallel=False,
    gathers_cast_inputs=False,
    overlaps_shared_experts=True,
    expert_schedule=Schedule.ZB_V,
)
"""DeepSeek-V2's report (arXiv 2405.04434, section 3.1.3), of before 8-bit training: a zero-bubble pipeline, of which kind is
not said, and shared experts beside the exchange of the routed ones."""
HAI_LLM = replace(
    HAI_LLM_16_BITS,
    optimizer_bytes=8.0,
    expert_dispatch="deduplicated",
    overlaps_far_experts=True,
    overlaps_shared_experts=False,
    dispatches_in_8_bits=True,
    expert_schedule=Schedule.DUAL_PIPE_V,
    fp8_recipe="blockwise",
    predicting_models=((r"deepseek[-_ ]?v3", 1),),
)
"""In 8 bits, DeepSeek-V3's report (arXiv 2412.19437): DualPipe hides the dispatch of experts across nodes (section 3.2.1; see
`simulator.pipeline.dual_pipe` for its equal, `dual_pipe_v`), one token more is predicted (2.2, 4.2), tokens travel once to
a node (3.2.2) in 8 bits (3.3.3), blocks of 128 share a scale (3.3.1), and Adam's moments have 16 bits beside a master weight of
32 (3.3.3)."""
UNKNOWN = Habits(name="unknown framework", overlaps_input_gradients=True, pipeline_zero_stage=2)
GAUDI = replace(UNKNOWN, name="Gaudi's")
"""Frameworks on Gaudi run kernels of its own, whatever their release elsewhere: its scripts of Megatron-DeepSpeed have fused
attention and sequence parallelism by default (`USE_FUSED_SDPA`, `HL_SEQ_PARALLEL`), and its software compiles graphs."""
