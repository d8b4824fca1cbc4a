"""Which flows does a collective consist of? Schedules of flows between ranks, as NCCL and MPI libraries run them.

Every schedule takes the tasks after which each rank may begin, and returns the tasks at which each rank is done. A rank
sends its next part when it has received the previous one and its own last send is over. Slow ranks therefore hold up their
neighbours and nobody else, as on a real ring. For n ranks and a buffer of S bytes:

    ring                2 (n-1) steps of S/n for an all-reduce, n-1 for its halves (Patarasuk and Yuan 2009)
    halving-doubling    2 log2 n steps of S/2, S/4 ... and back (Thakur, Rabenseifner and Gropp 2005). An all-reduce swaps its
                        halves with the nearest rank, so that the least goes far; a reduce-scatter begins with the farthest,
                        which leaves each rank with its own part
    double binary tree  two trees, each for half of the buffer, chunk after chunk up and down (Sanders, Speck and Traeff 2009)
    direct              every rank sends to every other one at once
    hierarchical        reduce-scatter inside each node, all-reduce across nodes, all-gather inside

`simulator.deep.collectives.chosen_collectives` says which of them a collective uses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from simulator.deep.collectives.patterns import (
    TREE_CHUNKS,
    across,
    all_reduced_share,
    distances,
    other_members,
    ring_pattern,
    tree_levels,
    tree_parents,
)
from simulator.deep.networks.routing import Router
from simulator.deep.playing.tasks import TaskGraphBuilder
from simulator.table import Floats, Integers


class Traffic(Protocol):
    """What moves data between accelerators, such as `ChosenCollectives`; arguments as in `Collectives`."""

    def all_reduce(self, ranks: Integers, num_bytes: float, after: Integers) -> Integers:
        """Adds an all-reduce of each group of `(..., n)` ranks."""

    def all_gather(self, ranks: Integers, num_bytes: float, after: Integers) -> Integers:
        """Adds an all-gather of each group of `(..., n)` ranks."""

    def reduce_scatter(self, ranks: Integers, num_bytes: float, after: Integers) -> Integers:
        """Adds a reduce-scatter of each group of `(..., n)` ranks."""

    def send(
        self, source: Integers, target: Integers, num_bytes: float, after: Integers, label: str
    ) -> Integers:
        """Adds a message for each pair of ranks, `(k,)`."""


@dataclass(frozen=True, kw_only=True)
class Collectives:
    """Adds collectives to a task graph on one network.

    Where links have a ramp, k messages of b bytes each that follow each other on a path, with m leaving at once, lose
    2 sqrt(ramp k m b / bandwidth) together, as in `simulator.machine.network`; each of the k takes a k-th of that longer.

    Ranks `(..., n)` are groups of n that all run at once; tasks have the same shape. If groups are alike, tasks of the first
    groups are enough. If ranks m apart are alike, tasks of the first m are enough: tasks are then `(..., m)`, and those of
    rank i stand for those of i + m, i + 2 m and so on (`simulator.deep.traced_steps.fold`). In trees no ranks are alike, so
    tasks are of all ranks.
    """

    graph: TaskGraphBuilder
    router: Router
    step_s: float = 0.0
    """Extra time of each step, on top of latency and bytes: a launch, a handshake."""
    label: str | None = None
    """Label of flows; None: the name of the collective."""
    has_ramp: bool = True
    """Whether small messages lose time to the ramps of the network."""

    def send(
        self, source: Integers, target: Integers, num_bytes: float, after: Integers, label: str
    ) -> Integers:
        """Adds a message for each pair of ranks, `(k,)`; returns the tasks `(k,)` at which they have arrived."""
        path = self.router.paths(source, target)
        latency_s = self.step_s + self.router.latency_s(path)
        return self._message(label, latency_s, num_bytes, path, after)

    def _message(
        self, label: str, latency_s: Floats, num_bytes: float, path: Integers, after: Integers
    ) -> Integers:
        called = self.label or label
        return self.graph.add(called, duration_s=latency_s, num_bytes=num_bytes, path=path, after=[after])

    def _latency_s(self, path: Integers, num_bytes: ArrayLike, *, in_a_row: int = 1) -> Floats:
        """Returns the time before the first byte of each message, where several follow each other on each path."""
        latency_s = self.step_s + self.router.latency_s(path)
        if self.has_ramp:
            latency_s = latency_s + self.router.ramp_s(path, np.asarray(num_bytes) / in_a_row)
        return np.asarray(latency_s)

    def ring_reduce_scatter(self, ranks: Integers, num_bytes: float, after: Integers) -> Integers:
        """Adds a reduce-scatter around a ring; `num_bytes` is the whole buffer of a rank."""
        return self.ring_steps(ranks, num_bytes, ranks.shape[-1] - 1, after, "reduce-scatter")

    def ring_all_gather(self, ranks: Integers, num_bytes: float, after: Integers) -> Integers:
        """Adds an all-gather around a ring; `num_bytes` is the buffer that every rank has in the end."""
        return self.ring_steps(ranks, num_bytes, ranks.shape[-1] - 1, after, "all-gather")

    def ring_all_reduce(self, ranks: Integers, num_bytes: float, after: Integers) -> Integers:
        """Adds an all-reduce around a ring: a reduce-scatter and an all-gather."""
        return self.ring_steps(ranks, num_bytes, 2 * (ranks.shape[-1] - 1), after, "all-reduce")

    def ring_steps(
        self, ranks: Integers, num_bytes: float, num_steps: int, after: Integers, label: str
    ) -> Integers:
        """Adds steps in which every rank sends 1/n of `num_bytes` to the next one, and passes on what it received.

        A rank is done when it has both received and sent its last part, so that no rank is done before it has begun.
        """
        if ranks.shape[-1] == 1:
            return after
        self.graph.require_room((num_steps + 2) * after.size)
        source, target = (_played(ends, after) for ends in ring_pattern(ranks))
        path = self.router.paths(source, target).reshape(after.shape)
        every_step = np.broadcast_to(path, (num_steps, *after.shape))
        sent = self.graph.add(
            self.label or label,
            duration_s=self._latency_s(path, num_bytes / ranks.shape[-1], in_a_row=num_steps),
            num_bytes=num_bytes / ranks.shape[-1],
            path=every_step,
        ).reshape(every_step.shape)
        received = np.roll(sent, 1, axis=-1)
        self.graph.add_edges(after, sent[0])
        self.graph.add_edges(sent[:-1], sent[1:])
        self.graph.add_edges(received[:-1], sent[1:])
        # Added after all messages: if both end together, the received one counts as the one that was waited for.
        left = self.graph.add(f"{label} sent", after=[sent[-1]]).reshape(after.shape)
        return self.graph.add(f"{label} done", after=[received[-1], left]).reshape(after.shape)

    def halving_doubling_all_reduce(self, ranks: Integers, num_bytes: float, after: Integers) -> Integers:
        """Adds an all-reduce by recursive halving and doubling; raises `InputError` unless n is a power of two."""
        outwards = distances(ranks.shape[-1])
        for distance in (*outwards, *reversed(outwards)):
            share = all_reduced_share(distance)
            after = self._exchange(ranks, distance, share * num_bytes, after, "all-reduce")
        return after

    def halving_reduce_scatter(self, ranks: Integers, num_bytes: float, after: Integers) -> Integers:
        """Adds a reduce-scatter by recursive halving; raises `InputError` unless n is a power of two."""
        for distance in reversed(distances(ranks.shape[-1])):
            share = distance / ranks.shape[-1]
            after = self._exchange(ranks, distance, share * num_bytes, after, "reduce-scatter")
        return after

    def doubling_all_gather(self, ranks: Integers, num_bytes: float, after: Integers) -> Integers:
        """Adds an all-gather by recursive doubling; raises `InputError` unless n is a power of two."""
        for distance in distances(ranks.shape[-1]):
            share = distance / ranks.shape[-1]
            after = self._exchange(ranks, distance, share * num_bytes, after, "all-gather")
        return after

    def _exchange(
        self, ranks: Integers, distance: int, num_bytes: float, after: Integers, label: str
    ) -> Integers:
        """Adds a step in which partners at a distance swap bytes; both continue when each has the other's."""
        places = np.arange(ranks.shape[-1])
        source, target = (_played(ends, after) for ends in (ranks, ranks[..., places ^ distance]))
        path = self.router.paths(source, target)
        sent = self._message(label, self._latency_s(path, num_bytes), num_bytes, path, after.ravel())
        sent, num_played = sent.reshape(after.shape), after.shape[-1]
        partner = (places[:num_played] ^ distance) % num_played
        return self.graph.add("exchanged", after=[sent, sent[..., partner]]).reshape(after.shape)

    def all_to_all(self, ranks: Integers, num_bytes: float, after: Integers) -> Integers:
        """Adds an exchange in which every rank sends an equal part of its `num_bytes` to every rank, all at once."""
        return self._to_all(ranks, num_bytes, after, "all-to-all")

    def direct_all_reduce(self, ranks: Integers, num_bytes: float, after: Integers) -> Integers:
        """Adds an all-reduce in which every rank receives its part from all others, and sends its sum to all of them."""
        summed = self._to_all(ranks, num_bytes, after, "all-reduce")
        return self._to_all(ranks, num_bytes, summed, "all-reduce")

    def direct_all_gather(self, ranks: Integers, num_bytes: float, after: Integers) -> Integers:
        """Adds an all-gather in which every rank sends its part of `num_bytes` to all others at once."""
        return self._to_all(ranks, num_bytes, after, "all-gather")

    def direct_reduce_scatter(self, ranks: Integers, num_bytes: float, after: Integers) -> Integers:
        """Adds a reduce-scatter in which every rank sends all others their parts of `num_bytes` at once."""
        return self._to_all(ranks, num_bytes, after, "reduce-scatter")

    def _to_all(self, ranks: Integers, num_bytes: float, after: Integers, label: str) -> Integers:
        """Adds a message of 1/n of `num_bytes` from every rank to every other one of its group."""
        size, num_played = ranks.shape[-1], after.shape[-1]
        self.graph.require_room(after.size * size)
        one, other = (places[: num_played * (size - 1)] for places in other_members(size))
        groups = ranks[tuple(slice(count) for count in after.shape[:-1])]
        path = self.router.paths(groups[..., one], groups[..., other])
        at_once = _ramped_at_once(self.router.ramp_s(path, 1.0), size)
        latency_s = self._latency_s(path, at_once * num_bytes / size)
        begin = after[..., one]
        sent = self._message(label, latency_s, num_bytes / size, path, begin.ravel()).reshape(begin.shape)
        done = self.graph.add(f"{label} done", after=[after]).reshape(after.shape)
        self.graph.add_edges(sent, done[..., one])
        self.graph.add_edges(sent, done[..., other % num_played])
        return done

    def tree_all_reduce(self, ranks: Integers, num_bytes: float, after: Integers) -> Integers:
        """Adds an all-reduce over two binary trees, each for half of the buffer; leaves of one are inner in the other."""
        size = ranks.shape[-1]
        if size == 1:
            return after
        self.graph.require_room(num_tree_tasks(size) * (after.size // size))
        halves = [
            self._tree(_played(ranks, after), parents, num_bytes / 2.0, after)
            for parents in tree_parents(size)
        ]
        return self.graph.add("all-reduce done", after=halves).reshape(after.shape)

    def _tree(self, ranks: Integers, parents: Integers, num_bytes: float, after: Integers) -> Integers:
        """Adds one tree: every chunk travels to the root, which sends the sum back down."""
        levels = tree_levels(parents)
        done = self.graph.add("tree done", after=[after]).reshape(ranks.shape)
        chunks = np.broadcast_to(after[..., None, :], (*ranks.shape[:-1], TREE_CHUNKS, ranks.shape[-1]))
        summed = self.graph.add("summed", after=[chunks]).reshape(chunks.shape)
        above = ranks[..., parents]
        ways_up, ways_down = (
            self.router.paths(*ends).reshape(ranks.shape) for ends in ((ranks, above), (above, ranks))
        )
        for level in reversed(levels):
            up = self._hops(ways_up[..., level], num_bytes / TREE_CHUNKS, summed[..., level])
            self.graph.add_edges(up, summed[..., parents[level]])
        arrived = summed.copy()
        for level in levels:
            down = arrived[..., parents[level]]
            arrived[..., level] = self._hops(ways_down[..., level], num_bytes / TREE_CHUNKS, down)
        self.graph.add_edges(arrived, done[..., None, :])
        return done

    def _hops(self, path: Integers, num_bytes: float, after: Integers) -> Integers:
        """Adds messages of all chunks, `(..., chunks, k)`, each after that of the previous chunk."""
        way = path[..., None, :]
        latency_s = self._latency_s(way, num_bytes, in_a_row=TREE_CHUNKS)
        label = self.label or "all-reduce"
        hops = self.graph.add(label, duration_s=latency_s, num_bytes=num_bytes, path=way, after=[after])
        hops = hops.reshape(after.shape)
        self.graph.add_edges(hops[..., :-1, :], hops[..., 1:, :])
        return hops

    def hierarchical_all_reduce(self, groups: Integers, num_bytes: float, after: Integers) -> Integers:
        """Adds an all-reduce of `(..., k, m)` ranks, m in each of k nodes.

        Each rank reduces a share inside its node, all-reduces it with its counterparts in other nodes, and gathers inside.
        """
        inside = self.ring_reduce_scatter(groups, num_bytes, after)
        between = self.ring_all_reduce(across(groups), num_bytes / groups.shape[-1], across(inside))
        return self.ring_all_gather(groups, num_bytes, across(between))

    def hierarchical_reduce_scatter(self, groups: Integers, num_bytes: float, after: Integers) -> Integers:
        """Adds a reduce-scatter of `(..., k, m)` ranks, m in each of k nodes: inside the nodes, then across."""
        inside = self.ring_reduce_scatter(groups, num_bytes, after)
        between = self.ring_reduce_scatter(across(groups), num_bytes / groups.shape[-1], across(inside))
        return across(between)

    def hierarchical_all_gather(self, groups: Integers, num_bytes: float, after: Integers) -> Integers:
        """Adds an all-gather of `(..., k, m)` ranks, m in each of k nodes: across the nodes, then inside."""
        between = self.ring_all_gather(across(groups), num_bytes / groups.shape[-1], across(after))
        return self.ring_all_gather(groups, num_bytes, across(between))


def num_tree_tasks(size: int) -> int:
    """Returns how many tasks an all-reduce over two trees of so many ranks has."""
    messages, sums, ends = 4 * TREE_CHUNKS * (size - 1), 2 * TREE_CHUNKS * size, 3 * size
    return messages + sums + ends


def _played(ranks: Integers, after: Integers) -> Integers:
    """The first groups, and the first ranks of each, which stand for the others."""
    return ranks[tuple(slice(size) for size in after.shape)]


def _ramped_at_once(ramp: Floats, size: int) -> Floats:
    """How many of the messages to all others leave together, for each of them: those with a ramp on their path."""
    others = max(1, size - 1)
    by_source = (ramp > 0.0).reshape(-1, others)
    return np.repeat(by_source.sum(axis=1, dtype=np.float64), others)
