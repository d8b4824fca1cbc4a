"""How do DeepSpeed and frameworks with a similar ZeRO train? DeepSpeed, InternEvo, Colossal-AI."""

from __future__ import annotations

from dataclasses import replace

from planner.measured.frameworks import deepspeed_bytes
from planner.measured.frameworks.habits import Habits

DEEPSPEED = Habits(
    name="DeepSpeed",
    attention="flash-2",
    has_sequence_parallel=False,
    gathers_cast_inputs=False,
    gradient_bytes=deepspeed_bytes.BF16_GRADIENT,
    sharded_gradient_bytes=deepspeed_bytes.SHARDED_GRADIENT,
    sync_bytes=2,
    sync_buffer_bytes=deepspeed_bytes.BUFFERS,
    fp16_update_bytes=deepspeed_bytes.UPDATE,
    fp16_step_bytes=deepspeed_bytes.STEP - deepspeed_bytes.BUCKET_COPIES,
    most_gathered_weights=deepspeed_bytes.LIVE_WEIGHTS,
    offloads_gradients=True,
    scatters_gradients_from=3,
    bucket_weights=deepspeed_bytes.BUCKET_WEIGHTS,
    bucket_copy_bytes=deepspeed_bytes.BUCKET_COPIES,
    pipeline_bucket_copy_bytes=deepspeed_bytes.BF16_BUCKET_COPIES,
    added_gradient_bytes=deepspeed_bytes.ADDED_GRADIENT,
    pipeline_added_gradient_bytes=deepspeed_bytes.BF16_ADDED_GRADIENT,
    hides_gradients_in_pipeline=False,
    keeps_stage_outputs=True,
    context_exchange="all_to_all",
    memory_kind="device",
)
"""Sequences are shared by Ulysses (`DistributedAttention` in `deepspeed/sequence/layer.py`), also beside Megatron. Up to ZeRO-2
whole buckets are all-reduced, of which ranks keep their share (`allreduce_and_scatter`, `use_multi_rank_bucket_allreduce`, on
by default); they are taken to hide (`overlap_comm`, on by default under ZeRO-3 alone, but in most configurations). Pipelines
reduce behind the last backward pass (`_exec_reduce_grads`), and in bf16 have sums in 32 bits (`BF16_Optimizer`)."""
OF_TRAINERS = replace(
    DEEPSPEED,
    copies_shared_heads=True,
    has_fused_operators=False,
    pads_vocabulary=False,
    logit_bytes=12,
)
"""DeepSpeed below programs that train Hugging Face's models, which are the same whatever shards them (`fsdp_habits`)."""
GPT_NEOX = replace(DEEPSPEED, context_exchange="ring")
"""GPT-NeoX has the engine of DeepSpeed, and layers of its own."""
EARLY_DEEPSPEED = replace(
    DEEPSPEED,
    name="Megatron-DeepSpeed of 2021-22",
    attention="unfused",
    kernel_launch="blocking-2022",
    overlaps_gradient_sync=False,
    fp16_step_bytes=deepspeed_bytes.STEP,
    scatters_gradients_from=1,
    bucket_weights=None,
    bucket_copy_bytes=0.0,
    pipeline_bucket_copy_bytes=None,
    added_gradient_bytes=None,
    pipeline_added_gradient_bytes=None,
    zero_stage=1,
)
"""Buckets were reduced to the owners of their parts (`dist.reduce`). Sums and copies of gradients are part of what a launch
that waits was fitted to (`blocking_launch_s`), and not counted twice."""
EARLY_ZERO_3 = replace(
    EARLY_DEEPSPEED,
    name="DeepSpeed's ZeRO-3 of 2021",
    kernel_launch="eager-2022",
    zero_stage=3,
    weight_prefetch="none",
)
"""Each of its gathers waited for the one before, host included (DeepSpeed pull request 1188, June 2021); prefetching that
overlaps came with pull request 1453 (October 2021). Megatron-LM had no ZeRO-3 of its own then."""
INTERN_EVO_BUCKET = 512 * 2**20
"""Weights of a bucket in InternEvo's configurations (`reduce_bucket_size`)."""
COLOSSAL_AI = Habits(
    name="Colossal-AI",
    overlaps_input_gradients=True,
    separate_first_products="all",
    attention="flash-2",
    pads_vocabulary=False,
    has_sequence_parallel=False,
    gathers_cast_inputs=False,
    overlaps_parameter_gather=False,
    gradient_bytes=2,
    sync_bytes=2,
    scatters_gradients_from=2,
    bucket_weights=12 * 2**20,
    bucket_copy_bytes=12,
    added_gradient_bytes=deepspeed_bytes.ADDED_GRADIENT,
    step_bytes=66,
    fp16_step_bytes=66,
)
"""`LowLevelZeroOptimizer`: gradients are reduced in their 16 bits in buckets behind the backward pass (`overlap_communication`
of its plugins), all-reduced under ZeRO-1 and scattered under ZeRO-2 (`_run_reduction`), and cast to 32 bits for the update.
Updated weights are gathered before the next step begins (`overlap_allgather`, off unless asked for). A bucket is filled and
divided, 4 bytes each, and gathered weights are copied back, 4. The step moves 66 bytes: cast 6, norm in 64 bits 18, loss scale
and clipping in one 8, Adam 28, back to 16 bits 6. Each of `q_proj`, `k_proj`, `v_proj`, `gate_proj` and `up_proj` sums up the
gradient of its input (`Linear1D_Col` of `shardformer/policies/llama.py`)."""
INTERN_EVO = replace(
    COLOSSAL_AI,
    name="InternEvo",
    separate_first_products="feed_forward",
    bucket_weights=INTERN_EVO_BUCKET,
    sync_buffer_bytes=2.0 * 2.0 * INTERN_EVO_BUCKET,
    bucket_copy_bytes=8,
    step_bytes=62,
    fp16_step_bytes=62,
    logit_bytes=8,
    checkpoints_norms=True,
    measures_accuracy=True,
)
"""`HybridZeroOptimizer`, made from Colossal-AI's: gradients are all-reduced over all replicas, whatever the groups that share
states (`reduce_tensor` without a rank; `overlap_sync_grad` and `reduce_bucket_size` of its configurations), flattened into a
bucket and copied back, 4 bytes each (`TensorBucket`), while the bucket before is reduced (`_bucket_in_progress`); updated
weights are broadcast by the ranks that have them before the next step begins (`overlap_sync_param`, off unless asked for). The
step moves 62 bytes: flattening 4, cast 6, cast and norm 10, loss scale and clipping 8, Adam 28, back to 16 bits 6. Norms read
copies in 32 bits and are computed again (`dropout_selective_checkpoint`, on by default), accuracy and perplexity come from the
logits of every micro-batch (`AccPerplex`), of which 32-bit logits and differences from the largest are there at once. Tensor
parallelism does not split norms by sequence in its default mode, `mtp`. Attention is FlashAttention-2 (`flash_attn`) since
January 2024, and 1.0.5 before (InternLM's `third_party/flash-attention`). Norms and rotary positions are fused (apex,
`rotary_emb`), and since September 2023 SwiGLU is (`torch.jit.script`). Queries, keys and values are one product (`Wqkv`,
`wqkv`), w1 and w3 two, each of which sums up the gradient of its input (`FusedDenseFunc`)."""
