"""Is every second of an accelerator accounted for, and charged to what it waited for?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simulator.deep.collectives.collective_forms import Algorithm
from simulator.deep.networks.routing import Router
from simulator.deep.networks.topologies import degraded, photonic, ring, switch
from simulator.deep.playing.play import play
from simulator.deep.playing.tasks import NONE, TaskGraphBuilder
from simulator.deep.playing.waits import Accelerators, Waits, receivers, same_operators, waits
from simulator.deep.traced_steps.extrapolate import extrapolate
from simulator.deep.traces.parallelism import GradientSync, Parallelism, PipelineOrder
from simulator.deep.traces.trace import OperatorTrace

BANDWIDTH = 1e6
SUMMED = 1.5 * 1632 / BANDWIDTH
STEP = 8.3e-3
"""Forward and backward of the small trace."""


def waited(
    trace: OperatorTrace, parallelism: Parallelism, speed: list[float] | None = None
) -> tuple[Waits, dict[str, int], float]:
    topology = ring(parallelism.num_gpus, BANDWIDTH, 0.0)
    made = extrapolate(trace, parallelism, topology, speed=None if speed is None else np.array(speed))
    played = play(made.graph, topology, made.paths)
    found = waits(made.graph, played, len(made.paths), made.accelerators())
    return found, {name: row for row, name in enumerate(made.graph.labels)}, played.makespan_s


def test_gradients_are_waited_for(small: OperatorTrace) -> None:
    parallelism = Parallelism(data_parallel=4, sync=GradientSync.AT_THE_END)
    found, labels, _ = waited(small, parallelism)
    assert found.for_traffic_s[:, labels["all-reduce"]] == pytest.approx(SUMMED)
    assert found.for_others_s == pytest.approx(0.0)
    assert found.busy_s == pytest.approx(STEP + 0.5e-3)
    # Six steps around the ring; each accelerator's chain goes back over the ring, link by link.
    assert found.path_s.sum() == pytest.approx(4 * SUMMED)


def test_a_slow_accelerator_is_named(small: OperatorTrace) -> None:
    parallelism = Parallelism(data_parallel=4, sync=GradientSync.AT_THE_END)
    found, _, makespan_s = waited(small, parallelism, [1.0, 1.0, 0.5, 1.0])
    assert found.waited_for_s[2] == pytest.approx(3 * STEP)
    assert found.waited_for_s[[0, 1, 3]] == pytest.approx(0.0)
    assert found.for_others_s == pytest.approx([STEP, STEP, 0.0, STEP])
    assert found.over_s == pytest.approx([0.5e-3, 0.5e-3, 0.0, 0.5e-3])
    assert makespan_s == pytest.approx(2 * STEP + SUMMED + 1e-3)


def test_who_computes_as_long_is_not_blamed_for_being_late(small: OperatorTrace) -> None:
    # A link at a quarter: what it leads to comes late to every other operator.
    topology = degraded(switch(4, BANDWIDTH, 0.0), links=[1], factor=0.25)
    made = extrapolate(small, Parallelism(tensor_parallel=4), topology, algorithm=Algorithm.RING)
    played = play(made.graph, topology, made.paths)
    found = waits(made.graph, played, len(made.paths), made.accelerators())
    assert found.for_others_s == pytest.approx(0.0)
    whole = waits(made.graph, played, len(made.paths))
    assert whole.for_others_s.max() > 0.0  # the premise: some are through with their operators late


@pytest.mark.parametrize("own", [0, 2, 3])
def test_traffic_that_takes_as_long_is_not_blamed_for_a_slow_accelerator(
    small: OperatorTrace, own: int
) -> None:
    parallelism = Parallelism(tensor_parallel=4)
    even, _, _ = waited(small, parallelism)
    slow, _, _ = waited(small, parallelism, np.where(np.arange(4) == own, 0.5, 1.0).tolist())
    others = np.delete(np.arange(4), own)
    assert slow.for_traffic_s[others].sum(axis=1) == pytest.approx(even.for_traffic_s[others].sum(axis=1))
    assert slow.waited_for_s[others] == pytest.approx(0.0)
    assert slow.waited_for_s[own] == pytest.approx(slow.for_others_s.sum())
    assert slow.for_others_s[others].min() > 0.0


@pytest.mark.parametrize("slow", range(4))
def test_replicas_wait_for_a_slow_one_and_not_for_the_sends_that_they_had_themselves(
    small: OperatorTrace, slow: int
) -> None:
    parallelism = Parallelism(
        data_parallel=2, pipeline_parallel=2, num_microbatches=1, sync=GradientSync.AT_THE_END
    )
    speed = np.where(np.arange(4) == slow, 0.5, 1.0).tolist()
    even, labels, _ = waited(small, parallelism)
    found, _, _ = waited(small, parallelism, speed)
    send = labels["send"]
    assert (found.for_traffic_s[:, send] <= even.for_traffic_s[:, send] * (1.0 + 1e-9)).all()
    assert found.waited_for_s[slow] > even.waited_for_s[slow]


def test_who_waits_for_an_operator_waits_for_those_that_it_queues_behind() -> None:
    # 100 bytes reach accelerator 1 after 1 s. It is at work until 5 s, and accelerator 0 waits for what it does then.
    topology = switch(3, 100.0, 0.0)
    router, graph = Router(topology), TaskGraphBuilder()
    own, other, _ = graph.add_resources(3)
    graph.add("long", duration_s=5.0, resource=other)
    sent = graph.add("send", num_bytes=100.0, path=router.paths([2], [1]))
    short = graph.add("short", duration_s=1.0, resource=other, after=[sent])
    graph.add("next", duration_s=1.0, resource=own, after=[short])
    built, paths = graph.build(), router.table()
    found = waits(built, play(built, topology, paths), len(paths))
    assert found.for_others_s.tolist() == [6.0, 0.0, 0.0]
    assert found.waited_for_s.tolist() == [0.0, 6.0, 0.0]
    assert found.for_traffic_s.sum() == 0.0


def test_who_waits_for_operators_that_take_no_time_waits_for_what_they_queue_behind() -> None:
    topology = switch(2, 100.0, 0.0)
    graph = TaskGraphBuilder()
    own, other = graph.add_resources(2)
    graph.add("long", duration_s=5.0, resource=other)
    second = graph.add("second", resource=other)
    first = graph.add("first", resource=other, after=[graph.add("wait", duration_s=1.0)])
    graph.add_edges(first, second)
    graph.add("next", duration_s=1.0, resource=own, after=[second])
    built, paths = graph.build(), Router(topology).table()
    found = waits(built, play(built, topology, paths), len(paths))
    assert found.for_others_s.tolist() == [5.0, 0.0]


def test_nobody_waits_for_what_may_be_missed() -> None:
    # 100 bytes arrive after 1 s and 1,000 after 10 s; one of the two is enough.
    topology = switch(3, 100.0, 0.0)
    router, graph = Router(topology), TaskGraphBuilder()
    own, _, _ = graph.add_resources(3)
    fast = graph.add("fast", num_bytes=100.0, path=router.paths([1], [0]))
    slow = graph.add("slow", duration_s=2.0, num_bytes=1_000.0, path=router.paths([2], [0]))
    either = graph.add("use", duration_s=4.0, resource=own, after=[fast, slow])
    graph.let_miss(either, 1)
    built, paths = graph.build(), router.table()
    found = waits(built, play(built, topology, paths), len(paths))
    assert found.for_traffic_s[0, : len(built.labels)].tolist() == [1.0, 0.0, 0.0]


def test_of_arrivals_at_one_moment_the_first_is_waited_for() -> None:
    topology = switch(3, 100.0, 0.0)
    router, graph = Router(topology), TaskGraphBuilder()
    graph.add_resources(3)
    for source in (1, 2):
        graph.add(f"from {source}", num_bytes=100.0, path=router.paths([source], [0]))
    built, paths = graph.build(), router.table()
    known = Accelerators(receiver=receivers(topology, paths), team=np.arange(3))
    found = waits(built, play(built, topology, paths), len(paths), known)
    assert found.for_traffic_s[0].tolist() == [2.0, 0.0]
    assert found.path_s.tolist() == [2.0, 0.0]
    assert found.pairs_s.size == 0


def test_accelerators_are_of_one_team_if_their_operators_have_the_same_names() -> None:
    graph, topology = TaskGraphBuilder(), switch(4, 1.0, 0.0)
    streams = graph.add_resources(4)
    for names in (["a", "a", "b", "a"], ["b", "b", "a", "a"]):
        for stream, name in zip(streams, names, strict=True):
            graph.add(name, duration_s=1.0, resource=stream)
    built = graph.build()
    assert same_operators(built, play(built, topology, Router(topology).table())).tolist() == [0, 0, 1, 2]


@pytest.mark.parametrize("is_one_team", [False, True])
@pytest.mark.parametrize("has_circuits", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_every_second_of_random_work_is_accounted_for(
    seed: int, has_circuits: bool, is_one_team: bool
) -> None:
    random, size = np.random.default_rng(seed), 4
    topology = (
        photonic(size, 100.0, 0.1, num_ports=2, set_up_s=0.5) if has_circuits else switch(size, 100.0, 0.1)
    )
    router, graph = Router(topology), TaskGraphBuilder()
    streams = graph.add_resources(size)
    tasks = np.empty(0, np.int64)
    for number in range(60):
        after = list(random.choice(tasks, min(2, number), replace=False)) if number else []
        if random.random() < 0.5:
            stream = streams[random.integers(size)]
            task = graph.add("operator", duration_s=random.uniform(0.1, 2.0), resource=stream, after=after)
        else:
            path = router.paths(*random.choice(size, 2, replace=False))
            task = graph.add("send", num_bytes=random.uniform(1.0, 100.0), path=path, after=after)
        tasks = np.append(tasks, task)
    built, paths = graph.build(), router.table()
    played = play(built, topology, paths)
    team = np.zeros(size, np.int64) if is_one_team else np.arange(size)
    known = Accelerators(receiver=receivers(topology, paths), team=team, is_paired=True)
    found = waits(built, played, len(paths), known)
    for_traffic_s = found.for_traffic_s.sum(axis=1)
    parts_s = (found.busy_s, for_traffic_s, found.for_circuits_s, found.for_others_s, found.over_s)
    assert sum(parts_s) == pytest.approx(np.full(size, played.makespan_s))
    assert all((part_s >= 0.0).all() for part_s in parts_s)
    assert found.pairs_s.sum(axis=1) == pytest.approx(found.for_others_s)
    assert found.path_s.sum() == pytest.approx(for_traffic_s.sum())
    if (
        not is_one_team
    ):  # then all that is waited for is charged, and an accelerator is idle only once it is done
        done_s = np.zeros(size)
        for own in (built.resource, np.where(built.path >= 0, known.receiver[built.path], NONE)):
            np.maximum.at(done_s, own[own != NONE], played.end_s[own != NONE])
        assert found.over_s == pytest.approx(played.makespan_s - done_s, abs=1e-9)


def test_stages_wait_for_each_other(small: OperatorTrace) -> None:
    found, labels, _ = waited(small, Parallelism(pipeline_parallel=2))
    send = 512 / BANDWIDTH
    # The second stage waits for the 1.1 ms of the first and what it sends; the first for 6.1 ms and two sends.
    assert found.for_others_s == pytest.approx([6.1e-3, 1.1e-3])
    assert found.waited_for_s == pytest.approx([1.1e-3, 6.1e-3])
    assert found.for_traffic_s[:, labels["send"]] == pytest.approx([2 * send, send])


@pytest.mark.parametrize(
    "parallelism",
    [
        Parallelism(data_parallel=4),
        Parallelism(tensor_parallel=4),
        Parallelism(pipeline_parallel=2, num_microbatches=4, data_parallel=2),
        Parallelism(pipeline_parallel=2, num_microbatches=3, tensor_parallel=2, order=PipelineOrder.GPIPE),
    ],
)
@pytest.mark.parametrize("speed", [[1.0, 1.0, 1.0, 1.0], [1.0, 0.3, 0.9, 1.0]])
def test_every_second_is_accounted_for(
    small: OperatorTrace, parallelism: Parallelism, speed: list[float]
) -> None:
    topology = switch(4, BANDWIDTH, 1e-4)
    made = extrapolate(small, parallelism, topology, speed=np.array(speed))
    played = play(made.graph, topology, made.paths)
    found = waits(made.graph, played, len(made.paths), replace(made.accelerators(), is_paired=True))
    parts = found.busy_s + found.for_traffic_s.sum(axis=1) + found.for_others_s + found.over_s
    assert parts == pytest.approx(np.full(4, played.makespan_s))
    assert found.pairs_s.sum(axis=1) == pytest.approx(found.for_others_s)
    assert found.pairs_s.sum(axis=0) == pytest.approx(found.waited_for_s)
    assert found.path_s.sum() == pytest.approx(found.for_traffic_s.sum())
