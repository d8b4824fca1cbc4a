"""How many bytes do the operators around routed experts move, in how many launches, fused or one by one in PyTorch?

*Fused* (Megatron Core, Transformer Engine): each kernel that sorts tokens reads and writes them once. Deduplicated copies
arrive unsorted: each is read once for each of its experts there, and results are summed on the same way back. Otherwise each of
the k copies is sorted by destination before it is sent, and by expert where a rank has several (Megatron Core,
`sort_chunks_by_idxs` for `num_local_experts > 1`). Where several ranks share an expert, all of them sort the tokens that any of
them receives. Backward is the mirror image.

*One by one* (torchtitan, August 2026: `models/common/moe.py`, `token_dispatcher.py`): an operator reads and writes whole
tensors, at 2 bytes a value in 16 bits and 4 in 32. For each of the h values of each copy of a token:

    copy       forward, rows of tokens in the order of experts 4; results to fp32 6, by the router's weights 8, back 6;
               added up 6
               backward, rows of gradients 4, to fp32 6, by the weights 8; gradients of the weights 12 and 4; back 6;
               sum of what both first products give 6; added up 6
    order      by experts what arrives by ranks, and back, 4 + 4; backward 4, cleared 2, added up 6

and for each of the h values of a token itself:

    token      forward cleared 2, copied 4; backward cleared 2, sum with what the router gives 6
    shared     forward the sum with shared experts 6; backward the sum with what both their first products give 12

A token that travels as a single copy per rank is copied for its experts there and needs no other reordering.

In both cases, products in 8 and 4 bits need whole groups of rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.layout.casts import is_cast
from simulator.layout.expert_ranks import expert_load
from simulator.layout.kept_inputs import ACTIVATION_BYTES, runs_one_by_one
from simulator.machine.rank import Rank
from simulator.table import Booleans, Floats
from simulator.traffic.expert_reach import num_reached
from simulator.traffic.layer_collectives import Directions
from simulator.traffic.routing_maps import staging_passes

NUM_ROUTING_KERNELS = 24.0
"""Small kernels of routing, each direction (softmax, top-k, maps, counts, auxiliary loss, permutation there and back)."""
PADDING_PASSES = 4.0
"""Reads and writes of each copy of a token to pad the rows of its expert and to remove the padding (Transformer Engine,
`Fp8Padding` and `Fp8Unpadding`)."""


@dataclass(frozen=True, kw_only=True)
class SeparateBytes:
    """Bytes per value where operators run one by one, in one direction."""

    copy: float
    order: float
    token: float
    shared: float


FORWARD = SeparateBytes(copy=30.0, order=8.0, token=6.0, shared=6.0)
BACKWARD = SeparateBytes(copy=52.0, order=12.0, token=8.0, shared=12.0)
ORDER_KERNELS, ORDER_BACKWARD_KERNELS = 22.0, 3.0
"""Launches to reorder: counts and offsets of the tokens from each rank, forward only; rows in both directions."""


def sorted_bytes(rank: Rank) -> Directions:
    """Returns the bytes read and written around the experts of the most loaded rank in a layer, forward and backward."""
    padding = np.where(_fills_rows(rank), PADDING_PASSES * _num_gathered(rank), 0.0)
    if runs_one_by_one(rank.workload):
        padded = _passes_bytes(rank, padding)
        return _separate_bytes(rank, FORWARD) + padded, _separate_bytes(rank, BACKWARD) + padded
    moved = _passes_bytes(rank, _sorting_passes(rank) + padding)
    return moved, moved


def sorting_kernels(rank: Rank) -> Directions:
    """Returns the small kernels of routing, forward and backward, without those that pad rows."""
    is_ordered = _is_ordered(rank) & runs_one_by_one(rank.workload)
    forward, backward = (
        np.where(is_ordered, number, 0.0) for number in (ORDER_KERNELS, ORDER_BACKWARD_KERNELS)
    )
    return NUM_ROUTING_KERNELS + forward, NUM_ROUTING_KERNELS + backward


def _num_gathered(rank: Rank) -> float:
    """Copies of a token at its experts: ranks that have parts of the same expert have one each."""
    experts = rank.workload.model.experts
    assert experts is not None
    return float(experts.experts_per_token * rank.workload.expert_tensor_parallel)


def _fills_rows(rank: Rank) -> Booleans:
    is_separate = rank.workload.expert_products == "separate" and not rank.workload.fills_expert_rows
    return np.asarray(is_separate & is_cast(rank.plans))


def _sorting_passes(rank: Rank) -> Floats:
    experts = rank.workload.model.experts
    assert experts is not None
    if rank.workload.expert_dispatch == "deduplicated":
        reached = num_reached(experts, rank.plans.expert_parallel.astype(np.float64))
        arriving = rank.workload.expert_tensor_parallel * reached
        return np.asarray(2.0 * (arriving + _num_gathered(rank)) + staging_passes(rank))
    has_several = experts.num_experts > rank.plans.expert_parallel
    return 2.0 * experts.experts_per_token + 2.0 + np.where(has_several, 4.0 * _num_gathered(rank), 0.0)


def _passes_bytes(rank: Rank, passes: Floats) -> Floats:
    return np.asarray(ACTIVATION_BYTES * expert_load(rank.workload, rank.plans) * passes * _num_values(rank))


def _separate_bytes(rank: Rank, value: SeparateBytes) -> Floats:
    experts = rank.workload.model.experts
    assert experts is not None
    load = expert_load(rank.workload, rank.plans)
    copied = experts.experts_per_token * value.copy + _num_gathered(rank) * _is_ordered(rank) * value.order
    of_token = value.token + (value.shared if experts.shared_ffn_hidden_size else 0.0)
    return np.asarray((load * copied + of_token) * _num_values(rank))


def _num_values(rank: Rank) -> Floats:
    """Values of the tokens that a rank routes."""
    return rank.tokens / rank.plans.tensor_parallel * rank.workload.model.expert_input_size


def _is_ordered(rank: Rank) -> Booleans:
    """Whether copies arrive ordered by the ranks that sent them."""
    return np.asarray((rank.plans.expert_parallel > 1) & (rank.workload.expert_dispatch == "all_to_all"))
