"""Which links does a flow take? The cheapest way, and one of the cheapest where there are several (ECMP).

The cost of a link is its latency plus the time of a reference message over it, so that a wide link beats a narrow one
of equal latency, and few links beat many. Among ways of equal cost each switch picks one by a hash of the flow's ends
and a salt, as switches do with the fields of a packet; the same arguments give the same way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from simulator.compiled import compiled
from simulator.deep.topology import Topology
from simulator.errors import InputError, Problem
from simulator.table import Floats, Integers

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

REFERENCE_BYTES = 2.0**20
"""Message whose time over a link is the link's cost, beside its latency."""
EQUAL_COST_FRACTION = 1e-9
"""Ways whose costs differ by less are equally good."""
SOURCES_AT_ONCE = 64
"""Vertices whose costs to all others are in memory at one time."""
FIRST_REACH = 4.0
"""A search goes so many times the cheapest link far at first, and so many times further when that was not enough."""


@dataclass(frozen=True, kw_only=True)
class Paths:
    """The links of p ways, way by way."""

    offsets: Integers
    """`(p + 1,)` where the links of a way begin in `links`."""
    links: Integers
    """Links in the order in which a flow crosses them."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def links_of(self, path: int) -> Integers:
        """Returns the links of one way."""
        return self.links[self.offsets[path] : self.offsets[path + 1]]

    def sums(self, per_link: Floats) -> Floats:
        """Returns the sum of a column of links, `(l,)`, over each way, `(p,)`."""
        running = np.concatenate([[0.0], np.cumsum(per_link[self.links])])
        return np.asarray(running[self.offsets[1:]] - running[self.offsets[:-1]])


@dataclass
class Router:
    """Finds ways through one network, each pair of ends and salt once, and numbers them."""

    topology: Topology
    reference_bytes: float = REFERENCE_BYTES
    _numbers: dict[tuple[int, int, int], int] = field(default_factory=dict)
    _ways: list[Integers] = field(default_factory=list)
    _latencies: list[float] = field(default_factory=list)

    def paths(self, source: ArrayLike, target: ArrayLike, salt: ArrayLike = 0) -> Integers:
        """Returns the numbers `(k,)` of the ways between vertices; the arguments broadcast against each other.

        Raises:
            InputError: no way leads from one of the vertices to the other.
        """
        columns = [
            np.asarray(part, dtype=np.int64).ravel() for part in np.broadcast_arrays(source, target, salt)
        ]
        keys = list(zip(*(column.tolist() for column in columns), strict=True))
        missing = sorted({key for key in keys if key not in self._numbers})
        if missing:
            self._find(np.array(missing, dtype=np.int64))
        return np.array([self._numbers[key] for key in keys], dtype=np.int64)

    def add_path(self, links: ArrayLike) -> int:
        """Adds a way that was chosen by hand, such as a circuit; returns its number."""
        way = np.asarray(links, dtype=np.int64)
        self._ways.append(way)
        self._latencies.append(float(self.topology.latency_s[way].sum()))
        return len(self._ways) - 1

    def latency_s(self, paths: Integers) -> Floats:
        """Returns the latencies of ways, `(k,)`."""
        return np.array(self._latencies)[paths]

    def table(self) -> Paths:
        """Returns all ways found so far."""
        offsets = np.cumsum([0, *(len(way) for way in self._ways)], dtype=np.int64)
        links = np.concatenate(self._ways) if self._ways else np.empty(0, np.int64)
        return Paths(offsets=offsets, links=links)

    def _find(self, wanted: Integers) -> None:
        """Numbers the ways of `(k, 3)` sources, targets and salts, which are sorted."""
        sources = np.unique(wanted[:, 0])
        for first in range(0, len(sources), SOURCES_AT_ONCE):
            block = sources[first : first + SOURCES_AT_ONCE]
            rows = wanted[(wanted[:, 0] >= block[0]) & (wanted[:, 0] <= block[-1])]
            row_of = np.searchsorted(block, rows[:, 0])
            costs = self._costs_from(block, row_of, rows[:, 1])
            offsets, links = _ways(rows, row_of, costs, *self._walked)
            self._refuse_unreachable(rows, offsets)
            for row, key in enumerate(map(tuple, rows.tolist())):
                self._numbers[key] = self.add_path(links[offsets[row] : offsets[row + 1]])

    def _refuse_unreachable(self, rows: Integers, offsets: Integers) -> None:
        has_none = (np.diff(offsets) == 0) & (rows[:, 0] != rows[:, 1])
        names = self.topology.vertex_names
        problems = [
            Problem(path="", value="", rule=f"no way leads from {names[source]} to {names[target]}")
            for source, target, _ in rows[has_none][:1].tolist()
        ]
        if problems:
            raise InputError(problems, source=f"network {self.topology.name!r}")

    def _costs_from(self, sources: Integers, row_of: Integers, targets: Integers) -> Floats:
        """Least costs from vertices to all others that are no further than the targets, `(k, v)`, else `inf`.

        The search stops near the source, and goes on further away only for the sources whose targets it has not met.

        Args:
            sources: `(k,)`.
            row_of: `(w,)` which of them each target belongs to.
            targets: `(w,)`.
        """
        from scipy.sparse.csgraph import dijkstra

        costs = np.full((len(sources), 2 * self.topology.num_vertices), np.inf)
        left, limit = np.arange(len(sources)), FIRST_REACH * float(self._cost.min(initial=np.inf))
        while len(left):
            costs[left] = dijkstra(self._graph, indices=self._begin(sources[left]), limit=limit)
            is_missing = np.isinf(costs[row_of, targets]) & (sources[row_of] != targets)
            left = np.unique(row_of[is_missing]) if np.isfinite(limit) else left[:0]
            limit = limit * FIRST_REACH if limit < self._cost.sum() else np.inf
        return costs

    @cached_property
    def _graph(self) -> csr_matrix:
        """Costs of links; a vertex that does not forward is two: one where links end, one where they begin."""
        from scipy.sparse import csr_matrix

        size = self.topology.num_vertices
        begins = self._begin(self.topology.source)
        order = np.lexsort((self._cost, self.topology.target, begins))
        start, end, cost = begins[order], self.topology.target[order], self._cost[order]
        is_cheapest = np.ones(len(order), dtype=np.bool_)
        is_cheapest[1:] = (start[1:] != start[:-1]) | (end[1:] != end[:-1])
        ends = (start[is_cheapest], end[is_cheapest])
        return csr_matrix((cost[is_cheapest], ends), shape=(2 * size, 2 * size))

    def _begin(self, vertices: Integers) -> Integers:
        """The half of each vertex at which links begin."""
        return np.where(self.topology.forwards[vertices], vertices, vertices + self.topology.num_vertices)

    @cached_property
    def _cost(self) -> Floats:
        return self.topology.latency_s + self.reference_bytes / self.topology.bandwidth_bytes_per_s

    @cached_property
    def _walked(self) -> tuple[Integers, Integers, Integers, Integers, Floats]:
        """What a walk against the links needs: links by the vertex at which they end, where they begin, costs."""
        counts = np.bincount(self.topology.target, minlength=self.topology.num_vertices)
        offsets = np.cumsum([0, *counts], dtype=np.int64)
        by_target = np.argsort(self.topology.target, kind="stable").astype(np.int64)
        return offsets, by_target, self.topology.source, self._begin(self.topology.source), self._cost


@compiled
def _ways(
    rows: Integers,
    cost_rows: Integers,
    costs: Floats,
    offsets: Integers,
    by_target: Integers,
    source: Integers,
    begin: Integers,
    cost: Floats,
) -> tuple[Integers, Integers]:
    """Walks from each target back to its source, over links that lie on a cheapest way; offsets and links of all."""
    way_offsets = np.zeros(len(rows) + 1, dtype=np.int64)
    found = np.empty(max(16, 8 * len(rows)), dtype=np.int64)
    num_found = 0
    for row in range(len(rows)):
        start, vertex, salt = rows[row, 0], rows[row, 1], rows[row, 2]
        own = costs[cost_rows[row]]
        first = num_found
        while vertex != start and np.isfinite(own[vertex]):
            chosen, num_equal = -1, 0
            for position in range(offsets[vertex], offsets[vertex + 1]):
                link = by_target[position]
                way = 0.0 if source[link] == start else own[begin[link]]
                if way + cost[link] <= own[vertex] * (1.0 + EQUAL_COST_FRACTION):
                    num_equal += 1
                    if _hash(start, rows[row, 1], salt, vertex, num_equal) % num_equal == 0:
                        chosen = link  # reservoir sampling: each of the equal links with the same probability
            if num_found == len(found):
                found = np.concatenate((found, np.empty_like(found)))
            found[num_found] = chosen
            num_found += 1
            vertex = source[chosen]
        found[first:num_found] = found[first:num_found][::-1].copy()
        way_offsets[row + 1] = num_found
    return way_offsets, found[:num_found].copy()


@compiled
def _hash(first: int, second: int, salt: int, vertex: int, serial: int) -> int:
    """A well-mixed non-negative integer of its arguments (SplitMix64's finalizer, Steele et al. 2014)."""
    value = np.uint64(salt)
    for part in (first, second, vertex, serial):
        value = (value ^ np.uint64(part)) * np.uint64(0x9E3779B97F4A7C15)
        value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        value = value ^ (value >> np.uint64(31))
    return int(value >> np.uint64(1))
