"""Does a step take as long when what is alike is played once, and is nothing folded that is not alike?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from simulator.deep.collectives.collective_forms import Algorithm
from simulator.deep.collectives.patterns import tree_patterns
from simulator.deep.collectives.schedules import Collectives
from simulator.deep.networks.routing import Router
from simulator.deep.networks.topologies import cluster, degraded, fat_tree, photonic, ring, switch, torus
from simulator.deep.networks.topology import Topology
from simulator.deep.playing.play import play
from simulator.deep.playing.tasks import NONE, TaskGraphBuilder
from simulator.deep.playing.waits import waits
from simulator.deep.traced_steps.extrapolate import Extrapolation, extrapolate
from simulator.deep.traced_steps.fold import Fold
from simulator.deep.traces.parallelism import GradientSync, Parallelism
from simulator.errors import InputError
from tests.simulator.deep.traces import even, measured

NETWORKS = ("ring", "switch", "nodes", "leaves", "torus")
DIVISIONS = {
    "data": Parallelism(data_parallel=32),
    "gradients at the end": Parallelism(data_parallel=32, sync=GradientSync.AT_THE_END),
    "sharded": Parallelism(data_parallel=16, sync=GradientSync.SHARDED),
    "tensor": Parallelism(tensor_parallel=16),
    "data and tensor": Parallelism(data_parallel=8, tensor_parallel=4),
    "data and tensor over nodes": Parallelism(data_parallel=2, tensor_parallel=16),
    "sharded and tensor": Parallelism(data_parallel=12, tensor_parallel=2, sync=GradientSync.SHARDED),
    "pipeline": Parallelism(pipeline_parallel=8, num_microbatches=8),
    "data and pipeline": Parallelism(data_parallel=8, pipeline_parallel=4, num_microbatches=4),
    "all three": Parallelism(data_parallel=4, tensor_parallel=4, pipeline_parallel=2, num_microbatches=4),
    "data on 64": Parallelism(data_parallel=64),
    "data over nodes and pipeline": Parallelism(data_parallel=16, pipeline_parallel=2, num_microbatches=2),
    "interleaved": Parallelism(
        data_parallel=4, tensor_parallel=2, pipeline_parallel=2, num_microbatches=4, num_chunks=2
    ),
}


def network(name: str, num_ranks: int) -> Topology:
    match name:
        case "ring":
            return ring(num_ranks, 65e9, 1e-6)
        case "switch":
            return switch(num_ranks, 65e9, 1e-6)
        case "nodes":
            return nodes(num_ranks)
        case "leaves":
            return fat_tree(num_ranks, 50e9, 1e-6, ranks_per_leaf=4, num_spines=1, oversubscription=4.0)
        case _:
            return torus([num_ranks // 4, 4], 65e9, 1e-6)


def nodes(num_ranks: int) -> Topology:
    return cluster(
        num_ranks // 8,
        8,
        scale_up_bytes_per_s=450e9,
        scale_up_latency_s=5e-7,
        card_bytes_per_s=50e9,
        fabric_latency_s=2e-6,
    )


def fold_of(made: Extrapolation) -> Fold:
    assert made.fold is not None
    return made.fold


def num_played(
    parallelism: Parallelism,
    topology: Topology,
    speed: list[float] | None = None,
    algorithm: Algorithm = Algorithm.RING,
) -> int:
    speeds = None if speed is None else np.array(speed)
    made = extrapolate(
        even(8, 1e-3, 2e-3), parallelism, topology, speed=speeds, algorithm=algorithm, is_folded=True
    )
    return fold_of(made).played.size


class TestExactness:
    @pytest.mark.short(16)
    @pytest.mark.parametrize("division", DIVISIONS)
    @pytest.mark.parametrize("name", NETWORKS)
    def test_every_accelerator_and_link_is_as_in_the_whole_step(self, name: str, division: str) -> None:
        self.compare(network(name, DIVISIONS[division].num_gpus), DIVISIONS[division], Algorithm.RING)

    @pytest.mark.long
    @pytest.mark.parametrize(
        ("algorithm", "division"),
        [
            (Algorithm.HIERARCHICAL, "data on 64"),
            (Algorithm.HIERARCHICAL, "data and tensor over nodes"),
            (Algorithm.HIERARCHICAL, "data over nodes and pipeline"),
            (Algorithm.TREE, "all three"),
            (Algorithm.HALVING_DOUBLING, "data on 64"),
            (Algorithm.HALVING_DOUBLING, "all three"),
            (Algorithm.DIRECT, "sharded"),
            (Algorithm.DIRECT, "all three"),
            (Algorithm.AUTO, "data over nodes and pipeline"),
        ],
    )
    @pytest.mark.parametrize("name", NETWORKS)
    def test_steps_of_other_algorithms_are_as_the_whole_ones(
        self, name: str, algorithm: Algorithm, division: str
    ) -> None:
        self.compare(network(name, DIVISIONS[division].num_gpus), DIVISIONS[division], algorithm)

    def compare(self, topology: Topology, parallelism: Parallelism, algorithm: Algorithm) -> None:
        trace = measured("vgg13")
        whole, part = (
            extrapolate(trace, parallelism, topology, algorithm=algorithm, is_folded=folds)
            for folds in (False, True)
        )
        all_of_it, played = (play(made.graph, made.topology, made.paths) for made in (whole, part))
        fold = fold_of(part)
        assert played.makespan_s == pytest.approx(all_of_it.makespan_s, rel=1e-12)
        assert_allclose(fold.of_every_link(played.link_bytes), all_of_it.link_bytes, rtol=1e-12)
        assert_allclose(played.link_used_s[fold.stand_in], all_of_it.link_used_s, rtol=1e-9)
        each, of_played = (
            waits(made.graph, run, len(made.paths), made.accelerators())
            for made, run in ((whole, all_of_it), (part, played))
        )
        rows = fold.row_of_rank()
        assert_allclose(of_played.busy_s[rows], each.busy_s, rtol=1e-12)
        assert_allclose(of_played.over_s[rows], each.over_s, rtol=0.0, atol=1e-12)
        assert_allclose(of_played.for_others_s[rows], each.for_others_s, rtol=0.0, atol=1e-12)
        by_traffic = of_played.for_traffic_s.sum(axis=1)
        assert_allclose(by_traffic[rows], each.for_traffic_s.sum(axis=1), rtol=0.0, atol=1e-12)

    @pytest.mark.long
    @pytest.mark.parametrize("algorithm", [Algorithm.AUTO, Algorithm.HIERARCHICAL])
    @pytest.mark.parametrize("division", ["data", "sharded and tensor", "data and pipeline", "all three"])
    @pytest.mark.parametrize("name", NETWORKS)
    def test_with_other_algorithms_it_takes_as_long_as_the_whole_step(
        self, name: str, division: str, algorithm: Algorithm
    ) -> None:
        parallelism, trace = DIVISIONS[division], even(8, 1e-3, 2e-3)
        topology = network(name, parallelism.num_gpus)
        whole, part = (
            extrapolate(trace, parallelism, topology, algorithm=algorithm, is_folded=folds)
            for folds in (False, True)
        )
        whole_s, part_s = (play(made.graph, made.topology, made.paths).makespan_s for made in (whole, part))
        assert part_s == pytest.approx(whole_s, rel=1e-12)

    @pytest.mark.parametrize("num_ranks", [10_240, 12_000])
    def test_ten_thousand_replicas_take_what_the_formula_says(self, num_ranks: int) -> None:
        # 800 bytes of gradients around a ring: 2 (n - 1) steps of 800 / n bytes, each behind its latency.
        trace = even(8, 1e-3, 2e-3)
        parallelism = Parallelism(data_parallel=num_ranks, sync=GradientSync.AT_THE_END)
        made = extrapolate(trace, parallelism, ring(num_ranks, 1e6, 1e-6), is_folded=True)
        summed_s = 2 * (num_ranks - 1) * (1e-6 + 800 / num_ranks / 1e6)
        assert play(made.graph, made.topology, made.paths).makespan_s == pytest.approx(24e-3 + summed_s)
        assert len(made.graph) < 3 * num_ranks

    def test_ten_thousand_on_a_torus_go_row_by_row_and_column_by_column(self) -> None:
        # Hierarchical, in rows of 80 and columns of 128: 2 x 79 steps of 800 / 80 bytes, 2 x 127 of 800 / 80 / 128.
        trace, topology = even(8, 1e-3, 2e-3), torus([128, 80], 1e6, 1e-6)
        parallelism = Parallelism(data_parallel=10_240, sync=GradientSync.AT_THE_END)
        made = extrapolate(trace, parallelism, topology, is_folded=True)
        assert fold_of(made).played.size == 80
        inside_s, across_s = 158 * (1e-6 + 10 / 1e6), 254 * (1e-6 + 10 / 128 / 1e6)
        played_s = play(made.graph, made.topology, made.paths).makespan_s
        assert played_s == pytest.approx(24e-3 + inside_s + across_s)

    def test_ten_thousand_go_around_a_ring_where_their_leaves_are_not_alike(self) -> None:
        # Counterparts under the leaves meet on uplinks by chance; around the ring each leaf has one message at a time.
        topology = fat_tree(5_120, 1e6, 1e-6, ranks_per_leaf=32, num_spines=4)
        parallelism = Parallelism(data_parallel=5_120, sync=GradientSync.AT_THE_END)
        assert num_played(parallelism, topology) == 32


class TestWhatIsAlike:
    @pytest.mark.parametrize(
        ("division", "name", "expected"),
        [
            ("data", "ring", 1),
            ("data", "nodes", 8),  # the last one of a node sends over its card
            ("data", "leaves", 4),
            ("data and tensor", "ring", 4),  # parts lie in a row with ends
            ("data and tensor", "switch", 1),
            ("data and tensor over nodes", "nodes", 8),
            ("all three", "switch", 2),  # stages never are
            ("pipeline", "switch", 8),
        ],
    )
    def test_so_many_are_played(self, division: str, name: str, expected: int) -> None:
        parallelism = DIVISIONS[division]
        assert num_played(parallelism, network(name, parallelism.num_gpus)) == expected

    @pytest.mark.parametrize(
        ("algorithm", "division", "name", "expected"),
        [
            (Algorithm.HIERARCHICAL, "data on 64", "nodes", 8),  # one node
            (Algorithm.HIERARCHICAL, "data on 64", "torus", 4),  # one row
            (Algorithm.HIERARCHICAL, "data on 64", "leaves", 4),
            (
                Algorithm.HIERARCHICAL,
                "data over nodes and pipeline",
                "nodes",
                8,
            ),  # nodes, and their halves, swapped
            (
                Algorithm.HIERARCHICAL,
                "data over nodes and pipeline",
                "torus",
                32,
            ),  # a stage's columns have ends
            (Algorithm.RING, "data on 64", "torus", 64),  # at the end of a row two ways cost the same
            (Algorithm.HALVING_DOUBLING, "data on 64", "switch", 1),
            (Algorithm.HALVING_DOUBLING, "data on 64", "nodes", 1),
            (Algorithm.HALVING_DOUBLING, "data on 64", "ring", 64),  # half around two ways cost the same
            (Algorithm.DIRECT, "data on 64", "switch", 1),
            (Algorithm.DIRECT, "data on 64", "nodes", 8),
            (Algorithm.TREE, "data on 64", "switch", 64),
            (Algorithm.TREE, "data and tensor over nodes", "nodes", 32),
        ],
    )
    def test_with_other_algorithms_so_many_are(
        self, algorithm: Algorithm, division: str, name: str, expected: int
    ) -> None:
        parallelism = DIVISIONS[division]
        topology = network(name, parallelism.num_gpus)
        assert num_played(parallelism, topology, algorithm=algorithm) == expected

    def test_too_many_direct_messages_to_look_at_are_refused(self) -> None:
        # 4,200 x 4,199 are 17.6 million.
        with pytest.raises(InputError, match="needs more than 16,000,000 tasks"):
            num_played(
                Parallelism(data_parallel=4_200), switch(4_200, 65e9, 1e-6), algorithm=Algorithm.DIRECT
            )

    def test_each_accelerator_has_one_that_stands_for_it(self) -> None:
        made = extrapolate(
            even(8, 1e-3, 2e-3),
            DIVISIONS["all three"],
            nodes(32),
            algorithm=Algorithm.RING,
            is_folded=True,
        )
        fold = fold_of(made)
        counts = np.bincount(fold.row_of_rank())
        assert counts.tolist() == [fold.num_each] * fold.played.size
        assert (fold.row_of_rank()[fold.played.ravel()] == np.arange(fold.played.size)).all()


class TestRamp:
    @pytest.mark.parametrize("name", ["ring", "switch", "nodes", "leaves"])
    def test_small_collectives_lose_as_much_as_in_the_whole_step(self, name: str) -> None:
        parallelism, topology = Parallelism(data_parallel=16), network(name, 16).with_ramp(1e-4)
        whole, part = (
            extrapolate(measured("vgg13"), parallelism, topology, algorithm=Algorithm.RING, is_folded=folds)
            for folds in (False, True)
        )
        took_s, of_part_s = (play(made.graph, made.topology, made.paths).makespan_s for made in (whole, part))
        assert fold_of(part).played.size < 16
        assert of_part_s == pytest.approx(took_s, rel=1e-12)

    def test_cables_with_different_ramps_are_not_alike(self) -> None:
        topology = ring(4, 1e9, 1e-6)
        ramp_s = np.zeros(topology.num_links)
        assert num_played(Parallelism(data_parallel=4), topology.with_ramp(ramp_s)) == 1
        ramp_s[0] = 1e-6
        assert num_played(Parallelism(data_parallel=4), topology.with_ramp(ramp_s)) == 4


class TestWhatIsNot:
    """Where something is not alike every accelerator is played."""

    def test_one_slow_accelerator_leaves_none_alike(self) -> None:
        assert num_played(Parallelism(data_parallel=4), switch(4, 1e9, 1e-6), [1.0, 0.5, 1.0, 1.0]) == 4

    def test_every_second_one_slow_are_two_kinds(self) -> None:
        assert num_played(Parallelism(data_parallel=4), switch(4, 1e9, 1e-6), [1.0, 0.5] * 2) == 2

    def test_one_degraded_link_leaves_none_alike(self) -> None:
        assert num_played(Parallelism(data_parallel=4), degraded(switch(4, 1e9, 1e-6), [2], 0.5)) == 4

    def test_one_longer_cable_leaves_none_alike(self) -> None:
        topology = switch(4, 1e9, 1e-6)
        longer = np.where(np.arange(topology.num_links) == 2, 2e-6, topology.latency_s)
        assert num_played(Parallelism(data_parallel=4), replace(topology, latency_s=longer)) == 4

    def test_accelerators_on_circuits_are_not_alike(self) -> None:
        topology = photonic(4, 1e9, 1e-6, num_ports=2, set_up_s=0.0)
        assert num_played(Parallelism(data_parallel=4), topology) == 4

    def test_replicas_of_stages_in_one_circle_of_cables_are_not_alike(self) -> None:
        parallelism = DIVISIONS["data and pipeline"]
        assert num_played(parallelism, ring(parallelism.num_gpus, 65e9, 1e-6)) == parallelism.num_gpus

    def test_steps_with_trees_are_played_whole(self) -> None:
        # 64 bytes of gradients: a tree of 16 has fewer latencies than a ring.
        trace, topology = even(8, 1e-3, 2e-3), switch(16, 1e12, 1e-3)
        parallelism = Parallelism(data_parallel=16, sync=GradientSync.AT_THE_END)
        forced, chosen = (
            extrapolate(trace, parallelism, topology, algorithm=algorithm, is_folded=True)
            for algorithm in (Algorithm.TREE, Algorithm.NCCL)
        )
        assert [made.fold and made.fold.num_each for made in (forced, chosen)] == [1, 1]
        whole = extrapolate(trace, parallelism, topology, algorithm=Algorithm.TREE)
        seconds = [play(made.graph, made.topology, made.paths).makespan_s for made in (forced, chosen, whole)]
        assert seconds[0] == seconds[2]
        assert seconds[1] == pytest.approx(seconds[2], rel=1e-9)

    def test_trees_that_are_too_large_are_told_of_rings(self) -> None:
        with pytest.raises(InputError, match="or rings for all collectives, of which those that are alike"):
            extrapolate(
                measured("vgg13"),
                Parallelism(data_parallel=65_536),
                switch(65_536, 65e9, 1e-6),
                algorithm=Algorithm.TREE,
                is_folded=True,
            )

    @pytest.mark.long
    def test_what_is_too_large_then_is_told_which_networks_are_alike(self) -> None:
        topology = degraded(ring(10_240, 65e9, 1e-6), [0], 0.5)
        with pytest.raises(InputError, match="a network on which replicas are alike, such as a switch"):
            extrapolate(measured("vgg13"), Parallelism(data_parallel=10_240), topology, is_folded=True)

    @pytest.mark.parametrize("algorithm", [Algorithm.AUTO, Algorithm.RING])
    def test_messages_that_meet_too_often_are_refused(self, algorithm: Algorithm) -> None:
        # Around a ring of cables each goes past the 1,024 replicas of its stage and meets the messages of all of them.
        parallelism = Parallelism(data_parallel=1_024, pipeline_parallel=4, num_microbatches=4)
        with pytest.raises(
            InputError, match="network = ring: lets messages between stages meet on its links"
        ):
            extrapolate(
                even(8, 1e-3, 2e-3), parallelism, ring(4_096, 65e9, 1e-6), algorithm=algorithm, is_folded=True
            )


def test_a_part_of_a_ring_adds_up_as_the_whole_ring_does() -> None:
    topology, ranks = nodes(32), np.arange(32)
    seconds = []
    for num_columns in (32, 8):
        graph, router = TaskGraphBuilder(), Router(topology)
        after = np.full(num_columns, NONE)
        Collectives(graph=graph, router=router).ring_all_reduce(ranks, 1e9, after)
        seconds.append(play(graph.build(), topology, router.table()).makespan_s)
    assert seconds[1] == pytest.approx(seconds[0], rel=1e-12)  # a spine has what all cards of a leaf have


def test_the_first_groups_of_trees_stand_for_the_others() -> None:
    topology, ranks = switch(32, 65e9, 1e-6), np.arange(32).reshape(4, 8)
    seconds = []
    for num_groups in (4, 1):
        graph, router = TaskGraphBuilder(), Router(topology)
        after = np.full((num_groups, 8), NONE)
        Collectives(graph=graph, router=router).tree_all_reduce(ranks, 1e9, after)
        seconds.append(play(graph.build(), topology, router.table()).makespan_s)
    assert seconds[1] == pytest.approx(seconds[0], rel=1e-12)


@pytest.mark.parametrize("size", [2, 3, 4, 7, 16, 31, 63, 100])
def test_patterns_of_trees_have_each_message_once_and_each_sender_once(size: int) -> None:
    ranks, topology = np.arange(size), switch(size, 65e9, 1e-6)
    graph, router = TaskGraphBuilder(), Router(topology)
    Collectives(graph=graph, router=router).tree_all_reduce(ranks, 1e9, np.full(size, NONE))
    used = np.unique(graph.build().path)
    patterns = list(tree_patterns(ranks))
    ways = np.concatenate([router.paths(*ends) for ends in patterns])
    assert len(ways) == 4 * (size - 1)
    assert set(ways) == set(used[used != NONE])
    assert all(len(np.unique(source)) == len(source) for source, _ in patterns)
