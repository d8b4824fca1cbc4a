"""How are the usual networks built? Builders by name.

Bandwidths are those of one direction of a cable, in bytes per second; latencies are those of a cable together with the switch
behind it. Accelerators forward nothing unless the network has no switches (ring, torus, mesh, all to all).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from simulator.deep.networks.circuits import circuits_of_links
from simulator.deep.networks.topology import Topology, TopologyBuilder
from simulator.errors import InputError, Problem


def ring(num_ranks: int, bandwidth_bytes_per_s: float, latency_s: float) -> Topology:
    """Returns accelerators in a ring; each forwards to its neighbours."""
    return torus([num_ranks], bandwidth_bytes_per_s, latency_s, name="ring")


def torus(
    shape: Sequence[int],
    bandwidth_bytes_per_s: float,
    latency_s: float,
    *,
    has_wraps: bool = True,
    name: str = "torus",
) -> Topology:
    """Returns accelerators on a grid of any number of dimensions, joined to their neighbours.

    Args:
        shape: accelerators in each dimension, such as `[4, 4, 4]`.
        bandwidth_bytes_per_s: of each cable.
        latency_s: of each cable.
        has_wraps: whether the last one of a row is joined to the first (a torus), or not (a mesh).
        name: of the network.
    """
    builder = TopologyBuilder(name)
    grid = builder.add_ranks(int(np.prod(shape)), forward=True).reshape(shape)
    for axis, length in enumerate(shape):
        num_cables = length if has_wraps and length > 2 else length - 1
        ones = np.take(grid, range(num_cables), axis=axis)
        others = np.take(np.roll(grid, -1, axis=axis), range(num_cables), axis=axis)
        builder.connect(ones, others, bandwidth_bytes_per_s, latency_s)
    return builder.build(ranks_per_node=shape[-1] if len(shape) > 1 else 1)


def mesh(shape: Sequence[int], bandwidth_bytes_per_s: float, latency_s: float) -> Topology:
    """Returns a torus whose rows are open."""
    return torus(shape, bandwidth_bytes_per_s, latency_s, has_wraps=False, name="mesh")


def fully_connected(num_ranks: int, bandwidth_bytes_per_s: float, latency_s: float) -> Topology:
    """Returns accelerators with a cable between every two."""
    builder = TopologyBuilder("fully connected")
    ranks = builder.add_ranks(num_ranks)
    one, other = np.triu_indices(num_ranks, 1)
    builder.connect(ranks[one], ranks[other], bandwidth_bytes_per_s, latency_s)
    return builder.build()


def photonic(
    num_ranks: int, bandwidth_bytes_per_s: float, latency_s: float, *, num_ports: int, set_up_s: float
) -> Topology:
    """Returns accelerators around a circuit switch; any two can be joined, but each only to a few at a time.

    Args:
        num_ranks: accelerators.
        bandwidth_bytes_per_s: of a circuit, in each direction.
        latency_s: of a circuit that is up.
        num_ports: circuits that an accelerator can have at one time.
        set_up_s: from asking for a circuit until it is up.
    """
    every = fully_connected(num_ranks, bandwidth_bytes_per_s, latency_s)
    return replace(circuit_switched(every, num_ports=num_ports, set_up_s=set_up_s), name="photonic")


def circuit_switched(
    topology: Topology, *, num_ports: ArrayLike, set_up_s: float, links: ArrayLike | None = None
) -> Topology:
    """Returns a network in which some links exist only while a circuit is up; see `simulator.deep.networks.circuits`.

    Args:
        topology: the network with all links.
        num_ports: circuits that each vertex can have at one time, one number or `(v,)`.
        set_up_s: from asking for a circuit until it is up.
        links: numbers of the links that need a circuit; default: all. The two directions of a pair share one circuit.

    Raises:
        InputError: an end of a circuit has no port, or the time is negative or not finite.
    """
    chosen = np.arange(topology.num_links) if links is None else np.asarray(links, dtype=np.int64)
    ports = np.broadcast_to(np.asarray(num_ports, dtype=np.int64), (topology.num_vertices,))
    circuits = circuits_of_links(topology.source, topology.target, chosen, num_ports=ports, set_up_s=set_up_s)
    return replace(topology, circuits=circuits)


def switch(num_ranks: int, bandwidth_bytes_per_s: float, latency_s: float) -> Topology:
    """Returns accelerators around one non-blocking switch, such as an NVSwitch plane."""
    builder = TopologyBuilder("switch")
    ranks = builder.add_ranks(num_ranks)
    builder.connect(ranks, builder.add("switch"), bandwidth_bytes_per_s, latency_s)
    return builder.build()


def fat_tree(
    num_ranks: int,
    bandwidth_bytes_per_s: float,
    latency_s: float,
    *,
    ranks_per_leaf: int,
    num_spines: int,
    oversubscription: float = 1.0,
) -> Topology:
    """Returns a folded Clos network of two levels: leaves with accelerators, every leaf joined to every spine.

    Args:
        num_ranks: accelerators; the last leaf may have fewer than the others.
        bandwidth_bytes_per_s: of an accelerator's cable.
        latency_s: of each cable.
        ranks_per_leaf: accelerators on each leaf.
        num_spines: switches above the leaves.
        oversubscription: bandwidth into a leaf from below over that to its spines; 1: none.
    """
    builder = TopologyBuilder("fat tree")
    ranks = builder.add_ranks(num_ranks)
    leaves = builder.add("leaf", -(-num_ranks // ranks_per_leaf))
    spines = builder.add("spine", num_spines)
    builder.connect(ranks, leaves[np.arange(num_ranks) // ranks_per_leaf], bandwidth_bytes_per_s, latency_s)
    uplink = bandwidth_bytes_per_s * ranks_per_leaf / (num_spines * oversubscription)
    builder.connect(leaves[:, None], spines[None, :], uplink, latency_s)
    return builder.build(ranks_per_node=ranks_per_leaf)


def cluster(
    num_nodes: int,
    ranks_per_node: int,
    *,
    scale_up_bytes_per_s: float,
    scale_up_latency_s: float,
    card_bytes_per_s: float,
    fabric_latency_s: float,
    cards_per_node: int | None = None,
    is_rail_optimized: bool = True,
    num_spines: int = 1,
) -> Topology:
    """Returns nodes with a scale-up switch and network cards, on rails or under one leaf each.

    Accelerator i of a node uses card i x cards / accelerators. If it has several cards, they are one vertex with their total
    bandwidth (`card_bundles`). Rail-optimized: card i of every node connects to leaf i, so that equal positions of nodes are
    one switch apart; else the cards of a node share a leaf. Leaves connect to the spines with full bandwidth.

    Args:
        num_nodes: nodes.
        ranks_per_node: accelerators of each.
        scale_up_bytes_per_s: of an accelerator to the scale-up switch of its node.
        scale_up_latency_s: of that cable.
        card_bytes_per_s: of a network card.
        fabric_latency_s: of a cable of the fabric.
        cards_per_node: network cards, at most as many as accelerators or a multiple of them; default: one for each.
        is_rail_optimized: whether card i connects to leaf i, or all cards of a node to one leaf.
        num_spines: switches above the leaves.
    """
    num_cards, per_accelerator = card_bundles(cards_per_node, ranks_per_node)
    card_bytes_per_s *= per_accelerator
    builder = TopologyBuilder("cluster")
    ranks = builder.add_ranks(num_nodes * ranks_per_node).reshape(num_nodes, ranks_per_node)
    builder.connect(
        ranks, builder.add("nvswitch", num_nodes)[:, None], scale_up_bytes_per_s, scale_up_latency_s
    )
    cards = builder.add("card", num_nodes * num_cards).reshape(num_nodes, num_cards)
    own = np.arange(ranks_per_node) * num_cards // ranks_per_node
    # The bus between accelerator and card has the card's bandwidth, so the card is the shared resource.
    builder.connect(ranks, cards[:, own], card_bytes_per_s, 0.0)
    num_leaves = num_cards if is_rail_optimized else num_nodes
    leaves, spines = builder.add("leaf", num_leaves), builder.add("spine", num_spines)
    leaf_of_card = leaves[np.arange(num_cards)][None, :] if is_rail_optimized else leaves[:, None]
    builder.connect(cards, np.broadcast_to(leaf_of_card, cards.shape), card_bytes_per_s, fabric_latency_s)
    uplink = card_bytes_per_s * cards.size / (num_leaves * num_spines)
    builder.connect(leaves[:, None], spines[None, :], uplink, fabric_latency_s)
    return builder.build(ranks_per_node=ranks_per_node)


def card_bundles(cards_per_node: int | None, ranks_per_node: int) -> tuple[int, int]:
    """Returns the number of vertices for the cards of a node, and how many cards each vertex stands for.

    Libraries spread an accelerator's traffic over all of its cards, so they act as one link with their total bandwidth.

    Args:
        cards_per_node: network cards; `None`: one for each accelerator.
        ranks_per_node: accelerators of a node.
    """
    num_cards = cards_per_node or ranks_per_node
    return min(num_cards, ranks_per_node), max(1, num_cards // ranks_per_node)


def dragonfly(
    num_groups: int,
    switches_per_group: int,
    ranks_per_switch: int,
    *,
    rank_bytes_per_s: float,
    local_bytes_per_s: float,
    global_bytes_per_s: float,
    latency_s: float,
) -> Topology:
    """Returns groups of switches that are all joined to each other, with one cable between every two groups.

    The cable from group g to group h ends at switch (h mod switches) of g (Kim, Dally, Scott and Abts 2008).
    """
    builder = TopologyBuilder("dragonfly")
    num_switches = num_groups * switches_per_group
    ranks = builder.add_ranks(num_switches * ranks_per_switch)
    switches = builder.add("switch", num_switches)
    builder.connect(ranks, np.repeat(switches, ranks_per_switch), rank_bytes_per_s, latency_s)
    one, other = np.triu_indices(switches_per_group, 1)
    local = switches.reshape(num_groups, switches_per_group)
    builder.connect(local[:, one], local[:, other], local_bytes_per_s, latency_s)
    group, peer = np.triu_indices(num_groups, 1)
    ends = local[group, peer % switches_per_group], local[peer, group % switches_per_group]
    builder.connect(*ends, global_bytes_per_s, latency_s)
    return builder.build(ranks_per_node=switches_per_group * ranks_per_switch)


def degraded(topology: Topology, links: ArrayLike, factor: ArrayLike) -> Topology:
    """Returns a network in which some links, by number, have only a share of their bandwidth; paths stay as they were.

    Args:
        topology: the network.
        links: numbers, each once.
        factor: the share, one for all or one for each.

    Raises:
        InputError: the share is not above 0, or a link does not exist.
    """
    chosen = np.asarray(links, dtype=np.int64)
    problems = []
    shares = np.asarray(factor, dtype=np.float64)
    problems += [
        Problem(path="factor", value=str(share), rule="must be above 0 and at most 1")
        for share in shares[~((shares > 0.0) & (shares <= 1.0))][:1].tolist()
    ]
    problems += [
        Problem(path="links", value=str(link), rule=f"must be a link, 0 to {topology.num_links - 1}")
        for link in chosen[(chosen < 0) | (chosen >= topology.num_links)][:1].tolist()
    ]
    if problems:
        raise InputError(problems, source=f"network {topology.name!r}")
    bandwidth = topology.bandwidth_bytes_per_s.copy()
    bandwidth[chosen] *= shares
    return replace(topology, bandwidth_bytes_per_s=bandwidth, whole_bytes_per_s=topology.routed_bytes_per_s)
