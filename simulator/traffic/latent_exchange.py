"""What do tensor-parallel ranks exchange where latent attention begins?

Weights of the products down to latents are whole on every rank. With sequence parallelism each rank multiplies them by its own
tokens, and what is gathered in front of the products up to heads are latents of queries and of keys and values, and the rotary
key that all heads share, instead of the residual stream (Megatron Core, `multi_latent_attention.py`: down-projections with
`parallel_mode` `duplicated`, `gather_from_sequence_parallel_region` of `k_pos_emb`). Backward their gradients are scattered;
without sequence parallelism they are summed. Queries without latents come from the residual stream.
"""

from __future__ import annotations

import numpy as np

from simulator.layout.kept_inputs import ACTIVATION_BYTES
from simulator.machine.network import all_gather_s
from simulator.machine.rank import Rank, once_per_rank
from simulator.table import Floats, total

NUM_LATENTS = 2
"""Inputs of products up to heads: of queries, and of keys and values."""


@once_per_rank
def entering_latents_s(rank: Rank) -> tuple[Floats, Floats]:
    """Returns the collectives in front of latent attention, forward and backward, `(n,)` each; 0 for any other attention."""
    none_s = np.zeros(len(rank.plans))
    if rank.workload.model.latent_attention is None:
        return none_s, none_s
    gathered, summed = latent_bytes(rank)
    return (
        total(
            [
                NUM_LATENTS * rank.largest_s,
                *(all_gather_s(num_bytes=each, **rank.tensor_group) for each in gathered),
            ]
        ),
        total([none_s, *(rank.input_gradient_sum_s(each) for each in summed)]),
    )


def latent_bytes(rank: Rank) -> tuple[tuple[Floats, ...], tuple[Floats, ...]]:
    """Returns what is gathered forward, one after the other, and the gradients that are summed backward, `(n,)` each.

    Inputs of products in 8 or 4 bits are gathered behind their cast, the rotary key never is one.
    """
    model, mla = rank.workload.model, rank.workload.model.latent_attention
    if mla is None:
        return (), ()
    inputs, key = (mla.query_rank or model.hidden_size, mla.key_value_rank), mla.rope_head_dim
    summed = tuple(ACTIVATION_BYTES * rank.tokens * width for width in (*inputs, key))
    if not rank.workload.has_sequence_parallel:
        return (), summed
    input_bytes = rank.block_gather_bytes[0] / model.hidden_size
    return (*(input_bytes * width for width in inputs), summed[-1]), summed
