"""How long does one micro-batch take in one layer on one rank, forward and backward?

A layer is a list of matrix products, an attention kernel and memory-bound operators (priced by
`simulator.compute`) and the collectives between tensor-, context- and expert-parallel ranks that nothing hides
(priced by `simulator.network`). Nomenclature as in `simulator.model`; t, c, e are the tensor-, context- and
expert-parallel degrees; T = b s / c the tokens of a micro-batch on one rank.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.compute import (
    KernelConstants,
    attention_time_s,
    gemm_time_s,
    memory_bound_time_s,
    unfused_attention_time_s,
)
from simulator.hardware import Precision
from simulator.job import Workload
from simulator.memory import ACTIVATION_BYTES, micro_batch_tokens
from simulator.network import LinkConstants, all_gather_s, all_reduce_s, all_to_all_s, reduce_scatter_s
from simulator.offer_table import OfferTable
from simulator.plan import PlanTable, Recompute
from simulator.table import Floats, Table

NUM_FORWARD_KERNELS = 12.0
"""Memory-bound kernels of one layer forward (norms, residuals, rotary positions, activation, casts, layout)."""
BACKWARD_RATIO = 2.0
"""Bytes and kernels of memory-bound operators backward, relative to forward."""
CORE_SHARE = 0.15
"""Share of the cores that a collective takes from the computation it hides behind (Calculon, arXiv 2311.02076: 0.15
over NVLink)."""
LOSS_BYTES_PER_LOGIT = 16.0
"""Softmax cross entropy: four passes over fp32 logits forward, the same backward."""


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


@dataclass(frozen=True, kw_only=True)
class Rank:
    """Everything that the price of an operator depends on, one row per design."""

    workload: Workload
    plans: PlanTable
    offers: OfferTable
    kernels: KernelConstants
    links: LinkConstants
    compute_slowdown: Floats
    """Factor on compute under a power cap."""

    @property
    def tokens(self) -> Floats:
        """Tokens of one micro-batch on one context-parallel rank (T)."""
        return micro_batch_tokens(self.workload, self.plans)

    @property
    def split_tokens(self) -> Floats:
        """Tokens whose norms and residuals one rank computes: a share of T with sequence parallelism."""
        return self.tokens / self.plans.tensor_parallel if self.workload.has_sequence_parallel else self.tokens

    @property
    def peak_flop_per_s(self) -> Floats:
        """Dense peak of the plan's number format."""
        return np.take_along_axis(self.offers.peak_flop_per_s, self.plans.precision[:, None], axis=1)[:, 0]

    @property
    def element_bytes(self) -> Floats:
        """Bytes of one input of a matrix product."""
        return np.where(self.plans.precision == Precision.FP8.code, 1.0, 2.0)

    def gemm_s(self, m: Floats, n: Floats, k: Floats, num_gemms: Floats | float = 1.0) -> tuple[Floats, Floats]:
        """Forward and backward (input and weight gradient) of a product (m, k) x (k, n).

        With 8-bit inputs the activations are cast before the forward and their gradients before the backward product.
        """

        def price(m: Floats, n: Floats, k: Floats, *, weight_gradient: bool = False) -> Floats:
            return gemm_time_s(
                m=m,
                n=n,
                k=k,
                bytes_per_element=self.element_bytes,
                peak_flop_per_s=self.peak_flop_per_s,
                memory_bytes_per_s=self.offers.memory_bytes_per_s,
                constants=self.kernels,
                num_gemms=num_gemms,
                weight_gradient=weight_gradient,
            )

        casts = self.kernels.cast_bytes_per_element * num_gemms * m
        forward_s = price(m, n, k) + self.memory_bound_s(casts * k, 0.0)
        backward_s = price(m, k, n) + price(k, n, m, weight_gradient=True) + self.memory_bound_s(casts * n, 0.0)
        return forward_s, backward_s

    def memory_bound_s(self, num_bytes: Floats, num_kernels: float) -> Floats:
        """Operators that only move data."""
        return memory_bound_time_s(
            num_bytes=num_bytes,
            memory_bytes_per_s=self.offers.memory_bytes_per_s,
            constants=self.kernels,
            num_kernels=num_kernels,
        )


def dense_layer(rank: Rank) -> PartTimes:
    """Returns the times of a layer with an ordinary feed-forward block."""
    return _layer(rank, is_expert=False)


def expert_layer(rank: Rank) -> PartTimes:
    """Returns the times of a layer with routed experts; routing is balanced."""
    return _layer(rank, is_expert=True)


def _layer(rank: Rank, *, is_expert: bool) -> PartTimes:
    attention_forward_s, attention_backward_s, core_s = _attention(rank)
    ffn_forward_s, ffn_backward_s = _expert_ffn(rank) if is_expert else _dense_ffn(rank)
    moved_s = rank.memory_bound_s(_moved_bytes(rank, is_expert=is_expert), NUM_FORWARD_KERNELS)
    forward_s = (attention_forward_s + ffn_forward_s) * rank.compute_slowdown + moved_s
    backward_s = (attention_backward_s + ffn_backward_s) * rank.compute_slowdown + BACKWARD_RATIO * moved_s
    tensor_forward_s, tensor_backward_s = _tensor_collectives(rank, core_s)
    expert_s = _expert_collectives(rank) if is_expert else np.zeros(len(rank.plans))
    is_full = rank.plans.recompute == Recompute.FULL.code
    is_selective = rank.plans.recompute == Recompute.SELECTIVE.code
    return PartTimes(
        forward_compute_s=forward_s,
        backward_compute_s=backward_s
        + np.select([is_full, is_selective], [forward_s, core_s * rank.compute_slowdown], 0.0),
        forward_tensor_comm_s=tensor_forward_s,
        backward_tensor_comm_s=tensor_backward_s + is_full * tensor_forward_s,
        forward_expert_comm_s=expert_s,
        backward_expert_comm_s=expert_s * (1.0 + is_full),
    )


def _attention(rank: Rank) -> tuple[Floats, Floats, Floats]:
    """Projections and core: forward, backward, and the forward of the core alone."""
    model, t = rank.workload.model, rank.plans.tensor_parallel
    qk_dim, value_dim = model.attention_dims
    heads = model.num_heads / t
    forward_s, backward_s = np.zeros(len(t)), np.zeros(len(t))
    for n, k in _attention_products(rank):
        product_forward_s, product_backward_s = rank.gemm_s(rank.tokens, n, k)
        forward_s, backward_s = forward_s + product_forward_s, backward_s + product_backward_s
    core_forward_s, core_backward_s = _attention_core(rank, heads, (qk_dim + value_dim) / 2.0)
    return forward_s + core_forward_s, backward_s + core_backward_s, core_forward_s


def _attention_products(rank: Rank) -> list[tuple[Floats, Floats]]:
    """Output and inner sizes of the projections on one rank; low-rank parts are not split by tensor parallelism."""
    model, t = rank.workload.model, rank.plans.tensor_parallel
    h = np.full(len(t), float(model.hidden_size))
    qk_dim, value_dim = model.attention_dims
    if model.latent_attention is None:
        kv_heads = np.maximum(1.0, model.num_kv_heads / t)
        return [(qk_dim * model.num_heads / t + 2.0 * qk_dim * kv_heads, h), (h, model.num_heads * value_dim / t)]
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


def _attention_core(rank: Rank, heads: Floats, head_dim: float) -> tuple[Floats, Floats]:
    bf16_flop_per_s = rank.offers.peak_flop_per_s[:, Precision.BF16.code]
    if rank.workload.attention == "flash":
        flash_forward_s, flash_backward_s = (
            attention_time_s(
                tokens=rank.tokens,
                sequence_length=rank.workload.sequence_length,
                num_heads=heads,
                head_dim=head_dim,
                bf16_flop_per_s=bf16_flop_per_s,
                constants=rank.kernels,
                backward=backward,
            )
            for backward in (False, True)
        )
        return flash_forward_s, flash_backward_s
    unfused_forward_s, unfused_backward_s = (
        unfused_attention_time_s(
            tokens=rank.tokens,
            sequence_length=rank.workload.sequence_length,
            num_heads=heads,
            head_dim=head_dim,
            bytes_per_element=ACTIVATION_BYTES,
            bf16_flop_per_s=bf16_flop_per_s,
            memory_bytes_per_s=rank.offers.memory_bytes_per_s,
            constants=rank.kernels,
            backward=backward,
        )
        for backward in (False, True)
    )
    return unfused_forward_s, unfused_backward_s


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
    tokens_per_expert = rank.tokens * experts.experts_per_token / t / num_local
    width = np.full(len(t), float(experts.expert_ffn_hidden_size))
    h = np.full(len(t), float(rank.workload.model.hidden_size))
    parts = [
        _ffn(rank, tokens_per_expert, width, num_local),
        rank.gemm_s(rank.tokens / t, np.full_like(h, experts.num_experts), h),
    ]
    if experts.shared_ffn_hidden_size:
        parts.append(_ffn(rank, rank.tokens, experts.shared_ffn_hidden_size / t))
    forward_s = np.sum([forward for forward, _ in parts], axis=0)
    backward_s = np.sum([backward for _, backward in parts], axis=0)
    return forward_s, backward_s


def _moved_bytes(rank: Rank, *, is_expert: bool) -> Floats:
    """Bytes that the memory-bound operators of one layer read and write forward.

    Two norms (read, write) and two residual additions (two reads, one write) over h; rotary positions over queries
    and keys; the activation over the feed-forward width; permutation of routed tokens there and back.
    """
    model, t = rank.workload.model, rank.plans.tensor_parallel
    h = float(model.hidden_size)
    residual = rank.split_tokens * 10.0 * h
    rotary = rank.tokens * 2.0 * model.head_dim * (model.num_heads + model.num_kv_heads) / t
    if is_expert and model.experts:
        experts = model.experts
        width = experts.experts_per_token * experts.expert_ffn_hidden_size + experts.shared_ffn_hidden_size
        permuted = rank.tokens * 4.0 * experts.experts_per_token * h / t
    else:
        width, permuted = model.ffn_hidden_size, np.zeros(len(t))
    activation = rank.tokens * model.num_ffn_matrices * width / t
    return ACTIVATION_BYTES * (residual + rotary + activation + permuted)


def _tensor_collectives(rank: Rank, core_s: Floats) -> tuple[Floats, Floats]:
    """Exposed collectives of one layer between tensor- and context-parallel ranks, forward and backward.

    Tensor parallelism: two all-reduces forward and two backward; with sequence parallelism each is an all-gather and
    a reduce-scatter, and backward gathers two inputs once more behind the input-gradient product (hidden).
    Context parallelism (ring): keys and values travel behind the attention core; what is longer stays exposed.
    """
    plans, links = rank.plans, rank.links
    t, c = plans.tensor_parallel, plans.context_parallel
    domain = rank.offers.link_domain_size
    hidden_bytes = ACTIVATION_BYTES * rank.tokens * rank.workload.model.hidden_size
    members = np.minimum(t, domain)
    if rank.workload.has_sequence_parallel:
        gather_s = all_gather_s(num_bytes=hidden_bytes, group_size=t, members_per_domain=members, links=links)
        scatter_s = reduce_scatter_s(num_bytes=hidden_bytes, group_size=t, members_per_domain=members, links=links)
        tensor_s = 2.0 * (gather_s + scatter_s)
    else:
        tensor_s = 2.0 * all_reduce_s(
            num_bytes=hidden_bytes, group_size=t, members_per_domain=members, links=links
        )
    qk_dim, value_dim = rank.workload.model.attention_dims
    kv_heads = np.maximum(1.0, rank.workload.model.num_kv_heads / t)
    ring_bytes = ACTIVATION_BYTES * rank.tokens * c * kv_heads * (qk_dim + value_dim)
    ring_s = all_gather_s(
        num_bytes=ring_bytes, group_size=c, members_per_domain=members_in_domain(domain, t, c), links=links
    )
    context_forward_s = exposed_s(ring_s, core_s)
    context_backward_s = exposed_s(2.0 * ring_s, 2.0 * core_s)
    return tensor_s + context_forward_s, tensor_s + context_backward_s


def exposed_s(traffic_s: Floats, cover_s: Floats) -> Floats:
    """Returns what communication behind a computation costs, `(n,)`: the part that is longer, and the cores it takes."""
    return np.asarray(np.maximum(0.0, traffic_s - cover_s) + CORE_SHARE * np.minimum(traffic_s, cover_s))


def members_in_domain(domain: Floats, stride: Floats, group_size: Floats) -> Floats:
    """Returns how many ranks of a group whose ranks are `stride` apart sit in one link domain, `(n,)`."""
    return np.clip(domain // stride, 1, group_size)


def _expert_collectives(rank: Rank) -> Floats:
    """Dispatch and combine: two all-to-alls of the routed tokens among the ranks that share the experts."""
    experts = rank.workload.model.experts
    assert experts is not None
    t, e = rank.plans.tensor_parallel, rank.plans.expert_parallel
    routed = rank.tokens / t * experts.experts_per_token
    sent_bytes = ACTIVATION_BYTES * routed * rank.workload.model.hidden_size
    members = np.minimum(e, rank.offers.link_domain_size)
    return 2.0 * all_to_all_s(num_bytes=sent_bytes, group_size=e, members_per_domain=members, links=rank.links)


def embedding(rank: Rank) -> PartTimes:
    """Returns the times of the input embedding: a look-up forward, an addition into fp32 gradients backward."""
    hidden = rank.tokens * rank.workload.model.hidden_size
    forward_s = rank.memory_bound_s(2.0 * ACTIVATION_BYTES * hidden, 1.0)
    backward_s = rank.memory_bound_s((ACTIVATION_BYTES + 8.0) * hidden, 1.0)
    zero = np.zeros_like(forward_s)
    return PartTimes(
        forward_compute_s=forward_s,
        backward_compute_s=backward_s,
        forward_tensor_comm_s=zero,
        backward_tensor_comm_s=zero,
        forward_expert_comm_s=zero,
        backward_expert_comm_s=zero,
    )


def output_layer(rank: Rank) -> PartTimes:
    """Returns the times of the output layer and the loss; the vocabulary is split by tensor parallelism."""
    t = rank.plans.tensor_parallel
    h = np.full(len(t), float(rank.workload.model.hidden_size))
    vocabulary = rank.workload.model.vocabulary_size / t
    forward_s, backward_s = rank.gemm_s(rank.tokens, vocabulary, h)
    loss_s = rank.memory_bound_s(LOSS_BYTES_PER_LOGIT * rank.tokens * vocabulary, 4.0)
    hidden_bytes = ACTIVATION_BYTES * rank.tokens * h
    members = np.minimum(t, rank.offers.link_domain_size)
    comm_s = all_gather_s(num_bytes=hidden_bytes, group_size=t, members_per_domain=members, links=rank.links)
    zero = np.zeros(len(t))
    return PartTimes(
        forward_compute_s=forward_s * rank.compute_slowdown + loss_s,
        backward_compute_s=backward_s * rank.compute_slowdown + loss_s,
        forward_tensor_comm_s=comm_s,
        backward_tensor_comm_s=comm_s,
        forward_expert_comm_s=zero,
        backward_expert_comm_s=zero,
    )
