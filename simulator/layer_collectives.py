"""How long do the ranks of a layer wait for each other? Tensor and expert parallelism, one micro-batch.

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
from simulator.model import MixtureOfExperts
from simulator.network import (
    all_gather_s,
    all_reduce_s,
    all_to_all_s,
    forwarded_exchange_s,
    reduce_scatter_s,
)
from simulator.rank import Rank
from simulator.table import Floats, Integers

Collective = Callable[..., Floats]
"""A collective of `simulator.network`, called by keywords."""

CORE_SHARE = 0.15
"""Share of the cores that a collective takes from the computation it hides behind (Calculon, arXiv 2311.02076: 0.15
over NVLink)."""

HIDDEN_EXCHANGE_SHARE = 0.5
"""Share of the traffic of experts that disappears behind another micro-batch. Qwen3-30B-A3B on 16 H100 was measured with
and without the overlap (Megatron-Bridge): it saved 47 % of what the exchange takes with Hybrid-EP and 52 % of plain
all-to-alls."""

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
        num_bytes=_hidden_bytes(rank),
        group_size=_tensor(rank),
        members_per_domain=_members(rank),
        links=rank.links,
    )


def _hidden_bytes(rank: Rank) -> Floats:
    """The residual stream of one micro-batch."""
    return ACTIVATION_BYTES * rank.tokens * rank.workload.model.hidden_size


def _tensor(rank: Rank) -> Floats:
    return rank.plans.tensor_parallel.astype(np.float64)


def _members(rank: Rank) -> Floats:
    return members_in_domain(rank, 1, rank.plans.tensor_parallel)


def expert_exchange_s(rank: Rank, forward_s: Floats, backward_s: Floats) -> Directions:
    """Returns what dispatch and combine take beyond the computation behind which they hide.

    The exchange of one direction runs beside computations of the other one, of another micro-batch (Megatron Core, DualPipe
    of DeepSeek-V3, arXiv 2412.19437), so that the mean of the two covers it.
    """
    exchange_s = 2.0 * _dispatch_s(rank)
    if rank.workload.overlaps_expert_exchange:
        cover_s = (forward_s + backward_s) / 2.0
        exchange_s = exchange_s - np.minimum(HIDDEN_EXCHANGE_SHARE * exchange_s, cover_s)
    return exchange_s, exchange_s


def _dispatch_s(rank: Rank) -> Floats:
    """Every token of a micro-batch to its experts, which e ranks share; the most loaded rank is waited for."""
    experts, plans = rank.workload.model.experts, rank.plans
    assert experts is not None
    group, members = (
        plans.expert_parallel.astype(np.float64),
        members_in_domain(rank, 1, plans.expert_parallel),
    )
    token_bytes = ACTIVATION_BYTES * rank.workload.model.hidden_size * rank.tokens / plans.tensor_parallel
    token_bytes = token_bytes * rank.workload.expert_load
    if rank.workload.expert_dispatch == "all_to_all":
        return all_to_all_s(
            num_bytes=token_bytes * experts.experts_per_token,
            group_size=group,
            members_per_domain=members,
            links=rank.links,
        )
    domains = group / members
    return forwarded_exchange_s(
        near_bytes=token_bytes * num_reached(experts, group) * (members - 1.0) / members,
        far_bytes=token_bytes * num_reached(experts, domains) * (domains - 1.0) / domains,
        group_size=group,
        members_per_domain=members,
        links=rank.links,
    )


def num_reached(experts: MixtureOfExperts, parts: Floats) -> Floats:
    """Returns in how many of the equal parts of all experts, `(n,)`, a token has one, its experts being drawn at random.

    G (1 - (E - E/G choose k) / (E choose k)): a part is missed when all k experts are among those of the others.
    """
    others = experts.num_experts * (1.0 - 1.0 / parts)
    missed = np.ones_like(parts)
    for drawn in range(experts.experts_per_token):
        missed *= np.maximum(others - drawn, 0.0) / (experts.num_experts - drawn)
    return parts * (1.0 - missed)


def exposed_s(traffic_s: Floats, cover_s: Floats) -> Floats:
    """Returns what communication behind a computation costs: the part that is longer, and the cores it takes."""
    return np.asarray(np.maximum(0.0, traffic_s - cover_s) + CORE_SHARE * np.minimum(traffic_s, cover_s))


def members_in_domain(rank: Rank, stride: Integers | int, group_size: Integers | Floats) -> Floats:
    """Returns how many ranks of a group whose ranks are `stride` apart sit in one link domain, `(n,)`."""
    return np.asarray(np.clip(rank.offers.link_domain_size // stride, 1, group_size), dtype=np.float64)
