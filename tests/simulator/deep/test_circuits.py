"""Are circuits set up, kept and torn down as the rules say, and does waiting for them take the time it must?"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.deep.collectives.schedules import Collectives
from simulator.deep.networks.routing import Router
from simulator.deep.networks.topologies import circuit_switched, fully_connected, photonic, torus
from simulator.deep.networks.topology import Topology
from simulator.deep.playing.play import Played, play
from simulator.deep.playing.tasks import NONE, TaskGraphBuilder
from simulator.deep.playing.waits import waits
from simulator.errors import InputError

BANDWIDTH = 100.0
LATENCY = 0.5
SET_UP = 10.0
MESSAGE = LATENCY + 1.0
"""A message of 100 bytes."""


def photons(num_ranks: int, num_ports: int = 1) -> Topology:
    return photonic(num_ranks, BANDWIDTH, LATENCY, num_ports=num_ports, set_up_s=SET_UP)


def one_after_another(topology: Topology, ends: list[tuple[int, int]]) -> Played:
    router, graph = Router(topology), TaskGraphBuilder()
    before = np.array([NONE])
    for source, target in ends:
        path = router.paths([source], [target])
        before = graph.add(
            "flow", duration_s=router.latency_s(path), num_bytes=100.0, path=path, after=[before]
        )
    return play(graph.build(), topology, router.table())


def at_once(topology: Topology, ends: list[tuple[int, int]], sizes: list[float]) -> Played:
    router, graph = Router(topology), TaskGraphBuilder()
    path = router.paths([source for source, _ in ends], [target for _, target in ends])
    graph.add("flow", duration_s=router.latency_s(path), num_bytes=sizes, path=path)
    return play(graph.build(), topology, router.table())


def set_ups(played: Played) -> list[int]:
    assert played.circuit_use is not None
    return [int(count) for count in played.circuit_use.num_set_ups]


def test_the_first_message_waits_for_the_set_up_and_the_next_one_does_not() -> None:
    played = one_after_another(photons(2), [(0, 1), (0, 1)])
    assert played.end_s.tolist() == [SET_UP + MESSAGE, SET_UP + 2 * MESSAGE]
    assert played.circuit_wait_s.tolist() == [SET_UP, 0.0]
    assert set_ups(played) == [1]


def test_an_empty_message_without_latency_is_over_once_its_circuit_is_up() -> None:
    played = at_once(
        photonic(2, BANDWIDTH, 0.0, num_ports=1, set_up_s=SET_UP), [(0, 1), (0, 1)], [0.0, 100.0]
    )
    assert played.end_s.tolist() == [SET_UP, SET_UP + 1.0]


def test_the_way_back_uses_the_same_circuit() -> None:
    played = one_after_another(photons(2), [(0, 1), (1, 0)])
    assert played.makespan_s == SET_UP + 2 * MESSAGE
    assert set_ups(played) == [1]


def test_the_circuit_that_was_used_longest_ago_is_torn_down() -> None:
    # Accelerator 0 has two ports: 1, 2, then 1 again, so that 3 takes the port of 2, and 2 that of 1.
    played = one_after_another(photons(4, num_ports=2), [(0, 1), (0, 2), (0, 1), (0, 3), (0, 2), (0, 3)])
    assert played.circuit_wait_s.tolist() == [SET_UP, SET_UP, 0.0, SET_UP, SET_UP, 0.0]
    assert played.makespan_s == 4 * SET_UP + 6 * MESSAGE
    assert set_ups(played) == [1, 2, 1, 0, 0, 0]


def test_a_circuit_in_use_is_not_torn_down() -> None:
    played = at_once(photons(3), [(0, 1), (0, 2)], [500.0, 100.0])
    first_s = SET_UP + LATENCY + 5.0
    assert played.end_s.tolist() == [first_s, first_s + SET_UP + MESSAGE]
    assert played.circuit_wait_s.tolist() == [SET_UP, first_s + SET_UP]


def test_a_port_goes_to_the_oldest_wish_whose_other_end_has_one() -> None:
    # 0-1 and 2-3 are up until 500 and 300 bytes have passed; 1-2 has waited longest, but 1 has no port when 2 has one.
    played = at_once(photons(5), [(0, 1), (2, 3), (1, 2), (2, 4)], [500.0, 300.0, 100.0, 100.0])
    two_s = SET_UP + LATENCY + 3.0
    assert played.start_s[3] == two_s + SET_UP
    assert played.start_s[2] == two_s + SET_UP + MESSAGE + SET_UP


@pytest.mark.parametrize("waiting", [[(0, 2), (1, 2)], [(1, 2), (0, 2)]])
def test_of_wishes_at_the_two_ends_of_an_idle_circuit_the_older_one_is_served_first(
    waiting: list[tuple[int, int]],
) -> None:
    # Both need the only port of 2.
    played = at_once(photons(3), [(0, 1), *waiting], [500.0, 100.0, 100.0])
    first_s = SET_UP + LATENCY + 5.0
    assert played.end_s.tolist() == [first_s + turn * (SET_UP + MESSAGE) for turn in range(3)]


def test_a_ring_with_two_ports_is_set_up_once() -> None:
    topology = photons(8, num_ports=2)
    router, graph = Router(topology), TaskGraphBuilder()
    traffic = Collectives(graph=graph, router=router)
    traffic.ring_all_reduce(np.arange(8), 800.0, np.full(8, NONE))
    played = play(graph.build(), topology, router.table())
    assert played.makespan_s == pytest.approx(SET_UP + 14 * MESSAGE, rel=1e-12)
    assert sum(set_ups(played)) == 8


def test_a_ring_of_four_with_one_port_alternates_between_two_sets_of_circuits() -> None:
    # Accelerators 0 and 2 send their first part while 0-1 and 2-3 are up, 1 and 3 their first two while 1-2 and 3-0 are,
    # then 0 and 2 their last two, and 1 and 3 their last one: four times two circuits, and six messages in a row.
    topology = photons(4)
    router, graph = Router(topology), TaskGraphBuilder()
    Collectives(graph=graph, router=router).ring_all_gather(np.arange(4), 400.0, np.full(4, NONE))
    played = play(graph.build(), topology, router.table())
    use = played.circuit_use
    assert use is not None
    assert played.makespan_s == pytest.approx(4 * SET_UP + 6 * MESSAGE, rel=1e-12)
    assert set_ups(played) == [2, 0, 2, 2, 0, 2]
    assert use.waited_s.sum() == pytest.approx(played.circuit_wait_s.sum())


def test_only_chosen_links_need_circuits() -> None:
    every = fully_connected(3, BANDWIDTH, LATENCY)
    to_two = np.flatnonzero((every.source == 2) | (every.target == 2))
    topology = circuit_switched(every, num_ports=[1, 1, 1], set_up_s=SET_UP, links=to_two)
    played = at_once(topology, [(0, 1), (0, 2)], [100.0, 100.0])
    assert played.end_s.tolist() == [MESSAGE, SET_UP + MESSAGE]


def test_where_no_link_needs_a_circuit_nothing_waits_for_one() -> None:
    every = fully_connected(3, BANDWIDTH, LATENCY)
    topology = circuit_switched(every, num_ports=4_096, set_up_s=SET_UP, links=[])
    played = at_once(topology, [(0, 1), (0, 2)], [100.0, 100.0])
    assert played.end_s.tolist() == [MESSAGE, MESSAGE]
    assert played.circuit_use is None


def test_vertices_have_as_many_ports_as_the_most() -> None:
    assert photons(2, num_ports=4_096).num_vertices == 2


def test_waits_for_circuits_are_told_apart_from_traffic() -> None:
    topology = photons(2)
    router, graph = Router(topology), TaskGraphBuilder()
    streams = graph.add_resources(2)
    path = router.paths([0], [1])
    computed = graph.add("compute", duration_s=2.0, resource=streams[0])
    sent = graph.add("send", duration_s=router.latency_s(path), num_bytes=100.0, path=path, after=[computed])
    graph.add("use", duration_s=3.0, resource=streams[1], after=[sent])
    built, paths = graph.build(), router.table()
    found = waits(built, play(built, topology, paths), len(paths))
    assert found.for_circuits_s.tolist() == [0.0, SET_UP]
    assert found.for_traffic_s.sum(axis=1).tolist() == [0.0, MESSAGE]
    assert found.for_others_s.tolist() == [0.0, 2.0]
    assert found.over_s.tolist() == [2.0 - 2.0 + SET_UP + MESSAGE + 3.0, 0.0]


def test_what_is_passed_on_is_waited_for_link_by_link() -> None:
    topology = photons(3)
    router, graph = Router(topology), TaskGraphBuilder()
    streams = graph.add_resources(3)
    first, second = router.paths([0, 1], [1, 2])
    sent = graph.add("send", duration_s=LATENCY, num_bytes=100.0, path=first)
    computed = graph.add("compute", duration_s=2.0, resource=streams[1], after=[sent])
    passed = graph.add("send", duration_s=LATENCY, num_bytes=100.0, path=second, after=[computed])
    graph.add("use", duration_s=3.0, resource=streams[2], after=[passed])
    built, paths = graph.build(), router.table()
    found = waits(built, play(built, topology, paths), len(paths))
    assert found.for_circuits_s.tolist() == [0.0, SET_UP, 2 * SET_UP]
    assert found.for_traffic_s.sum(axis=1).tolist() == [0.0, MESSAGE, 2 * MESSAGE]
    assert found.for_others_s.tolist() == [0.0, 0.0, 2.0]


def test_a_message_that_needs_two_circuits_is_refused() -> None:
    topology = circuit_switched(torus([4], BANDWIDTH, LATENCY), num_ports=2, set_up_s=SET_UP)
    with pytest.raises(InputError, match="a message would need 2 circuits at once"):
        one_after_another(topology, [(0, 2)])


@pytest.mark.parametrize(
    ("num_ports", "set_up_s", "rule"),
    [
        (0, 1.0, "num_ports = 0: must be between 1 and 4,096"),
        (4_097, 1.0, "num_ports = 4097: must be between 1 and 4,096"),
        (1, -1.0, "must be 0 or above"),
        (1, np.inf, "must be 0 or above, and finite"),
        (1, np.nan, "must be 0 or above"),
    ],
)
def test_impossible_circuits_are_refused(num_ports: int, set_up_s: float, rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        photonic(3, BANDWIDTH, LATENCY, num_ports=num_ports, set_up_s=set_up_s)


@dataclass
class Oracle:
    """The same rules as lists that are gone through from the start: every wish is tried after every event."""

    num_ports: int
    ends: list[tuple[int, int]]
    sizes: list[float]
    asks_s: list[float]
    now_s: float = 0.0
    up: dict[frozenset[int], float] = field(default_factory=dict)
    """Circuits that have ports, and when they are up."""
    used: dict[frozenset[int], int] = field(default_factory=dict)
    users: dict[frozenset[int], set[int]] = field(default_factory=dict)
    wishes: list[frozenset[int]] = field(default_factory=list)
    left: dict[int, float] = field(default_factory=dict)
    """Bytes left of the messages that move."""
    end_s: dict[int, float] = field(default_factory=dict)
    serial: int = 0
    num_set_ups: int = 0

    def run(self) -> list[float]:
        waiting = sorted(range(len(self.ends)), key=lambda task: self.asks_s[task])
        latencies: dict[int, float] = {}
        while len(self.end_s) < len(self.ends):
            moments = [self.asks_s[waiting[0]]] if waiting else []
            moments += [at for at in self.up.values() if at > self.now_s] + list(latencies.values())
            moments += [self.now_s + self.left[task] / self.rate(task) for task in self.left]
            self.advance(min(moments))
            for task in [task for task, at in latencies.items() if at <= self.now_s]:
                self.left[task] = self.sizes[task]
                del latencies[task]
            for task in [task for task, left in self.left.items() if left <= 1e-9 * self.sizes[task]]:
                self.finish(task)
            while waiting and self.asks_s[waiting[0]] <= self.now_s:
                self.ask(waiting.pop(0))
            started = self.left.keys() | latencies.keys() | self.end_s.keys() | set(waiting)
            for pair, at in self.up.items():
                for task in sorted(self.users[pair] - started):
                    if at <= self.now_s:
                        latencies[task] = self.now_s + LATENCY
        return [self.end_s[task] for task in range(len(self.ends))]

    def rate(self, task: int) -> float:
        return BANDWIDTH / sum(self.ends[other] == self.ends[task] for other in self.left)

    def advance(self, to_s: float) -> None:
        moved = {task: self.rate(task) * (to_s - self.now_s) for task in self.left}
        self.left = {task: left - moved[task] for task, left in self.left.items()}
        self.now_s = to_s

    def finish(self, task: int) -> None:
        self.end_s[task] = self.now_s
        del self.left[task]
        pair = frozenset(self.ends[task])
        self.users[pair].discard(task)
        self.serial += 1
        self.used[pair] = self.serial
        self.try_wishes()

    def ask(self, task: int) -> None:
        pair = frozenset(self.ends[task])
        self.users.setdefault(pair, set()).add(task)
        if pair not in self.up and pair not in self.wishes:
            self.wishes.append(pair)
            self.try_wishes()

    def try_wishes(self) -> None:
        for pair in list(self.wishes):
            victims = [self.port(vertex) for vertex in sorted(pair)]
            if "none" in victims:
                continue
            for victim in victims:
                if isinstance(victim, frozenset):
                    self.up.pop(victim, None)
            self.wishes.remove(pair)
            self.up[pair] = self.now_s + SET_UP
            self.num_set_ups += 1

    def port(self, vertex: int) -> frozenset[int] | str:
        here = [pair for pair in self.up if vertex in pair]
        if len(here) < self.num_ports:
            return "free"
        idle = [pair for pair in here if not self.users[pair]]
        return min(idle, key=lambda pair: self.used[pair]) if idle else "none"


@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.integers(1, 3), st.integers(1, 25))
def test_random_messages_end_when_lists_that_are_gone_through_say_so(
    seed: int, num_ranks: int, num_ports: int, num_messages: int
) -> None:
    random = np.random.default_rng(seed)
    source = random.integers(num_ranks, size=num_messages)
    target = (source + random.integers(1, num_ranks, size=num_messages)) % num_ranks
    sizes, asks_s = random.uniform(1.0, 2000.0, num_messages), random.uniform(0.0, 60.0, num_messages)
    topology = photons(num_ranks, num_ports)
    router, graph = Router(topology), TaskGraphBuilder()
    path = router.paths(source, target)
    begin = graph.add("wait", duration_s=asks_s)
    graph.add("flow", duration_s=router.latency_s(path), num_bytes=sizes, path=path, after=[begin])
    played = play(graph.build(), topology, router.table())
    ends = list(zip(source.tolist(), target.tolist(), strict=True))
    oracle = Oracle(num_ports=num_ports, ends=ends, sizes=sizes.tolist(), asks_s=asks_s.tolist())
    assert played.end_s[num_messages:] == pytest.approx(oracle.run(), rel=1e-9)
    assert sum(set_ups(played)) == oracle.num_set_ups


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1), st.integers(3, 6))
def test_with_a_port_for_everybody_and_no_set_up_time_it_is_a_full_network(seed: int, num_ranks: int) -> None:
    random = np.random.default_rng(seed)
    source = random.integers(num_ranks, size=20)
    target = (source + random.integers(1, num_ranks, size=20)) % num_ranks
    ends = list(zip(source.tolist(), target.tolist(), strict=True))
    sizes = random.uniform(1.0, 100.0, 20).tolist()
    free = photonic(num_ranks, BANDWIDTH, LATENCY, num_ports=num_ranks - 1, set_up_s=0.0)
    plain = at_once(fully_connected(num_ranks, BANDWIDTH, LATENCY), ends, sizes)
    assert at_once(free, ends, sizes).end_s == pytest.approx(plain.end_s, rel=1e-12)
