"""What do context-parallel ranks exchange around linear attention, and in a layer of a hybrid?

A state is passed on from token to token, so ranks exchange their parts of the sequence for heads, and back, whatever attention
does (`mamba_context_parallel.py`, `gated_delta_net/common.py` of Megatron Core): 2 T w (c - 1)/c bytes with all values w that
enter the block or come from a low rank, and the same with its values v behind the scan, in either direction. Mamba-2 exchanges
its five tensors one after the other; where there are fewer heads of keys than ranks, keys and queries are copied first.
"""

from __future__ import annotations

import numpy as np

from simulator.layout.kept_inputs import ACTIVATION_BYTES
from simulator.machine.network import all_to_all_s
from simulator.machine.rank import Rank, members_in_domain, once_per_rank
from simulator.table import Floats, total
from simulator.traffic.layer_collectives import Directions


def layer_exchange_s(rank: Rank, attention_s: Directions) -> Directions:
    """Returns the exposed time of what context-parallel ranks exchange in a layer, mean over the layers of a hybrid, `(n,)`.

    Args:
        rank: Ranks of the designs.
        attention_s: What they exchange around one attention core (`simulator.traffic.context_exchange`), each `(n,)`.
    """
    model = rank.workload.model
    if model.linear_attention is None:
        return attention_s
    heads_s = model.linear_share * _heads_s(rank)
    forward_s, backward_s = (model.attention_share * each_s + heads_s for each_s in attention_s)
    return forward_s, backward_s


def exchanged_widths(rank: Rank) -> tuple[list[Floats], Floats]:
    """Returns the values per token on one rank of each tensor exchanged in front of the scan, and of the one behind it.

    There are none without linear attention.
    """
    linear, t = rank.workload.model.linear_attention, rank.plans.tensor_parallel
    if linear is None:
        return [], np.zeros(len(t))
    values = linear.value_width / t
    if linear.kind == "mamba-2":
        keys = linear.key_head_dim * linear.key_heads_over(t * rank.plans.context_parallel) / t
        return [values, values, keys, keys, linear.num_heads / t], values
    return [(linear.entering_width + linear.raised_width) / t], values


def linear_bytes(rank: Rank) -> tuple[list[Floats], Floats]:
    """Returns the bytes that one rank sends in each exchange in front of the scan, and in the one behind it."""
    entering, leaving = exchanged_widths(rank)
    per_value = ACTIVATION_BYTES * rank.tokens
    return [per_value * each for each in entering], per_value * leaving


@once_per_rank
def _heads_s(rank: Rank) -> Floats:
    t, c = rank.plans.tensor_parallel, rank.plans.context_parallel
    before, behind = linear_bytes(rank)
    return total(
        all_to_all_s(
            num_bytes=num_bytes,
            group_size=c.astype(np.float64),
            members_per_domain=members_in_domain(rank, t, c),
            links=rank.links,
        )
        for num_bytes in (*before, behind)
    )
