"""Which algorithms do a traced step's collectives use, and how many tasks does it have, before all of it is built?"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np

from simulator.deep.collectives.chosen_collectives import ChosenCollectives
from simulator.deep.collectives.collective_forms import Algorithm, Form, Operation
from simulator.deep.collectives.patterns import Pattern
from simulator.deep.collectives.schedules import num_tree_tasks
from simulator.deep.networks.routing import Router
from simulator.deep.playing.tasks import NONE, TaskGraphBuilder
from simulator.deep.traced_steps.fold import Fold
from simulator.deep.traced_steps.step_request import StepRequest
from simulator.deep.traced_steps.step_tasks import add_step
from simulator.deep.traces.parallelism import Parallelism
from simulator.table import Integers

MOST_DIRECT_MESSAGES = 4_000_000
"""Most direct messages of all groups that are examined; more take longer to find than a step may take to play."""
MOST_SEEN_MESSAGES = 256
"""Most messages between stages whose paths are examined; around a ring of 65,536 cables each crosses half of them."""


@dataclass(frozen=True, kw_only=True)
class StepSketch:
    """What the first replica and part of a step say about it."""

    num_tasks: int
    """Number of tasks of the first replica and part, on all stages; every other one has as many."""
    algorithms: frozenset[Algorithm]
    """Algorithms that the collectives use."""
    patterns: tuple[Pattern, ...] | None
    """Who sends to whom in collectives, among all accelerators, equal patterns once; None: too many to examine."""


def sketch_step(asked: StepRequest, traffic: ChosenCollectives) -> StepSketch:
    """Returns what is known about a step from building only its first replica and part; see `add_step`.

    Args:
        asked: the requested step.
        traffic: the collectives that choose algorithms; nothing is added to their graph.

    Raises:
        InputError: the trace cannot be divided that way.
    """
    graph = TaskGraphBuilder()
    seen = _Seen(traffic=traffic.on(graph))
    add_step(asked, graph, seen, played=asked.parallelism.ranks()[:, :1, :1])
    return StepSketch(
        num_tasks=len(graph),
        algorithms=frozenset(form.algorithm for form, _ in seen.groups.values()),
        patterns=_patterns(seen.groups.values(), traffic.collectives.router.topology.ranks_per_node),
    )


def _patterns(seen: Collection[tuple[Form, Integers]], ranks_per_node: int) -> tuple[Pattern, ...] | None:
    direct = (ranks for form, ranks in seen if form.algorithm is Algorithm.DIRECT)
    if sum(ranks.size * ranks.shape[-1] for ranks in direct) > MOST_DIRECT_MESSAGES:
        return None
    return tuple(
        pattern for form, ranks in seen for pattern in form.patterns(form.shaped(ranks, ranks_per_node))
    )


def num_meetings(parallelism: Parallelism, router: Router, fold: Fold | None) -> float:
    """Returns how often messages between stages meet one of the same micro-batch on a link, counting each with itself.

    This is the effort of sharing out the links, which the number of tasks does not show: around a ring of cables, messages
    that pass hundreds of accelerators meet as many others on each cable. Of many messages an evenly spread sample is examined:
    if there are s times as many, and c of the sample cross a link, s c + s^2 c (c - 1) meetings are expected there.
    """
    played = parallelism.ranks() if fold is None else fold.played
    sources = np.concatenate([played[:-1].ravel(), played[1:].ravel()])
    targets = np.concatenate([played[1:].ravel(), played[:-1].ravel()])
    rows = np.unique(np.linspace(0, len(sources) - 1, min(len(sources), MOST_SEEN_MESSAGES)).astype(np.intp))
    if len(rows) == 0:
        return 0.0
    ways = router.paths(sources[rows], targets[rows])
    paths = router.table() if fold is None else fold.ways(router.table())
    seen, scale = np.bincount(paths.links_along(ways)).astype(np.float64), len(sources) / len(rows)
    meetings = scale * seen.sum() + scale**2 * (seen * (seen - 1.0)).sum()
    return float(parallelism.num_microbatches * parallelism.num_chunks * meetings)


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """Records collectives, and adds the tasks of one rank: the first, or for trees, whose ranks differ, the mean number."""

    traffic: ChosenCollectives
    groups: dict[tuple[object, ...], tuple[Form, Integers]] = field(default_factory=dict)
    """All collectives and their ranks `(..., n)`; those of the same ranks by the same algorithm once."""

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
        form = Form(algorithm=algorithm, operation=operation)
        self.groups.setdefault((algorithm, ranks.shape, ranks.tobytes()), (form, ranks))
        if algorithm is not Algorithm.TREE:
            return self.traffic.taking(algorithm).run(operation, ranks, num_bytes, after)
        count = num_tree_tasks(ranks.shape[-1]) // ranks.shape[-1]
        self.traffic.collectives.graph.add("tree", after=[np.full(count, NONE)])
        return after
