"""How does a browser draw the timeline of a step? As a trace in the format of chrome://tracing and ui.perfetto.dev.

Process 0 has one row for each stage: forwards, backwards, and what keeps the stage from them. Process 1 has the traffic
of the replicas, hidden or not, in one row for each stage, too; sends that block nobody are asynchronous events of it.
Times are in microseconds. Trace Event Format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

from planner import __version__
from simulator.errors import InputError, Problem
from simulator.pipeline_timeline import ALL, EventKind, StepTimeline
from simulator.units import MICROSECOND

HEAD = '{"otherData": {"producer": "capplan timeline"'
"""How every timeline begins, and no other file."""
STAGES, NETWORK = 0, 1
"""Numbers of the two processes."""
_DIGITS = 3

_Entry = dict[str, object]


def check_timeline_file(path: Path) -> None:
    """Raises `InputError` where a timeline cannot be written, or would replace something else than a timeline."""
    try:
        rule = _broken_rule(path)
    except OSError as error:  # such as a name that is too long
        rule = f"cannot be written: {error.strerror or error}"
    if rule:
        raise _problem(path, rule)


def _broken_rule(path: Path) -> str:
    if path.is_dir():
        return "is a folder: name a file in it"
    if not path.parent.is_dir():
        return f"the folder {path.parent} does not exist: make it first"
    if path.exists() and not _is_timeline(path):
        return "exists and is no timeline of capplan: choose another name"
    if not os.access(path.parent, os.W_OK | os.X_OK):
        return f"the folder {path.parent} cannot be written to"
    return ""


def write_timeline(timeline: StepTimeline, path: Path, *, job: str, plan: str) -> None:
    """Writes a timeline; an older one is replaced as a whole.

    Args:
        timeline: one step.
        path: the file.
        job: name of the job, for the head of the file.
        plan: the plan in words, for the same place.

    Raises:
        InputError: the file cannot be written, or is something else than a timeline.
    """
    check_timeline_file(path)
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("w", encoding="utf-8") as file:
            file.write(f'{HEAD}, "version": {json.dumps(__version__)}, ')
            file.write(f'"job": {json.dumps(job)}, "plan": {json.dumps(plan)}}},\n')
            file.write('"displayTimeUnit": "ms",\n"traceEvents": [\n')
            file.write(",\n".join(json.dumps(entry) for entry in _entries(timeline)))
            file.write("\n]}\n")
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise _problem(path, f"cannot be written: {error.strerror or error}") from None


def _is_timeline(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(HEAD)) == HEAD.encode()


def _entries(timeline: StepTimeline) -> Iterator[_Entry]:
    for process, name in ((STAGES, "stages"), (NETWORK, "network between replicas and stages")):
        yield {"ph": "M", "name": "process_name", "pid": process, "args": {"name": name}}
        for stage in range(timeline.num_stages):
            row = {"pid": process, "tid": stage}
            yield {"ph": "M", "name": "thread_name", **row, "args": {"name": f"stage {stage}"}}
            yield {"ph": "M", "name": "thread_sort_index", **row, "args": {"sort_index": stage}}
    columns = [column.tolist() for column in timeline.events.columns().values()]
    names = timeline.events.names()
    for number, values in enumerate(zip(*columns, strict=True)):
        yield from _event(number, dict(zip(names, values, strict=True)))


def _event(number: int, event: dict[str, float]) -> Iterator[_Entry]:
    kind = EventKind.from_code(int(event["kind"]))
    is_background = bool(event["is_background"])
    start_us, duration_us = _us(event["start_s"]), _us(event["end_s"] - event["start_s"])
    entry: _Entry = {
        "name": kind.value,
        "cat": "background" if is_background else "stage",
        "pid": NETWORK if is_background else STAGES,
        "tid": int(event["stage"]),
        "ts": start_us,
    }
    arguments: _Entry = {name: int(event[name]) for name in ("chunk", "micro_batch") if event[name] != ALL}
    if is_background and kind is EventKind.SEND:
        # Sends of one stage may overlap, which events of one row must not.
        yield {**entry, "ph": "b", "id": number, "args": arguments}
        yield {**entry, "ph": "e", "id": number, "ts": round(start_us + duration_us, _DIGITS)}
        return
    if not is_background:
        arguments |= {"exposed_communication_us": _us(event["communication_s"])}
    yield {**entry, "ph": "X", "dur": duration_us, "args": arguments}


def _us(seconds: float) -> float:
    return round(seconds / MICROSECOND, _DIGITS)


def _problem(path: Path, rule: str) -> InputError:
    return InputError([Problem(path="--timeline", value=str(path), rule=rule)])
