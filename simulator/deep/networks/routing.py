"""Which links does a flow take? The cheapest path, and one of the cheapest where there are several (ECMP).

The cost of a link is its latency plus the time of a reference message over it, so that a wide link beats a narrow one
of equal latency, and few links beat many. Among paths of equal cost each switch picks one by a hash of the flow's ends and a
salt, as switches do with the fields of a packet; the same arguments give the same path. Costs use the bandwidths of the
network without slow links: the hash is static, so a flow that falls on a slow link stays slow.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from simulator.deep.networks.topology import Topology
from simulator.deep.networks.ways import Net, find_ways, new_net
from simulator.errors import InputError, Problem
from simulator.table import Floats, Integers


@dataclass(frozen=True, kw_only=True)
class Paths:
    """The links of p paths, path by path."""

    offsets: Integers
    """`(p + 1,)` where the links of a path begin in `links`."""
    links: Integers
    """Links in the order in which a flow crosses them."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def links_of(self, path: int) -> Integers:
        """Returns the links of one path."""
        return self.links[self.offsets[path] : self.offsets[path + 1]]

    def links_along(self, ways: Integers) -> Integers:
        """Returns the links of paths, one path after another."""
        first = self.offsets[:-1][ways.ravel()]
        sizes = self.offsets[1:][ways.ravel()] - first
        begin = np.repeat(first - (np.cumsum(sizes) - sizes), sizes)
        return np.asarray(self.links[begin + np.arange(len(begin))])

    def sums(self, per_link: Floats) -> Floats:
        """Returns the sum of a per-link column, `(l,)`, over each path, `(p,)`."""
        running = np.concatenate([[0.0], np.cumsum(per_link[self.links])])
        return np.asarray(running[self.offsets[1:]] - running[self.offsets[:-1]])

    def largest(self, per_link: Floats) -> Floats:
        """Returns the maximum of a per-link column, `(l,)`, over each path, `(p,)`; 0 for a path without links."""
        found = np.zeros(len(self))
        np.maximum.at(found, np.repeat(np.arange(len(self)), np.diff(self.offsets)), per_link[self.links])
        return found


@dataclass
class Router:
    """Finds paths through one network and numbers them; each pair of ends and salt is searched once."""

    topology: Topology
    _numbers: dict[tuple[int, int, int], int] = field(default_factory=dict)
    _ways: list[Integers] = field(default_factory=list)
    _latencies: list[float] = field(default_factory=list)
    _ramps: list[float] = field(default_factory=list)
    _latency_s: Floats = field(default_factory=lambda: np.empty(0))
    """All or the first of `_latencies`, as long as no way is asked for that came later."""
    _ramp_roots: Floats = field(default_factory=lambda: np.empty(0))
    """All or the first of `_ramps`, as long as no way is asked for that came later."""

    def paths(self, source: ArrayLike, target: ArrayLike, salt: ArrayLike = 0) -> Integers:
        """Returns the numbers `(k,)` of the paths between vertices; the arguments broadcast against each other.

        Raises:
            InputError: there is no path from one of the vertices to the other.
        """
        columns = [
            np.asarray(part, dtype=np.int64).ravel()
            for part in np.broadcast_arrays(source, target, np.asarray(salt) + self.topology.salt)
        ]
        keys = list(zip(*(column.tolist() for column in columns), strict=True))
        missing = sorted({key for key in keys if key not in self._numbers})
        if missing:
            self._find(np.array(missing, dtype=np.int64))
        return np.array([self._numbers[key] for key in keys], dtype=np.int64)

    def ways_between(self, source: Integers, target: Integers) -> tuple[Paths, Integers]:
        """Returns the distinct paths between vertices, and which of them each pair takes, `(k,)`; they get no numbers.

        Raises:
            InputError: there is no path from one of the vertices to the other.
        """
        size = self.topology.num_vertices
        pairs, taken = np.unique(source * size + target, return_inverse=True)
        rows = np.stack([pairs // size, pairs % size, np.full(len(pairs), self.topology.salt)], axis=1)
        return self._ways_of(rows.astype(np.int64)), taken

    def add_path(self, links: ArrayLike) -> int:
        """Adds a path that was chosen by hand, such as a circuit; returns its number."""
        way = np.asarray(links, dtype=np.int64)
        self._ways.append(way)
        self._latencies.append(float(self.topology.latency_s[way].sum()))
        self._ramps.append(float(self.topology.ramp_root[way].max(initial=0.0)))
        return len(self._ways) - 1

    def latency_s(self, paths: Integers) -> Floats:
        """Returns the latencies of paths, `(k,)`."""
        if len(self._latency_s) < len(self._latencies):
            self._latency_s = np.array(self._latencies)
        return self._latency_s[paths]

    def ramp_s(self, paths: Integers, num_bytes: ArrayLike) -> Floats:
        """Returns the ramp time of bytes that are sent in chunks, `(k,)`: 2 sqrt(ramp x), where they take x seconds."""
        if len(self._ramp_roots) < len(self._ramps):
            self._ramp_roots = np.array(self._ramps)
        return np.asarray(self._ramp_roots[paths] * np.sqrt(num_bytes))

    def table(self) -> Paths:
        """Returns all paths found so far."""
        offsets = np.cumsum([0, *(len(way) for way in self._ways)], dtype=np.int64)
        links = np.concatenate(self._ways) if self._ways else np.empty(0, np.int64)
        return Paths(offsets=offsets, links=links)

    def _find(self, wanted: Integers) -> None:
        """Numbers the paths of `(k, 3)` sources, targets and salts, which are sorted."""
        paths = self._ways_of(wanted)
        first = len(self._ways)
        self._ways += np.split(paths.links, paths.offsets[1:-1])
        self._latencies += paths.sums(self.topology.latency_s).tolist()
        self._ramps += paths.largest(self.topology.ramp_root).tolist()
        keys = zip(*(column.tolist() for column in wanted.T), strict=True)
        self._numbers.update(zip(keys, range(first, len(self._ways)), strict=True))

    def _ways_of(self, rows: Integers) -> Paths:
        """The paths of `(k, 3)` sources, targets and salts, which are sorted."""
        offsets, links = find_ways(rows, self._net)
        self._refuse_unreachable(rows, offsets)
        return Paths(offsets=offsets, links=links)

    def _refuse_unreachable(self, rows: Integers, offsets: Integers) -> None:
        has_none = (np.diff(offsets) == 0) & (rows[:, 0] != rows[:, 1])
        names = self.topology.vertex_names
        problems = [
            Problem(path="", value="", rule=f"no way leads from {names[source]} to {names[target]}")
            for source, target, _ in rows[has_none][:1].tolist()
        ]
        if problems:
            raise InputError(problems, source=f"network {self.topology.name!r}")

    @cached_property
    def _net(self) -> Net:
        return new_net(self.topology)
