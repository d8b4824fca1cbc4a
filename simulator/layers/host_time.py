"""How long does the accelerator wait for the host? Kernels are launched one by one from Python, or replayed as a graph.

Launches run ahead of the accelerator, so a pass through a layer takes the longer of the two. A host that waits for every kernel
adds its own time to the kernels' instead.
"""

from __future__ import annotations

import numpy as np

from simulator.domain.lora import AdaptedProduct
from simulator.domain.plan import Recompute
from simulator.layers.attention_costs import attention_products, products_of_heads
from simulator.layers.compressed_costs import num_compressed_kernels, projections
from simulator.layers.connection_costs import num_connection_kernels
from simulator.layers.eager_operators import (
    NUM_SEPARATE_OF_ATTENTION,
    NUM_SEPARATE_PRODUCTS,
    eager_kernels,
    is_counted,
    num_residual_sums,
)
from simulator.layers.indexer_costs import num_indexer_kernels
from simulator.layers.linear_costs import linear_products, num_scan_kernels
from simulator.machine.compute import SEPARATE_KERNELS
from simulator.machine.rank import Rank
from simulator.table import Floats
from simulator.traffic.adapter_exchange import adapter_traffic

NUM_FORWARD_KERNELS = 12.0
"""Memory-bound kernels of one layer forward (norms, residuals, rotary positions, activation, casts, layout), half of them
around attention."""
NUM_GATE_KERNELS = 1.0
"""An additional kernel where the attention core has a gate."""
NUM_HEAD_NORMS = 2.0
"""Additional kernels where queries and keys have norms, one each."""
NUM_PRODUCTS, NUM_PRODUCTS_OF_ATTENTION = 4.0, 2.0
"""Matrix products of one layer forward: before and after the attention core, into and out of the feed-forward block; and the
first two."""
NUM_COLLECTIVES = 2.0
"""Tensor-parallel collectives of one layer forward, with two sequential blocks."""
NUM_ADAPTER_LAUNCHES = 4.0
"""Launches of a low-rank adapter forward: two thin products, the scaling, the addition (`Linear.forward` of peft's
`tuners/lora/layer.py` without dropout, its default)."""
MERGED_PRODUCTS = {AdaptedProduct.QKV: 3.0, AdaptedProduct.FC1: 2.0}
"""Products of a gated block that Megatron merges into one."""
BACKWARD_RATIO = 2.0
"""Bytes and kernels backward relative to forward: vTrain counts 20 kernels forward and 42 backward in a layer."""


NO_MORE = (np.zeros(1), np.zeros(1))
"""No launches beyond those of a layer without experts."""


def host_waits_s(
    rank: Rank, forward_s: Floats, backward_s: Floats, more: tuple[Floats, Floats] = NO_MORE
) -> tuple[Floats, Floats]:
    """Returns the time that the host adds to a pass through a layer, forward and backward, `(n,)`.

    Args:
        rank: Ranks of the designs.
        forward_s: What the accelerator is busy for, communication included.
        backward_s: The same backward, recomputation included.
        more: Launches beyond those of an ordinary layer, forward and backward.
    """
    launch_s, num_launches = _launch_s(rank), _num_forward_launches(rank)
    host_s = launch_s * (num_launches + more[0])
    again_s = (rank.plans.recompute == Recompute.FULL.code) * host_s
    # Frozen weights have no gradients of their own.
    frozen = _num_products(rank) if rank.workload.lora else 0.0
    counted = _counted_kernels(rank)
    backward_launches = BACKWARD_RATIO * (num_launches - counted[0]) + counted[1]
    backward_launches = backward_launches - frozen + num_kernels_again(rank) + more[1]
    backward_host_s = launch_s * backward_launches + again_s
    if rank.workload.kernel_launch == "blocking-2022":
        return host_s, np.asarray(backward_host_s)
    return np.maximum(0.0, host_s - forward_s), np.maximum(0.0, backward_host_s - backward_s)


def _counted_kernels(rank: Rank) -> tuple[float, float]:
    """Launches that are counted in either direction, beside those that are as many more backward as in other layers."""
    counted = (
        num_scan_kernels(rank),
        num_indexer_kernels(rank),
        num_compressed_kernels(rank),
        num_connection_kernels(rank),
    )
    return sum(forward for forward, _ in counted), sum(backward for _, backward in counted)


def _launch_s(rank: Rank) -> float:
    training = rank.training
    return {
        "graph": 0.0,
        "eager": training.launch_s,
        "eager-2022": training.early_launch_s,
        "blocking-2022": training.blocking_launch_s,
    }[rank.workload.kernel_launch]


def num_forward_kernels(rank: Rank) -> float:
    """Returns the launches of the memory-bound operators of one layer forward."""
    if is_counted(rank):
        return eager_kernels(rank)
    model = rank.workload.model
    casts = float(model.num_layer_norms) if checkpoints_norms(rank) else 0.0
    heads = NUM_HEAD_NORMS if model.qk_norm else 0.0
    gates = NUM_GATE_KERNELS if model.has_output_gate else 0.0
    around_blocks = NUM_FORWARD_KERNELS / 2.0 * (1.0 + model.num_mixers)
    sums = model.num_blocks_in_turn - num_residual_sums(model)  # less than in other models
    return around_blocks + model.attention_share * (heads + gates) + casts - sums


def checkpoints_norms(rank: Rank) -> bool:
    """Returns whether norms read 32-bit copies and are recomputed; operators that run one by one are counted as such."""
    return rank.workload.checkpoints_norms and not is_counted(rank)


def num_kernels_again(rank: Rank) -> Floats:
    """Returns the launches of recomputed norms: a cast and a norm each, and the additions between them."""
    if not checkpoints_norms(rank):
        return np.zeros(len(rank.plans))
    is_part = rank.plans.recompute != Recompute.FULL.code
    return np.asarray(is_part * (3.0 * rank.workload.model.num_layer_norms - 1.0))


def _num_products(rank: Rank) -> float:
    """Returns the launches of matrix products in one layer forward, mean over the layers of a hybrid."""
    number, of_attention = NUM_PRODUCTS, NUM_PRODUCTS_OF_ATTENTION
    if is_counted(rank):
        number, of_attention = NUM_SEPARATE_PRODUCTS, NUM_SEPARATE_OF_ATTENTION
    model, of_block = rank.workload.model, number - of_attention
    if model.compressed_attention:  # and that of groups of heads
        return of_block + len(projections(rank)) + 1.0
    if model.latent_attention:
        of_attention = float(len(attention_products(rank)) + len(products_of_heads(rank)))
    of_linear = model.linear_share * len(linear_products(rank)) if model.linear_attention else 0.0
    return of_block + model.attention_share * of_attention + of_linear


def _num_forward_launches(rank: Rank) -> Floats:
    num_collectives = NUM_COLLECTIVES / 2.0 * rank.workload.model.num_blocks_in_turn
    collectives = np.where(rank.plans.tensor_parallel > 1, num_collectives, 0.0)
    separate = SEPARATE_KERNELS.get(rank.workload.attention)
    attention = rank.workload.model.attention_share * (separate.num_forward if separate else 1.0)
    own = num_forward_kernels(rank) + _num_products(rank) + attention
    own = own + _counted_kernels(rank)[0]
    return np.asarray(own + collectives + _num_adapter_launches(rank))


def _num_adapter_launches(rank: Rank) -> Floats | float:
    """Returns the forward launches of a layer's adapters; where products are separate, each has its own adapter."""
    if rank.workload.lora is None:
        return 0.0
    merged = MERGED_PRODUCTS if is_counted(rank) else {}
    number = sum(merged.get(product, 1.0) for product in rank.workload.lora.targets)
    num_collectives = adapter_traffic(rank, tuple(AdaptedProduct))[0].num_collectives
    return NUM_ADAPTER_LAUNCHES * number + np.where(rank.plans.tensor_parallel > 1, num_collectives, 0.0)
