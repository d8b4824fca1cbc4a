"""Do flows take the way that costs least, and share ways of equal cost?"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.csgraph import dijkstra

from simulator.deep.collectives.schedules import Collectives
from simulator.deep.networks.routing import Router
from simulator.deep.networks.topologies import degraded, fat_tree, ring, switch
from simulator.deep.networks.topology import Topology, TopologyBuilder
from simulator.deep.playing.play import play
from simulator.deep.playing.tasks import NONE, TaskGraphBuilder
from simulator.errors import InputError


def names_of(topology: Topology, source: int, target: int, salt: int = 0) -> list[str]:
    router = Router(topology)
    (path,) = router.paths(source, target, salt)
    return [topology.link_name(link) for link in router.table().links_of(path)]


def test_a_ring_is_walked_the_shorter_way_around() -> None:
    assert names_of(ring(6, 1e9, 1e-6), 0, 2) == ["gpu 0 -> gpu 1", "gpu 1 -> gpu 2"]
    assert names_of(ring(6, 1e9, 1e-6), 0, 5) == ["gpu 0 -> gpu 5"]


def test_accelerators_do_not_forward() -> None:
    builder = TopologyBuilder("chain")
    first, middle, last = builder.add_ranks(3)
    builder.connect([first, middle], [middle, last], 1e9, 0.0)
    with pytest.raises(InputError, match=r"network 'chain'.*\n.*no way leads from gpu 0 to gpu 2"):
        Router(builder.build()).paths(first, last)


def test_a_wide_detour_beats_a_narrow_link() -> None:
    # 1 MiB takes 1 s on the narrow link and twice 0.01 s on the detour.
    builder = TopologyBuilder("detour")
    one, other = builder.add_ranks(2)
    middle = builder.add("switch")
    builder.connect(one, other, 2.0**20, 0.0)
    builder.connect([one, other], middle, 2.0**20 / 0.01, 0.0)
    assert names_of(builder.build(), one, other) == ["gpu 0 -> switch 0", "switch 0 -> gpu 1"]


def test_a_narrow_direction_is_avoided_in_that_direction_only() -> None:
    builder = TopologyBuilder("asymmetric")
    one, other = builder.add_ranks(2)
    spines = builder.add("spine", 2)
    builder.connect(one, spines, [1e9, 1e6], 0.0, both_ways=False)
    builder.connect(spines, one, [1e6, 1e9], 0.0, both_ways=False)
    builder.connect(other, spines, 1e9, 0.0)
    assert names_of(builder.build(), one, other)[0] == "gpu 0 -> spine 0"
    assert names_of(builder.build(), other, one)[1] == "spine 1 -> gpu 0"


def test_ways_of_equal_cost_are_used_alike_and_always_the_same_for_the_same_salt() -> None:
    builder = TopologyBuilder("spines")
    one, other = builder.add_ranks(2)
    leaves, spines = builder.add("leaf", 2), builder.add("spine", 4)
    builder.connect([one, other], leaves, 1e9, 1e-6)
    builder.connect(leaves[:, None], spines[None, :], 1e9, 1e-6)
    topology = builder.build()
    router = Router(topology)
    table_of = router.paths(one, other, np.arange(4_000)), router.table()
    chosen = [topology.link_name(table_of[1].links_of(path)[1]) for path in table_of[0]]
    counts = np.unique(chosen, return_counts=True)[1]
    # Binomial: 1,000 of 4,000 each, standard deviation 27.
    assert len(counts) == 4
    assert np.all(np.abs(counts - 1_000) < 5 * 27.4)
    assert names_of(topology, one, other, 7) == names_of(topology, one, other, 7)


def spread_s(share: float) -> float:
    """How long a shift by one leaf takes, all 16 at once, where the cable of leaf 0 that flow 0 takes is slow."""
    whole = fat_tree(16, 1e9, 1e-6, ranks_per_leaf=4, num_spines=4)
    usual = Router(whole)
    (way,) = usual.paths(0, 4)
    _, up, _, _ = usual.table().links_of(way)
    topology = degraded(whole, [up], share)
    router, graph, ranks = Router(topology), TaskGraphBuilder(), np.arange(16)
    after, target = np.full(16, NONE), np.roll(ranks, -4)
    Collectives(graph=graph, router=router).send(ranks, target, 1e6, after, "shift")
    return play(graph.build(), topology, router.table()).makespan_s


def test_what_falls_on_a_slow_link_is_slow_and_does_not_jump_where_it_begins_to_be() -> None:
    shares = (1.0, 1.0 - 1e-6, 0.9, 0.5, 0.1, 0.001)
    took_s = [spread_s(share) for share in shares]
    assert took_s == sorted(took_s)
    assert took_s[1] == pytest.approx(took_s[0], rel=1e-5)
    # 1 MB at least, at 1 MB/s.
    assert took_s[-1] >= 1.0


def test_slower_links_do_not_change_ways() -> None:
    whole = fat_tree(16, 1e9, 1e-6, ranks_per_leaf=4, num_spines=4)
    slow = degraded(degraded(whole, range(0, whole.num_links, 3), 0.5), [1, 4], 0.01)
    for target in range(4, 16):
        assert names_of(whole, 0, target) == names_of(slow, 0, target)


def test_a_vertex_reaches_itself_over_no_link() -> None:
    assert names_of(switch(2, 1e9, 0.0), 1, 1) == []


@pytest.mark.parametrize(
    ("bandwidth", "latency", "message"),
    [
        (0.0, 0.0, r"links\[0\]\.bandwidth_bytes_per_s = 0\.0: must be > 0"),
        (np.nan, 0.0, r"links\[0\]\.bandwidth_bytes_per_s = nan: must be > 0"),
        (1.0, -1e-6, r"links\[0\]\.latency_s = -1e-06: must be >= 0"),
        (1.0, np.inf, r"links\[0\]\.latency_s = inf: must be >= 0"),
    ],
)
def test_impossible_links_are_refused(bandwidth: float, latency: float, message: str) -> None:
    with pytest.raises(InputError, match=message):
        switch(2, bandwidth, latency)


@given(st.integers(0, 2**32 - 1), st.integers(2, 14), st.floats(0.0, 2.5))
def test_ways_cost_what_the_search_of_scipy_says(seed: int, size: int, density: float) -> None:
    random = np.random.default_rng(seed)
    num_ranks = int(random.integers(2, size + 1))
    builder = TopologyBuilder("random")
    builder.add_ranks(num_ranks, forward=bool(random.integers(2)))
    if size > num_ranks:
        builder.add("switch", size - num_ranks)
    # A tree, most of whose vertices are dead ends, and some cables more, each way with a latency of its own.
    tree = [(int(random.integers(vertex)), vertex) for vertex in range(1, size)]
    more = [tuple(random.choice(size, 2, replace=False).tolist()) for _ in range(int(density * size))]
    for one, other in [*tree, *more]:
        builder.connect(one, other, 1e9, random.uniform(1.0, 2.0), both_ways=False)
        builder.connect(other, one, 1e9, random.uniform(1.0, 2.0), both_ways=False)
    topology = builder.build()
    begins = np.where(topology.forwards, np.arange(size), np.arange(size) + size)
    cost = np.full((2 * size, 2 * size), np.inf)
    link_cost = topology.latency_s + 2.0**20 / topology.bandwidth_bytes_per_s
    np.minimum.at(cost, (begins[topology.source], topology.target), link_cost)
    least = dijkstra(np.where(np.isinf(cost), 0.0, cost), indices=begins[:num_ranks])[:, :num_ranks]
    router = Router(topology)
    for source in range(num_ranks):
        for target in set(range(num_ranks)) - {source}:
            if np.isinf(least[source, target]):
                with pytest.raises(InputError, match="no way leads from"):
                    router.paths([source], [target])
                continue
            (path,) = router.paths([source], [target])
            links = router.table().links_of(int(path))
            assert topology.source[links[0]] == source
            assert topology.target[links[-1]] == target
            assert (topology.target[links[:-1]] == topology.source[links[1:]]).all()
            assert topology.forwards[topology.source[links[1:]]].all()
            assert link_cost[links].sum() == pytest.approx(least[source, target], rel=1e-12)


@pytest.mark.parametrize(("narrow", "is_found"), [(1e3, True), (1e-9, False)])
def test_links_that_cost_next_to_nothing_lead_nobody_around(narrow: float, *, is_found: bool) -> None:
    builder = TopologyBuilder("wide and narrow")
    one, other = builder.add_ranks(2).tolist()
    left, right, third = builder.add("switch", 3).tolist()
    builder.connect(one, left, narrow, 0.0)
    builder.connect([left, left, right], [right, third, third], 1e15, 0.0)
    builder.connect(right, other, 1e15, 0.0)
    topology = builder.build()
    router = Router(topology)
    if not is_found:  # 2^20 / 1e15 s are nothing beside 2^20 / 1e-9 s, so that no way is the cheapest
        with pytest.raises(InputError, match="no way leads from gpu 0 to gpu 1"):
            router.paths(one, other)
        return
    (way,) = router.paths(one, other).tolist()
    links = router.table().links_of(way).tolist()
    assert topology.source[links[0]] == one
    assert topology.target[links[-1]] == other
    assert len(links) <= 4


def test_a_path_by_hand_has_the_latency_and_the_ramp_of_its_links() -> None:
    topology = switch(2, 1e9, 1e-6)
    topology = topology.with_ramp(np.where(np.arange(topology.num_links) == 1, 4e-6, 0.0))
    router = Router(topology)
    path = np.array([router.add_path([0, 1]), router.add_path([])])
    assert router.latency_s(path).tolist() == [2e-6, 0.0]
    assert router.ramp_s(path, 1e6) == pytest.approx([2 * (4e-6 * 1e6 / 1e9) ** 0.5, 0.0])


def test_a_cable_must_join_two_vertices() -> None:
    builder = TopologyBuilder("loop")
    first, second = builder.add_ranks(2)
    builder.connect(first, second, 1.0, 0.0)
    builder.connect(second, second, 1.0, 0.0)
    with pytest.raises(InputError, match=r"links\[2\]\.target = 1: a link must join two vertices"):
        builder.build()
