"""Is the algorithm that is chosen the one that is over first when all of them are played?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.deep_choice import MARK, PAGE, drawn
from simulator.deep.collectives.chosen_collectives import CANDIDATES, ChosenCollectives
from simulator.deep.collectives.collective_forms import Algorithm, Operation
from simulator.deep.collectives.schedules import Collectives
from simulator.deep.networks.routing import Router
from simulator.deep.networks.topologies import cluster, dragonfly, fat_tree, photonic, ring, switch, torus
from simulator.deep.networks.topology import Topology
from simulator.deep.playing.play import play
from simulator.deep.playing.tasks import NONE, TaskGraphBuilder
from simulator.errors import InputError
from simulator.table import Integers

B, HOP = 50e9, 1e-6
NEAR, FAR, NEAR_HOP = 400e9, 25e9, 1e-7
NODES = cluster(
    4, 4, scale_up_bytes_per_s=NEAR, scale_up_latency_s=NEAR_HOP, card_bytes_per_s=FAR, fabric_latency_s=HOP
)
NETWORKS = (
    switch(16, B, HOP),
    ring(8, B, HOP),
    torus([4, 4], B, HOP),
    fat_tree(16, B, HOP, ranks_per_leaf=4, num_spines=2, oversubscription=2.0),
    dragonfly(4, 2, 2, rank_bytes_per_s=B, local_bytes_per_s=B, global_bytes_per_s=B, latency_s=HOP),
    NODES,
    replace(switch(16, B, HOP).with_ramp(1e-5), name="ramp"),
)
SIZES = (1e3, 1e5, 1e6, 1e7, 1e9)


def chooser(topology: Topology, algorithm: Algorithm = Algorithm.AUTO) -> ChosenCollectives:
    collectives = Collectives(graph=TaskGraphBuilder(), router=Router(topology))
    return ChosenCollectives(collectives=collectives, algorithm=algorithm)


def time_s(
    topology: Topology, algorithm: Algorithm, operation: Operation, ranks: Integers, num_bytes: float
) -> float:
    chosen = chooser(topology, algorithm)
    method = getattr(chosen, operation.value.replace("-", "_"))
    done = method(ranks, num_bytes, np.full(ranks.shape, NONE))
    assert done.shape == ranks.shape
    inner = chosen.collectives
    return play(inner.graph.build(), topology, inner.router.table()).makespan_s


@pytest.mark.long
@pytest.mark.parametrize("algorithm", CANDIDATES)
@pytest.mark.parametrize("topology", NETWORKS, ids=lambda topology: topology.name)
@pytest.mark.parametrize("operation", Operation)
def test_no_other_algorithm_is_much_faster(
    topology: Topology, operation: Operation, algorithm: Algorithm
) -> None:
    ranks = np.arange(topology.num_ranks)
    for size in SIZES:
        chosen_s = time_s(topology, algorithm, operation, ranks, size)
        least_s = min(time_s(topology, each, operation, ranks, size) for each in CANDIDATES[algorithm])
        # Between latency and bandwidth a pipeline of trees is not exactly a + b S.
        assert chosen_s <= 1.1 * least_s


@pytest.mark.parametrize("operation", Operation)
def test_small_buffers_go_from_each_to_each_and_large_ones_around_a_ring(operation: Operation) -> None:
    # 16 ranks: 15 or 30 latencies of 2 us against one or two; of 1 GB they are less than 1 % of 20 or 40 ms.
    traffic, ranks = chooser(switch(16, B, HOP)), np.arange(16)
    assert traffic.choose(operation, ranks, 1e3) is Algorithm.DIRECT
    assert traffic.choose(operation, ranks, 1e9) is Algorithm.RING


def test_many_ranks_halve_and_double_where_direct_messages_are_too_many() -> None:
    # 64 ranks on a switch of 2 us: 12 steps against twice 6 levels and 15 chunks behind each other in a tree.
    traffic = chooser(switch(65, B, HOP))
    assert traffic.choose(Operation.ALL_REDUCE, np.arange(64), 1e3) is Algorithm.HALVING_DOUBLING
    assert traffic.choose(Operation.ALL_REDUCE, np.arange(65), 1e3) is Algorithm.TREE
    assert traffic.choose(Operation.ALL_GATHER, np.arange(65), 1e3) is Algorithm.RING


def test_a_ramp_counts_in_the_choice() -> None:
    # Of 1 MB, which takes x, a ring loses 2 sqrt(ramp 15/8 x), two rounds of direct messages 4 sqrt(ramp 15/16 x).
    network, ranks = switch(16, B, HOP), np.arange(16)
    assert chooser(network).choose(Operation.ALL_REDUCE, ranks, 1e6) is Algorithm.DIRECT
    long_ramp = chooser(network.with_ramp(1.0))
    assert long_ramp.choose(Operation.ALL_REDUCE, ranks, 1e6) is not Algorithm.DIRECT
    assert long_ramp.choose(Operation.REDUCE_SCATTER, ranks, 1e6) is Algorithm.RING


@pytest.mark.parametrize("operation", Operation)
def test_nccl_has_neither_direct_messages_nor_halving(operation: Operation) -> None:
    traffic, ranks = chooser(switch(16, B, HOP), Algorithm.NCCL), np.arange(16)
    expected = Algorithm.TREE if operation is Operation.ALL_REDUCE else Algorithm.RING
    # 14 latencies for a tree of a few bytes (a way up and down, 15 chunks) stand against 30 of a ring.
    assert traffic.choose(operation, ranks, 1e3) is expected
    assert traffic.choose(operation, ranks, 1e9) is Algorithm.RING


def test_groups_inside_nodes_are_tried_however_many_they_are() -> None:
    nodes = cluster(
        80,
        8,
        scale_up_bytes_per_s=NEAR,
        scale_up_latency_s=NEAR_HOP,
        card_bytes_per_s=FAR,
        fabric_latency_s=HOP,
    )
    inside = np.arange(640).reshape(80, 8)
    assert chooser(nodes).choose(Operation.ALL_GATHER, inside, 1e3) is Algorithm.DIRECT
    # The same places of ten nodes each, 64 rings of them: 5,760 direct messages, and ten is no power of two.
    across = np.moveaxis(inside.reshape(8, 10, 8), 1, 2).reshape(64, 10)
    assert chooser(nodes).choose(Operation.ALL_GATHER, across, 1e3) is Algorithm.RING


@pytest.mark.parametrize(
    ("num_groups", "size", "taken"),
    [
        (170, 3, Algorithm.DIRECT),  # 1,020 messages
        (171, 3, Algorithm.RING),  # 1,026 messages; and three is no power of two
        (1, 512, Algorithm.HALVING_DOUBLING),
        (1, 1_024, Algorithm.RING),
    ],
)
def test_across_nodes_what_is_tried_depends_on_how_many_there_are(
    num_groups: int, size: int, taken: Algorithm
) -> None:
    # Of 1 kB only steps count: one of direct messages, 9 or 10 of doubling, and 2, 511 or 1,023 of a ring.
    ranks = np.arange(num_groups * size).reshape(num_groups, size)
    assert chooser(switch(ranks.size, B, HOP)).choose(Operation.ALL_GATHER, ranks, 1e3) is taken


@pytest.mark.parametrize(("size", "taken"), [(32, Algorithm.DIRECT), (33, Algorithm.RING)])
def test_inside_a_node_direct_messages_go_between_32_at_most(size: int, taken: Algorithm) -> None:
    traffic = chooser(replace(switch(size, B, HOP), ranks_per_node=size))
    assert traffic.choose(Operation.ALL_GATHER, np.arange(size), 1e3) is taken


@pytest.mark.parametrize("algorithm", [each for each in Algorithm if each not in CANDIDATES])
def test_all_flows_have_the_label_that_was_asked_for(algorithm: Algorithm) -> None:
    traffic = chooser(NODES, algorithm).called("gradients")
    traffic.all_reduce(np.arange(16), 1e6, np.full(16, NONE))
    graph = traffic.collectives.graph.build()
    assert {graph.labels[label] for label in graph.label[graph.path != NONE]} == {"gradients"}


def test_small_buffers_take_trees_and_large_ones_rings_on_a_switch() -> None:
    # 63 ranks on a switch of 2 us: 124 steps of a ring against twice 6 levels and 15 chunks behind each other.
    traffic, ranks = chooser(switch(63, B, HOP), Algorithm.NCCL), np.arange(63)
    assert traffic.choose(Operation.ALL_REDUCE, ranks, 1e3) is Algorithm.TREE
    assert traffic.choose(Operation.ALL_REDUCE, ranks, 1e9) is Algorithm.RING
    assert traffic.choose(Operation.ALL_GATHER, ranks, 1e3) is Algorithm.RING


def test_groups_over_nodes_use_the_cards_of_all_members() -> None:
    traffic, ranks = chooser(NODES), np.arange(16)
    assert traffic.choose(Operation.ALL_REDUCE, ranks, 1e9) is Algorithm.HIERARCHICAL
    assert traffic.choose(Operation.ALL_REDUCE, ranks[:4], 1e9) is Algorithm.RING
    assert traffic.choose(Operation.ALL_REDUCE, ranks[::4], 1e9) is Algorithm.RING


@pytest.mark.parametrize("operation", [Operation.ALL_GATHER, Operation.REDUCE_SCATTER])
def test_a_gather_crosses_nodes_with_all_cards_and_goes_on_inside(operation: Operation) -> None:
    num_bytes = 1.6e9
    across = 3 * (2 * HOP + num_bytes / 16 / FAR)
    inside = 3 * (2 * NEAR_HOP + num_bytes / 4 / NEAR)
    took_s = time_s(NODES, Algorithm.HIERARCHICAL, operation, np.arange(16), num_bytes)
    assert took_s == pytest.approx(across + inside)


@pytest.mark.parametrize("operation", [Operation.ALL_GATHER, Operation.REDUCE_SCATTER])
def test_doubling_gathers_in_few_steps(operation: Operation) -> None:
    took_s = time_s(switch(16, B, HOP), Algorithm.HALVING_DOUBLING, operation, np.arange(16), 1.6e9)
    assert took_s == pytest.approx(4 * 2 * HOP + 15 / 16 * 1.6e9 / B)


@pytest.mark.parametrize(("operation", "num_passes"), [(Operation.ALL_REDUCE, 2), (Operation.ALL_GATHER, 1)])
def test_direct_messages_take_one_latency_a_pass(operation: Operation, num_passes: int) -> None:
    took_s = time_s(switch(16, B, HOP), Algorithm.DIRECT, operation, np.arange(16), 1.6e9)
    assert took_s == pytest.approx(num_passes * (2 * HOP + 15 / 16 * 1.6e9 / B))


@pytest.mark.parametrize("algorithm", Algorithm)
@pytest.mark.parametrize("operation", Operation)
def test_groups_at_once_take_as_long_as_one_on_links_of_their_own(
    algorithm: Algorithm, operation: Operation
) -> None:
    topology, both = switch(16, B, HOP), np.arange(16).reshape(2, 8)
    alone_s = time_s(topology, algorithm, operation, both[0], 1e6)
    assert time_s(topology, algorithm, operation, both, 1e6) == pytest.approx(alone_s)


def test_groups_that_lie_unevenly_in_nodes_take_the_ring() -> None:
    uneven = np.array([0, 1, 2, 4, 5, 8])
    forced = chooser(NODES, Algorithm.HIERARCHICAL)
    assert forced.choose(Operation.ALL_REDUCE, uneven, 1e9) is Algorithm.RING
    assert forced.choose(Operation.ALL_REDUCE, np.array([0, 4, 1, 5]), 1e9) is Algorithm.RING
    assert forced.choose(Operation.ALL_REDUCE, np.array([[0, 1, 4, 5]]), 1e9) is Algorithm.HIERARCHICAL


def test_a_ring_needs_the_fewest_circuits() -> None:
    topology = photonic(8, B, HOP, num_ports=2, set_up_s=0.02)
    assert chooser(topology).choose(Operation.ALL_REDUCE, np.arange(8), 1e6) is Algorithm.RING


@pytest.mark.long
def test_of_more_than_512_ranks_with_circuits_all_are_played_as_estimates_know_none() -> None:
    # Twice 519 latencies of a ring stand against 10 levels of a tree, up and down, and 15 chunks behind each other.
    topology = photonic(520, B, 1e-3, num_ports=6, set_up_s=1e-6)
    assert chooser(topology).choose(Operation.ALL_REDUCE, np.arange(520), 1e3) is Algorithm.TREE


def test_what_needs_a_power_of_two_is_refused_otherwise() -> None:
    with pytest.raises(
        InputError, match="collectives = halving-doubling: needs groups of a power of two, and one has 6"
    ):
        time_s(switch(6, B, HOP), Algorithm.HALVING_DOUBLING, Operation.ALL_GATHER, np.arange(6), 1e6)


def test_one_rank_has_nothing_to_send() -> None:
    assert time_s(switch(2, B, HOP), Algorithm.TREE, Operation.ALL_REDUCE, np.array([1]), 1e6) == 0.0


def test_where_steps_are_too_large_only_rings_and_nodes_that_are_alike_are_chosen() -> None:
    alike, by_chance = (
        chooser(fat_tree(4_128, B, HOP, ranks_per_leaf=32, num_spines=num_spines)).taking_what_is_alike()
        for num_spines in (1, 4)
    )
    ranks = np.arange(4_128)
    assert alike.choose(Operation.ALL_REDUCE, ranks, 1e8) is Algorithm.HIERARCHICAL
    # Counterparts under the leaves meet on uplinks of several spines by chance.
    assert by_chance.choose(Operation.ALL_REDUCE, ranks, 1e8) is Algorithm.RING
    # 24 latencies of two trees are less than the 8,254 of a ring; but ranks of trees have places of their own.
    assert by_chance.choose(Operation.ALL_REDUCE, ranks, 1e3) is Algorithm.RING
    assert by_chance.choose(Operation.ALL_GATHER, ranks[:8], 1e3) is Algorithm.DIRECT


def test_of_more_than_4096_ranks_estimates_choose() -> None:
    # 13 levels up and down, and 15 chunks behind each other, stand against 8,198 steps.
    traffic, ranks = chooser(switch(4_100, B, HOP)), np.arange(4_100)
    assert traffic.choose(Operation.ALL_REDUCE, ranks, 1e3) is Algorithm.TREE
    assert traffic.choose(Operation.ALL_REDUCE, ranks, 1e13) is Algorithm.RING


def test_of_random_collectives_what_is_chosen_is_hardly_slower_than_the_fastest() -> None:
    # Of 1,500 cases, of which these are the first, the worst choice of `auto` took 1.08 times as long, of `nccl` 1.17 times.
    for case in drawn(60):
        for name, algorithms in CANDIDATES.items():
            assert case.played_s[case.chosen[name]] <= 1.2 * case.fastest_s(algorithms)


def test_of_random_collectives_estimates_are_as_near_as_the_page_says() -> None:
    lines = PAGE.read_text(encoding="utf-8").partition(f"<!-- {MARK} -->\n")[2].splitlines()
    cells = [line.strip("| ").split(" | ") for line in lines[2:7]]
    told = {Algorithm(name.strip("`")): (float(least), float(most)) for name, _, _, least, most in cells}
    cases = list(drawn(60))
    assert {algorithm for case in cases for algorithm in case.played_s} == told.keys()
    for case in cases:
        for algorithm, played_s in case.played_s.items():
            least, most = told[algorithm]
            # The page has two decimals.
            assert least - 0.005 <= case.estimated_s[algorithm] / played_s <= most + 0.005
