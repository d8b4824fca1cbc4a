"""Which links have less than their bandwidth? Links by the names of their ends, as people write them.

gpu:3-switch:0    a cable, both ways        gpu:3>switch:0    in one direction
card:3            what leads from card 3 further out: to kinds of switches that come later in the network; where there
                  are none, as on a ring, all its cables
scale-up:3        the cable of accelerator 3 to the switch of its node
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import numpy as np

from simulator.deep.topologies import degraded
from simulator.deep.topology import Topology
from simulator.errors import InputError, Problem
from simulator.table import Integers

SCALE_UP, NODE_SWITCH = "scale-up", "nvswitch"
_END = r"[a-z][a-z_]*:\d{1,7}"
_ENDS = re.compile(rf"({_END})([->])({_END})", re.ASCII)
_ALONE = re.compile(rf"({SCALE_UP}:\d{{1,7}}|{_END})", re.ASCII)
EXAMPLES = "gpu:3-switch:0 (both ways), gpu:3>switch:0 (one way), card:3 or leaf:0"
"""Links as they are written."""


def ends_of(text: str) -> tuple[str, str, bool] | None:
    """Returns the two ends of a cable, and whether it leads both ways; `None` where the text is none."""
    match = _ENDS.fullmatch(text)
    return (match[1], match[3], match[2] == "-") if match else None


def is_link(text: str) -> bool:
    """Returns whether a text could name a link of some network."""
    return ends_of(text) is not None or _ALONE.fullmatch(text) is not None


def vertex_of(end: str) -> str:
    """Returns what an end such as `gpu:3` is called in a network."""
    kind, _, number = end.partition(":")
    return f"{kind} {int(number)}"


def slowed(topology: Topology, shares: Mapping[str, float]) -> Topology:
    """Returns a network some of whose links have only a share of their bandwidth.

    Args:
        topology: the network.
        shares: by link; above 0 and at most 1.

    Raises:
        InputError: a link does not exist, or a share is none.
    """
    problems = []
    for name, share in shares.items():
        links = links_of(topology, name)
        if len(links):
            topology = degraded(topology, links, share)
            continue
        rule = f"is no link of network {topology.name!r}: name ends that are joined, such as {EXAMPLES}"
        problems.append(Problem(path="slow_links", value=name[:60], rule=rule))
    if problems:
        raise InputError(problems)
    return topology


def links_of(topology: Topology, name: str) -> Integers:
    """Returns the numbers of the links that a name stands for, none where there are no such links."""
    numbers = {vertex: number for number, vertex in enumerate(topology.vertex_names)}
    if (ends := ends_of(name)) is not None:
        one, other = (numbers.get(vertex_of(end), -1) for end in ends[:2])
        return _between(topology, one, other, is_both=ends[2])
    if _ALONE.fullmatch(name) is None:
        return np.empty(0, np.int64)
    if name.startswith(SCALE_UP):
        own = numbers.get(vertex_of(name.replace(SCALE_UP, "gpu")), -1)
        return _touching(topology, own, lambda kind: kind == NODE_SWITCH)
    own = numbers.get(vertex_of(name), -1)
    kinds = list(dict.fromkeys(_kinds(topology)))
    place = {kind: number for number, kind in enumerate(kinds)}
    here = place.get(name.partition(":")[0], 0)
    outwards = _touching(topology, own, lambda kind: place[kind] > here)
    return outwards if len(outwards) else _touching(topology, own, lambda _: True)


def _between(topology: Topology, one: int, other: int, *, is_both: bool) -> Integers:
    is_found = (topology.source == one) & (topology.target == other)
    if is_both:
        is_found |= (topology.source == other) & (topology.target == one)
    return np.flatnonzero(is_found)


def _touching(topology: Topology, own: int, is_wanted: Callable[[str], bool]) -> Integers:
    """Links, both ways, between a vertex and those of wanted kinds."""
    wanted = np.array([is_wanted(kind) for kind in _kinds(topology)], dtype=np.bool_)
    leaves = (topology.source == own) & wanted[topology.target]
    comes = (topology.target == own) & wanted[topology.source]
    return np.flatnonzero(leaves | comes)


def _kinds(topology: Topology) -> list[str]:
    return [name.rpartition(" ")[0] for name in topology.vertex_names]
