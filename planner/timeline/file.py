"""How is a timeline saved? As a trace that ui.perfetto.dev and chrome://tracing open; only older timelines are overwritten."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path

from planner import __version__
from planner.input.own_files import check_own_file, replacing
from planner.timeline.trace import Entry, run_entries, step_entries
from simulator.argument_names import Argument
from simulator.run_timeline import RunTimeline
from simulator.step.timeline import StepTimeline

HEAD = '{"otherData": {"producer": "capplan timeline"'
"""Every timeline begins like this, and no other file does."""
TIMELINE = Argument("timeline")
"""The argument that asks for a timeline in addition to an answer."""


def check_timeline_file(path: Path, option: str = TIMELINE) -> None:
    """Raises `InputError` if a timeline cannot be written, or would replace anything but a timeline."""
    check_own_file(path, "timeline", option, _is_timeline)


def write_timeline(
    path: Path,
    *,
    job: str,
    plan: str,
    step: StepTimeline | None = None,
    run: RunTimeline | None = None,
    option: str = TIMELINE,
) -> None:
    """Writes a timeline; an older one is replaced as a whole.

    Args:
        path: the file.
        job: name of the job, for the head of the file.
        plan: the plan in words, for the same place.
        step: one step.
        run: one run.
        option: by which the file was named, for the message of an error.

    Raises:
        InputError: the file cannot be written, or is something else than a timeline.
    """
    entries = chain(step_entries(step) if step else (), run_entries(run) if run else ())
    write_entries(path, {"job": job, "plan": plan}, entries, option=option)


def write_entries(path: Path, about: Mapping[str, str], entries: Iterable[Entry], *, option: str) -> None:
    """Writes events as a timeline, as `write_timeline` does.

    Args:
        path: the file.
        about: what the head of the file says about it.
        entries: the events.
        option: by which the file was named, for the message of an error.

    Raises:
        InputError: the file cannot be written, or is something else than a timeline.
    """
    check_timeline_file(path, option)
    head = {"version": __version__, **about}
    with replacing(path, option) as draft, draft.open("w", encoding="utf-8") as file:
        file.write(HEAD + "".join(f", {json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()))
        file.write('},\n"displayTimeUnit": "ms",\n"traceEvents": [\n')
        file.writelines(_lines(entries))
        file.write("\n]}\n")


def _lines(entries: Iterable[Entry]) -> Iterable[str]:
    """Yields one entry a line; JSON has no comma behind the last one."""
    separator = ""
    for entry in entries:
        yield separator + json.dumps(entry)
        separator = ",\n"


def _is_timeline(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(HEAD)) == HEAD.encode()
