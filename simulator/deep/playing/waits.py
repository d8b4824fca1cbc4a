"""What does every accelerator wait for? The gaps of its compute stream, along the chain of what ended last.

A task begins when the last of its predecessors has ended. If its accelerator is still at work then, it begins when the operator
before it has ended. From the end of a gap, the chain goes back to what ended last, to what that one waited for, and so on until
all of the gap is charged. Each second of the gap is charged to one flow, or to the computing of another accelerator. Two rules
make that fair:

    the end     traffic on its way to an accelerator after its last operator counts as waited for, too, as if one more operator
                were to come. Then the accelerator is done; while others are still at work it is idle.
    the mate    another accelerator that does the same operators is not to blame for those that took as long here, nor is
                traffic that was waited for as long here. Each is charged only for what it took longer, back to where that adds
                up to the gap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from simulator.compiled import compiled, compiled_uncounted
from simulator.deep.networks.routing import Paths
from simulator.deep.networks.topology import Topology
from simulator.deep.playing.play import Played
from simulator.deep.playing.play_kernel import SAME_TIME_FRACTION
from simulator.deep.playing.tasks import NONE, TaskGraph
from simulator.table import Floats, Integers


class Waits(NamedTuple):
    """How r accelerators spent their time, with p paths and k kinds of traffic."""

    busy_s: Floats
    """`(r,)` time spent computing."""
    for_traffic_s: Floats
    """`(r, k)` time spent waiting for flows, by their kind."""
    for_circuits_s: Floats
    """`(r,)` time spent waiting until flows have a circuit: for a port, and for the set-up."""
    for_others_s: Floats
    """`(r,)` time spent waiting for others that compute."""
    over_s: Floats
    """`(r,)` time after the accelerator is done, while others are still at work."""
    waited_for_s: Floats
    """`(r,)` how long others waited for this one's computing, summed over all of them."""
    pairs_s: Floats
    """`(r, r)` how long the first waited for the computing of the second; `(0, 0)` if not asked for."""
    path_s: Floats
    """`(p,)` how long accelerators waited for flows on each path, summed over all of them."""


@dataclass(frozen=True, kw_only=True)
class Accelerators:
    """What is known about the r accelerators of a graph, other than its tasks; resource i is accelerator i."""

    receiver: Integers
    """`(p,)` the accelerator that each path leads to, or `NONE`; what arrives there last is waited for."""
    team: Integers
    """`(r,)` those with the same number do the same operators in the same order."""
    is_paired: bool = False
    """Whether waits are recorded for each pair of accelerators."""


def of_stages(size: int, num_stages: int) -> Integers:
    """Returns the stage of each accelerator as its team, `(size,)`: those of a stage are next to each other."""
    return np.arange(size) // (size // num_stages)


def receivers(topology: Topology, paths: Paths) -> Integers:
    """Returns the accelerator that each path leads to, `(p,)`, `NONE` where it leads elsewhere."""
    found = np.full(len(paths), NONE, dtype=np.int64)
    has_links = np.diff(paths.offsets) > 0
    ends = topology.target[paths.links[paths.offsets[1:][has_links] - 1]]
    found[has_links] = np.where(ends < topology.num_ranks, ends, NONE)
    return found


def same_operators(graph: TaskGraph, played: Played) -> Integers:
    """Returns teams of accelerators whose operators have the same labels from the first to the last, `(r,)`."""
    order, first = _in_order(graph, played)
    teams: dict[bytes, int] = {}
    called = (graph.label[order[first[row] : first[row + 1]]].tobytes() for row in range(graph.num_resources))
    return np.array([teams.setdefault(names, len(teams)) for names in called], dtype=np.int64)


def waits(
    graph: TaskGraph,
    played: Played,
    num_paths: int,
    known: Accelerators | None = None,
    kinds: tuple[Integers, int] | None = None,
) -> Waits:
    """Returns what the accelerators of a played graph waited for.

    Args:
        graph: what was played; resource i is accelerator i.
        played: when its tasks ran.
        num_paths: number of paths of the network.
        known: what is known about the accelerators; default: none waits for what arrives last, and all do different work.
        kinds: kind of each task, `(n,)`, and the number of kinds; default: the labels of tasks.
    """
    size = graph.num_resources
    if known is None:
        known = Accelerators(receiver=np.full(num_paths, NONE), team=np.arange(size))
    kind, num_kinds = kinds or (graph.label, len(graph.labels))
    found = Waits(
        busy_s=np.zeros(size),
        for_traffic_s=np.zeros((size, num_kinds)),
        for_circuits_s=np.zeros(size),
        for_others_s=np.zeros(size),
        over_s=np.zeros(size),
        waited_for_s=np.zeros(size),
        pairs_s=np.zeros((size, size) if known.is_paired else (0, 0)),
        path_s=np.zeros(num_paths),
    )
    order, first = _in_order(graph, played)
    asked_s = played.start_s - played.circuit_wait_s if len(played.circuit_wait_s) else played.start_s
    place = _places(order, first, len(graph))
    latest = _latest(graph.offsets, graph.successors, played.ready_s, played.end_s, graph.path)
    queued = np.flatnonzero((graph.resource != NONE) & (asked_s > played.ready_s))
    began_before = _began_before(order, graph.resource, played.start_s)
    latest[queued] = began_before[first[graph.resource[queued]] + place[queued]]
    chain = _Chain(
        latest=latest,
        asked_s=asked_s,
        start_s=played.start_s,
        end_s=played.end_s,
        resource=graph.resource,
        path=graph.path,
        kind=kind,
        order=order,
        first=first,
        place=place,
        team=known.team,
    )
    last_arrivals = _last_arrivals(graph.path, played.end_s, known.receiver, size)
    _attribute(chain, last_arrivals, played.makespan_s, found)
    return found


def _in_order(graph: TaskGraph, played: Played) -> tuple[Integers, Integers]:
    """The operators of each accelerator in the order of their start, and where those of each begin, `(r + 1,)`."""
    order = np.flatnonzero(graph.resource != NONE)
    order = order[np.lexsort((order, played.end_s[order], played.start_s[order], graph.resource[order]))]
    counts = np.bincount(graph.resource[order], minlength=graph.num_resources)
    return order, np.concatenate([[0], np.cumsum(counts)])


def _began_before(order: Integers, resource: Integers, start_s: Floats) -> Integers:
    """For each operator in order: the last one that began earlier on its accelerator, or any where there is none.

    Of operators that take no time several can begin at one moment; going back to one of them could lead around in a circle.
    """
    places = np.arange(len(order))
    is_new = (np.diff(resource[order], prepend=NONE) != 0) | (np.diff(start_s[order], prepend=-1.0) != 0.0)
    return np.asarray(order[np.maximum.accumulate(np.where(is_new, places, 0)) - 1])


class _Chain(NamedTuple):
    """What was played, and which task each one waited for."""

    latest: Integers
    """`(n,)` the predecessor that ended last, or the operator before it if the accelerator was still at work then."""
    asked_s: Floats
    """`(n,)` when a flow asked for its circuit."""
    start_s: Floats
    end_s: Floats
    resource: Integers
    path: Integers
    kind: Integers
    order: Integers
    first: Integers
    place: Integers
    """`(n,)` number of operators of the accelerator before this one."""
    team: Integers


@compiled
def _latest(
    offsets: Integers, successors: Integers, ready_s: Floats, end_s: Floats, path: Integers
) -> Integers:
    """The predecessor of each task that ended last before it was ready, `NONE` if there is none.

    Of those that ended together, the one on the task's own path is taken: around a ring that runs evenly, every accelerator
    waits for the link that leads to it.
    """
    latest = np.full(len(end_s), NONE, dtype=np.int64)
    for task in range(len(end_s)):
        for place in range(offsets[task], offsets[task + 1]):
            after = successors[place]
            if end_s[task] > ready_s[after]:
                continue  # the task did not wait for all of its predecessors
            last_s = -1.0 if latest[after] == NONE else end_s[latest[after]]
            is_later = end_s[task] > last_s * (1.0 + SAME_TIME_FRACTION)
            is_equal = end_s[task] >= last_s * (1.0 - SAME_TIME_FRACTION)
            if is_later or (is_equal and path[task] != NONE and path[task] == path[after]):
                latest[after] = task
    return latest


@compiled
def _places(order: Integers, first: Integers, num_tasks: int) -> Integers:
    places = np.zeros(num_tasks, dtype=np.int64)
    for row in range(len(first) - 1):
        for place in range(first[row], first[row + 1]):
            places[order[place]] = place - first[row]
    return places


@compiled
def _last_arrivals(path: Integers, end_s: Floats, receiver: Integers, size: int) -> Integers:
    """The flow that arrives last at each accelerator, the first one of several, `NONE` if there is none."""
    last = np.full(size, NONE, dtype=np.int64)
    for task in range(len(path)):
        own = receiver[path[task]] if path[task] != NONE else NONE
        if own != NONE and own < size:
            last_s = -1.0 if last[own] == NONE else end_s[last[own]]
            if end_s[task] > last_s * (1.0 + SAME_TIME_FRACTION):
                last[own] = task
    return last


@compiled_uncounted
def _attribute(chain: _Chain, last_arrivals: Integers, makespan_s: float, found: Waits) -> None:
    """Goes through the operators of each accelerator in the order of their start, and behind the last of them."""
    for own in range(len(chain.first) - 1):
        done_s = 0.0
        for place in range(chain.first[own], chain.first[own + 1]):
            task = chain.order[place]
            _charge(chain, own, done_s, chain.start_s[task], chain.latest[task], found)
            found.busy_s[own] += chain.end_s[task] - chain.start_s[task]
            done_s = max(done_s, chain.end_s[task])
        arrival = last_arrivals[own]
        if arrival != NONE and chain.end_s[arrival] > done_s:
            _charge(chain, own, done_s, chain.end_s[arrival], arrival, found)
            done_s = chain.end_s[arrival]
        found.over_s[own] += makespan_s - done_s


@compiled_uncounted
def _charge(chain: _Chain, own: int, begin_s: float, until_s: float, cause: int, found: Waits) -> None:
    """Charges the gap of an accelerator, whose last cause ended at the end of it or before."""
    left_s, least_s = until_s - begin_s, SAME_TIME_FRACTION * until_s
    same_s = 0.0  # how long this accelerator waited before its own version of the mate's operator
    while cause != NONE and left_s > least_s:
        spent_s = max(0.0, until_s - chain.start_s[cause])
        other = chain.resource[cause]
        if chain.path[cause] != NONE:
            same_s, spent_s = max(0.0, same_s - spent_s), min(left_s, max(0.0, spent_s - same_s))
            found.for_traffic_s[own, chain.kind[cause]] += spent_s
            found.path_s[chain.path[cause]] += spent_s
        elif other not in (NONE, own):
            mate = _mate(chain, own, begin_s, cause)
            if mate != NONE:
                spent_s = _longer_s(chain, mate, cause, spent_s)
                same_s = _gap_before_s(chain, own, mate)
            spent_s = min(left_s, spent_s)
            found.for_others_s[own] += spent_s
            found.waited_for_s[other] += spent_s
            if len(found.pairs_s):
                found.pairs_s[own, other] += spent_s
        else:
            spent_s = 0.0
        left_s -= spent_s
        until_s = min(until_s, chain.start_s[cause])
        circuit_s = min(left_s, max(0.0, until_s - chain.asked_s[cause]))
        found.for_circuits_s[own] += circuit_s
        left_s -= circuit_s
        until_s = min(until_s, chain.asked_s[cause])
        cause = chain.latest[cause]
    if left_s > least_s:
        found.over_s[own] += left_s  # the chain has no earlier task


@compiled_uncounted
def _mate(chain: _Chain, own: int, begin_s: float, task: int) -> int:
    """An accelerator's own version of a teammate's operator, if it ended before the gap; `NONE` for any other task."""
    place = chain.first[own] + chain.place[task]
    if chain.team[chain.resource[task]] != chain.team[own] or place >= chain.first[own + 1]:
        return NONE
    mate = chain.order[place]
    return mate if chain.end_s[mate] <= begin_s else NONE


@compiled_uncounted
def _longer_s(chain: _Chain, mate: int, task: int, took_s: float) -> float:
    """How much longer an operator took than its mate."""
    longer_s = took_s - (chain.end_s[mate] - chain.start_s[mate])
    return longer_s if longer_s > SAME_TIME_FRACTION * chain.end_s[task] else 0.0


@compiled_uncounted
def _gap_before_s(chain: _Chain, own: int, task: int) -> float:
    """How long an accelerator waited before one of its operators."""
    place = chain.place[task]
    before_s = chain.end_s[chain.order[chain.first[own] + place - 1]] if place else 0.0
    return float(max(0.0, chain.start_s[task] - before_s))
