"""How long does attention take on one rank? Its projections, and the attention core between them.

The core is one fused kernel or several separate ones; its work depends on how many tokens a token sees
(`simulator.domain.attention_span`). Nomenclature as in `simulator.domain.model`; t and c are the tensor- and context-parallel
degrees.
"""

from __future__ import annotations

from typing import TypedDict

import numpy as np

from simulator.domain.attention_span import layer_spans
from simulator.domain.blocks import LatentAttention
from simulator.domain.hardware import Precision
from simulator.layers.compressed_costs import (
    compressed_core_s,
    compressed_projections_s,
    compressed_up_s,
    projections,
)
from simulator.layers.compressed_indexer import compressed_indexer_s
from simulator.layers.context_copies import context_copies_s
from simulator.layers.context_split import slowest_ranks
from simulator.layers.indexer_costs import indexer_s, sparse_core_s
from simulator.layout.kept_inputs import ACTIVATION_BYTES
from simulator.machine.attention_kernels import with_first_flash
from simulator.machine.compute import (
    SEPARATE_KERNELS,
    KernelConstants,
    SeparateKernels,
    attention_time_s,
    unfused_attention_time_s,
)
from simulator.machine.products import INTO_ATTENTION, LEAVING, ONE_PRODUCT, Batch, Product
from simulator.machine.rank import Rank, once_per_rank
from simulator.table import Floats, total
from simulator.traffic.context_exchange import num_core_kernels, ring_steps
from simulator.traffic.layer_collectives import Directions


@once_per_rank
def projections_s(rank: Rank) -> Directions:
    """Returns the time of the products before and after the attention core."""
    times_s = each_projection_s(rank)
    return total(forward_s for forward_s, _ in times_s), total(backward_s for _, backward_s in times_s)


def each_projection_s(rank: Rank) -> list[Directions]:
    """Returns the time of each product before and after the attention core.

    In latent attention, the input that is gathered from all ranks enters the up-projections. Where heads attend to latents, the
    products of each head with queries and outputs are in the place of that to keys and values.
    """
    if rank.workload.model.compressed_attention:
        return compressed_projections_s(rank)
    mla = rank.workload.model.latent_attention
    down, up = ONE_PRODUCT, INTO_ATTENTION
    batches = [up, LEAVING]
    if mla:
        raised = [] if mla.indexer else [up]
        batches = [*([down] if mla.query_rank else []), up, down, *raised, LEAVING]
    products = zip(attention_products(rank), batches, strict=True)
    *before, leaving = [rank.gemm_s(*product, batch) for product, batch in products]
    of_heads = [rank.in_16_bits.gemm_s(*product, batch) for product, batch in products_of_heads(rank)]
    return [*before, *of_heads, leaving]


def products_of_heads(rank: Rank) -> list[tuple[Product, Batch]]:
    """Returns tokens, output and inner size of the products of each head where heads attend to latents, and their number.

    Queries are multiplied into the latents of keys, outputs out of those of values, in 16 bits (`absorbed_mla.py` of Megatron
    Core). There are none where keys and values are made for each head.
    """
    mla = rank.workload.model.latent_attention
    if mla is None or mla.indexer is None:
        return []
    heads = Batch(num_gemms=rank.workload.model.num_heads / rank.plans.tensor_parallel)
    latent, *widths = (
        np.full(len(rank.plans), float(width))
        for width in (mla.key_value_rank, mla.nope_head_dim, mla.value_head_dim)
    )
    return [((rank.tokens, latent, widths[0]), heads), ((rank.tokens, widths[1], latent), heads)]


def attention_products(rank: Rank) -> list[Product]:
    """Returns tokens, output size and inner size of each projection on one rank, of those in the format of the plan.

    The down-projections to latents are whole on every rank, which applies them to the tokens whose norms it computes.
    """
    model, t = rank.workload.model, rank.plans.tensor_parallel
    if model.compressed_attention:
        return projections(rank)
    h = np.full(len(t), float(model.hidden_size))
    qk_dim, value_dim = model.attention_dims
    if model.latent_attention is None:
        kv_heads = np.maximum(1.0, model.num_kv_heads / t)
        return [
            (rank.tokens, (qk_dim * model.num_heads + model.gate_width) / t + 2.0 * qk_dim * kv_heads, h),
            (rank.tokens, h, model.num_heads * value_dim / t),
        ]
    mla = model.latent_attention
    query_width = model.num_heads * qk_dim / t
    query = (
        [
            (rank.split_tokens, np.full_like(h, mla.query_rank), h),
            (rank.tokens, query_width, np.full_like(h, mla.query_rank)),
        ]
        if mla.query_rank
        else [(rank.tokens, query_width, h)]
    )
    up = model.num_heads * (mla.nope_head_dim + value_dim) / t
    raised = [] if mla.indexer else [(rank.tokens, up, np.full_like(h, mla.key_value_rank))]
    return [
        *query,
        (rank.split_tokens, np.full_like(h, mla.key_width), h),
        *raised,
        (rank.tokens, h, model.num_heads * value_dim / t),
    ]


def up_projections_s(rank: Rank) -> list[Directions]:
    """Returns the time of the up-projections of latent or compressed attention in front of its core; none without latents."""
    if rank.workload.model.compressed_attention:
        return compressed_up_s(rank)
    of_latents = [rank.gemm_s(*product, INTO_ATTENTION) for product in up_products(rank)]
    of_heads = [rank.in_16_bits.gemm_s(*product, batch) for product, batch in products_of_heads(rank)[:1]]
    return [*of_latents, *of_heads]


def raised_s(rank: Rank) -> Floats:
    """Returns the time of the products of each head out of latents forward, `(n,)`; a checkpoint of the core repeats them."""
    behind = products_of_heads(rank)[1:]
    none_s = np.zeros(len(rank.plans))
    return total([none_s, *(rank.in_16_bits.gemm_s(*product, batch)[0] for product, batch in behind)])


def up_products(rank: Rank) -> list[Product]:
    """Returns tokens, output and inner size of the products that latents enter; none without latent attention.

    They are those up to queries, and to keys and values unless heads attend to latents.
    """
    mla = rank.workload.model.latent_attention
    products = attention_products(rank)
    if mla is None:
        return []
    return [products[_place_of_queries(mla)], *([] if mla.indexer else [products[-2]])]


def _place_of_queries(mla: LatentAttention) -> int:
    """Where the product up to queries stands among all projections."""
    return 1 if mla.query_rank else 0


@once_per_rank
def attention_core_s(rank: Rank) -> Directions:
    """Returns the time of scores, softmax and the product with the values, in 16 bits whatever the products around it use.

    It is the mean over the layers, some of which may have shorter windows. With packed documents it is that of the replica with
    the most work; with gathered keys, of the rank with the most. Separate kernels also compute what the mask hides. Where
    tokens are chosen, the indexer is not in it (`simulator.layers.indexer_costs`).
    """
    if rank.workload.model.compressed_attention:
        return compressed_core_s(rank)
    if rank.workload.model.indexer:
        copies_s, (forward_s, backward_s) = context_copies_s(rank), sparse_core_s(rank)
        return forward_s + copies_s[0], backward_s + copies_s[1]
    if rank.workload.attention in SEPARATE_KERNELS:
        return _unfused_core(rank, SEPARATE_KERNELS[rank.workload.attention])
    imbalance, copies_s = _document_imbalance(rank), context_copies_s(rank)
    forward_s, backward_s = (
        imbalance * _fused_core_s(rank, is_backward=is_backward) + copies_s[is_backward]
        for is_backward in (False, True)
    )
    return forward_s, backward_s


def choice_s(rank: Rank) -> Directions:
    """Returns the time of what chooses the tokens that attention sees, and of its loss; zero where nothing does."""
    return compressed_indexer_s(rank) if rank.workload.model.compressed_attention else indexer_s(rank)


def _fused_core_s(rank: Rank, *, is_backward: bool) -> Floats:
    """Fused kernels, mean over the layers."""
    kernels, ramps = num_core_kernels(rank), ring_steps(rank)
    return total(
        share
        * attention_time_s(
            **_core_shape(rank, tokens), num_ramps=ramps, num_kernels=kernels, backward=is_backward
        )
        for share, tokens in _core_spans(rank)
    )


def _core_spans(rank: Rank) -> list[tuple[float, Floats | float]]:
    """Shares of the layers, each with the tokens that a token sees in those."""
    if rank.workload.chosen_exchange == "all_gather":
        return [(span.share, span.kernel_tokens) for span in slowest_ranks(rank)]
    return [(span.share, span.kernel_tokens) for span in layer_spans(rank.workload.sequence_shape)]


def _unfused_core(rank: Rank, kernels: SeparateKernels) -> Directions:
    shape = _core_shape(rank.in_16_bits, float(rank.workload.sequence_length))
    memory_rate = rank.offers.memory_bytes_per_s
    forward_s, backward_s = (
        unfused_attention_time_s(
            **shape,
            bytes_per_element=ACTIVATION_BYTES,
            memory_bytes_per_s=memory_rate,
            kernels=kernels,
            backward=is_backward,
        )
        for is_backward in (False, True)
    )
    return forward_s, backward_s


def _core_shape(rank: Rank, span: Floats | float) -> _CoreShape:
    """What the core computes on one rank where a token sees as much as in a plain sequence of `span` tokens."""
    model = rank.workload.model
    return {
        "tokens": rank.tokens,
        "sequence_length": span,
        "num_heads": model.num_heads / rank.plans.tensor_parallel,
        "head_dim": _mean_head_dim(rank),
        "bf16_flop_per_s": rank.offers.peak_flop_per_s[:, Precision.FP16.code],  # as bf16, which not all have
        "constants": _attention_constants(rank),
    }


def _document_imbalance(rank: Rank) -> Floats:
    """Attention work of the slowest replica over that of the average one."""
    replicas = rank.plans.data_parallel
    return rank.workload.sequence_shape.imbalance(replicas, rank.workload.global_batch_size // replicas)


def _attention_constants(rank: Rank) -> KernelConstants:
    if rank.workload.attention == "flash-1":
        return with_first_flash(
            rank.kernels, rank.training.first_flash_fraction, head_dim=_mean_head_dim(rank)
        )
    return rank.kernels


def _mean_head_dim(rank: Rank) -> float:
    """Width of a head: the mean of its key width and its value width."""
    return sum(rank.workload.model.attention_dims) / 2.0


class _CoreShape(TypedDict):
    tokens: Floats
    sequence_length: Floats | float
    num_heads: Floats
    head_dim: float
    bf16_flop_per_s: Floats
    constants: KernelConstants
