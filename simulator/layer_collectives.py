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
gradient.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from simulator.activations import ACTIVATION_BYTES
from simulator.network import all_gather_s, all_reduce_s, reduce_scatter_s
from simulator.rank import Rank
from simulator.table import Floats, Integers

Collective = Callable[..., Floats]
"""A collective of `simulator.network`, called by keywords."""

CORE_SHARE = 0.15
"""Share of the cores that a collective takes from the computation it hides behind (Calculon, arXiv 2311.02076: 0.15
over NVLink)."""

Directions = tuple[Floats, Floats]
"""Forward and backward."""


def entering_s(rank: Rank) -> Directions:
    """Returns the collectives at the start of a block."""
    if rank.workload.has_sequence_parallel:
        return _tensor_s(all_gather_s, rank), _tensor_s(reduce_scatter_s, rank)
    return np.zeros(len(rank.plans)), _tensor_s(all_reduce_s, rank)


def leaving_s(rank: Rank) -> Directions:
    """Returns the collectives at the end of a block: those of its start, in the other direction."""
    if rank.workload.has_sequence_parallel:
        return _tensor_s(reduce_scatter_s, rank), _tensor_s(all_gather_s, rank)
    return _tensor_s(all_reduce_s, rank), np.zeros(len(rank.plans))


def block_s(rank: Rank) -> Directions:
    """Returns the collectives of a whole block."""
    (enter_forward_s, enter_backward_s), (leave_forward_s, leave_backward_s) = (
        entering_s(rank),
        leaving_s(rank),
    )
    return enter_forward_s + leave_forward_s, enter_backward_s + leave_backward_s


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


def _tensor_s(collective: Collective, rank: Rank) -> Floats:
    """One collective over the residual stream between tensor-parallel ranks."""
    return collective(
        num_bytes=hidden_bytes(rank),
        group_size=_tensor(rank),
        members_per_domain=_members(rank),
        links=rank.links,
    )


def hidden_bytes(rank: Rank) -> Floats:
    """Returns the residual stream of one micro-batch."""
    return ACTIVATION_BYTES * rank.tokens * rank.workload.model.hidden_size


def _tensor(rank: Rank) -> Floats:
    return rank.plans.tensor_parallel.astype(np.float64)


def _members(rank: Rank) -> Floats:
    return members_in_domain(rank, 1, rank.plans.tensor_parallel)


def exposed_s(traffic_s: Floats, cover_s: Floats) -> Floats:
    """Returns what communication behind a computation costs: the part that is longer, and the cores it takes."""
    return np.asarray(np.maximum(0.0, traffic_s - cover_s) + CORE_SHARE * np.minimum(traffic_s, cover_s))


def members_in_domain(rank: Rank, stride: Integers | int, group_size: Integers | Floats) -> Floats:
    """Returns how many ranks of a group whose ranks are `stride` apart sit in one link domain, `(n,)`."""
    reachable = np.maximum(rank.offers.link_domain_size // stride, 1)
    return np.asarray(np.minimum(reachable, group_size), dtype=np.float64)
