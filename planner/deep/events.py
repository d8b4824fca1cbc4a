"""Which trace entries draw a traced step on many accelerators? Operators and messages in the Trace Event Format.

process 0   one row per accelerator: its operators
process 1   one row per accelerator: the messages that it sends, as begin-end pairs because many are in flight at once
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from planner.deep.played_step import StepRun
from planner.input.own_files import OUTPUT
from planner.text import human
from planner.timeline.trace import Entry, microseconds, span_times
from simulator.deep.playing.tasks import NONE, TaskGraph
from simulator.errors import InputError, Problem

COMPUTE, NETWORK = 0, 1
"""Numbers of the processes."""
MOST_EVENTS = 1_000_000
"""A viewer does not open larger files."""


def check_size(graph: TaskGraph, argument: str = OUTPUT) -> None:
    """Raises `InputError`, naming the argument that asked for it, if a step has more events than a viewer opens."""
    check_num_events(len(graph), graph.num_resources, argument)


def check_num_events(num_events: int, num_accelerators: int, argument: str = OUTPUT) -> None:
    """Raises `InputError` as `check_size` does, from what is known about a step before it is built."""
    if num_events > MOST_EVENTS:
        whose = human.counted(num_accelerators, "accelerator")
        rule = (
            f"would hold {num_events:,} events of {whose}, and viewers open {MOST_EVENTS:,}: take fewer accelerators or"
            " micro-batches, or leave it out for the answer alone"
        )
        raise InputError([Problem(path=argument, value="", rule=rule)])


def trace_entries(run: StepRun, names: Sequence[str] | None = None) -> Iterator[Entry]:
    """Yields the entries that draw a step; rows have the given names, or the numbers of the accelerators."""
    rows = names or [f"accelerator {rank}" for rank in range(run.graph.num_resources)]
    for process, name in ((COMPUTE, "operators"), (NETWORK, "messages")):
        yield {"ph": "M", "name": "process_name", "pid": process, "args": {"name": name}}
        for rank, called in enumerate(rows):
            row = {"pid": process, "tid": rank}
            yield {"ph": "M", "name": "thread_name", **row, "args": {"name": called}}
    yield from _operators(run)
    yield from _messages(run)


def _operators(run: StepRun) -> Iterator[Entry]:
    graph, played = run.graph, run.played
    for task in np.flatnonzero(graph.resource != NONE).tolist():
        yield {
            "ph": "X",
            "name": graph.label_of(task),
            "cat": "operator",
            **span_times(float(played.start_s[task]), float(played.end_s[task])),
            "pid": COMPUTE,
            "tid": int(graph.resource[task]),
        }


def _messages(run: StepRun) -> Iterator[Entry]:
    graph, played = run.graph, run.played
    for task in np.flatnonzero(graph.path != NONE).tolist():
        links = run.paths.links_of(int(graph.path[task]))
        if not len(links):
            continue
        source, target = int(run.topology.source[links[0]]), int(run.topology.target[links[-1]])
        # What comes from a memory has the row it goes to.
        row = source if source < run.topology.num_ranks else target
        about = {"name": graph.label_of(task), "cat": "message", "id": task, "pid": NETWORK, "tid": row}
        told = {"to": target, "bytes": float(graph.num_bytes[task])}
        yield {"ph": "b", "ts": microseconds(float(played.start_s[task])), **about, "args": told}
        yield {"ph": "e", "ts": microseconds(float(played.end_s[task])), **about}
