"""What do context-parallel ranks exchange around linear attention, and in a layer of a hybrid?

A state is passed on from token to token, so ranks exchange their parts of the sequence for heads, and back, whatever attention
does (`mamba_context_parallel.py`, `gated_delta_net/common.py` of Megatron Core): 2 T w (c - 1)/c bytes with all values w that
enter the block or come from a low rank, and the same with its values v behind the scan, in either direction.
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


def exchanged_widths(rank: Rank) -> tuple[Floats, Floats]:
    """Returns the values per token on one rank that are exchanged in front of the scan, and behind it; zero without a scan."""
    linear, t = rank.workload.model.linear_attention, rank.plans.tensor_parallel
    if linear is None:
        return np.zeros(len(t)), np.zeros(len(t))
    return (linear.entering_width + linear.raised_width) / t, linear.value_width / t


def linear_bytes(rank: Rank) -> tuple[Floats, Floats]:
    """Returns the bytes that one rank sends to exchange parts of the sequence for heads: before the scan, and behind it."""
    entering, leaving = exchanged_widths(rank)
    return ACTIVATION_BYTES * rank.tokens * entering, ACTIVATION_BYTES * rank.tokens * leaving


@once_per_rank
def _heads_s(rank: Rank) -> Floats:
    t, c = rank.plans.tensor_parallel, rank.plans.context_parallel
    return total(
        all_to_all_s(
            num_bytes=num_bytes,
            group_size=c.astype(np.float64),
            members_per_domain=members_in_domain(rank, t, c),
            links=rank.links,
        )
        for num_bytes in linear_bytes(rank)
    )
