"""Which paths are cheapest? Compiled: a search from each source that stops once it has reached its targets.

A dead end is a vertex that forwards to at most one other forwarding vertex, such as a network card, or one that forwards to
dead ends and one other vertex. No path passes through a dead end unless one of its ends hangs there. Searches skip all other
dead ends, so that their cost does not grow with the number of accelerators on a switch.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simulator.compiled import compiled, inner, inner_uncounted
from simulator.deep.networks.heap import pop, push
from simulator.deep.networks.topology import Topology
from simulator.mixing import GOLDEN, mixed
from simulator.table import Booleans, Floats, Integers

REFERENCE_BYTES = 2.0**20
"""Message whose time over a link is added to the link's latency to give its cost."""
EQUAL_COST_FRACTION = 1e-9
"""Paths whose costs differ by less are equally good."""
NO_VERTEX = -1


class Net(NamedTuple):
    """A network as a search reads it."""

    source: Integers
    target: Integers
    cost: Floats
    """`(l,)`."""
    out_offsets: Integers
    """`(v + 1,)` where the links that begin at a vertex begin in `by_source`."""
    core_offsets: Integers
    """`(v,)` where the links end that lead to a vertex that is no dead end, or to the root of a tree; they come first."""
    by_source: Integers
    in_offsets: Integers
    """`(v + 1,)` where the links that end at a vertex begin in `by_target`."""
    by_target: Integers
    forwards: Booleans
    parent: Integers
    """`(v,)` see `_parents`."""


class Scratch(NamedTuple):
    """Working arrays of a search; between two searches no vertex has a cost, is open or is a target."""

    own: Floats
    """`(v,)` lowest known cost from the source to each vertex; inf: not seen."""
    seen: Integers
    """`(v,)` the vertices that have one."""
    keys: Floats
    """`(l + 1,)` costs on the heap of `simulator.deep.networks.heap`."""
    items: Integers
    """`(l + 1,)` their vertices."""
    is_open: Booleans
    """`(v,)` whether it is an end of a path, or a dead end on which one hangs."""
    opened: Integers
    """`(v,)` the vertices that are open."""
    is_target: Booleans
    """`(v,)` whether it is still to be reached."""


def new_net(topology: Topology) -> Net:
    """Returns a network for `find_ways`; the cost of a link is its latency plus the time of a reference message."""
    source, target, size = topology.source, topology.target, topology.num_vertices
    parent = _parents(source, target, topology.forwards)
    is_core = (topology.forwards & ((parent == np.arange(size)) | (parent == NO_VERTEX)))[target]
    out_offsets = _offsets(source, size)
    return Net(
        source=source,
        target=target,
        cost=topology.latency_s + REFERENCE_BYTES / topology.routed_bytes_per_s,
        out_offsets=out_offsets,
        core_offsets=out_offsets[:-1] + np.bincount(source[is_core], minlength=size),
        by_source=np.lexsort((~is_core, source)).astype(np.int64),
        in_offsets=_offsets(target, size),
        by_target=np.argsort(target, kind="stable").astype(np.int64),
        forwards=topology.forwards,
        parent=parent,
    )


def _offsets(ends: Integers, num_vertices: int) -> Integers:
    return np.concatenate([[0], np.cumsum(np.bincount(ends, minlength=num_vertices))]).astype(np.int64)


def _parents(source: Integers, target: Integers, forwards: Booleans) -> Integers:
    """The only vertex through which a dead end is left, `(v,)`; a core vertex has itself, the root of a tree `NO_VERTEX`."""
    size = len(forwards)
    is_inner = forwards[source] & forwards[target]
    both = (
        np.concatenate([source[is_inner], target[is_inner]]),
        np.concatenate([target[is_inner], source[is_inner]]),
    )
    pairs = np.unique(both[0] * size + both[1])
    one, other = pairs // size, pairs % size
    offsets = _offsets(one, size)
    return _peeled(offsets, other, forwards, np.diff(offsets))


@compiled
def _peeled(offsets: Integers, neighbours: Integers, forwards: Booleans, left: Integers) -> Integers:
    """Peels off dead ends, including those that arise thereby; counts down the remaining neighbours in `left`."""
    size = len(forwards)
    parent = np.arange(size)
    line = np.empty(size, dtype=np.int64)
    end = 0
    for vertex in range(size):
        if forwards[vertex] and left[vertex] <= 1:
            line[end] = vertex
            end += 1
    is_off = np.zeros(size, dtype=np.bool_)
    begin = 0
    while begin < end:
        vertex = line[begin]
        begin += 1
        is_off[vertex] = True
        parent[vertex] = NO_VERTEX
        for place in range(offsets[vertex], offsets[vertex + 1]):
            other = neighbours[place]
            if not is_off[other]:
                parent[vertex] = other
                left[other] -= 1
                if left[other] == 1:
                    line[end] = other
                    end += 1
    return parent


@inner
def _new_scratch(net: Net) -> Scratch:
    num_vertices, most_entries = len(net.forwards), len(net.source) + 1
    return Scratch(
        own=np.full(num_vertices, np.inf),
        seen=np.empty(num_vertices, dtype=np.int64),
        keys=np.empty(most_entries),
        items=np.empty(most_entries, dtype=np.int64),
        is_open=np.zeros(num_vertices, dtype=np.bool_),
        opened=np.empty(num_vertices, dtype=np.int64),
        is_target=np.zeros(num_vertices, dtype=np.bool_),
    )


@compiled
def find_ways(rows: Integers, net: Net) -> tuple[Integers, Integers]:
    """Finds the paths of sorted sources, targets and salts `(k, 3)`; returns offsets and links of all.

    Searches from each source until all its targets are reached (Dijkstra), skipping dead ends on which no target hangs.
    """
    size, scratch = len(net.forwards), _new_scratch(net)
    way_offsets = np.zeros(len(rows) + 1, dtype=np.int64)
    found, num_found = np.empty(max(16, 8 * len(rows)), dtype=np.int64), 0
    row = 0
    while row < len(rows):
        start, stop = rows[row, 0], row
        while stop < len(rows) and rows[stop, 0] == start:
            stop += 1
        num_seen = _search(rows[row:stop, 1], start, net, scratch)
        seen = scratch.seen[:num_seen]
        for wanted in range(row, stop):
            if num_found + size > len(found):
                found = np.concatenate((found, np.empty(len(found) + size, dtype=np.int64)))
            num_found = _walk(rows[wanted], net, scratch.own, seen, found, num_found)
            way_offsets[wanted + 1] = num_found
        for vertex in seen:
            scratch.own[vertex] = np.inf
        row = stop
    return way_offsets, found[:num_found].copy()


@inner_uncounted
def _search(targets: Integers, start: int, net: Net, scratch: Scratch) -> int:
    """Records lowest costs from a vertex until all targets are reached; returns how many vertices it has seen."""
    own, keys, items, is_target = scratch.own, scratch.keys, scratch.items, scratch.is_target
    num_open = _open(net, start, scratch, 0)
    num_left = 0
    for target in targets:
        num_open = _open(net, target, scratch, num_open)
        if not is_target[target] and target != start:
            is_target[target] = True
            num_left += 1
    own[start], scratch.seen[0], num_seen = 0.0, start, 1
    heap_size = push(keys, items, 0, 0.0, start)
    while heap_size > 0 and num_left > 0:
        cost, vertex = keys[0], items[0]
        heap_size = pop(keys, items, heap_size)
        if cost > own[vertex]:
            continue
        if is_target[vertex]:
            is_target[vertex] = False
            num_left -= 1
        if net.forwards[vertex] or vertex == start:
            heap_size, num_seen = _reach(vertex, net, scratch, num_open, num_seen, heap_size)
    for vertex in scratch.opened[:num_open]:
        scratch.is_open[vertex] = False
    for target in targets:
        is_target[target] = False
    return num_seen


@inner_uncounted
def _reach(
    vertex: int, net: Net, scratch: Scratch, num_open: int, num_seen: int, heap_size: int
) -> tuple[int, int]:
    """Crosses the links of a vertex to vertices that are no dead ends or are open; returns what `_cross` does.

    Links to open vertices are found among its other links, or among those that end at open vertices, whichever are fewer.
    """
    for place in range(net.out_offsets[vertex], net.core_offsets[vertex]):
        heap_size, num_seen = _cross(net.by_source[place], net, scratch, num_seen, heap_size)
    num_into_open = 0
    for end in scratch.opened[:num_open]:
        num_into_open += net.in_offsets[end + 1] - net.in_offsets[end]
    if net.out_offsets[vertex + 1] - net.core_offsets[vertex] <= num_into_open:
        for place in range(net.core_offsets[vertex], net.out_offsets[vertex + 1]):
            link = net.by_source[place]
            if scratch.is_open[net.target[link]]:
                heap_size, num_seen = _cross(link, net, scratch, num_seen, heap_size)
        return heap_size, num_seen
    for end in scratch.opened[:num_open]:
        for place in range(net.in_offsets[end], net.in_offsets[end + 1]):
            link = net.by_target[place]
            if net.source[link] == vertex:
                heap_size, num_seen = _cross(link, net, scratch, num_seen, heap_size)
    return heap_size, num_seen


@inner_uncounted
def _cross(link: int, net: Net, scratch: Scratch, num_seen: int, heap_size: int) -> tuple[int, int]:
    """Records the cost of crossing a link; returns the new number of heap entries and of seen vertices."""
    own, behind = scratch.own, net.target[link]
    cost = own[net.source[link]] + net.cost[link]
    if cost < own[behind]:
        if np.isinf(own[behind]):
            scratch.seen[num_seen] = behind
            num_seen += 1
        own[behind] = cost
        heap_size = push(scratch.keys, scratch.items, heap_size, cost, behind)
    return heap_size, num_seen


@inner_uncounted
def _open(net: Net, vertex: int, scratch: Scratch, num_open: int) -> int:
    """Opens an end of a path, and the dead ends on which it hangs; returns how many vertices are open."""
    num_open = _open_up(net, vertex, scratch, num_open)
    for place in range(net.out_offsets[vertex], net.out_offsets[vertex + 1]):
        num_open = _open_up(net, net.target[net.by_source[place]], scratch, num_open)
    for place in range(net.in_offsets[vertex], net.in_offsets[vertex + 1]):
        num_open = _open_up(net, net.source[net.by_target[place]], scratch, num_open)
    if not (scratch.is_open[vertex] or net.forwards[vertex]):
        num_open = _note_open(vertex, scratch, num_open)
    return num_open


@inner_uncounted
def _open_up(net: Net, vertex: int, scratch: Scratch, num_open: int) -> int:
    while (
        net.forwards[vertex] and net.parent[vertex] not in (vertex, NO_VERTEX) and not scratch.is_open[vertex]
    ):
        num_open = _note_open(vertex, scratch, num_open)
        vertex = net.parent[vertex]
    return num_open


@inner_uncounted
def _note_open(vertex: int, scratch: Scratch, num_open: int) -> int:
    scratch.is_open[vertex] = True
    scratch.opened[num_open] = vertex
    return num_open + 1


@inner
def _walk(row: Integers, net: Net, own: Floats, seen: Integers, found: Integers, first: int) -> int:
    """Walks from a target back to its source, over links of a cheapest path; returns where the path ends.

    There is none if costs are so far apart that the smallest is lost when added to the largest (2^53 times).
    """
    start, vertex, salt, end = row[0], row[1], row[2], first
    while vertex != start and np.isfinite(own[vertex]):
        chosen, num_equal = NO_VERTEX, 0
        for link in _links_into(vertex, net, seen):
            if not _is_cheapest(link, vertex, start, net, own):
                continue
            num_equal += 1
            if _hash(start, row[1], salt, vertex, num_equal) % num_equal == 0:
                chosen = link  # reservoir sampling: each of the equal links has the same probability
        if chosen == NO_VERTEX:
            return first
        found[end] = chosen
        end += 1
        vertex = net.source[chosen]
    for place in range((end - first) // 2):
        other = end - 1 - place
        found[first + place], found[other] = found[other], found[first + place]
    return end


@inner
def _is_cheapest(link: int, vertex: int, start: int, net: Net, own: Floats) -> bool:
    """Returns whether a link to a vertex is on one of the cheapest paths there from the source.

    Only links from nearer to the source count: one that costs next to nothing could lead around in a circle.
    """
    before = net.source[link]
    is_open = before == start or net.forwards[before]
    is_equal = own[before] + net.cost[link] <= own[vertex] * (1.0 + EQUAL_COST_FRACTION)
    return bool(is_open and is_equal and own[before] < own[vertex])


@inner
def _links_into(vertex: int, net: Net, seen: Integers) -> Integers:
    """Returns links that end at a vertex, by number: all, or only those from seen vertices if that is far fewer.

    A switch with 10,000 accelerators has as many links that end there, but a search that reached few of them saw few.
    """
    into = net.by_target[net.in_offsets[vertex] : net.in_offsets[vertex + 1]]
    if len(into) <= len(seen):
        return into
    num_out = 0
    for before in seen:
        if before != vertex:
            num_out += net.out_offsets[before + 1] - net.out_offsets[before]
    if len(into) <= num_out:
        return into
    found, count = np.empty(num_out, dtype=np.int64), 0
    for before in seen:
        if before != vertex:
            for link in net.by_source[net.out_offsets[before] : net.out_offsets[before + 1]]:
                if net.target[link] == vertex:
                    found[count] = link
                    count += 1
    return np.sort(found[:count])


@inner
def _hash(first: int, second: int, salt: int, vertex: int, serial: int) -> int:
    """A well-mixed non-negative integer of its arguments."""
    value = np.uint64(salt)
    for part in (first, second, vertex, serial):
        value = mixed((value ^ np.uint64(part)) * GOLDEN)
    return int(value >> np.uint64(1))
