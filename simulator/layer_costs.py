"""How long does one micro-batch take in one layer on one rank, forward and backward?

A layer is a list of matrix products, an attention kernel and memory-bound operators (priced by
`simulator.compute`) and the collectives that nothing hides (`simulator.layer_collectives`). Nomenclature as in
`simulator.model`; t, c, e are the tensor-, context- and expert-parallel degrees; T = b s / c the tokens of a
micro-batch on one rank.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypedDict

import numpy as np

from simulator.activations import ACTIVATION_BYTES
from simulator.adapter_costs import adapters_s
from simulator.casts import is_cast
from simulator.compute import (
    ALIGNED_ELEMENTS,
    KernelConstants,
    attention_time_s,
    unfused_attention_time_s,
    with_first_flash,
)
from simulator.hardware import Precision
from simulator.host_time import BACKWARD_RATIO, NUM_FORWARD_KERNELS, host_waits_s
from simulator.layer_collectives import (
    Directions,
    beside_products,
    block_s,
    context_ring_s,
    entering_s,
    expert_exchange_s,
    leaving_s,
    num_blocks,
    num_reached,
)
from simulator.plan import Recompute
from simulator.rank import Rank
from simulator.recomputed_layers import without_recompute
from simulator.table import Floats, Table, total

NUM_ROUTING_KERNELS = 24.0
"""Small kernels of routing, each direction (softmax, top-k, maps, counts, auxiliary loss, permutation there and back)."""
NUM_CASTS = 2.0
"""Tensors that grouped products cast to 8 or 4 bits in each direction: the inputs, or the gradients, of both."""
NUM_CAST_KERNELS = 3.0
"""Kernels that cast the tokens of one expert: largest value, scale, and the cast to both layouts (Transformer Engine)."""
MERGE_PASSES = 3.0
"""Two reads and a write for every partial result of ring attention (TransformerEngine, `context_parallel.py`)."""
LOSS_BYTES_PER_LOGIT = 16.0, 16.0
"""Softmax cross entropy, forward and backward: four passes over fp32 logits each."""
SEPARATE_LOSS_BYTES_PER_LOGIT = 42.0, 14.0
"""The same without fusion: cast, maximum, difference, exponential, sum and quotient as kernels of their own, then the
product with the incoming gradient and a cast (Megatron-LM 2.x, `cross_entropy.py`)."""


@dataclass(frozen=True, kw_only=True)
class PartTimes(Table):
    """Seconds of one micro-batch in one part of the model, `(n,)`; communication is what stays exposed."""

    forward_compute_s: Floats
    backward_compute_s: Floats
    forward_tensor_comm_s: Floats
    backward_tensor_comm_s: Floats
    forward_expert_comm_s: Floats
    backward_expert_comm_s: Floats

    @property
    def forward_s(self) -> Floats:
        """Compute and exposed communication, forward."""
        return self.forward_compute_s + self.forward_tensor_comm_s + self.forward_expert_comm_s

    @property
    def backward_s(self) -> Floats:
        """Compute, recomputation and exposed communication, backward."""
        return self.backward_compute_s + self.backward_tensor_comm_s + self.backward_expert_comm_s


def dense_layer(rank: Rank) -> PartTimes:
    """Returns the times of a layer with an ordinary feed-forward block."""
    return _layer(rank, is_expert=False)


def expert_layer(rank: Rank) -> PartTimes:
    """Returns the times of a layer with routed experts on the most loaded rank."""
    return _layer(rank, is_expert=True)


def kept_layer_times(rank: Rank) -> list[PartTimes]:
    """Returns the times of layers that keep all activations whatever is recomputed: a dense one, one with experts if any."""
    kept = replace(rank, plans=without_recompute(rank.plans))
    return [dense_layer(kept), *([expert_layer(kept)] if rank.workload.model.experts else [])]


def _layer(rank: Rank, *, is_expert: bool) -> PartTimes:
    is_full = rank.plans.recompute == Recompute.FULL.code
    forward_s, backward_s, core_s = _layer_compute(rank, is_expert=is_expert)
    tensor_forward_s, tensor_backward_s = _layer_collectives(
        rank, core_s, forward_s, backward_s, is_expert=is_expert
    )
    none_s = np.zeros(len(rank.plans))
    exchange_s = expert_exchange_s(rank, forward_s, backward_s) if is_expert else (none_s, none_s)
    times = PartTimes(
        forward_compute_s=forward_s,
        backward_compute_s=backward_s + _recomputed_s(rank, forward_s, core_s),
        forward_tensor_comm_s=tensor_forward_s,
        backward_tensor_comm_s=tensor_backward_s + is_full * tensor_forward_s,
        forward_expert_comm_s=exchange_s[0],
        backward_expert_comm_s=exchange_s[1] + is_full * exchange_s[0],
    )
    forward_wait_s, backward_wait_s = host_waits_s(rank, times.forward_s, times.backward_s)
    return replace(
        times,
        forward_compute_s=times.forward_compute_s + forward_wait_s,
        backward_compute_s=times.backward_compute_s + backward_wait_s,
    )


def _recomputed_s(rank: Rank, forward_s: Floats, core_s: Floats) -> Floats:
    """What the backward pass computes again: nothing, the whole forward pass, or what selective recomputation does."""
    is_full, is_selective = (
        rank.plans.recompute == choice.code for choice in (Recompute.FULL, Recompute.SELECTIVE)
    )
    is_attention = rank.workload.selective_recompute == "attention"
    selected_s = core_s if is_attention else (forward_s - core_s) / 2.0
    return np.select([is_full, is_selective], [forward_s, selected_s], 0.0)


def _layer_compute(rank: Rank, *, is_expert: bool) -> tuple[Floats, Floats, Floats]:
    """Forward, backward without recomputation, and the forward of the attention core alone."""
    projections, core = _projections(rank), _attention_core(rank)
    ffn = _expert_ffn(rank) if is_expert else _dense_ffn(rank)
    ratio = 1.0 if rank.workload.has_fused_operators else rank.training.separate_operators_ratio
    moved_s = rank.memory_bound_s(ratio * _moved_bytes(rank, is_expert=is_expert), NUM_FORWARD_KERNELS)
    forward_s, backward_s = (
        total(parts) * rank.compute_slowdown for parts in zip(projections, core, ffn, strict=True)
    )
    forward_s, backward_s = forward_s + moved_s, backward_s + BACKWARD_RATIO * moved_s
    if rank.workload.lora:
        added_s = adapters_s(rank, rank.workload.lora)
        forward_s, backward_s = forward_s + added_s[0], backward_s + added_s[1]
    return forward_s, backward_s, core[0] * rank.compute_slowdown


def _layer_collectives(
    rank: Rank, core_s: Floats, forward_s: Floats, backward_s: Floats, *, is_expert: bool
) -> Directions:
    """Exposed collectives between tensor- and context-parallel ranks."""
    blocks = num_blocks(rank, is_expert=is_expert)
    block_forward_s, block_backward_s = block_s(rank)
    block_forward_s = beside_products(rank, block_forward_s, forward_s / blocks)
    block_backward_s = beside_products(rank, block_backward_s, backward_s / blocks)
    ring_forward_s, ring_backward_s = context_ring_s(rank, core_s)
    return blocks * block_forward_s + ring_forward_s, blocks * block_backward_s + ring_backward_s


def _projections(rank: Rank) -> Directions:
    """Products before and after the attention core."""
    times_s = [rank.gemm_s(rank.tokens, n, k) for n, k in attention_products(rank)]
    return total(forward_s for forward_s, _ in times_s), total(backward_s for _, backward_s in times_s)


def attention_products(rank: Rank) -> list[tuple[Floats, Floats]]:
    """Output and inner sizes of the projections on one rank; low-rank parts are not split by tensor parallelism."""
    model, t = rank.workload.model, rank.plans.tensor_parallel
    h = np.full(len(t), float(model.hidden_size))
    qk_dim, value_dim = model.attention_dims
    if model.latent_attention is None:
        kv_heads = np.maximum(1.0, model.num_kv_heads / t)
        return [
            (qk_dim * model.num_heads / t + 2.0 * qk_dim * kv_heads, h),
            (h, model.num_heads * value_dim / t),
        ]
    mla = model.latent_attention
    query_width = model.num_heads * qk_dim / t
    query = (
        [(np.full_like(h, mla.query_rank), h), (query_width, np.full_like(h, mla.query_rank))]
        if mla.query_rank
        else [(query_width, h)]
    )
    down = np.full_like(h, mla.key_value_rank + mla.rope_head_dim)
    up = model.num_heads * (mla.nope_head_dim + value_dim) / t
    return [
        *query,
        (down, h),
        (up, np.full_like(h, mla.key_value_rank)),
        (h, model.num_heads * value_dim / t),
    ]


def _attention_core(rank: Rank) -> Directions:
    """Scores, softmax and the product with the values, in 16 bits whatever the products around it use."""
    model = rank.workload.model
    shape: _CoreShape = {
        "tokens": rank.tokens,
        "sequence_length": float(rank.workload.sequence_length),
        "num_heads": model.num_heads / rank.plans.tensor_parallel,
        "head_dim": sum(model.attention_dims) / 2.0,
        "bf16_flop_per_s": rank.offers.peak_flop_per_s[:, Precision.FP16.code],  # as bf16, which not all have
        "constants": _attention_constants(rank),
    }
    if rank.workload.attention != "unfused":
        steps = rank.plans.context_parallel.astype(np.float64)  # of the ring, a kernel each
        forward_merge_s, backward_merge_s = _ring_merges(rank, steps)
        return (
            attention_time_s(**shape, num_kernels=steps) + forward_merge_s,
            attention_time_s(**shape, num_kernels=steps, backward=True) + backward_merge_s,
        )
    memory: _CoreMemory = {
        "bytes_per_element": ACTIVATION_BYTES,
        "memory_bytes_per_s": rank.offers.memory_bytes_per_s,
    }
    return (
        unfused_attention_time_s(**shape, **memory),
        unfused_attention_time_s(**shape, **memory, backward=True),
    )


def _ring_merges(rank: Rank, steps: Floats) -> Directions:
    """Sums over the steps of a ring: outputs forward, gradients of queries, keys and values backward."""
    model, t = rank.workload.model, rank.plans.tensor_parallel
    query_bytes = MERGE_PASSES * ACTIVATION_BYTES * rank.tokens * model.num_heads * model.head_dim / t
    kv_heads = np.maximum(1.0, model.num_kv_heads / t)
    kv_bytes = 2.0 * MERGE_PASSES * ACTIVATION_BYTES * rank.tokens * kv_heads * model.head_dim
    merges = np.where(steps > 1.0, steps, 0.0)
    return (
        rank.memory_bound_s(merges * query_bytes, 0.0),
        rank.memory_bound_s(merges * (query_bytes + kv_bytes), 0.0),
    )


def _attention_constants(rank: Rank) -> KernelConstants:
    if rank.workload.attention == "flash-1":
        return with_first_flash(rank.kernels, rank.training.first_flash_fraction)
    return rank.kernels


class _CoreShape(TypedDict):
    tokens: Floats
    sequence_length: float
    num_heads: Floats
    head_dim: float
    bf16_flop_per_s: Floats
    constants: KernelConstants


class _CoreMemory(TypedDict):
    bytes_per_element: float
    memory_bytes_per_s: Floats


def _dense_ffn(rank: Rank) -> tuple[Floats, Floats]:
    width = rank.workload.model.ffn_hidden_size / rank.plans.tensor_parallel
    return _ffn(rank, rank.tokens, width)


def _ffn(rank: Rank, tokens: Floats, width: Floats, num_gemms: Floats | float = 1.0) -> tuple[Floats, Floats]:
    """A feed-forward block: its input matrices as one product, then its output matrix."""
    h = np.full(len(rank.plans), float(rank.workload.model.hidden_size))
    num_inputs = rank.workload.model.num_ffn_matrices - 1
    in_forward_s, in_backward_s = rank.gemm_s(tokens, num_inputs * width, h, num_gemms)
    out_forward_s, out_backward_s = rank.gemm_s(tokens, h, width, num_gemms)
    return in_forward_s + out_forward_s, in_backward_s + out_backward_s


def _expert_ffn(rank: Rank) -> tuple[Floats, Floats]:
    """Router, routed experts (grouped products over the rank's own experts) and shared experts.

    Experts are spread over e ranks and not split further: each rank has E / e of them and receives the tokens of
    the e ranks that they serve, T k / t on average.
    """
    experts = rank.workload.model.experts
    assert experts is not None
    t, e = rank.plans.tensor_parallel, rank.plans.expert_parallel
    num_local = experts.num_experts / e
    tokens_per_expert = rank.workload.expert_load * rank.tokens * experts.experts_per_token / t / num_local
    width = np.full(len(t), float(experts.expert_ffn_hidden_size))
    h = np.full(len(t), float(rank.workload.model.hidden_size))
    num_casts = np.where(is_cast(rank.plans), NUM_CASTS * NUM_CAST_KERNELS * num_local, 0.0)
    permutation_s = rank.memory_bound_s(_permuted_bytes(rank), NUM_ROUTING_KERNELS + num_casts)
    parts = [
        _ffn(rank, tokens_per_expert, width, num_local),
        rank.gemm_s(rank.tokens / t, np.full_like(h, experts.num_experts), h),
        (permutation_s, permutation_s),
    ]
    if experts.shared_ffn_hidden_size:
        parts.append(_ffn(rank, rank.tokens, experts.shared_ffn_hidden_size / t))
    return total(forward_s for forward_s, _ in parts), total(backward_s for _, backward_s in parts)


def _permuted_bytes(rank: Rank) -> Floats:
    """Bytes of tokens that are sorted by expert before the experts, and back after them; backward is the mirror image.

    Deduplicated copies arrive unsorted: each is read once for each of its experts there, and results are summed up on the
    same way back. Otherwise each of the k copies is also sorted by its destination before it is sent.
    """
    experts = rank.workload.model.experts
    assert experts is not None
    k = float(experts.experts_per_token)
    if rank.workload.expert_dispatch == "deduplicated":
        passes = 2.0 * (num_reached(experts, rank.plans.expert_parallel.astype(np.float64)) + k)
    else:
        passes = np.where(rank.plans.expert_parallel > 1, 6.0 * k + 2.0, 2.0 * k + 2.0)
    tokens = rank.workload.expert_load * rank.tokens / rank.plans.tensor_parallel
    return np.asarray(ACTIVATION_BYTES * tokens * passes * rank.workload.model.hidden_size)


def _moved_bytes(rank: Rank, *, is_expert: bool) -> Floats:
    """Bytes that the memory-bound operators of one layer read and write forward.

    Two norms (read, write) and two residual additions (two reads, one write) over h; rotary positions over queries
    and keys; the activation over the feed-forward width.
    """
    model, t = rank.workload.model, rank.plans.tensor_parallel
    h = float(model.hidden_size)
    residual = rank.split_tokens * 10.0 * h
    rotary = rank.tokens * 2.0 * model.head_dim * (model.num_heads + model.num_kv_heads) / t
    if is_expert and model.experts:
        experts = model.experts
        routed = rank.workload.expert_load * experts.experts_per_token * experts.expert_ffn_hidden_size
        width = routed + experts.shared_ffn_hidden_size
    else:
        width = float(model.ffn_hidden_size)
    activation = rank.tokens * model.num_ffn_matrices * width / t
    return ACTIVATION_BYTES * (residual + rotary + activation)


def embedding(rank: Rank) -> PartTimes:
    """Returns the times of the input embedding: a look-up forward, an addition into fp32 gradients backward.

    Tensor-parallel ranks hold a share of the vocabulary each, so the rows that they found are summed up. A frozen embedding
    has no backward pass.
    """
    hidden = rank.tokens * rank.workload.model.hidden_size
    forward_comm_s, backward_comm_s = leaving_s(rank)
    trained = 1.0 if rank.workload.lora is None else 0.0
    return PartTimes(
        forward_compute_s=rank.memory_bound_s(2.0 * ACTIVATION_BYTES * hidden, 1.0),
        backward_compute_s=trained * rank.memory_bound_s((ACTIVATION_BYTES + 8.0) * hidden, 1.0),
        forward_tensor_comm_s=forward_comm_s,
        backward_tensor_comm_s=trained * backward_comm_s,
        forward_expert_comm_s=np.zeros_like(hidden),
        backward_expert_comm_s=np.zeros_like(hidden),
    )


def output_layer(rank: Rank) -> PartTimes:
    """Returns the times of the output layer and the loss; the vocabulary is split by tensor parallelism."""
    t = rank.plans.tensor_parallel
    h = np.full(len(t), float(rank.workload.model.hidden_size))
    vocabulary = rank.workload.model.vocabulary_size / t
    forward_s, backward_s = rank.gemm_s(rank.tokens, vocabulary, h)
    slowdown = unaligned_slowdown(rank)
    forward_s, backward_s = forward_s * slowdown, backward_s * slowdown
    is_early = rank.workload.kernel_launch in ("eager-2022", "blocking-2022")
    passes = SEPARATE_LOSS_BYTES_PER_LOGIT if is_early else LOSS_BYTES_PER_LOGIT
    loss_s, loss_backward_s = (
        rank.memory_bound_s(num_bytes * rank.tokens * vocabulary, 4.0) for num_bytes in passes
    )
    forward_comm_s, backward_comm_s = entering_s(rank)
    return PartTimes(
        forward_compute_s=forward_s * rank.compute_slowdown + loss_s,
        backward_compute_s=backward_s * rank.compute_slowdown + loss_backward_s,
        forward_tensor_comm_s=forward_comm_s,
        backward_tensor_comm_s=backward_comm_s,
        forward_expert_comm_s=np.zeros_like(h),
        backward_expert_comm_s=np.zeros_like(h),
    )


def unaligned_slowdown(rank: Rank) -> Floats:
    """Factor on the products of an output layer whose share of the vocabulary does not fill the tiles of the kernels."""
    vocabulary = rank.workload.model.vocabulary_size / rank.plans.tensor_parallel
    is_aligned = np.floor(vocabulary) % ALIGNED_ELEMENTS == 0
    return np.where(is_aligned, 1.0, 1.0 / rank.training.unaligned_fraction)
