"""How long do tokens travel to their experts and back, and what hides it?

Nomenclature as in `simulator.domain.model`; t and e are the tensor- and expert-parallel degrees, t_e the ranks that share each
expert. Every result is in seconds `(n,)`, of one micro-batch on the most loaded rank.
"""

from __future__ import annotations

import numpy as np

from simulator.domain.hardware import Precision
from simulator.domain.plan import runs_in_pairs
from simulator.domain.workload import Workload
from simulator.layout.expert_ranks import expert_load, expert_ranks
from simulator.layout.kept_inputs import ACTIVATION_BYTES
from simulator.machine.network import all_gather_s, all_to_all_s, forwarded_exchange_s, reduce_scatter_s
from simulator.machine.rank import Rank, members_in_domain
from simulator.table import Floats, Integers, total
from simulator.traffic.expert_reach import num_reached
from simulator.traffic.layer_collectives import Directions, exposed_s
from simulator.traffic.routing_maps import map_gather_s, weight_value_bytes

RATE_IN_TRAINING = 0.8
"""Rate of an exchange in a step over the rate of its kernels alone: each exchange begins when the last rank arrives, four times
a layer. In a step of Qwen3-30B-A3B on 16 H100 with Hybrid-EP, communication takes 8.25 s (profile of Megatron-Bridge), where
kernels alone take 6.46 s."""
HIDDEN_EXCHANGE_SHARE = 0.44
"""Share of expert traffic that is hidden behind another micro-batch. Qwen3-30B-A3B on 16 H100 was measured with and without the
overlap (Megatron-Bridge): it saved 46 % of the exchange time with Hybrid-EP and 42 % with plain all-to-alls."""
CAST_DISPATCH_BYTES = 1.0 + 4.0 / 128.0
"""Bytes of a value that is dispatched in 8 bits, with its part of the fp32 scale of 128 values (DeepSeek-V3, arXiv 2412.19437,
section 3.3)."""


def expert_exchange_s(rank: Rank, forward_s: Floats, backward_s: Floats, shared_s: Directions) -> Directions:
    """Returns the exposed time of dispatch and combine, beyond the computation behind which they hide.

    Exchanges may overlap with computation of another micro-batch (Megatron Core). In each direction at most the computation of
    that direction is hidden, so that faster kernels never lengthen a pass. Or they overlap with the shared experts of the same
    micro-batch, behind maps of the routing (Megatron Core, `--moe-shared-expert-overlap`). What only pairs of DualPipeV hide is
    still included here (`hidden_in_pairs_s`).

    Args:
        rank: Ranks of the designs.
        forward_s: Computation of a layer forward.
        backward_s: The same backward.
        shared_s: What of it are shared experts, forward and backward.
    """
    exchange_s, backward_exchange_s = _exchange_s(rank)
    if rank.workload.overlaps_shared_experts:
        shown_s = exposed_s(backward_exchange_s, shared_s[0]) + _gather_s(rank)
        return shown_s, exposed_s(backward_exchange_s, shared_s[1])
    if rank.workload.overlaps_expert_exchange:
        most = np.where(runs_in_pairs(rank.plans), 0.0, HIDDEN_EXCHANGE_SHARE)
        return (
            exchange_s - np.minimum(most * exchange_s, forward_s),
            backward_exchange_s - np.minimum(most * backward_exchange_s, backward_s),
        )
    return exchange_s, backward_exchange_s


def hides_in_pairs(rank: Rank) -> bool:
    """Returns whether the exchange of any design hides in pairs of DualPipeV."""
    return rank.workload.overlaps_expert_exchange and bool(runs_in_pairs(rank.plans).any())


def hidden_in_pairs_s(rank: Rank, forward_s: Floats, backward_s: Floats) -> Directions:
    """Returns how much of dispatch and combine is hidden where a forward runs paired with a backward, forward and backward.

    Under DualPipe separate kernels on 20 of 132 multiprocessors, 0.152 of the cores, carry the exchange while the rest compute
    for the other pass of the pair (DeepSeek-V3, arXiv 2412.19437, section 3.2.1). With exchange x and computation y_F and y_B a
    pair takes exposed(x, y_F) + exposed(x, y_B) longer than it computes. How this time is divided between the two passes makes
    no difference to the pair. Each pass is charged by the computation of its own direction, so that faster kernels never
    lengthen it.

    Args:
        rank: Ranks of the designs.
        forward_s: Computation of a layer forward.
        backward_s: The same backward.
    """
    (exchange_s, backward_exchange_s), is_paired = _exchange_s(rank), runs_in_pairs(rank.plans)
    return (
        is_paired * (exchange_s - exposed_s(exchange_s, forward_s)),
        is_paired * (backward_exchange_s - exposed_s(backward_exchange_s, backward_s)),
    )


def exchange_alone_s(rank: Rank) -> Directions:
    """Returns the time of dispatch and combine where no rank waits for another: as long as links are busy with them."""
    backward_s = _alone_s(rank)
    return backward_s + map_gather_s(rank), backward_s


def _exchange_s(rank: Rank) -> Directions:
    """Dispatch and combine in a step, forward behind the gather of maps of the routing."""
    backward_s = _alone_s(rank) / RATE_IN_TRAINING
    return backward_s + _gather_s(rank), backward_s


def _gather_s(rank: Rank) -> Floats:
    """The gather of maps of the routing in a step."""
    return map_gather_s(rank) / RATE_IN_TRAINING


def _alone_s(rank: Rank) -> Floats:
    """Dispatch and combine by their kernels alone; in the backward pass each mirrors the other, in the same formats."""
    plain_s = _dispatch_s(rank, ACTIVATION_BYTES)
    is_alike = not (rank.workload.dispatches_in_8_bits or rank.workload.routes_by_maps)
    exchange_s = 2.0 * plain_s if is_alike else _dispatch_s(rank, dispatched_bytes(rank)) + plain_s
    if gathers_copies(rank.workload):
        exchange_s = exchange_s + _copies_to_parts_s(rank)
    return np.asarray(exchange_s)


def gathers_copies(workload: Workload) -> bool:
    """Returns whether the ranks that share an expert gather the copies that one of them received."""
    return workload.expert_tensor_parallel > 1 and workload.expert_dispatch == "all_to_all"


def dispatched_bytes(rank: Rank) -> Floats:
    """Returns the bytes of each value of a token on its way to experts, and of the gradient on the way back, `(n,)`."""
    is_8_bit = rank.workload.dispatches_in_8_bits & (rank.plans.precision == Precision.FP8.code)
    value_bytes = np.where(is_8_bit, CAST_DISPATCH_BYTES, ACTIVATION_BYTES)
    group, members = _group(rank)
    return np.asarray(value_bytes + weight_value_bytes(rank, group / members))


def dispatch_ranks(rank: Rank) -> tuple[int, Integers]:
    """Returns how far apart the ranks are among which tokens travel, and how many they are, `(n,)`.

    In a plain all-to-all each copy goes to one of the e ranks that have different experts; the ranks that share the expert
    gather it from there. Deduplicated tokens go to all e t_e (Megatron Core, `MoEFlexTokenDispatcher`).
    """
    if rank.workload.expert_dispatch == "deduplicated":
        return 1, expert_ranks(rank.workload, rank.plans)
    return rank.workload.expert_tensor_parallel, rank.plans.expert_parallel


def _group(rank: Rank) -> tuple[Floats, Floats]:
    """Ranks among which tokens travel, and how many of them are in one link domain."""
    stride, number = dispatch_ranks(rank)
    return number.astype(np.float64), members_in_domain(rank, stride, number)


def _dispatch_s(rank: Rank, value_bytes: Floats | float) -> Floats:
    """Time in which every token of a micro-batch reaches its experts on e ranks; all wait for the most loaded rank."""
    experts = rank.workload.model.experts
    assert experts is not None
    group, members = _group(rank)
    if rank.workload.expert_dispatch == "all_to_all":
        return all_to_all_s(
            num_bytes=routed_bytes(rank, value_bytes) * experts.experts_per_token,
            group_size=group,
            members_per_domain=members,
            links=rank.links,
        )
    near_bytes, far_bytes = forwarded_bytes(rank, value_bytes, group, members)
    return forwarded_exchange_s(
        near_bytes=near_bytes,
        far_bytes=far_bytes,
        group_size=group,
        members_per_domain=members,
        links=rank.links,
    )


def routed_bytes(rank: Rank, value_bytes: Floats | float) -> Floats:
    """Returns the bytes of the tokens of a micro-batch that the most loaded rank routes, each counted once."""
    token_bytes = (
        value_bytes * rank.workload.model.expert_input_size * rank.tokens / rank.plans.tensor_parallel
    )
    return np.asarray(token_bytes * expert_load(rank.workload, rank.plans))


def forwarded_bytes(
    rank: Rank, value_bytes: Floats | float, group: Floats, members: Floats
) -> tuple[Floats, Floats]:
    """Returns the bytes of deduplicated tokens that arrive over the scale-up link, and those that leave through the fabric.

    A token that reaches one of the ranks that share an expert reaches all of them.

    Args:
        rank: Ranks of the designs.
        value_bytes: Of one value on the wire.
        group: Ranks that share the experts, `(n,)`.
        members: How many of them are in one link domain, `(n,)`.
    """
    experts, shares = rank.workload.model.experts, rank.workload.expert_tensor_parallel
    assert experts is not None
    token_bytes, domains = routed_bytes(rank, value_bytes), group / members
    parts = np.minimum(domains, group / shares)  # an expert may be shared by the ranks of several domains
    return (
        token_bytes * shares * num_reached(experts, group / shares) * (members - 1.0) / members,
        token_bytes * domains / parts * num_reached(experts, parts) * (domains - 1.0) / domains,
    )


def copied_bytes(rank: Rank) -> Floats:
    """Returns the bytes of the copies of tokens that all ranks with parts of the same experts gather."""
    experts, shares = rank.workload.model.experts, rank.workload.expert_tensor_parallel
    assert experts is not None
    copies = (
        expert_load(rank.workload, rank.plans)
        * experts.experts_per_token
        * rank.tokens
        / rank.plans.tensor_parallel
    )
    return np.asarray(shares * ACTIVATION_BYTES * copies * rank.workload.model.expert_input_size)


def _copies_to_parts_s(rank: Rank) -> Floats:
    """Time to copy tokens to all ranks that have parts of the same experts, and to sum what those return."""
    shares, num_bytes = rank.workload.expert_tensor_parallel, copied_bytes(rank)
    members = members_in_domain(rank, 1, np.full(len(rank.plans), shares))
    return total(
        collective(
            num_bytes=num_bytes, group_size=float(shares), members_per_domain=members, links=rank.links
        )
        for collective in (all_gather_s, reduce_scatter_s)
    )
