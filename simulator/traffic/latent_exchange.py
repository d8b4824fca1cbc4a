"""What do tensor-parallel ranks exchange where latent attention begins?

The weights of the down-projections to latents are whole on every rank. With sequence parallelism each rank multiplies them by
its own tokens. What is gathered in front of the up-projections is then not the residual stream but the latents of queries and
of keys and values, and the rotary key that all heads share (Megatron Core, `multi_latent_attention.py`: down-projections with
`parallel_mode` `duplicated`, `gather_from_sequence_parallel_region` of `k_pos_emb`). In the backward pass their gradients are
scattered; without sequence parallelism they are summed. Queries without latents come from the residual stream.

Where heads attend to latents, those of keys and values enter no product, so that they are gathered in 16 bits. An indexer
reads all tokens on every rank: residual stream and latents of queries are gathered once more, and no gradient comes back. For
its loss the ranks add up the scores of their heads, 4 T k bytes (`dsa.py` and `dsa_cudnn_kernels.py` of Megatron Core).
"""

from __future__ import annotations

import numpy as np

from simulator.layout.kept_inputs import ACTIVATION_BYTES, WIDE_BYTES
from simulator.machine.network import all_gather_s, all_reduce_s
from simulator.machine.rank import Rank, once_per_rank
from simulator.table import Floats, total

NUM_LATENTS = 2
"""Inputs of up-projections to heads: of queries, and of keys and values."""


@once_per_rank
def entering_latents_s(rank: Rank) -> tuple[Floats, Floats]:
    """Returns the collectives in front of latent attention, forward and backward, `(n,)` each; 0 for any other attention.

    Those of an indexer are not among them.
    """
    none_s = np.zeros(len(rank.plans))
    if rank.workload.model.latent_attention is None:
        return none_s, none_s
    gathered, summed = latent_bytes(rank)
    forward_s = total(
        [
            NUM_LATENTS * rank.largest_s,
            *(all_gather_s(num_bytes=each, **rank.tensor_group) for each in gathered),
        ]
    )
    return forward_s, total([none_s, *(rank.input_gradient_sum_s(each) for each in summed)])


@once_per_rank
def indexer_exchange_s(rank: Rank) -> tuple[Floats, Floats]:
    """Returns the collectives of a layer's indexer, which nothing hides: gathers forward, the sum for its loss backward."""
    share, (gathered, summed) = rank.workload.model.indexer_share, indexer_bytes(rank)
    none_s = np.zeros(len(rank.plans))
    return (
        share * total([none_s, *(all_gather_s(num_bytes=each, **rank.tensor_group) for each in gathered)]),
        share * total([none_s, *(all_reduce_s(num_bytes=each, **rank.tensor_group) for each in summed)]),
    )


def indexer_bytes(rank: Rank) -> tuple[tuple[Floats, ...], tuple[Floats, ...]]:
    """Returns the bytes that an indexer gathers, one collective after the other, and those summed for its loss, `(n,)` each."""
    model, mla = rank.workload.model, rank.workload.model.latent_attention
    if mla is None or mla.indexer is None:
        return (), ()
    widths = (model.hidden_size, mla.query_rank) if mla.query_rank else (model.hidden_size,)
    gathered = tuple(ACTIVATION_BYTES * rank.tokens * width for width in widths)
    chosen = float(mla.indexer.num_places(rank.workload.sequence_length))
    summed = (WIDE_BYTES * rank.tokens * chosen,) if rank.workload.trains_indexer else ()
    return (gathered if rank.workload.has_sequence_parallel else ()), summed


def latent_bytes(rank: Rank) -> tuple[tuple[Floats, ...], tuple[Floats, ...]]:
    """Returns the bytes gathered forward, one collective after the other, and those of gradients summed backward, `(n,)` each.

    Inputs of products in 8 or 4 bits are cast before the gather; the rotary key never is, nor are latents without a product.
    """
    model, mla = rank.workload.model, rank.workload.model.latent_attention
    if mla is None:
        return (), ()
    inputs, key = (mla.query_rank or model.hidden_size, mla.key_value_rank), mla.rope_head_dim
    summed = tuple(ACTIVATION_BYTES * rank.tokens * width for width in (*inputs, key))
    if not rank.workload.has_sequence_parallel:
        return (), summed
    input_bytes = rank.block_gather_bytes[0] / model.hidden_size
    if mla.indexer:
        return (input_bytes * inputs[0], *summed[1:]), summed
    return (*(input_bytes * width for width in inputs), summed[-1]), summed
