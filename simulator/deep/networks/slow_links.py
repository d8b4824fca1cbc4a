"""Which links run below their bandwidth? Links are named by their ends, as people write them.

gpu:3-switch:0    a cable, both directions      gpu:3>switch:0    one direction
card:3            what leads from card 3 outward: to kinds of switches that come later in the network; where there are
                  none, as on a ring, all its cables
scale-up:3        the cable of accelerator 3 to the switch of its node
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from simulator.deep.networks.topologies import degraded
from simulator.deep.networks.topology import Topology
from simulator.errors import InputError, Problem
from simulator.table import Booleans, Integers

SCALE_UP, NODE_SWITCH = "scale-up", "nvswitch"
NO_VERTEX, NO_KIND = -1, -1
_END = r"[a-z][a-z_]*:\d{1,7}"
_ENDS = re.compile(rf"({_END})([->])({_END})", re.ASCII)
_ALONE = re.compile(rf"({SCALE_UP}:\d{{1,7}}|{_END})", re.ASCII)
EXAMPLES = "gpu:3-switch:0 (both ways), gpu:3>switch:0 (one way), card:3 or leaf:0"
"""Links as they are written."""


def ends_of(text: str) -> tuple[str, str, bool] | None:
    """Returns the two ends of a cable, and whether it covers both directions; `None` if the text names no cable."""
    match = _ENDS.fullmatch(text)
    return (match[1], match[3], match[2] == "-") if match else None


def vertex_of(end: str) -> str:
    """Returns the vertex name of an end such as `gpu:3`."""
    kind, _, number = end.partition(":")
    return f"{kind} {int(number)}"


def slowed(topology: Topology, shares: Mapping[str, float]) -> Topology:
    """Returns a network in which some links have only a share of their bandwidth; shares of overlapping names multiply.

    Args:
        topology: the network.
        shares: share by link name; above 0 and at most 1.

    Raises:
        InputError: a link does not exist or has two shares under the same name, or a share is out of range.
    """
    names, left, problems = LinkNames(topology), np.ones(topology.num_links), []
    first: dict[str, str] = {}
    for name, share in shares.items():
        links = names.links_of(name)
        usual = first.setdefault(_plain(name), name)
        if usual != name:
            problems.append(_broken(name, f"is {usual} by another name: give it one share"))
        elif not len(links):
            rule = f"is no link of network {topology.name!r}: name ends that are joined, such as {EXAMPLES}"
            problems.append(_broken(name, rule))
        left[links] *= share
    if problems:
        raise InputError(problems)
    return degraded(topology, np.arange(topology.num_links), left) if shares else topology


def shares_left(topology: Topology, names: Iterable[str]) -> dict[str, tuple[float, float]]:
    """Returns the lowest and the highest share of their bandwidth that the links of each name keep in a network.

    Args:
        topology: the network, with its slow links.
        names: names of links that it has; of equivalent names the first is kept.
    """
    links, left = LinkNames(topology), topology.bandwidth_bytes_per_s / topology.routed_bytes_per_s
    first: dict[str, str] = {}
    for name in names:
        first.setdefault(_plain(name), name)
    shares = {name: left[links.links_of(name)] for name in first.values()}
    return {name: (float(found.min()), float(found.max())) for name, found in shares.items()}


def _plain(name: str) -> str:
    """The canonical form of a name: numbers without leading zeros, the ends of a cable in order."""
    bare = re.sub(r":0*(\d)", r":\1", name, flags=re.ASCII)
    ends = ends_of(bare)
    return "-".join(sorted(ends[:2])) if ends is not None and ends[2] else bare


def _broken(name: str, rule: str) -> Problem:
    return Problem(path="slow_links", value=name[:60], rule=rule)


@dataclass(frozen=True)
class LinkNames:
    """Finds the links of a network by name; after construction, a look-up costs as much as its ends have links."""

    topology: Topology

    def links_of(self, name: str) -> Integers:
        """Returns the numbers of the links that a name stands for; none if there are no such links."""
        if (ends := ends_of(name)) is not None:
            one, other = (self._vertices.get(vertex_of(end), NO_VERTEX) for end in ends[:2])
            return self._between(one, other, is_both=ends[2])
        if _ALONE.fullmatch(name) is None:
            return np.empty(0, np.int64)
        if name.startswith(SCALE_UP):
            own = self._vertices.get(vertex_of(name.replace(SCALE_UP, "gpu")), NO_VERTEX)
            switch = self._kinds.get(NODE_SWITCH, NO_KIND)
            return self._touching(own, lambda place: place == switch)
        own = self._vertices.get(vertex_of(name), NO_VERTEX)
        here = self._kinds.get(name.partition(":")[0], 0)
        outwards = self._touching(own, lambda place: place > here)
        return outwards if len(outwards) else self._touching(own, lambda place: place >= 0)

    @cached_property
    def _vertices(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.topology.vertex_names)}

    @cached_property
    def _kinds(self) -> dict[str, int]:
        """Kinds of vertices, by their order in the network."""
        kinds = dict.fromkeys(_kind(name) for name in self.topology.vertex_names)
        return {kind: place for place, kind in enumerate(kinds)}

    @cached_property
    def _places(self) -> Integers:
        """`(v,)` position of each vertex's kind among the kinds."""
        return np.array([self._kinds[_kind(name)] for name in self.topology.vertex_names], dtype=np.int64)

    @cached_property
    def _leaving(self) -> _ByEnd:
        return _ByEnd.of(self.topology.source)

    @cached_property
    def _coming(self) -> _ByEnd:
        return _ByEnd.of(self.topology.target)

    def _between(self, one: int, other: int, *, is_both: bool) -> Integers:
        there, back = self._leaving.links_at(one), self._coming.links_at(one)
        found: Integers = there[self.topology.target[there] == other]
        if not is_both:
            return found
        return np.sort(np.concatenate([found, back[self.topology.source[back] == other]]))

    def _touching(self, own: int, is_wanted: Callable[[Integers], Booleans]) -> Integers:
        """Links, both ways, between a vertex and those of wanted kinds."""
        leaves, comes = self._leaving.links_at(own), self._coming.links_at(own)
        leaves = leaves[is_wanted(self._places[self.topology.target[leaves]])]
        comes = comes[is_wanted(self._places[self.topology.source[comes]])]
        return np.sort(np.concatenate([leaves, comes]))


@dataclass(frozen=True)
class _ByEnd:
    """Links by the vertex at one of their ends."""

    ends: Integers
    """`(l,)` vertices, the smallest first."""
    links: Integers
    """`(l,)` the links that have these ends."""

    @staticmethod
    def of(ends: Integers) -> _ByEnd:
        links = np.argsort(ends, kind="stable")
        return _ByEnd(ends[links], links)

    def links_at(self, vertex: int) -> Integers:
        begin, end = np.searchsorted(self.ends, [vertex, vertex + 1])
        return np.asarray(self.links[begin:end])


def _kind(vertex_name: str) -> str:
    return vertex_name.rpartition(" ")[0]
