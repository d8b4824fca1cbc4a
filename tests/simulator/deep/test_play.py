"""Do tasks and flows take the time that can be worked out by hand?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.deep.networks.routing import Router
from simulator.deep.networks.topologies import degraded, ring, switch
from simulator.deep.networks.topology import Topology, TopologyBuilder
from simulator.deep.playing.play import Played, SharingRule, play
from simulator.deep.playing.tasks import NONE, TaskGraphBuilder
from simulator.errors import InputError
from simulator.table import Integers

BANDWIDTH = 100.0
LATENCY = 0.5


def flows(
    topology: Topology,
    sources: Sequence[int],
    targets: Sequence[int],
    sizes: Sequence[float],
    starts: Sequence[float],
) -> Played:
    """Flows that begin at given times."""
    router, graph = Router(topology), TaskGraphBuilder()
    begin = graph.add("wait", duration_s=starts)
    graph.add("flow", num_bytes=sizes, path=router.paths(sources, targets), after=[begin])
    return play(graph.build(), topology, router.table())


class TestTasks:
    def test_a_resource_does_one_task_at_a_time_in_the_order_in_which_they_get_ready(self) -> None:
        graph = TaskGraphBuilder()
        stream = graph.add_resources(1)
        graph.add("late", duration_s=5.0, resource=stream, after=[graph.add("wait", duration_s=1.0)])
        graph.add("early", duration_s=[3.0, 4.0], resource=stream)
        played = play(graph.build(), switch(1, 1.0, 0.0), Router(switch(1, 1.0, 0.0)).table())
        assert played.start_s.tolist() == [0.0, 7.0, 0.0, 3.0]
        assert played.ready_s.tolist() == [0.0, 1.0, 0.0, 0.0]
        assert played.makespan_s == 12.0

    def test_a_task_waits_for_the_last_of_its_predecessors(self) -> None:
        graph = TaskGraphBuilder()
        first = graph.add("compute", duration_s=[1.0, 4.0, 2.0])
        graph.add("next", duration_s=1.0, after=[graph.join("all", first)])
        topology = switch(1, 1.0, 0.0)
        assert play(graph.build(), topology, Router(topology).table()).makespan_s == 5.0

    def test_a_task_has_as_many_predecessors_as_it_likes(self) -> None:
        graph = TaskGraphBuilder()
        before = [graph.add("before", duration_s=[float(number), 1.0]) for number in range(100)]
        behind = graph.add("behind", duration_s=1.0, after=[*before, NONE])
        topology = switch(1, 1.0, 0.0)
        played = play(graph.build(), topology, Router(topology).table())
        assert played.start_s[behind].tolist() == [99.0, 1.0]

    def test_a_task_that_another_makes_superfluous_takes_no_time_only_once_that_one_has_ended(self) -> None:
        graph = TaskGraphBuilder()
        others = graph.add("other", duration_s=[1.0, 3.0])
        begin = graph.add("wait", duration_s=2.0)
        own = graph.add("own", duration_s=5.0, after=[begin], unless=others)
        topology = switch(1, 1.0, 0.0)
        played = play(graph.build(), topology, Router(topology).table())
        assert played.end_s[own].tolist() == [2.0, 7.0]

    def test_an_empty_graph_ends_at_once(self) -> None:
        topology = switch(2, 1.0, 0.0)
        assert play(TaskGraphBuilder().build(), topology, Router(topology).table()).makespan_s == 0.0

    def test_tasks_that_wait_for_each_other_are_refused_by_name(self) -> None:
        graph = TaskGraphBuilder()
        hen, egg = graph.add("hen", duration_s=1.0), graph.add("egg", duration_s=1.0)
        graph.add_edges(hen, egg)
        graph.add_edges(egg, hen)
        topology = switch(1, 1.0, 0.0)
        with pytest.raises(
            InputError, match=r"2 tasks wait for each other in a circle, among them 0 \(hen\), 1 \(egg\)"
        ):
            play(graph.build(), topology, Router(topology).table())

    @pytest.mark.parametrize(
        ("duration_s", "num_bytes", "told"),
        [
            (-1.0, 0.0, "duration_s = -1.0"),
            (0.0, np.nan, "num_bytes = nan"),
            (0.0, np.inf, "num_bytes = inf"),
        ],
    )
    def test_impossible_figures_are_refused(self, duration_s: float, num_bytes: float, told: str) -> None:
        graph = TaskGraphBuilder()
        graph.add("task", duration_s=duration_s, num_bytes=num_bytes)
        with pytest.raises(InputError, match=rf"task 0 \(task\)\.{told}: must be >= 0"):
            graph.build()

    def test_no_predecessor_is_none(self) -> None:
        graph = TaskGraphBuilder()
        graph.add("task", duration_s=[1.0, 1.0], after=[[NONE, 0]])
        topology = switch(1, 1.0, 0.0)
        assert play(graph.build(), topology, Router(topology).table()).end_s.tolist() == [1.0, 2.0]


class TestFlows:
    def test_latency_alone(self) -> None:
        topology = switch(2, BANDWIDTH, LATENCY)
        router, graph = Router(topology), TaskGraphBuilder()
        path = router.paths([0], [1])
        graph.add("flow", duration_s=router.table().sums(topology.latency_s)[path], path=path)
        assert play(graph.build(), topology, router.table()).makespan_s == 2 * LATENCY

    def test_bandwidth_alone(self) -> None:
        assert flows(switch(2, BANDWIDTH, 0.0), [0], [1], [250.0], [0.0]).makespan_s == 2.5

    @pytest.mark.parametrize("slow", range(4))
    def test_a_flow_alone_is_as_fast_as_the_slowest_of_its_links(self, slow: int) -> None:
        topology = degraded(switch(2, BANDWIDTH, 0.0), [slow], 0.25)
        played_s = [flows(topology, [one], [1 - one], [250.0], [0.0]).makespan_s for one in (0, 1)]
        assert sorted(played_s) == [2.5, 10.0]

    def test_a_flow_speeds_up_when_another_one_ends(self) -> None:
        # Both move 50 until 1 s, when the small one is done; the large one has 50 left at full speed.
        played = flows(switch(3, BANDWIDTH, 0.0), [0, 1], [2, 2], [50.0, 100.0], [0.0, 0.0])
        assert played.end_s[2:].tolist() == [1.0, 1.5]

    def test_a_flow_slows_down_when_another_one_begins(self) -> None:
        # Alone until 1 s, at half speed from then on: 100 + 50 by 2 s, when the other one has 150 left.
        played = flows(switch(3, BANDWIDTH, 0.0), [0, 1], [2, 2], [150.0, 200.0], [0.0, 1.0])
        assert played.end_s[2:].tolist() == [2.0, 3.5]

    def test_flows_of_one_path_share_it_and_leave_in_the_order_of_their_sizes(self) -> None:
        played = flows(switch(2, BANDWIDTH, 0.0), [0] * 3, [1] * 3, [100.0, 50.0, 200.0], [0.0, 0.0, 0.0])
        assert played.end_s[3:].tolist() == [2.5, 1.5, 3.5]

    def test_a_flow_to_oneself_takes_no_time(self) -> None:
        assert flows(switch(2, BANDWIDTH, 0.0), [1], [1], [250.0], [2.0]).makespan_s == 2.0

    def test_equal_split_wastes_what_a_flow_cannot_use(self) -> None:
        builder = TopologyBuilder("narrow")
        a, b, c = builder.add_ranks(3, forward=True)
        builder.connect(a, b, 100.0, 0.0)
        builder.connect(b, c, 10.0, 0.0)
        topology, router, graph = builder.build(), None, TaskGraphBuilder()
        router = Router(topology)
        graph.add("flow", num_bytes=[90.0, 10.0], path=router.paths([a, a], [b, c]))
        built = graph.build()
        fair = play(built, topology, router.table())
        split = play(built, topology, router.table(), sharing=SharingRule.EQUAL_SPLIT)
        assert fair.end_s.tolist() == [1.0, 1.0]
        assert split.end_s.tolist() == pytest.approx([1.4, 1.0])  # 50 by 1 s, the last 40 at 100

    def test_links_report_what_crossed_them_and_how_long_they_were_full(self) -> None:
        played = flows(switch(3, BANDWIDTH, 0.0), [0, 1], [2, 2], [50.0, 100.0], [0.0, 0.0])
        names = switch(3, BANDWIDTH, 0.0)
        into = [link for link in range(names.num_links) if names.link_name(link) == "switch 0 -> gpu 2"]
        assert played.link_bytes[into].tolist() == [150.0]
        assert played.link_full_s[into].tolist() == [1.5]
        assert played.link_used_s.sum() == 1.0 + 1.5 + 1.5

    def test_links_are_not_used_between_two_flows(self) -> None:
        played = flows(switch(2, BANDWIDTH, 0.0), [0, 0], [1, 1], [100.0, 50.0], [0.0, 7.0])
        assert sorted(played.link_used_s.tolist()) == [0.0, 0.0, 1.5, 1.5]

    @given(st.integers(0, 2**32 - 1))
    def test_bytes_are_conserved_and_no_link_moves_more_than_it_can(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        size, count = int(random.integers(2, 9)), int(random.integers(1, 40))
        topology = ring(size, BANDWIDTH, 0.0) if seed % 2 else switch(size, BANDWIDTH, 0.0)
        source = random.integers(0, size, count)
        target = (source + random.integers(1, size, count)) % size
        sizes = random.uniform(0.0, 500.0, count)
        played = flows(
            topology, source.tolist(), target.tolist(), sizes.tolist(), random.uniform(0, 5, count).tolist()
        )
        assert np.all(played.link_bytes <= BANDWIDTH * played.link_used_s * (1.0 + 1e-9) + 1e-9)
        lengths = _num_crossed(topology, source, target)
        assert played.link_bytes.sum() == pytest.approx(np.sum(sizes * lengths))
        # A full link moves its bandwidth all the time.
        assert np.all(played.link_bytes >= BANDWIDTH * played.link_full_s * (1.0 - 1e-9) - 1e-9)

    @given(st.integers(0, 2**32 - 1))
    @settings(max_examples=20)
    def test_the_result_equals_that_of_a_simulation_in_small_steps(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        count, topology = 6, switch(3, BANDWIDTH, 0.0)
        source = random.integers(0, 3, count)
        target = (source + random.integers(1, 3, count)) % 3
        sizes, starts = random.uniform(50.0, 500.0, count), random.uniform(0.0, 3.0, count)
        played = flows(topology, source.tolist(), target.tolist(), sizes.tolist(), starts.tolist())
        step_s = 1e-3
        expected = _in_small_steps(source, target, sizes, starts, step_s)
        assert played.end_s[count:] == pytest.approx(expected, abs=2 * count * step_s)


def _num_crossed(topology: Topology, source: Integers, target: Integers) -> Integers:
    """How many links lie between two vertices."""
    if topology.name == "switch":
        return np.full(len(source), 2)
    ahead: Integers = (target - source) % topology.num_ranks
    return np.minimum(ahead, topology.num_ranks - ahead)


def _in_small_steps(
    source: np.ndarray, target: np.ndarray, sizes: np.ndarray, starts: np.ndarray, step_s: float
) -> np.ndarray:
    """Ends of flows around one switch; what each of them has left shrinks step by step."""
    left, end_s, now_s = sizes.copy(), np.full(len(sizes), np.nan), 0.0
    was_active, moved = np.zeros(len(sizes), dtype=np.bool_), np.zeros(len(sizes))
    while np.isnan(end_s).any():
        is_active = (starts <= now_s) & np.isnan(end_s)
        if (is_active != was_active).any():  # nothing else changes a rate
            was_active, moved = is_active, _rates(source, target, is_active) * step_s
        left -= moved
        now_s += step_s
        end_s[is_active & (left <= 0)] = now_s
    return end_s


def _rates(source: np.ndarray, target: np.ndarray, is_active: np.ndarray) -> np.ndarray:
    """Rates of flows around one switch: all of them grow until their uplink or downlink is full."""
    rate, is_growing = np.zeros(len(is_active)), is_active.copy()
    while is_growing.any():
        shares = []
        for ends in (source, target):
            for vertex in range(3):
                growing = int((is_growing & (ends == vertex)).sum())
                if growing:
                    room = BANDWIDTH - rate[is_active & (ends == vertex)].sum()
                    shares.append((room / growing, ends, vertex))
        grow, ends, vertex = min(shares, key=lambda share: share[0])
        rate[is_growing] += grow
        is_growing &= ends != vertex
    return rate
