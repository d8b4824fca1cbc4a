"""What do context-parallel ranks read and write in addition to attention itself?

A ring merges the results of its steps. After a gather, keys and values are put into sequence order, and their gradients back
into rank order. Exchanged heads are sorted by the rank that they go to or come from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from simulator.layers.context_split import slowest_ranks
from simulator.layout.attended_keys import key_value_width
from simulator.layout.kept_inputs import ACTIVATION_BYTES
from simulator.machine.rank import Rank
from simulator.table import Floats
from simulator.traffic.context_exchange import (
    head_ranks_of,
    heads_bytes,
    keys_and_values_bytes,
    ring_steps,
)
from simulator.traffic.layer_collectives import Directions


@dataclass(frozen=True, kw_only=True)
class Merge:
    """What one step of a ring reads and writes to merge its results with earlier ones, in bytes per value."""

    output: float
    query_gradient: float
    key_gradient: float
    """Of keys and of values."""
    key: float = 0.0
    """Of keys and values themselves, in either direction."""
    num_forward: float = 2.0
    """Kernels that merge outputs and sums of exponentials."""
    num_backward: float = 3.0
    """Kernels that merge gradients of queries, keys and values."""


MERGES: Mapping[str, Merge] = {
    "sixteen_bit": Merge(output=6.0, query_gradient=6.0, key_gradient=6.0),
    "compiled": Merge(output=10.0, query_gradient=10.0, key_gradient=10.0),
    "eager": Merge(
        output=38.0, query_gradient=10.0, key_gradient=21.0, key=4.0, num_forward=10.0, num_backward=7.0
    ),
}
"""Two reads and a write in 16 bits (TransformerEngine, `context_parallel.py`); PyTorch's with sums in 32 bits (`_cp_options`):
compiled to one kernel, or operator by operator on the rank that has most of it. There outputs are cast 6, subtracted 12,
scaled 8 and subtracted 12 (`_SDPAMerger`); gradients of keys are added to the half that they are for 5, put together with the
other 8 (`_partial_update`), and with those of values 8, as are keys with values 4 (`torch.cat`). Kernels there: the cast, four
of outputs, four of the sums of exponentials and the copy of keys forward; that copy, a sum for queries, two for each of keys
and values, and one that puts these together backward."""

ORDER_BYTES = 4.0
"""To reorder one value of keys, values or their gradients: a read and a write in 16 bits (`index_select`)."""
CLEAR_BYTES = 2.0
"""To zero the gradient of one gathered value."""
ADD_BYTES = 6.0
"""To add the contribution of one piece of the sequence to it: two reads and a write."""
NUM_ORDER_KERNELS = 2.0
"""Forward: keys and values."""
NUM_GRADIENT_KERNELS = 10.0
"""Backward: these two, and for the gradients of keys and values one that zeroes, two that add and one that reorders."""
NUM_KEY_GRADIENT_KERNELS = 4.0
"""Where tokens are chosen and the key of all heads is kept in order: one that zeroes and one that adds, for it and that of the
indexer (`index_select` of Megatron Core's `dsa.py`)."""
NUM_HEAD_KERNELS = 4.0
"""Of queries, keys, values and outputs, or of their gradients: a copy of each on one side of the all-to-all, on which heads and
sequence stand in another order (`single_all_to_all` of DeepSpeed)."""


def context_copies_s(rank: Rank) -> Directions:
    """Returns the time of these copies, which are bound by memory bandwidth, forward and backward, `(n,)`."""
    heads_s = _heads_s(rank)
    forward_s, backward_s = (
        _gather_s(rank) if rank.workload.chosen_exchange == "all_gather" else _ring_s(rank)
    )
    return forward_s + heads_s, backward_s + heads_s


def _ring_s(rank: Rank) -> Directions:
    """Sums over the steps of a ring: outputs forward, gradients of queries, keys and values backward."""
    model, t, steps, merge = rank.workload.model, rank.plans.tensor_parallel, ring_steps(rank), _merge(rank)
    qk_dim, value_dim = model.attention_dims
    heads = model.num_heads / t
    keys_and_values = rank.tokens * key_value_width(rank.workload, rank.plans)
    forward_bytes = merge.output * rank.tokens * heads * value_dim + merge.key * keys_and_values
    gradient_bytes = merge.query_gradient * rank.tokens * heads * qk_dim
    backward_bytes = gradient_bytes + (merge.key + merge.key_gradient) * keys_and_values
    merges = np.where(steps > 1.0, steps, 0.0)
    return (
        rank.memory_bound_s(merges * forward_bytes, merges * merge.num_forward),
        rank.memory_bound_s(merges * backward_bytes, merges * merge.num_backward),
    )


def _merge(rank: Rank) -> Merge:
    if rank.workload.chosen_exchange != "gathered_ring":
        return MERGES["sixteen_bit"]
    return MERGES["compiled" if rank.workload.has_fused_operators else "eager"]


def _gather_s(rank: Rank) -> Directions:
    """Keys and values of the whole sequence in its order, again backward, and their gradients back in that of the ranks.

    What a piece adds to gradients are those of the keys that it sees (`get_kv_seq_info_after_all_gather` of TransformerEngine).
    """
    has_others = (rank.plans.context_parallel > 1).astype(np.float64)
    values = has_others * keys_and_values_bytes(rank) / ACTIVATION_BYTES
    added = values * _seen_share(rank)
    order_bytes = ORDER_BYTES * values
    gradient_bytes = 2.0 * order_bytes + CLEAR_BYTES * values + ADD_BYTES * added
    num_gradient_kernels = NUM_GRADIENT_KERNELS
    if rank.workload.model.indexer:
        gradient_bytes, num_gradient_kernels = (CLEAR_BYTES + ADD_BYTES) * values, NUM_KEY_GRADIENT_KERNELS
    return (
        rank.memory_bound_s(order_bytes, has_others * NUM_ORDER_KERNELS),
        rank.memory_bound_s(gradient_bytes, has_others * num_gradient_kernels),
    )


def _seen_share(rank: Rank) -> Floats:
    """Keys that the pieces of a rank see over those of the sequence, mean of the layers."""
    visits = sum(span.share * span.key_visits for span in slowest_ranks(rank))
    return np.asarray(visits / rank.plans.context_parallel)


def _heads_s(rank: Rank) -> Floats:
    """Queries, keys, values and output, or their gradients, once each."""
    exchanged = head_ranks_of(rank)
    has_others = (exchanged > 1).astype(np.float64)
    num_bytes = ORDER_BYTES / ACTIVATION_BYTES * sum(heads_bytes(rank))
    return rank.memory_bound_s(has_others * num_bytes, has_others * NUM_HEAD_KERNELS)
