"""Do collectives take the time of their closed forms where nothing else is on the network?"""

from __future__ import annotations

from dataclasses import replace
from math import log2, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.deep.collectives.patterns import TREE_CHUNKS
from simulator.deep.collectives.schedules import Collectives, num_tree_tasks
from simulator.deep.networks.routing import Router
from simulator.deep.networks.topologies import (
    cluster,
    degraded,
    dragonfly,
    fat_tree,
    fully_connected,
    mesh,
    ring,
    switch,
    torus,
)
from simulator.deep.networks.topology import Topology
from simulator.deep.playing.play import Played, play
from simulator.deep.playing.tasks import NONE, TaskGraphBuilder
from simulator.domain.links import link_constants
from simulator.errors import InputError
from simulator.machine.network import all_gather_s, all_reduce_s

B = 1e9
HOP = 1e-6
ON_SWITCH = 2 * HOP
S = 8e6


def time_s(topology: Topology, method: str, size: int) -> float:
    return played(topology, method, np.arange(size)).makespan_s


def played(topology: Topology, method: str, ranks: np.ndarray) -> Played:
    graph, router = TaskGraphBuilder(), Router(topology)
    collectives = Collectives(graph=graph, router=router)
    getattr(collectives, method)(ranks, S, np.full(ranks.shape, NONE))
    return play(graph.build(), topology, router.table())


@pytest.mark.parametrize("size", [2, 3, 8, 33])
@pytest.mark.parametrize(
    ("method", "rounds"), [("ring_all_reduce", 2), ("ring_all_gather", 1), ("ring_reduce_scatter", 1)]
)
def test_a_ring_takes_its_steps(method: str, rounds: int, size: int) -> None:
    expected = rounds * (size - 1) * (ON_SWITCH + S / size / B)
    assert time_s(switch(size, B, HOP), method, size) == pytest.approx(expected)


@pytest.mark.parametrize("size", [2, 3, 8])
@pytest.mark.parametrize(
    "method",
    [
        "ring_all_gather",
        "ring_reduce_scatter",
        "ring_all_reduce",
        "direct_all_gather",
        "direct_reduce_scatter",
        "tree_all_reduce",
    ],
)
def test_no_rank_is_done_before_it_has_begun(method: str, size: int) -> None:
    # Its own part is one of those that it gives, so that it cannot be done with what the others sent it.
    topology, late_s = switch(size, B, HOP), 1.0
    graph, router = TaskGraphBuilder(), Router(topology)
    begin = graph.add("late", duration_s=np.array([late_s, *[0.0] * (size - 1)])).reshape(size)
    done = getattr(Collectives(graph=graph, router=router), method)(np.arange(size), S, begin)
    ends_s = play(graph.build(), topology, router.table()).end_s[done]
    assert ends_s[0] > late_s
    assert (ends_s[1:] > late_s).all()


@pytest.mark.parametrize("size", [2, 4, 32])
def test_halving_and_doubling_takes_few_steps(size: int) -> None:
    expected = 2 * log2(size) * ON_SWITCH + 2 * (size - 1) / size * S / B
    assert time_s(switch(size, B, HOP), "halving_doubling_all_reduce", size) == pytest.approx(expected)


def test_halves_are_swapped_with_the_nearest_rank_where_all_are_summed_and_with_the_farthest_where_parts_are() -> (
    None
):
    # Eight ranks under two leaves, whose four ranks share a cable of one rank's bandwidth to the spine.
    leaves = fat_tree(
        8, bandwidth_bytes_per_s=B, latency_s=0.0, ranks_per_leaf=4, num_spines=1, oversubscription=4.0
    )
    # A half and a quarter travel inside a leaf, an eighth of each of four ranks over its cable; and back.
    assert time_s(leaves, "halving_doubling_all_reduce", 8) == pytest.approx(
        2 * (1 / 2 + 1 / 4 + 4 / 8) * S / B
    )
    # The other way: a half of each of four over the cable.
    assert time_s(leaves, "halving_reduce_scatter", 8) == pytest.approx((4 / 2 + 1 / 4 + 1 / 8) * S / B)
    assert time_s(leaves, "doubling_all_gather", 8) == pytest.approx((4 / 2 + 1 / 4 + 1 / 8) * S / B)


def test_halving_and_doubling_needs_a_power_of_two() -> None:
    with pytest.raises(InputError, match="halving-doubling: needs groups of a power of two, and one has 6"):
        time_s(switch(6, B, HOP), "halving_doubling_all_reduce", 6)


@pytest.mark.parametrize("size", [2, 5, 16])
def test_an_exchange_takes_what_leaves_a_rank(size: int) -> None:
    expected = ON_SWITCH + (size - 1) / size * S / B
    assert time_s(switch(size, B, HOP), "all_to_all", size) == pytest.approx(expected)


class TestRamp:
    """Collectives that keep a cable busy for x seconds take 2 sqrt(ramp x) longer (docs/model/network.md)."""

    RAMP_S = 3e-6

    def lost_s(self, method: str, size: int) -> float:
        plain = switch(size, B, HOP)
        return time_s(plain.with_ramp(self.RAMP_S), method, size) - time_s(plain, method, size)

    @pytest.mark.parametrize("size", [2, 3, 8])
    @pytest.mark.parametrize(("method", "rounds"), [("ring_all_reduce", 2), ("ring_all_gather", 1)])
    def test_of_a_ring_it_is_that_of_the_fast_depth(self, method: str, rounds: int, size: int) -> None:
        links = link_constants(
            ["hopper"], [""], intra_bytes_per_s=B, inter_bytes_per_s_per_gpu=1.0, gpus_per_domain=8
        )
        given = replace(
            links,
            intra_latency_s=np.zeros(1),
            intra_hop_s=np.array([ON_SWITCH]),
            intra_ramp_s=np.array([self.RAMP_S]),
            all_reduce_fraction=np.ones(1),
            gather_fraction=np.ones(1),
            group_exponent=np.zeros(1),
        )
        timed = all_reduce_s if rounds == 2 else all_gather_s
        expected = timed(num_bytes=S, group_size=size, members_per_domain=size, links=given)
        found = time_s(switch(size, B, HOP).with_ramp(self.RAMP_S), method, size)
        assert found == pytest.approx(float(expected[0]))

    @pytest.mark.parametrize("method", ["all_to_all", "direct_all_gather", "direct_reduce_scatter"])
    def test_what_leaves_at_once_loses_once(self, method: str) -> None:
        assert self.lost_s(method, 8) == pytest.approx(2 * sqrt(self.RAMP_S * 7 / 8 * S / B))

    def test_halves_lose_each_for_itself(self) -> None:
        parts = (1 / 2, 1 / 4, 1 / 8)
        expected = sum(2 * sqrt(self.RAMP_S * part * S / B) for part in parts)
        assert self.lost_s("halving_reduce_scatter", 8) == pytest.approx(expected)

    def test_only_cables_with_a_ramp_lose(self) -> None:
        nodes = cluster(
            2, 2, scale_up_bytes_per_s=B, scale_up_latency_s=0.0, card_bytes_per_s=B, fabric_latency_s=0.0
        )
        is_inside = np.array(["nvswitch" in nodes.link_name(link) for link in range(nodes.num_links)])
        ramped = nodes.with_ramp(np.where(is_inside, self.RAMP_S, 0.0))
        # Of a quarter for each, one leaves inside the node and two, which take twice as long, through the card.
        near_s = 2 * sqrt(self.RAMP_S * S / 4 / B)
        assert time_s(ramped, "all_to_all", 4) == pytest.approx(2 * S / 4 / B)
        alone = played(ramped, "all_to_all", np.arange(2)).makespan_s
        assert alone == pytest.approx(S / 2 / B + sqrt(2) * near_s)

    def test_only_messages_over_cables_with_a_ramp_count_as_leaving_at_once(self) -> None:
        nodes = cluster(
            2, 2, scale_up_bytes_per_s=B, scale_up_latency_s=0.0, card_bytes_per_s=B, fabric_latency_s=0.0
        )
        is_inside = np.array(["nvswitch" in nodes.link_name(link) for link in range(nodes.num_links)])
        ramped = nodes.with_ramp(np.where(is_inside, 0.0, self.RAMP_S))
        # Of a quarter for each, two leave through the card.
        lost_s = time_s(ramped, "all_to_all", 4) - time_s(nodes, "all_to_all", 4)
        assert lost_s == pytest.approx(2 * sqrt(self.RAMP_S * 2 * S / 4 / B))

    def test_a_single_rank_loses_nothing(self) -> None:
        assert time_s(switch(2, B, HOP).with_ramp(self.RAMP_S), "all_to_all", 1) == 0.0


@pytest.mark.parametrize("size", [2, 7, 16])
def test_of_two_trees_it_is_known_how_many_tasks_they_have(size: int) -> None:
    assert len(played(switch(size, B, HOP), "tree_all_reduce", np.arange(size)).end_s) == num_tree_tasks(size)


@pytest.mark.parametrize("size", [2, 7, 16, 64])
def test_two_trees_are_slower_than_the_bytes_and_faster_than_one_tree_after_the_other(size: int) -> None:
    took_s = time_s(switch(size, B, HOP), "tree_all_reduce", size)
    depth = log2(size) + 1
    assert took_s > S / B
    # Inner ranks send half of the buffer up and down each tree: S in all; the last chunk crosses the tree twice.
    assert took_s < 2 * S / B + 2 * depth * (ON_SWITCH + 3 * S / 2 / TREE_CHUNKS / B)


def test_levels_of_a_cluster_add_up() -> None:
    nodes, ranks, near, far = 4, 8, 100e9, 10e9
    topology = cluster(
        nodes,
        ranks,
        scale_up_bytes_per_s=near,
        scale_up_latency_s=1e-7,
        card_bytes_per_s=far,
        fabric_latency_s=1e-6,
    )
    took_s = played(
        topology, "hierarchical_all_reduce", np.arange(nodes * ranks).reshape(nodes, ranks)
    ).makespan_s
    inside = (ranks - 1) * (2e-7 + S / ranks / near)
    across = 2 * (nodes - 1) * (2e-6 + S / ranks / nodes / far)
    assert took_s == pytest.approx(2 * inside + across)


def test_two_rings_on_the_same_links_take_twice_as_long() -> None:
    topology = switch(8, B, 0.0)
    graph, router = TaskGraphBuilder(), Router(topology)
    collectives = Collectives(graph=graph, router=router)
    for _ in range(2):
        collectives.ring_all_reduce(np.arange(8), S, np.full(8, NONE))
    assert play(graph.build(), topology, router.table()).makespan_s == pytest.approx(2 * 2 * 7 / 8 * S / B)


def test_behind_a_slow_link_of_a_ring_parts_arrive_the_earlier_the_farther_away() -> None:
    # Messages are passed on from rank to rank: of 7 that cross the link from rank 0, the last one ends at rank 1, and the
    # one before it, at the speed of the other links, at rank 2.
    size, part_s = 8, HOP + S / 8 / B
    slow_s = HOP + 4 * S / 8 / B
    topology = degraded(ring(size, B, HOP), [0], 0.25)
    graph, router = TaskGraphBuilder(), Router(topology)
    done = Collectives(graph=graph, router=router).ring_all_gather(np.arange(size), S, np.full(size, NONE))
    ends_s = play(graph.build(), topology, router.table()).end_s[done]
    assert ends_s[0] == pytest.approx(7 * slow_s)  # when it has sent all of its own
    for place in range(1, size):
        assert ends_s[place] == pytest.approx((size - place) * slow_s + (place - 1) * part_s)


def test_one_degraded_link_slows_a_whole_ring() -> None:
    healthy = switch(8, B, 0.0)
    took_s = time_s(degraded(healthy, [3], 0.25), "ring_all_reduce", 8)
    assert took_s == pytest.approx(4 * time_s(healthy, "ring_all_reduce", 8), rel=0.01)


@pytest.mark.parametrize(("links", "factor"), [([99], 0.5), ([0], 0.0), ([0], 1.5)])
def test_impossible_degradations_are_refused(links: list[int], factor: float) -> None:
    with pytest.raises(InputError, match="must be"):
        degraded(switch(2, B, HOP), links, factor)


@pytest.mark.parametrize(
    ("topology", "num_links"),
    [
        (ring(6, B, HOP), 12),
        (ring(2, B, HOP), 2),
        (torus([4, 4, 4], B, HOP), 2 * 3 * 64),
        (mesh([3, 3], B, HOP), 2 * 12),
        (fully_connected(5, B, HOP), 20),
        (fat_tree(16, B, HOP, ranks_per_leaf=4, num_spines=2), 2 * (16 + 8)),
        (
            dragonfly(5, 2, 3, rank_bytes_per_s=B, local_bytes_per_s=B, global_bytes_per_s=B, latency_s=HOP),
            2 * (30 + 5 + 10),
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Topology) else str(value),
)
def test_networks_have_their_cables_and_reach_everybody(topology: Topology, num_links: int) -> None:
    assert topology.num_links == num_links
    ends = np.arange(topology.num_ranks)
    paths = Router(topology).paths(ends[:, None], ends[None, :])
    assert len(paths) == topology.num_ranks**2


@given(st.integers(1, 4), st.integers(2, 4), st.floats(1.0, 4.0))
@settings(max_examples=15)
def test_full_bisection_and_its_lack(num_leaves: int, per_leaf: int, oversubscription: float) -> None:
    size = num_leaves * per_leaf
    topology = fat_tree(
        size, B, 0.0, ranks_per_leaf=per_leaf, num_spines=1, oversubscription=oversubscription
    )
    took_s = time_s(topology, "all_to_all", size)
    leaves = per_leaf * (size - per_leaf) * S / size / (per_leaf * B / oversubscription)
    assert took_s == pytest.approx(max((size - 1) / size * S / B, leaves))


@pytest.mark.parametrize("num_spines", [1, 3])
@pytest.mark.parametrize("is_rail_optimized", [False, True])
def test_leaves_of_nodes_have_as_much_above_them_as_below(is_rail_optimized: bool, num_spines: int) -> None:
    topology = cluster(
        3,
        4,
        scale_up_bytes_per_s=8 * B,
        scale_up_latency_s=0.0,
        card_bytes_per_s=B,
        fabric_latency_s=HOP,
        cards_per_node=2,
        is_rail_optimized=is_rail_optimized,
        num_spines=num_spines,
    )
    names = [topology.link_name(link).split(" -> ") for link in range(topology.num_links)]
    for leaf in {source for source, _ in names if source.startswith("leaf")}:
        below, above = (
            sum(
                float(topology.bandwidth_bytes_per_s[link])
                for link, (source, target) in enumerate(names)
                if source == leaf and target.startswith(kind)
            )
            for kind in ("card", "spine")
        )
        assert above == pytest.approx(below)


def test_rails_keep_equal_places_one_switch_apart() -> None:
    for is_rail, hops in ((True, 2), (False, 4)):
        topology = cluster(
            2,
            4,
            scale_up_bytes_per_s=B,
            scale_up_latency_s=0.0,
            card_bytes_per_s=B,
            fabric_latency_s=HOP,
            is_rail_optimized=is_rail,
        )
        router = Router(topology)
        assert router.latency_s(router.paths(1, 5))[0] == pytest.approx(hops * HOP)
