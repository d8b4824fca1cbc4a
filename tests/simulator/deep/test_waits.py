"""Is every second of an accelerator accounted for, and charged to what it waited for?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simulator.deep.collectives.collective_forms import Algorithm
from simulator.deep.networks.topologies import degraded, ring, switch
from simulator.deep.playing.play import play
from simulator.deep.playing.waits import Waits, waits
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


def test_traffic_that_takes_as_long_is_not_blamed_for_a_slow_accelerator(small: OperatorTrace) -> None:
    parallelism = Parallelism(tensor_parallel=4)
    even, _, _ = waited(small, parallelism)
    slow, _, _ = waited(small, parallelism, [1.0, 1.0, 0.5, 1.0])
    others = [0, 1, 3]
    assert slow.for_traffic_s[others].sum(axis=1) == pytest.approx(even.for_traffic_s[others].sum(axis=1))
    assert slow.waited_for_s[others] == pytest.approx(0.0)
    assert slow.waited_for_s[2] == pytest.approx(slow.for_others_s.sum())
    assert slow.for_others_s[others].min() > 0.0


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
