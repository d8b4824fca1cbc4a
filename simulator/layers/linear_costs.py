"""How long do the blocks that mix tokens take in a layer? Attention, linear attention, or in a hybrid both by their shares.

In a hybrid every layer has an equal share of the blocks of either kind (`ModelShape.attention_share`, `linear_share`): its
times are means over the layers. A block with linear attention has a product in front of its scan and one behind it, as
attention has around its core; decays and gates from a low rank have two more. Each kernel of the scan
(`simulator.layers.linear_kernels`) takes as long as its bytes at memory bandwidth, or as its operations at the best speed of
fused attention with heads of that width, whichever is longer. No measured table has such kernels: this is a transfer.
"""

from __future__ import annotations

import numpy as np

from simulator.domain.linear_attention import LinearAttention
from simulator.layers.attention_costs import (
    attention_core_s,
    attention_products,
    each_projection_s,
    products_of_heads,
)
from simulator.layers.compressed_costs import compressed_weight_gradients_s
from simulator.layers.indexer_costs import indexer_weight_gradients_s
from simulator.layers.linear_kernels import Kernel, ScanKernels, scan_kernels, transposed_widths
from simulator.layers.transferred_kernels import best_attention_flop_per_s, kernel_s
from simulator.machine.products import INTO_ATTENTION, LEAVING, ONE_PRODUCT, Product
from simulator.machine.rank import Rank, once_per_rank
from simulator.table import Floats, total
from simulator.traffic.layer_collectives import Directions
from simulator.traffic.linear_exchange import exchanged_widths

ORDER_BYTES = 4.0
"""To put one value in another order: a read and a write in 16 bits."""
NUM_ORDERS_BEFORE, NUM_ORDERS_BEHIND = 3.0, 2.0
"""Copies of what context-parallel ranks exchange, in front of the scan and behind it: by rank, of several tensors in one, in
the order of the sequence (`all_to_all_sp2hp`, `pre_conv_ssm` and `_undo_attention_load_balancing` of Megatron Core)."""


@once_per_rank
def projections_s(rank: Rank) -> tuple[Directions, Directions]:
    """Returns the time of the products of a layer in front of its core and scan, and of those behind them."""
    *before, behind = each_projection_s(rank)
    linear = rank.workload.model.linear_attention
    if linear is None:
        return _summed(before), behind
    share, of_linear = rank.workload.model.attention_share, rank.workload.model.linear_share
    *linear_before, linear_behind = _each_product_s(rank, linear)
    return (
        _mixed(share, _summed(before), of_linear, _summed(linear_before)),
        _mixed(share, behind, of_linear, linear_behind),
    )


def cores_s(rank: Rank) -> Directions:
    """Returns the time of the attention cores of a layer."""
    return shared(rank.workload.model.attention_share, attention_core_s(rank))


@once_per_rank
def scan_s(rank: Rank) -> Directions:
    """Returns the time of a layer between the products of its blocks with linear attention; zero if there are none."""
    none_s = np.zeros(len(rank.plans))
    linear = rank.workload.model.linear_attention
    if linear is None:
        return none_s, none_s
    share, kernels, copies_s = rank.workload.model.linear_share, _kernels(rank, linear), _copies_s(rank)
    transposed_s, small_s = _transposed_s(rank, linear), _kernels_s(rank, linear, (kernels.small,))
    backward_s = _kernels_s(rank, linear, kernels.backward) + kernels.num_small * small_s
    return (
        share * (_kernels_s(rank, linear, kernels.forward) + copies_s + transposed_s[0]),
        share * (backward_s + copies_s + transposed_s[1]),
    )


def num_scan_kernels(rank: Rank) -> tuple[float, float]:
    """Returns the kernels that a layer launches between the products of its blocks with linear attention, in each direction.

    Small ones that autograd launches by itself are not among them.
    """
    linear = rank.workload.model.linear_attention
    if linear is None:
        return 0.0, 0.0
    share, kernels = rank.workload.model.linear_share, scan_kernels(linear)
    return share * len(kernels.forward), share * len(kernels.backward)


def weight_gradients_s(rank: Rank) -> Floats:
    """Returns the time of the weight gradients of the blocks of a layer that mix tokens, `(n,)`."""
    model = rank.workload.model
    if model.compressed_attention:
        return compressed_weight_gradients_s(rank)
    attention_s = total(rank.weight_gradient_s(*product) for product in attention_products(rank))
    if model.indexer:
        of_heads = products_of_heads(rank)
        heads_s = total(rank.in_16_bits.weight_gradient_s(*product, batch) for product, batch in of_heads)
        return attention_s + heads_s + indexer_weight_gradients_s(rank)
    if model.linear_attention is None:
        return attention_s
    linear_s = total(rank.weight_gradient_s(*product) for product in linear_products(rank))
    return model.attention_share * attention_s + model.linear_share * linear_s


def linear_products(rank: Rank) -> list[Product]:
    """Returns tokens, output and inner size of each product of a block with linear attention on one rank.

    Down-projections to a low rank are whole on every rank.
    """
    model, linear, t = rank.workload.model, rank.workload.model.linear_attention, rank.plans.tensor_parallel
    assert linear is not None
    h = np.full(len(t), float(model.hidden_size))
    into = (rank.tokens, linear.entering_width / t, h)
    out = (rank.tokens, h, linear.value_width / t)
    if not linear.low_rank:
        return [into, out]
    low = np.full_like(h, linear.low_rank)
    return [into, (rank.tokens, 2.0 * low, h), (rank.tokens, linear.raised_width / t, low), out]


def shared(share: float, times_s: Directions) -> Directions:
    """Returns the times of so many blocks, forward and backward."""
    return times_s if share == 1.0 else (share * times_s[0], share * times_s[1])


def _each_product_s(rank: Rank, linear: LinearAttention) -> list[Directions]:
    between = [ONE_PRODUCT, ONE_PRODUCT] if linear.low_rank else []
    batches = [INTO_ATTENTION, *between, LEAVING]
    return [
        rank.gemm_s(*product, batch) for product, batch in zip(linear_products(rank), batches, strict=True)
    ]


def _kernels_s(rank: Rank, linear: LinearAttention, kernels: tuple[Kernel, ...]) -> Floats:
    """Kernels one after the other, `(n,)`."""
    flop_per_s = best_attention_flop_per_s(rank, min(linear.head_dim, linear.key_head_dim))
    tokens, slowdown = rank.tokens / rank.plans.tensor_parallel, rank.compute_slowdown
    return total(
        kernel_s(rank, tokens * kernel.num_bytes, tokens * kernel.flop, flop_per_s, slowdown=slowdown)
        for kernel in kernels
    )


def _kernels(rank: Rank, linear: LinearAttention) -> ScanKernels:
    return scan_kernels(linear, _key_heads(rank, linear))


def _key_heads(rank: Rank, linear: LinearAttention) -> Floats:
    return linear.key_heads_over(rank.plans.tensor_parallel * rank.plans.context_parallel)


def _copies_s(rank: Rank) -> Floats:
    """Values that context-parallel ranks exchange, put in order on either side of the scan, `(n,)`.

    Tensors that are exchanged one by one are copied one by one at first.
    """
    has_others = (rank.plans.context_parallel > 1).astype(np.float64)
    before, behind = exchanged_widths(rank)
    values = NUM_ORDERS_BEFORE * total(before) + NUM_ORDERS_BEHIND * behind
    num_kernels = NUM_ORDERS_BEFORE + NUM_ORDERS_BEHIND + len(before) - 1.0
    return rank.memory_bound_s(has_others * ORDER_BYTES * rank.tokens * values, num_kernels * has_others)


def _transposed_s(rank: Rank, linear: LinearAttention) -> Directions:
    """Values of several sequences in the order of their tokens, copied to the order of sequences and back, `(n,)` each."""
    has_several = (rank.plans.micro_batch_size > 1).astype(np.float64)
    tokens = rank.tokens / rank.plans.tensor_parallel
    forward_s, backward_s = (
        rank.memory_bound_s(has_several * ORDER_BYTES * tokens * width, has_several * np.sign(width))
        for width in transposed_widths(linear, _key_heads(rank, linear))
    )
    return forward_s, backward_s


def _summed(parts: list[Directions]) -> Directions:
    return total(forward_s for forward_s, _ in parts), total(backward_s for _, backward_s in parts)


def _mixed(share: float, attention_s: Directions, of_linear: float, linear_s: Directions) -> Directions:
    forward_s, backward_s = (
        share * of_attention_s + of_linear * of_linear_s
        for of_attention_s, of_linear_s in zip(attention_s, linear_s, strict=True)
    )
    return forward_s, backward_s
