"""How does a played trace reach its reader? The answer as text or JSON, and its events as a file for viewers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from planner.deep.played_step import StepRun
    from simulator.record import Record


def tell_played(
    run: StepRun,
    answer: Record,
    show: Callable[[Console], None],
    *,
    about: Mapping[str, str],
    file: Path | None,
    as_json: bool,
) -> None:
    """Prints an answer, and writes the events behind it where they were asked for.

    Args:
        run: what was played.
        answer: what is said of it.
        show: prints the answer on a console.
        about: what the head of the file says of it.
        file: of the events; none by default.
        as_json: whether the answer is printed as JSON.

    Raises:
        InputError: the file cannot be written.
    """
    from planner.cli.terminal.output import tell, tell_timeline
    from planner.deep.events import trace_entries
    from planner.timeline.file import write_entries

    tell(answer, show, as_json=as_json)
    if file is not None:
        write_entries(file, about, trace_entries(run), option="--output")
        tell_timeline(file)
