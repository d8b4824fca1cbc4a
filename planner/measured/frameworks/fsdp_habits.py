"""How do frameworks that shard with PyTorch's FSDP train? PyTorch itself, llm-foundry, torchtitan."""

from __future__ import annotations

from dataclasses import replace

from planner.measured.frameworks.habits import Habits

SHARDED = Habits(
    name="FSDP",
    attention="flash-2",
    copies_shared_heads=True,
    has_fused_operators=False,
    pads_vocabulary=False,
    has_sequence_parallel=False,
    gathers_cast_inputs=False,
    zero_stage=3,
    pipeline_zero_stage=1,
    regathers_weights=True,
    logit_bytes=12,
    memory_kind="reserved",
)
"""PyTorch computes the loss in 32 bits without fusion, and attention with FlashAttention-2, as transformers and llm-foundry do;
torchtitan, torchtune, litgpt and transformers copy shared keys and values for it. torchtitan prints the allocator's peak.
Backward the loss holds three fp32 tensors of logits: log-softmax, and the gradients of it and of its input
(`nll_loss_backward`, `_log_softmax_backward_data`); torchtitan's pull request 4514 counts about 13 bytes a logit. PyTorch's
pipelines reduce no gradients before a stage's last backward pass (`backward_maybe_with_nosync` of
`torch.distributed.pipelining`), which its pull request 124319 calls ZeRO-1; that weights stay gathered there is torchtitan's
default, and taken to be everyone's, since gathering them for every micro-batch would take several times as long."""
FOUNDRY = replace(SHARDED, name="llm-foundry", copies_shared_heads=False, sync_bytes=2, logit_bytes=4)
"""Its configurations compute and reduce in pure 16 bits (`mixed_precision: PURE`), which FSDP does with copies: shards of
weights and gradients stay in 32 bits, so that its benchmark counts 16 bytes a weight (`scripts/train/benchmarking`). The loss
is fused by default (`fused_crossentropy`) and keeps logits and their gradients in 16 bits."""
AUTOMODEL = replace(
    SHARDED,
    attention="flash",
    copies_shared_heads=False,
    has_fused_operators=True,
    picks_chunks=True,
    recomputes_all=True,
    expert_dispatch="deduplicated",
    gradient_bytes=2,
    optimizer_bytes=4.0,
)
"""NeMo Automodel is PyTorch's FSDP2, not Megatron. Its weights are in 16 bits, and so are their gradients and Adam's moments,
without a master weight: `torch.optim.Adam` on models that are built in `config.torch_dtype`. Its recipes for measuring speed
(`examples/llm_benchmark`, August 2026) take attention, norms and rotary positions of Transformer Engine (`attn: te`, `rms_norm:
te`, `rope_fusion`) or compile, and grouped products of experts (`gmm`, `torch_mm`) behind DeepEP or Hybrid-EP. Of 132 pipelines
116 are `interleaved1f1b`, most with two layers a chunk. `activation_checkpointing` is on or off. Pages leave out the expert
parallelism of some recipes, which need it for DeepEP (`ep_size` of `gptoss_120b_te_deepep.yaml`)."""
COMPILED = replace(SHARDED, has_fused_operators=True)
TORCHTITAN = replace(
    SHARDED,
    name="torchtitan",
    has_sequence_parallel=True,
    gathers_tensor_scaled_inputs=True,
    selective_recompute="every_other_product",
    context_exchange="gathered_ring",
    split_logit_bytes=16,
    joins_logits=True,
    memory_stage="last",
)
"""Tensor parallelism always splits norms by sequence, and gathers 8 bits where float8 has scales of tensors, which is its
default (`apply_tp`, `enable_float8_tensorwise_tp`), as its launch commands have FSDP do (`enable_fsdp_float8_all_gather`,
`float8.md`). Its `selective` checkpointing works operator by operator by default. Context parallelism is PyTorch's, whose ring
gathers keys and values (`context_parallel_rotate_method: allgather`), until August 2026 (its pull request 4218). In a pipeline
weights are not sharded again (`fsdp_reshard_after_forward: default`). Its tensor-parallel loss, unless compiled, holds four
fp32 tensors of logits backward: log-softmax, exponential, gradient, their sum (`_nll_loss_and_log_softmax_backward` of
PyTorch). Pipelines of PyTorch return the model's outputs unless they are told not to, as torchtitan does since its pull request
1922; others pass their batch through a pipeline in parts that they do not tell, and keep the outputs of one part. torchtitan
prints the memory of the first rank of the last stage, which has the loss (`_get_metrics_rank`)."""
COMPILED_TORCHTITAN = replace(TORCHTITAN, has_fused_operators=True)
COMPILED_LOSS_BYTES = 4
"""What a compiled loss needs for each logit: 16-bit logits and their gradients. It takes less than one in eight pieces
(torchtitan's pull request 1033), which saved 7.3 of the 11.7 GiB of 12 bytes a logit (996)."""
