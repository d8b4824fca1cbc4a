"""Which algorithms do the collectives of a traced step take, and how many tasks has it, before all of it is made?"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from simulator.deep.chosen_collectives import ChosenCollectives
from simulator.deep.collective_forms import Algorithm, Operation
from simulator.deep.collective_members import TREE_CHUNKS
from simulator.deep.operator_model import OperatorModel
from simulator.deep.parallelism import Parallelism
from simulator.deep.step_tasks import add_step
from simulator.deep.tasks import NONE, TaskGraphBuilder
from simulator.deep.trace import OperatorTrace
from simulator.table import Integers


@dataclass(frozen=True, kw_only=True)
class StepSketch:
    """What is known of a step from its first replica and part."""

    num_tasks: int
    """Of that replica and part, on all stages; every other one has as many. Rings and trees count, other collectives do not."""
    algorithms: frozenset[Algorithm]
    """What collectives take."""

    @property
    def has_rings_only(self) -> bool:
        """Returns whether all collectives run around rings."""
        return self.algorithms <= {Algorithm.RING}


def sketch_step(
    trace: OperatorTrace,
    parallelism: Parallelism,
    traffic: ChosenCollectives,
    *,
    batch_size: int | None = None,
    model: OperatorModel | None = None,
) -> StepSketch:
    """Returns what is known of a step without making more than its first replica and part; see `add_step`.

    Args:
        trace: one step on one accelerator.
        parallelism: how it is divided.
        traffic: what chooses algorithms; nothing is added to its graph.
        batch_size: samples of each replica; left out: those of the trace.
        model: lines of operators.

    Raises:
        InputError: the trace cannot be divided so.
    """
    graph = TaskGraphBuilder()
    rings = _Rings(traffic=traffic.on(graph))
    played = parallelism.ranks()[:, :1, :1]
    add_step(trace, parallelism, graph, rings, batch_size=batch_size, model=model, played=played)
    return StepSketch(num_tasks=len(graph), algorithms=frozenset(rings.algorithms))


@dataclass(frozen=True, kw_only=True)
class _Rings:
    """Adds the collectives that run around rings, of which a part of the ranks is enough, and as many tasks as trees have."""

    traffic: ChosenCollectives
    algorithms: set[Algorithm] = field(default_factory=set)
    """Of all collectives."""

    def all_reduce(self, ranks: Integers, num_bytes: float, after: Integers) -> Integers:
        return self._run(Operation.ALL_REDUCE, ranks, num_bytes, after)

    def all_gather(self, ranks: Integers, num_bytes: float, after: Integers) -> Integers:
        return self._run(Operation.ALL_GATHER, ranks, num_bytes, after)

    def reduce_scatter(self, ranks: Integers, num_bytes: float, after: Integers) -> Integers:
        return self._run(Operation.REDUCE_SCATTER, ranks, num_bytes, after)

    def send(
        self, source: Integers, target: Integers, num_bytes: float, after: Integers, label: str
    ) -> Integers:
        return self.traffic.send(source, target, num_bytes, after, label)

    def _run(self, operation: Operation, ranks: Integers, num_bytes: float, after: Integers) -> Integers:
        algorithm = self.traffic.choose(operation, ranks, num_bytes)
        self.algorithms.add(algorithm)
        if algorithm is Algorithm.TREE:
            self.traffic.collectives.graph.add("tree", after=[np.full(4 * TREE_CHUNKS, NONE)])
        if algorithm is not Algorithm.RING:
            return after
        return self.traffic.taking(Algorithm.RING).run(operation, ranks, num_bytes, after)
