"""How long does one step of a large plan take on user-defined nodes? Folded, where a network file's nodes and rails are alike.

Bandwidths, latencies and the ramp come from the file. Collectives are those of the fast depth, which are NCCL's: rings that
leave a node through the cards of all members, or trees, whichever is faster (`simulator.machine.network`). Each is one flow
for each kind of link (`simulator.deep.plans.plan_traffic`). `simulator.deep.plans.plan_on_network` plays every message, and
handles all other networks.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simulator.deep.networks.described_network import NodesNetwork
from simulator.deep.networks.network_file import NetworkFile
from simulator.deep.plans.plan_cluster import Faults, PlanCluster
from simulator.deep.plans.plan_parts import PlanParts
from simulator.deep.plans.plan_step import PlanStep, folded_step, parts_and_shape
from simulator.domain.job import Job
from simulator.domain.links import LinkConstants
from simulator.domain.plan import Plan
from simulator.errors import InputError, Problem
from simulator.step.step import simulate_step

CABLES_TO_A_LEAF = 2
"""Cables of the fabric between two cards of one rail; the cable between accelerator and card has no latency."""
CABLES_OF_A_HOP = 2
"""Cables between two accelerators of a node."""


def regular_nodes(file: NetworkFile) -> NodesNetwork | None:
    """Returns the nodes of a file if all are alike: each accelerator has its own cards, on rails, and nothing is slow."""
    network = file.network
    if not isinstance(network, NodesNetwork) or file.slow_links or not network.is_rail_optimized:
        return None
    cards = network.cards_per_node or network.gpus_per_node
    return network if cards >= network.gpus_per_node and network.fabric_ramp_s == 0.0 else None


def plan_on_nodes(job: Job, plan: Plan, network: NodesNetwork, *, faults: Faults | None = None) -> PlanStep:
    """Plays one step of a plan on nodes that are all alike; accelerators that do the same are played once.

    Args:
        job: the job.
        plan: a plan with a valid layout (`constraints.layout`).
        network: nodes with at least as many accelerators, as `regular_nodes` returns them.
        faults: accelerators that are slow or fast.

    Raises:
        InputError: the plan is too large for the network.
    """
    most = network.num_nodes * network.gpus_per_node
    if plan.num_gpus > most:
        rule = f"must be at most {most:,}, the accelerators of the nodes"
        raise InputError([Problem(path="num_gpus", value=str(plan.num_gpus), rule=rule)], "deep depth")
    parts, shape = parts_and_shape(job, plan)
    rank = replace(parts.rank, links=_links(network))
    step = folded_step(
        job,
        plan,
        _cluster(plan, network, faults or Faults()),
        PlanParts(rank=rank, chunks=parts.chunks),
        shape,
    )
    return replace(step, fast=simulate_step(parts.rank, parts.chunks))


def _cluster(plan: Plan, network: NodesNetwork, faults: Faults) -> PlanCluster:
    cluster = PlanCluster(
        num_gpus=plan.num_gpus,
        num_stages=plan.pipeline_parallel,
        domain_size=network.gpus_per_node,
        gpus_per_node=network.gpus_per_node,
        nodes_per_leaf=network.num_nodes,
        scale_up_bytes_per_s=network.scale_up_bytes_per_s,
        card_bytes_per_s=network.gpu_card_bytes_per_s,
        oversubscription=1.0,
        faults=faults,
    )
    cluster.check_faults()
    return cluster


def _links(network: NodesNetwork) -> LinkConstants:
    """The file's links as constants of the fast depth: except for the ramp, each bandwidth is fully reached."""
    hop_s = CABLES_OF_A_HOP * network.scale_up_latency_s
    values = {
        "intra_bytes_per_s": network.scale_up_bytes_per_s,
        "intra_latency_s": 0.0,
        "intra_hop_s": hop_s,
        "intra_ramp_s": network.scale_up_ramp_s,
        "all_reduce_fraction": 1.0,
        "gather_fraction": 1.0,
        "all_to_all_fraction": 1.0,
        "point_to_point_fraction": 1.0,
        "group_exponent": 0.0,
        "unlinked_members": 0.0,
        "gpus_per_domain": float(network.gpus_per_node),
        "inter_bytes_per_s_per_gpu": network.gpu_card_bytes_per_s,
        "inter_latency_s": CABLES_TO_A_LEAF * network.fabric_latency_s,
        "inter_member_s": hop_s,
        "inter_fraction": 1.0,
        "inter_point_to_point_fraction": 1.0,
        "gpus_per_node": float(network.gpus_per_node),
        "gpus_per_card": 1.0,
        "shared_card_fraction": 1.0,
        "scale_up_fraction": 1.0,
    }
    return LinkConstants(**{name: np.array([value]) for name, value in values.items()})
