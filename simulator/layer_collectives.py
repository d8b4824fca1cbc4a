"""How long do the ranks of a layer wait for each other? Tensor parallelism, one micro-batch.

Every result is a pair of seconds `(n,)`, forward and backward, of what computation does not hide. A block is what
tensor-parallel ranks share out: an attention or feed-forward block, the embedding, the output layer. Collectives
stand where it is entered and left (f and g of Megatron-LM, arXiv 1909.08053; with sequence parallelism g and g-bar of
Korthikanti et al., arXiv 2205.05198):

                  entering it                          leaving it
                  forward         backward             forward          backward
    plain         -               all-reduce           all-reduce       -
    sequence      all-gather      reduce-scatter       reduce-scatter   all-gather

With sequence parallelism the backward pass gathers the block's input once more, behind the product for the input's
gradient. Blocks of layers may gather inputs of products that are cast (`Workload.gathers_cast_inputs`); the embedding and the
output layer gather 16 bits.
"""

from __future__ import annotations

import numpy as np

from simulator.rank import Rank
from simulator.table import Floats

CORE_SHARE = 0.15
"""Share of the cores that a collective takes from the computation it hides behind (Calculon, arXiv 2311.02076: 0.15
over NVLink)."""

Directions = tuple[Floats, Floats]
"""Forward and backward."""


def entering_s(rank: Rank) -> Directions:
    """Returns the collectives at the start of a block."""
    if rank.workload.has_sequence_parallel:
        return rank.hidden_gather_s, rank.hidden_gather_s
    return np.zeros(len(rank.plans)), rank.hidden_all_reduce_s


def leaving_s(rank: Rank) -> Directions:
    """Returns the collectives at the end of a block: those of its start, in the other direction."""
    forward_s, backward_s = entering_s(rank)
    return backward_s, forward_s


def block_s(rank: Rank) -> Directions:
    """Returns the collectives of a whole block of a layer; only what is gathered may be in 8 or 4 bits."""
    if not rank.workload.has_sequence_parallel:
        return rank.hidden_all_reduce_s, rank.hidden_all_reduce_s
    forward_s, backward_s = rank.block_gather_s
    return forward_s + rank.hidden_gather_s, backward_s + rank.hidden_gather_s


def beside_products(rank: Rank, traffic_s: Floats, cover_s: Floats) -> Floats:
    """Returns what of the collectives of a block shows where software runs them in pieces beside its products.

    Only with sequence parallelism: gathers and scatters come in pieces, an all-reduce does not.
    """
    if not (rank.workload.overlaps_tensor_comm and rank.workload.has_sequence_parallel):
        return traffic_s
    hidden_s = rank.training.hidden_tensor_fraction * traffic_s
    return np.asarray(traffic_s - hidden_s + exposed_s(hidden_s, cover_s))


def num_blocks(rank: Rank, *, is_expert: bool) -> int:
    """Returns how many blocks of a layer the tensor-parallel ranks share out.

    Routed experts are not split by tensor parallelism. With sequence parallelism each rank sends its own tokens to
    them, so that nothing is gathered; without it their results are, as after any other block.
    """
    experts = rank.workload.model.experts
    if is_expert and experts and rank.workload.has_sequence_parallel and not experts.shared_ffn_hidden_size:
        return 1
    return 2


def exposed_s(traffic_s: Floats, cover_s: Floats) -> Floats:
    """Returns what communication behind a computation costs: the part that is longer, and the cores it takes."""
    return np.asarray(np.maximum(0.0, traffic_s - cover_s) + CORE_SHARE * np.minimum(traffic_s, cover_s))
