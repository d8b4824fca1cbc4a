"""Which flows is a collective made of? Schedules of flows between ranks, as NCCL and MPI libraries run them.

Every schedule takes the tasks after which each rank may begin, and returns the tasks at which each rank is done. A rank
sends its next part when it has received the one before, and when its last send is over, so that slow ranks hold up their
neighbours and nobody else, as on a real ring. Of a ring that is the same when it is turned by m places, m ranks are
enough: `after` has m columns then, and the tasks of rank i are those of rank i + m, i + 2 m and so on, too
(`simulator.deep.fold`). n ranks, a buffer of S bytes:

    ring                2 (n-1) steps of S/n for an all-reduce, n-1 for its halves (Patarasuk and Yuan 2009)
    halving-doubling    2 log2 n steps of S/2, S/4 ... and back (Thakur, Rabenseifner and Gropp 2005)
    double binary tree  two trees, each for half of the buffer, chunk after chunk up and down (Sanders, Speck and Traeff 2009)
    direct              every rank sends to every other one at once
    hierarchical        reduce-scatter inside each node, all-reduce across nodes, all-gather inside
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from simulator.deep.routing import Router
from simulator.deep.tasks import NONE, TaskGraphBuilder
from simulator.errors import InputError, Problem
from simulator.table import Integers

TREE_CHUNKS = 16
"""Parts in which a tree moves its buffer, so that all levels work at once."""


class Traffic(Protocol):
    """What moves data between accelerators: `Collectives` here; see there for the arguments."""

    def ring_all_reduce(self, ranks: Integers, num_bytes: float, after: Integers) -> Integers:
        """Adds an all-reduce around each ring of `(..., n)` ranks."""

    def ring_all_gather(self, ranks: Integers, num_bytes: float, after: Integers) -> Integers:
        """Adds an all-gather around each ring of `(..., n)` ranks."""

    def ring_reduce_scatter(self, ranks: Integers, num_bytes: float, after: Integers) -> Integers:
        """Adds a reduce-scatter around each ring of `(..., n)` ranks."""

    def send(
        self, source: Integers, target: Integers, num_bytes: float, after: Integers, label: str
    ) -> Integers:
        """Adds a message for each pair of ranks, `(k,)`."""


@dataclass(frozen=True, kw_only=True)
class Collectives:
    """Adds collectives to a task graph on one network."""

    graph: TaskGraphBuilder
    router: Router
    step_s: float = 0.0
    """What each step costs beside latency and bytes: a launch, a handshake."""
    has_barriers: bool = False
    """Whether all ranks wait for each other after every step (TrioSim)."""

    def send(
        self, source: Integers, target: Integers, num_bytes: float, after: Integers, label: str
    ) -> Integers:
        """Adds a message for each pair of ranks, `(k,)`; returns the tasks `(k,)` at which they have arrived."""
        path = self.router.paths(source, target)
        latency_s = self.step_s + self.router.latency_s(path)
        return self.graph.add(label, duration_s=latency_s, num_bytes=num_bytes, path=path, after=[after])

    def ring_reduce_scatter(self, ranks: Integers, num_bytes: float, after: Integers) -> Integers:
        """Adds a reduce-scatter around a ring; `num_bytes` is the whole buffer of a rank."""
        return self._around(ranks, num_bytes, ranks.shape[-1] - 1, after, "reduce-scatter")

    def ring_all_gather(self, ranks: Integers, num_bytes: float, after: Integers) -> Integers:
        """Adds an all-gather around a ring; `num_bytes` is the buffer that every rank has in the end."""
        return self._around(ranks, num_bytes, ranks.shape[-1] - 1, after, "all-gather")

    def ring_all_reduce(self, ranks: Integers, num_bytes: float, after: Integers) -> Integers:
        """Adds an all-reduce around a ring: a reduce-scatter and an all-gather."""
        return self._around(ranks, num_bytes, 2 * (ranks.shape[-1] - 1), after, "all-reduce")

    def _around(
        self, ranks: Integers, num_bytes: float, num_steps: int, after: Integers, label: str
    ) -> Integers:
        """Adds steps in which every rank sends a part to the next one, and passes on what it received.

        Ranks `(..., n)` are rings of n that all run at once; tasks are `(..., m)`, where turns by m change nothing.
        """
        if ranks.shape[-1] == 1:
            return after
        self.graph.require_room(num_steps * after.size)
        num_played = after.shape[-1]
        source, target = (there[..., :num_played] for there in (ranks, np.roll(ranks, -1, axis=-1)))
        path = self.router.paths(source, target).reshape(after.shape)
        every_step = np.broadcast_to(path, (num_steps, *after.shape))
        sent = self.graph.add(
            label,
            duration_s=self.step_s + self.router.latency_s(path),
            num_bytes=num_bytes / ranks.shape[-1],
            path=every_step,
        ).reshape(every_step.shape)
        received = np.roll(sent, 1, axis=-1)
        if self.has_barriers:
            received = self._joined(received)
        self.graph.add_edges(after, sent[0])
        self.graph.add_edges(sent[:-1], sent[1:])
        self.graph.add_edges(received[:-1], sent[1:])
        return np.asarray(received[-1])

    def halving_doubling_all_reduce(self, ranks: Integers, num_bytes: float, after: Integers) -> Integers:
        """Adds an all-reduce by recursive halving and doubling.

        Raises:
            InputError: the number of ranks is no power of two.
        """
        size = len(ranks)
        if size & (size - 1):
            raise InputError(
                [
                    Problem(
                        path="ranks",
                        value=str(size),
                        rule="halving and doubling need a power of two; a ring does not",
                    )
                ]
            )
        distances = [size >> (level + 1) for level in range(size.bit_length() - 1)]
        done, share = after, num_bytes
        for distance in distances:
            share /= 2.0
            done = self._exchange(ranks, distance, share, done)
        for distance in reversed(distances):
            done = self._exchange(ranks, distance, share, done)
            share *= 2.0
        return done

    def _exchange(self, ranks: Integers, distance: int, num_bytes: float, after: Integers) -> Integers:
        """Adds a step in which partners at a distance swap bytes; both go on when both have the other's."""
        partner = np.arange(len(ranks)) ^ distance
        sent = self.send(ranks, ranks[partner], num_bytes, after, "all-reduce")
        return self._synchronised(self.graph.add("exchanged", after=[sent, sent[partner]]))

    def all_to_all(self, ranks: Integers, num_bytes: float, after: Integers) -> Integers:
        """Adds an exchange in which every rank sends an equal part of its `num_bytes` to every rank, all at once."""
        size = len(ranks)
        self.graph.require_room(size * size)
        source, target = np.repeat(np.arange(size), size), np.tile(np.arange(size), size)
        is_other = source != target
        source, target = source[is_other], target[is_other]
        sent = self.send(ranks[source], ranks[target], num_bytes / size, after[source], "all-to-all")
        done = self.graph.add("all-to-all done", after=[after])
        self.graph.add_edges(sent, done[source])
        self.graph.add_edges(sent, done[target])
        return done

    def tree_all_reduce(self, ranks: Integers, num_bytes: float, after: Integers) -> Integers:
        """Adds an all-reduce over two binary trees, each for half of the buffer; leaves of one are inner in the other."""
        halves = [
            self._tree(ranks, parents, num_bytes / 2.0, after)
            for parents in (_tree_parents(len(ranks)), _other_tree(_tree_parents(len(ranks))))
        ]
        return self.graph.add("all-reduce done", after=halves)

    def _tree(self, ranks: Integers, parents: Integers, num_bytes: float, after: Integers) -> Integers:
        """Adds one tree: every chunk travels to the root, which sends the sum back down."""
        levels = _levels(parents)
        last_up, last_down = np.full(len(ranks), NONE), np.full(len(ranks), NONE)
        done = self.graph.add("tree done", after=[after])
        chunk_bytes = num_bytes / TREE_CHUNKS
        for _ in range(TREE_CHUNKS):
            summed = self.graph.add("summed", after=[after])
            for level in reversed(levels):
                last_up[level] = self._hops(
                    ranks, level, parents[level], chunk_bytes, summed[level], last_up[level]
                )
                self.graph.add_edges(last_up[level], summed[parents[level]])
            arrived = summed.copy()
            for level in levels:
                before = arrived[parents[level]]
                arrived[level] = self._hops(
                    ranks, parents[level], level, chunk_bytes, before, last_down[level]
                )
                last_down[level] = arrived[level]
            self.graph.add_edges(arrived, done)
        return done

    def _hops(
        self, ranks: Integers, source: Integers, target: Integers, num_bytes: float, *after: Integers
    ) -> Integers:
        path = self.router.paths(ranks[source], ranks[target])
        latency_s = self.step_s + self.router.latency_s(path)
        return self.graph.add("all-reduce", duration_s=latency_s, num_bytes=num_bytes, path=path, after=after)

    def hierarchical_all_reduce(self, groups: Integers, num_bytes: float, after: Integers) -> Integers:
        """Adds an all-reduce of `(k, m)` ranks, m in each of k nodes; tasks have the same shape.

        Each rank reduces a share inside its node, adds it up with its counterparts in other nodes, and hands it back.
        """
        inside = self.ring_reduce_scatter(groups, num_bytes, after)
        across = self.ring_all_reduce(groups.T, num_bytes / groups.shape[1], inside.T).T
        return self.ring_all_gather(groups, num_bytes, across)

    def _joined(self, steps: Integers) -> Integers:
        """Lets all ranks of `(steps, ...)` go on when the last of them has got to the end of a step."""
        return np.array([self._synchronised(step.ravel()).reshape(step.shape) for step in steps])

    def _synchronised(self, tasks: Integers) -> Integers:
        if not self.has_barriers:
            return tasks
        return np.full(len(tasks), self.graph.join("barrier", tasks))


def _tree_parents(size: int) -> Integers:
    """Parents `(n,)` of a balanced binary tree whose leaves are the odd ranks; the root is its own.

    The lowest set bit of a rank is its level: rank r hangs on r with that bit cleared and the next one set.
    """
    ranks = np.arange(size)
    parents = np.zeros(size, dtype=np.int64)
    for rank in ranks[1:].tolist():
        low = rank & -rank
        up = (rank ^ low) | (low << 1)
        parents[rank] = up if up < size else rank ^ low
    return parents


def _other_tree(parents: Integers) -> Integers:
    """The tree in which leaves are inner: counted from the other end, or one further for an odd number of ranks."""
    size = len(parents)
    if size % 2 == 0:
        return np.asarray(size - 1 - parents[::-1])
    return (np.roll(parents, 1) + 1) % size


def _levels(parents: Integers) -> list[Integers]:
    """Ranks of every level below the root, which is its own parent, from the top."""
    levels = []
    above = parents == np.arange(len(parents))
    is_placed = above.copy()
    while not is_placed.all():
        below = above[parents] & ~is_placed
        levels.append(np.flatnonzero(below))
        above = below
        is_placed |= below
    return levels
