"""What does every accelerator wait for? The gaps of its compute stream, along the chain of what ended last.

A task begins when the last of what it waits for has ended. From the end of a gap this goes back to that task, to what that
one waited for, and so on until the gap began: each second of a gap belongs to one flow, or to the computing of another
accelerator. Time after the last task of an accelerator is waited for nothing; the others are still at work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from simulator.compiled import compiled
from simulator.deep.play import Played
from simulator.deep.play_kernel import SAME_TIME_FRACTION
from simulator.deep.tasks import NONE, TaskGraph
from simulator.table import Floats, Integers


@dataclass(frozen=True, kw_only=True)
class Waits:
    """What became of the time of r accelerators, with p paths and l labels of tasks."""

    busy_s: Floats
    """`(r,)` computing."""
    for_traffic_s: Floats
    """`(r, l)` waiting for flows, by what these are called."""
    for_circuits_s: Floats
    """`(r,)` waiting until flows have a circuit: for a port, and for the set-up."""
    for_others_s: Floats
    """`(r,)` waiting for others that compute."""
    over_s: Floats
    """`(r,)` from the end of the last task to the end of all."""
    waited_for_s: Floats
    """`(r,)` how long others waited for this one's computing, all of them together."""
    path_s: Floats
    """`(p,)` how long accelerators waited for flows on each path, all of them together."""


def waits(graph: TaskGraph, played: Played, num_paths: int) -> Waits:
    """Returns what the accelerators of a played graph waited for; resource i is accelerator i."""
    size = graph.num_resources
    found = _Found(
        busy_s=np.zeros(size),
        for_traffic_s=np.zeros((size, len(graph.labels))),
        for_circuits_s=np.zeros(size),
        for_others_s=np.zeros(size),
        waited_for_s=np.zeros(size),
        path_s=np.zeros(num_paths),
        last_s=np.zeros(size),
    )
    order = np.flatnonzero(graph.resource != NONE)
    order = order[np.lexsort((order, played.end_s[order], played.start_s[order], graph.resource[order]))]
    asked_s = played.start_s - played.circuit_wait_s if len(played.circuit_wait_s) else played.start_s
    _attribute(
        order,
        latest_predecessors(graph, played),
        asked_s,
        played.start_s,
        played.end_s,
        graph.resource,
        graph.path,
        graph.label,
        found,
    )
    return Waits(
        busy_s=found.busy_s,
        for_traffic_s=found.for_traffic_s,
        for_circuits_s=found.for_circuits_s,
        for_others_s=found.for_others_s,
        over_s=played.makespan_s - found.last_s,
        waited_for_s=found.waited_for_s,
        path_s=found.path_s,
    )


def latest_predecessors(graph: TaskGraph, played: Played) -> Integers:
    """Returns the predecessor of each task that ended last, `(n,)`, `NONE` where there is none."""
    return np.asarray(_latest(graph.offsets, graph.successors, played.ready_s, played.end_s, graph.path))


class _Found(NamedTuple):
    busy_s: Floats
    for_traffic_s: Floats
    for_circuits_s: Floats
    for_others_s: Floats
    waited_for_s: Floats
    path_s: Floats
    last_s: Floats


@compiled
def _latest(
    offsets: Integers, successors: Integers, ready_s: Floats, end_s: Floats, path: Integers
) -> Integers:
    """The predecessor of each task that ended last before it was ready, `NONE` where there is none.

    Of those that ended together it is the one on the task's own path: around a ring that runs evenly every accelerator
    waits for the link that leads to it.
    """
    latest = np.full(len(end_s), NONE, dtype=np.int64)
    for task in range(len(end_s)):
        for place in range(offsets[task], offsets[task + 1]):
            after = successors[place]
            if end_s[task] > ready_s[after]:
                continue  # the task did not wait for all that come before it
            last_s = -1.0 if latest[after] == NONE else end_s[latest[after]]
            is_later = end_s[task] > last_s * (1.0 + SAME_TIME_FRACTION)
            is_equal = end_s[task] >= last_s * (1.0 - SAME_TIME_FRACTION)
            if is_later or (is_equal and path[task] != NONE and path[task] == path[after]):
                latest[after] = task
    return latest


@compiled
def _attribute(
    order: Integers,
    latest: Integers,
    asked_s: Floats,
    start_s: Floats,
    end_s: Floats,
    resource: Integers,
    path: Integers,
    label: Integers,
    found: _Found,
) -> None:
    """Goes through the tasks of each accelerator in the order of their start."""
    for task in order:
        own = resource[task]
        begin_s, until_s = found.last_s[own], start_s[task]
        found.busy_s[own] += end_s[task] - start_s[task]
        found.last_s[own] = max(found.last_s[own], end_s[task])
        cause = latest[task]
        while cause != NONE and until_s > begin_s:
            from_s = max(begin_s, min(until_s, start_s[cause]))
            spent_s = max(0.0, until_s - from_s)
            if path[cause] != NONE:
                found.for_traffic_s[own, label[cause]] += spent_s
                found.path_s[path[cause]] += spent_s
            elif resource[cause] != NONE and resource[cause] != own:
                found.for_others_s[own] += spent_s
                found.waited_for_s[resource[cause]] += spent_s
            until_s = max(begin_s, min(from_s, asked_s[cause]))
            found.for_circuits_s[own] += from_s - until_s
            cause = latest[cause]
