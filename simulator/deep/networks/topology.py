"""Which network do flows travel on? Vertices and directed links with bandwidth and latency.

A cable between two vertices is two links, one for each direction. Accelerators are the first vertices, in the order of
their ranks; the vertices after them forward traffic: switches and network cards. `simulator.deep.networks.topologies` builds
the usual networks.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.deep.networks.circuits import Circuits
from simulator.errors import InputError, Problem
from simulator.table import Booleans, Floats, Integers


@dataclass(frozen=True, kw_only=True)
class Topology:
    """A directed network of v vertices and l links."""

    name: str
    num_ranks: int
    """Number of accelerators: vertices 0 to num_ranks - 1."""
    vertex_names: tuple[str, ...]
    """`(v,)`."""
    forwards: Booleans
    """`(v,)` whether flows between others may pass through a vertex."""
    source: Integers
    """`(l,)` vertex at which a link begins."""
    target: Integers
    """`(l,)` vertex at which it ends."""
    bandwidth_bytes_per_s: Floats
    """`(l,)` bandwidth in the direction of the link."""
    latency_s: Floats
    """`(l,)` time until the first byte has crossed the link and the vertex behind it."""
    ramp_s: Floats
    """`(l,)` collectives that keep a link busy for x seconds take 2 sqrt(ramp x) longer (`simulator.machine.network`)."""
    ranks_per_node: int = 1
    """Number of consecutive accelerators that form a node: behind one switch, or in one row of a torus; 1: no nodes."""
    salt: int = 0
    """Salt of its switches' hash that chooses among paths of equal cost."""
    whole_bytes_per_s: Floats | None = None
    """`(l,)` bandwidth with nothing slow, by which paths are found; None: `bandwidth_bytes_per_s`."""
    circuits: Circuits | None = None
    """Circuits without which some links do not exist; None: all links always exist."""

    @property
    def num_vertices(self) -> int:
        """Number of accelerators, switches and cards."""
        return len(self.vertex_names)

    @property
    def num_links(self) -> int:
        """Number of directed links."""
        return len(self.source)

    @property
    def routed_bytes_per_s(self) -> Floats:
        """Bandwidth by which switches choose paths, `(l,)`; they do not know which links are slow."""
        return self.bandwidth_bytes_per_s if self.whole_bytes_per_s is None else self.whole_bytes_per_s

    @property
    def ramp_root(self) -> Floats:
        """Ramp time of collectives on each link per square root of their bytes: 2 sqrt(ramp / bandwidth), `(l,)`."""
        return np.asarray(2.0 * np.sqrt(self.ramp_s / self.bandwidth_bytes_per_s))

    def named(self, name: str, *, salt: int = 0) -> Topology:
        """Returns the same network under another name; with another salt, switches choose other paths of equal cost."""
        return replace(self, name=name, salt=salt)

    def with_ramp(self, ramp_s: ArrayLike) -> Topology:
        """Returns the same network with a ramp on its links, `(l,)` or one for all, by which small collectives lose time."""
        column = np.broadcast_to(np.asarray(ramp_s, dtype=np.float64), self.source.shape)
        return replace(self, ramp_s=column)

    def check_holds(self, num_gpus: int) -> None:
        """Raises `InputError` if it has fewer accelerators."""
        if num_gpus > self.num_ranks:
            rule = f"must be at most {self.num_ranks}, the accelerators of network {self.name!r}"
            raise InputError([Problem(path="num_gpus", value=str(num_gpus), rule=rule)])

    def link_name(self, link: int) -> str:
        """Returns a link as people write it, such as `gpu 3 -> switch 0`."""
        return f"{self.vertex_names[self.source[link]]} -> {self.vertex_names[self.target[link]]}"


_NO_LINKS = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0), np.empty(0))


@dataclass
class TopologyBuilder:
    """Collects vertices and links; `build` checks them and returns the network."""

    name: str
    _names: list[str] = field(default_factory=list)
    _forwards: list[bool] = field(default_factory=list)
    _parts: list[tuple[Integers, Integers, Floats, Floats]] = field(default_factory=list)
    _num_ranks: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """Vertices so far, by number."""
        return tuple(self._names)

    def add_ranks(self, count: int, *, forward: bool = False) -> Integers:
        """Adds accelerators, which must precede all other vertices; returns their vertices `(count,)`."""
        assert self._num_ranks == len(self._names), "accelerators are the first vertices"
        self._num_ranks += count
        return self.add("gpu", count, forward=forward)

    def add(self, kind: str, count: int = 1, *, forward: bool = True) -> Integers:
        """Adds vertices of a kind, numbered from 0 within it; returns them `(count,)`."""
        first = len(self._names)
        have = sum(name.startswith(f"{kind} ") for name in self._names) if self._names else 0
        self._names += [f"{kind} {number}" for number in range(have, have + count)]
        self._forwards += [forward] * count
        return np.arange(first, first + count)

    def connect(
        self,
        one: ArrayLike,
        other: ArrayLike,
        bandwidth_bytes_per_s: ArrayLike,
        latency_s: ArrayLike,
        *,
        both_ways: bool = True,
    ) -> None:
        """Joins vertices pair by pair; the arguments broadcast against each other."""
        parts = np.broadcast_arrays(one, other, bandwidth_bytes_per_s, latency_s)
        source, target = (part.ravel().astype(np.int64) for part in parts[:2])
        bandwidth, latency = (part.ravel().astype(np.float64) for part in parts[2:])
        self._parts.append((source, target, bandwidth, latency))
        if both_ways:
            self._parts.append((target, source, bandwidth, latency))

    def build(self, *, ranks_per_node: int = 1) -> Topology:
        """Returns the network.

        Args:
            ranks_per_node: number of consecutive accelerators that form a node.

        Raises:
            InputError: a link has no bandwidth, a negative latency, or ends where it begins.
        """
        source, target, bandwidth, latency = (
            np.concatenate(parts) for parts in zip(_NO_LINKS, *self._parts, strict=True)
        )
        problems = [
            *_problems(
                "bandwidth_bytes_per_s", bandwidth, ~(bandwidth > 0) | ~np.isfinite(bandwidth), "must be > 0"
            ),
            *_problems("latency_s", latency, ~(latency >= 0) | ~np.isfinite(latency), "must be >= 0"),
            *_problems("target", target, source == target, "a link must join two vertices"),
        ]
        if problems:
            raise InputError(problems, source=f"network {self.name!r}")
        return Topology(
            name=self.name,
            num_ranks=self._num_ranks,
            vertex_names=tuple(self._names),
            forwards=np.array(self._forwards, dtype=np.bool_),
            source=source,
            target=target,
            bandwidth_bytes_per_s=bandwidth,
            latency_s=latency,
            ramp_s=np.zeros(len(source)),
            ranks_per_node=ranks_per_node,
        )


def _problems(name: str, values: Floats | Integers, is_wrong: NDArray[np.bool_], rule: str) -> list[Problem]:
    """The first broken value of a column, if there is one."""
    rows = np.flatnonzero(is_wrong)
    return [Problem(path=f"links[{row}].{name}", value=str(values[row]), rule=rule) for row in rows[:1]]
