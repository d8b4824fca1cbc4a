"""How long does it take to cast weights to 8 or 4 bits, and in how many bytes are they gathered?

Up to ZeRO-2 a rank casts the weights of its layers to both layouts once per step and keeps the result, as copies or as the
weights themselves. Where passes gather (`simulator.layout.weight_gathers`), it casts what they gathered, to the layout that
each pass needs (torchao, `Float8Linear`). Every product of a layer is cast by kernels of its own; those of routed experts, into
and out of their block, count as two, however many experts there are, and shared experts count with them.

Ranks that cast before they gather (`gathers_cast_weights`) cast a share each, which travels in 8 bits, and turn rows into
columns where products need both. Blocks of MXFP8 cannot be turned: once per step they travel in 16 bits (Megatron Core,
`reuse_grad_buf_for_mxfp8_param_ag`), in passes by rows forward and by columns backward. Weights cast to 4 bits travel in 16.
Embedding, output layer and adapters are never cast.
"""

from __future__ import annotations

import numpy as np

from simulator.domain.plan import PlanTable, shard_group
from simulator.domain.workload import Workload
from simulator.layers.attention_costs import attention_products
from simulator.layers.host_time import NUM_PRODUCTS, NUM_PRODUCTS_OF_ATTENTION
from simulator.layers.indexer_costs import indexer_products
from simulator.layers.layer_costs import latent_products
from simulator.layers.linear_costs import linear_products
from simulator.layout.casts import gathered_weight_value_bytes, gathers_cast_weights, is_cast
from simulator.layout.chunks import ChunkWeights
from simulator.layout.expert_ranks import routed_shard_group
from simulator.layout.model_states import WEIGHT_BYTES
from simulator.layout.weight_gathers import gathers_in_passes
from simulator.machine.compute import memory_bound_time_s
from simulator.machine.rank import Rank
from simulator.table import Floats
from simulator.traffic.layer_collectives import Directions


def gathered_weight_bytes(
    workload: Workload, plans: PlanTable, weights: ChunkWeights
) -> tuple[Floats, Floats]:
    """Returns the bytes of a rank's shared and routed weights as they are gathered, `(n, C)` each."""
    if not workload.gathers_cast_weights:  # all in 16 bits, the common case of a search
        return WEIGHT_BYTES * weights.shared_on_rank(plans), WEIGHT_BYTES * weights.routed_on_rank(
            workload, plans
        )
    value_bytes = gathered_weight_value_bytes(workload, plans)[:, None]
    shared, routed = _cast_weights(workload, plans, weights)
    return WEIGHT_BYTES * weights.never_cast_on_rank(plans) + value_bytes * shared, value_bytes * routed


def once_per_step_cast_bytes(rank: Rank, weights: ChunkWeights) -> Floats:
    """Returns the bytes that a rank moves to cast its weights once per step, `(n, C)`; 0 where passes gather them."""
    workload, plans = rank.workload, rank.plans
    shared, routed = _cast_weights(workload, plans, weights)
    one, transposed = (each[:, None] for each in _cast_bytes(rank))
    ranks, routed_ranks = _shards(workload, plans)
    by_shares = one * (shared / ranks + routed / routed_ranks) + transposed * (shared + routed)
    is_by_shares = (gathers_cast_weights(workload, plans) & (plans.zero_stage >= 1))[:, None]
    whole = np.where(is_by_shares, by_shares, rank.cast_bytes[:, None] * (shared + routed))
    return np.where(gathers_in_passes(workload, plans)[:, None], 0.0, whole)


def casts_in_passes_s(rank: Rank, weights: ChunkWeights) -> Directions:
    """Returns the time to cast gathered weights `(1, k)`, for one micro-batch forward and backward, `(k, n)` each."""
    workload, plans = rank.workload, rank.plans
    shared, routed = (each.T for each in _cast_weights(workload, plans, weights))
    ranks, routed_ranks = (each.T for each in _shards(workload, plans))
    one, transposed = _cast_bytes(rank)
    num_products = _num_products(rank, weights)
    is_by_shares = gathers_cast_weights(workload, plans)
    of_one = one * np.where(is_by_shares, shared / ranks + routed / routed_ranks, shared + routed)
    turned = np.where(is_by_shares, transposed * (shared + routed), 0.0)
    return _in_passes_s(rank, of_one, num_products), _in_passes_s(rank, of_one + turned, num_products)


def _num_products(rank: Rank, weights: ChunkWeights) -> Floats:
    """Products of a layer with these weights `(1, k)`, mean over layers that differ in how they mix tokens, `(k, 1)`."""
    model = rank.workload.model
    number = NUM_PRODUCTS - NUM_PRODUCTS_OF_ATTENTION + model.attention_share * len(attention_products(rank))
    if model.linear_attention:
        number += model.linear_share * len(linear_products(rank))
    if compressed := model.compressed_attention:  # queries of the indexer; its other products stay in 16 bits
        number += compressed.share("chosen", model.num_layers)
    if model.indexer:
        number += model.indexer_share * len(indexer_products(rank))
    return number + len(latent_products(rank)) * np.sign(weights.routed).T


def _in_passes_s(rank: Rank, num_bytes: Floats, num_products: Floats) -> Floats:
    is_sharded = is_cast(rank.plans) & gathers_in_passes(rank.workload, rank.plans)
    num_kernels = num_products * rank.kernels_per_cast * np.sign(num_bytes)
    return memory_bound_time_s(
        num_bytes=is_sharded * num_bytes,
        memory_bytes_per_s=rank.offers.memory_bytes_per_s,
        constants=rank.kernels,
        num_kernels=is_sharded * num_kernels,
    )


def _cast_bytes(rank: Rank) -> tuple[Floats, Floats]:
    """Bytes to cast a weight to one layout, and to make the other layout from it, `(n,)` each."""
    one, transposed = rank.constants.one_layout_shares[rank.constants.pair(rank.plans)].T
    return rank.cast_bytes * one, rank.cast_bytes * transposed


def _cast_weights(workload: Workload, plans: PlanTable, weights: ChunkWeights) -> tuple[Floats, Floats]:
    """Shared and routed weights of a rank that may be cast, unsharded, `(n, C)` each."""
    shared = weights.shared_on_rank(plans) - weights.never_cast_on_rank(plans)
    return shared, weights.routed_on_rank(workload, plans)


def _shards(workload: Workload, plans: PlanTable) -> tuple[Floats, Floats]:
    """Number of ranks that share a copy of shared and of routed weights, `(n, 1)` each."""
    return shard_group(plans)[:, None].astype(np.float64), routed_shard_group(workload, plans)[:, None]
