"""Which collectives bring tokens to their experts and back? Those of `simulator.traffic.expert_exchange`, as flows."""

from __future__ import annotations

import numpy as np

from simulator.deep.plans.plan_collectives import (
    Collective,
    Group,
    Operation,
    all_to_all,
    forwarded_exchange,
    ring,
)
from simulator.deep.plans.plan_items import moves
from simulator.layout.expert_ranks import expert_ranks
from simulator.layout.kept_inputs import ACTIVATION_BYTES
from simulator.machine.network import FORWARDED_FRACTION
from simulator.machine.rank import Rank
from simulator.traffic.expert_exchange import (
    RATE_IN_TRAINING,
    copied_bytes,
    dispatch_ranks,
    dispatched_bytes,
    forwarded_bytes,
    gathers_copies,
    routed_bytes,
)
from simulator.traffic.routing_maps import map_bytes

Traffic = tuple[Collective, ...]
ROUTING_MAPS = "routing maps"
"""Name of the gather that tells all ranks where tokens go."""


def expert_traffic(rank: Rank, way: int) -> tuple[Traffic, Traffic]:
    """Returns the traffic that sends the tokens of a micro-batch to their experts, and that which brings the results back.

    Args:
        rank: A rank of the only design.
        way: 0 forward, where routing maps are gathered first; 1 backward, where gradients retrace both.
    """
    sent, returned = (_in_training(each_way) for each_way in _tokens(rank))
    return (*map_traffic(rank, way), *sent), returned


def _in_training(traffic: Traffic) -> Traffic:
    """Returns collectives at the rate they reach in training, where ranks wait for the last one while links are idle."""
    waits = 1.0 / RATE_IN_TRAINING - 1.0
    return tuple(each.with_rest(each.rest_s + waits * each.alone_s) for each in traffic)


def map_traffic(rank: Rank, way: int) -> Traffic:
    """Returns the gather of routing maps before a dispatch, which nothing of the same micro-batch hides."""
    if way == 1 or not rank.workload.routes_by_maps:
        return ()
    ranks = Group.of(rank, 1, int(expert_ranks(rank.workload, rank.plans)[0]))
    gather = ring(ROUTING_MAPS, Operation.ALL_GATHER, float(map_bytes(rank)[0]), ranks, rank.links)
    return _in_training(moves(gather))


def _tokens(rank: Rank) -> tuple[Traffic, Traffic]:
    sent = _dispatch(rank, "expert dispatch", float(dispatched_bytes(rank)[0]))
    returned = _dispatch(rank, "expert combine", ACTIVATION_BYTES)
    if not gathers_copies(rank.workload):
        return moves(sent), moves(returned)
    parts = Group.of(rank, 1, rank.workload.expert_tensor_parallel)
    num_bytes = float(copied_bytes(rank)[0])
    gather, scatter = (
        ring(f"expert {operation.value}", operation, num_bytes, parts, rank.links)
        for operation in (Operation.ALL_GATHER, Operation.REDUCE_SCATTER)
    )
    return moves(sent, gather), moves(scatter, returned)


def _dispatch(rank: Rank, label: str, value_bytes: float) -> Collective:
    experts, workload = rank.workload.model.experts, rank.workload
    assert experts is not None
    stride, number = dispatch_ranks(rank)
    group = Group.of(rank, stride, int(number[0]))
    if workload.expert_dispatch == "all_to_all":
        num_bytes = float(routed_bytes(rank, value_bytes)[0]) * experts.experts_per_token
        return all_to_all(label, num_bytes, group, rank.links)
    near, far = forwarded_bytes(
        rank, value_bytes, np.array([float(group.size)]), np.array([float(group.members_per_domain)])
    )
    return forwarded_exchange(label, float(near[0]), float(far[0]), group, rank.links, FORWARDED_FRACTION)
