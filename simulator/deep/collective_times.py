"""How long would a collective take with nothing else on the network? As libraries estimate it before they choose one.

It is played once with next to no bytes (a seconds) and once with many (b seconds for each byte), and a buffer of S bytes is
expected to take a + b S. What would take long to play is not played in full: of rings, whose steps are alike, two steps are,
and of trees of many ranks, where links are crowded, b is what the fullest link needs. Of 160 to 640 ranks on rings and tori
of cables trees take 0.96 to 1.13 times that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from simulator.deep.collectives import Collectives
from simulator.deep.patterns import tree_patterns
from simulator.deep.play import play
from simulator.deep.tasks import NONE, TaskGraph, TaskGraphBuilder
from simulator.table import Floats, Integers

MANY_BYTES = 2.0**30
"""Buffer whose latency does not count any more."""
FEW_RANKS = 512
"""Collectives of more together are not played in full."""
FREE_WAYS = 4
"""Ways of trees on the fullest link where each rank has a link of its own to a switch: links with more are crowded."""


@dataclass(frozen=True, kw_only=True)
class ExpectedTime:
    """Of a collective of any size."""

    fixed_s: float
    seconds_per_byte: float

    def of(self, num_bytes: float) -> float:
        """Returns the time of a buffer."""
        return self.fixed_s + self.seconds_per_byte * num_bytes


def expected_rings(collectives: Collectives, rings: Sequence[Integers], num_rounds: int) -> ExpectedTime:
    """Returns how long rings take, one after another.

    Args:
        collectives: on the network; nothing is added to its graph.
        rings: ranks `(..., n)` of each, the first one of the whole buffer, the next one of the n-th part of that.
        num_rounds: how often each is gone around, in n - 1 steps.
    """
    total_s, num_bytes = np.zeros(2), MANY_BYTES
    for ranks in rings:
        add = partial(_add_steps, ranks=ranks, num_bytes=num_bytes)
        one_s, two_s = (
            _played_twice_s(collectives, _graph(collectives, partial(add, num_steps=count)))
            for count in (1, 2)
        )
        total_s += one_s + (num_rounds * (ranks.shape[-1] - 1) - 1) * (two_s - one_s)
        num_bytes /= ranks.shape[-1]
    fixed_s, long_s = total_s.tolist()
    return ExpectedTime(fixed_s=fixed_s, seconds_per_byte=(long_s - fixed_s) / MANY_BYTES)


def expected_trees(collectives: Collectives, ranks: Integers) -> ExpectedTime:
    """Returns how long an all-reduce of many ranks `(..., n)` over two trees takes."""
    graph = _graph(collectives, lambda alone: alone.tree_all_reduce(ranks, MANY_BYTES, no_tasks(ranks)))
    num_ways, seconds_per_byte = _fullest_link(collectives, ranks)
    if num_ways > FREE_WAYS:
        return ExpectedTime(
            fixed_s=_played_s(collectives, _without_bytes(graph)), seconds_per_byte=seconds_per_byte
        )
    return _expected(collectives, graph)


def expected_played(collectives: Collectives, add: Callable[[Collectives], object]) -> ExpectedTime:
    """Returns how long what is added takes, which is of `MANY_BYTES`."""
    return _expected(collectives, _graph(collectives, add))


def no_tasks(ranks: Integers) -> Integers:
    """Returns what ranks wait for that wait for nothing."""
    return np.full(ranks.shape, NONE)


def _expected(collectives: Collectives, graph: TaskGraph) -> ExpectedTime:
    fixed_s, long_s = _played_twice_s(collectives, graph)
    return ExpectedTime(fixed_s=fixed_s, seconds_per_byte=(long_s - fixed_s) / MANY_BYTES)


def _fullest_link(collectives: Collectives, ranks: Integers) -> tuple[int, float]:
    """How many ways of trees, of half of the buffer each, go over the fullest link, and its seconds for each byte."""
    router = collectives.router
    ways = np.concatenate([router.paths(*ends) for ends in tree_patterns(ranks)])
    num_ways = np.bincount(router.table().links_along(ways), minlength=router.topology.num_links)
    seconds_per_byte = num_ways / 2.0 / router.topology.bandwidth_bytes_per_s
    link = int(np.argmax(seconds_per_byte))
    return int(num_ways[link]), float(seconds_per_byte[link])


def _add_steps(alone: Collectives, *, ranks: Integers, num_bytes: float, num_steps: int) -> None:
    alone.ring_steps(ranks, num_bytes, num_steps, no_tasks(ranks), "ring")


def _graph(collectives: Collectives, add: Callable[[Collectives], object]) -> TaskGraph:
    builder = TaskGraphBuilder()
    add(replace(collectives, graph=builder))
    return builder.build()


def _played_twice_s(collectives: Collectives, graph: TaskGraph) -> Floats:
    """Without bytes, and with them, `(2,)`."""
    return np.array([_played_s(collectives, each) for each in (_without_bytes(graph), graph)])


def _without_bytes(graph: TaskGraph) -> TaskGraph:
    return replace(graph, num_bytes=np.zeros(len(graph)))


def _played_s(collectives: Collectives, graph: TaskGraph) -> float:
    router = collectives.router
    return play(graph, router.topology, router.table()).makespan_s
