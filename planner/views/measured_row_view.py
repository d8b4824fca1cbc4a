"""How does a person read one measured row? Its error, how it was read, and the parts of its simulated step and memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from planner.job.row_job import LAST_IN_PART, simulate_command
from planner.measured.rows import Unmodelled
from planner.measured.runs import remarks_of
from planner.one_design.measured_row import MeasuredRow
from planner.one_design.simulated_design import SimulatedDesign
from planner.one_design.stage_memory import stage_rows
from planner.recommended.design_words import step_breakdowns
from planner.text import human
from planner.text.text_blocks import bar, command_line, grid, headline, sentences, title
from planner.timeline.view import show_timeline
from planner.validation.comparison import Entry, Modelled
from simulator.step.timeline import StepTimeline

if TYPE_CHECKING:
    from rich.console import Console


def show_measured_row(
    entry: Entry, answer: MeasuredRow, console: Console, *, step: StepTimeline | None, file: Path | None
) -> None:
    """Writes all that is known of one row.

    Args:
        entry: the row with its prediction, or with the reason why there is none.
        answer: how it was read and simulated.
        console: where to.
        step: one step, to draw as a timeline.
        file: job file that was written for the row.
    """
    if isinstance(entry, Unmodelled):
        headline(console, f"Not modelled: {entry.row_id} of {entry.group}", is_good=False)
        sentences(console, [entry.reason])
        return
    row = entry.comparison.row
    where = f"{row['model']} on {human.count(float(row['num_gpus']))} x {row['accelerator']}"
    is_good = entry.is_inside or not entry.comparison.is_timed
    headline(console, f"{row['row_id']} of {row['group']}: {where}", is_good=is_good)
    _show_errors(entry, console, has_parts=answer.simulated is not None)
    title(console, "how the row was read")
    grid(console, _cells(answer, row["assumed"].split()))
    if said := [*remarks_of(row), *filter(None, [row.get("notes")])]:
        title(console, "remarks and notes")
        sentences(console, said)
    if answer.simulated:
        _show_parts(answer.simulated, console)
    else:
        title(console, "parts of the step")
        sentences(console, [f"Not shown: {LAST_IN_PART}."])
    if step:
        show_timeline(step, console)
    if file:
        title(console, "as a job")
        command_line(console, simulate_command(row, file))


def _show_errors(entry: Modelled, console: Console, *, has_parts: bool) -> None:
    found, interval = entry.comparison, entry.interval
    fleet = ", with the stragglers of a usual fleet" if found.is_production else ""
    published_bytes = float(found.row["peak_memory_bytes"] or math.nan)
    title(console, "measured and simulated")
    grid(
        console,
        [
            _line("step time", found.measured_s, found.expected_s, human.duration, fleet),
            _line(
                f"memory, {found.memory_kind}",
                published_bytes,
                found.comparable_memory_bytes,
                human.memory,
                "" if found.has_memory_verdict else ", not comparable",
            ),
        ],
    )
    range_s = f"{human.duration(interval.low_s)} to {human.duration(interval.high_s)}"
    verdict = ""
    if found.is_timed:
        verdict = f"; the measured one is {'inside' if entry.is_inside else 'outside'}"
    told = [f"80 % interval of the step time: {range_s}{verdict}."]
    if found.ran_out_of_memory:
        told.append("The measured run ran out of memory.")
    planned = f"{human.memory(found.planned_memory_bytes)} of {human.memory(found.capacity_bytes)}"
    parts = "; the parts below add up to that" if has_parts else ""
    told.append(f"As a plan it is judged by {planned}, with the allocator's waste{parts}.")
    sentences(console, told)


def _line(
    name: str, measured: float, simulated: float, unit: Callable[[float], str], simulated_as: str
) -> tuple[str, str, str, str]:
    """Returns a quantity that was measured or not, and its simulation."""
    told = f"{unit(simulated)} simulated{simulated_as}"
    if math.isnan(measured):
        return name, "not measured", told, ""
    return name, f"{unit(measured)} measured", told, human.signed_percent(simulated / measured - 1.0)


def _cells(answer: MeasuredRow, assumed: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yields how the row was read, and what else it leaves open."""
    for cell in answer.cells:
        yield cell.field, cell.value, "assumed" if cell.is_assumed else ""
    known = {cell.field for cell in answer.cells}
    yield from ((name, "", "assumed") for name in assumed if name not in known)


def _show_parts(simulated: SimulatedDesign, console: Console) -> None:
    """Shows where memory and time of the simulated step go, or what the plan breaks."""
    if simulated.design is None:
        title(console, "violated constraints")
        sentences(console, [violation.sentence for violation in simulated.violations])
        return
    for part in step_breakdowns(simulated.design):
        title(console, part.title)
        grid(console, [(*cells[:2], human.percent(cells[2]), bar(console, cells[2])) for cells in part.parts])
    title(console, "memory per stage")
    grid(console, stage_rows(simulated.stage_memory))
