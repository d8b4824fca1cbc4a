"""Which trace entries draw a step and a run? Events in the Trace Event Format, times in microseconds.

    process 0   one row per stage: forwards, backwards, and everything that keeps the stage from them
    process 1   one row per stage: the traffic of the replicas, hidden or exposed; non-blocking sends are begin-end pairs
    process 2   one run: training and its interruptions in one row, saves in progress in another, as begin-end pairs

A step and a run both begin at zero, each on its own clock.
Trace Event Format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

from collections.abc import Iterator

from planner.text import human
from simulator.run_timeline import NUM_INTERRUPTIONS, RunEventKind, RunTimeline
from simulator.step.step_events import ALL, EXPOSED_NAMES, PASSES, EventKind
from simulator.step.timeline import StepTimeline
from simulator.units import MICROSECOND

STAGES, NETWORK, RUN = 0, 1, 2
"""Numbers of the processes."""
TRAINING_ROW, SAVES_ROW = 0, 1
"""Rows of a run."""
_STEP_DIGITS, _RUN_DIGITS = 3, 0
"""Decimal digits of microseconds; a double cannot resolve nanoseconds over a run of some months."""

Entry = dict[str, object]
"""One event of a trace."""


def step_entries(timeline: StepTimeline) -> Iterator[Entry]:
    """Yields the entries that draw one step."""
    for process, name in ((STAGES, "stages"), (NETWORK, "network between replicas and stages")):
        yield _process(process, name)
        for stage in range(timeline.num_stages):
            yield from _row(process, stage, f"stage {stage}")
    columns = [column.tolist() for column in timeline.events.columns().values()]
    names = timeline.events.names()
    for number, values in enumerate(zip(*columns, strict=True)):
        yield from _step_event(number, dict(zip(names, values, strict=True)))


def run_entries(run: RunTimeline) -> Iterator[Entry]:
    """Yields the entries that draw one run; interruptions are instant events."""
    yield _process(RUN, f"run (replication {run.replication} of seed {run.seed})")
    yield from _row(RUN, TRAINING_ROW, "training")
    yield from _row(RUN, SAVES_ROW, "saves on their way")
    columns = [column.tolist() for column in run.events.columns().values()]
    names = run.events.names()
    for number, values in enumerate(zip(*columns, strict=True)):
        yield from _run_event(number, dict(zip(names, values, strict=True)))


def _process(process: int, name: str) -> Entry:
    return {"ph": "M", "name": "process_name", "pid": process, "args": {"name": name}}


def _row(process: int, number: int, name: str) -> Iterator[Entry]:
    row = {"pid": process, "tid": number}
    yield {"ph": "M", "name": "thread_name", **row, "args": {"name": name}}
    yield {"ph": "M", "name": "thread_sort_index", **row, "args": {"sort_index": number}}


def _step_event(number: int, event: dict[str, float]) -> Iterator[Entry]:
    kind = EventKind.from_code(int(event["kind"]))
    is_background = bool(event["is_background"])
    entry: Entry = {
        "name": kind.value,
        "cat": "background" if is_background else "stage",
        "pid": NETWORK if is_background else STAGES,
        "tid": int(event["stage"]),
    }
    arguments: Entry = {name: int(event[name]) for name in ("chunk", "micro_batch") if event[name] != ALL}
    if is_background and kind is EventKind.SEND:
        yield from _pair(entry, number, event, arguments)
        return
    if kind in PASSES:
        arguments |= {f"{name.removesuffix('_s')}_us": microseconds(event[name]) for name in EXPOSED_NAMES}
    yield {**entry, **span_times(event["start_s"], event["end_s"]), "ph": "X", "args": arguments}


def _run_event(number: int, event: dict[str, float]) -> Iterator[Entry]:
    kind = RunEventKind.from_code(int(event["kind"]))
    is_background = bool(event["is_background"])
    entry: Entry = {
        "name": kind.value,
        "cat": "save" if is_background else "run",
        "pid": RUN,
        "tid": SAVES_ROW if is_background else TRAINING_ROW,
    }
    if kind.code < NUM_INTERRUPTIONS:
        lost = {"lost_work": human.duration(event["value_s"]), "lost_work_s": event["value_s"]}
        at_us = microseconds(event["start_s"], _RUN_DIGITS)
        yield {**entry, "cat": "interruption", "ph": "i", "s": "p", "ts": at_us, "args": lost}
    elif is_background:
        arguments: Entry = {"work_s": event["value_s"], "is_lost": bool(event["is_lost"])}
        yield from _pair(entry, number, event, arguments, _RUN_DIGITS)
    else:
        times = span_times(event["start_s"], event["end_s"], _RUN_DIGITS)
        yield {**entry, **times, "ph": "X", "args": {}}


def span_times(start_s: float, end_s: float, num_digits: int = _STEP_DIGITS) -> Entry:
    """Returns the start and the duration of a span in microseconds; it ends exactly where a span begins that follows at once.

    Both ends are rounded, not the duration: Perfetto drops spans that overlap another one of their row, even if only by the
    last digit (`slice_drop_overlapping_complete_event` of its trace processor).
    """
    start_us = microseconds(start_s, num_digits)
    return {"ts": start_us, "dur": round(microseconds(end_s, num_digits) - start_us, num_digits)}


def microseconds(seconds: float, num_digits: int = _STEP_DIGITS) -> float:
    """Returns a time in the unit of traces."""
    return round(seconds / MICROSECOND, num_digits)


def _pair(
    entry: Entry, number: int, event: dict[str, float], arguments: Entry, num_digits: int = _STEP_DIGITS
) -> Iterator[Entry]:
    """An asynchronous event: unlike spans, those of one row may overlap."""
    start_us, end_us = (microseconds(event[name], num_digits) for name in ("start_s", "end_s"))
    yield {**entry, "ts": start_us, "ph": "b", "id": number, "args": arguments}
    yield {**entry, "ts": end_us, "ph": "e", "id": number}
