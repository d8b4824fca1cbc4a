"""How is a sweep shown? One table for every point of the axes: sizes down, checkpoint schemes across."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, cast

from constraints.registry import CONSTRAINTS
from planner.job.named_model import told_changes
from planner.notes.step_note import StepNote, merged
from planner.sweep.axis_values import as_written
from planner.sweep.grid import Sweep
from planner.sweep.table import BROKEN, IS_FASTEST, MODEL, Row, can_run, step_notes_of
from planner.text import human
from planner.text.text_blocks import grid, headline, sentences, side_by_side, title
from simulator.units import MINUTE

if TYPE_CHECKING:
    from rich.console import Console


FIRST_COLUMNS = ("GPUs", "accelerator", "MFU", "time")
"""Columns in front of those of the schemes,"""
OTHER_COLUMNS = ("cost", "energy", "carbon")
"""and those beside them where axes, such as sites and prices, leave all the others as they are."""
NONE = "-"
"""The cell of a scheme that no layout supports."""
ELSEWHERE = "*"
"""Marks the cell of a scheme that the fastest layout does not support."""
NO_LAYOUT = "No layout keeps the layout rules and fits the memory"
HOW_TO_ASK = "; `capplan recommend` with that size says why."
"""How sizes without a layout are told: the memory is too small, or nothing splits the batch and the model over so many."""
LEAST_MINUTES = 0.1
"""Shorter intervals between saves, such as of one step, are told with one digit that is not 0."""
MOST_EMPTY = 10
"""Most sizes without a layout that are named."""


def show_sweep(sweep: Sweep, rows: list[Row], console: Console, *, is_whole: bool = True) -> None:
    """Writes the whole answer: the best goodput and interval of every scheme, and the sizes without a design.

    Args:
        sweep: the sweep.
        rows: its designs.
        console: where to write.
        is_whole: whether all sizes were tried.
    """
    num_designs = sum(map(can_run, rows))
    headline(console, f"{sweep.name}: {human.designs(num_designs)}", is_good=num_designs > 0)
    points = list(_points(sweep, rows))
    tables = [list(_table(sweep, point, has_others=False)) for _, point in points]
    if has_others := len(set(map(tuple, tables))) < len(tables):
        tables = [list(_table(sweep, point, has_others=True)) for _, point in points]
    for (name, _), lines in zip(points, tables, strict=True):
        title(console, name)
        for part in side_by_side(console, lines, num_first=len(_first_columns(has_others=has_others))):
            grid(console, part)
    cells = "Each cell: the highest goodput over all intervals (%), and its interval (minutes)."
    others = "Other figures are those of the fastest scheme; all:" if has_others else "Cost, energy, carbon:"
    notes = [f"{cells} {others} --output FILE.csv, --json."]
    if any(cell.endswith(ELSEWHERE) for lines in tables for line in lines for cell in line):
        notes.append(
            f"{ELSEWHERE} on the fastest layout that supports the scheme, which is not the fastest layout overall."
        )
    notes += _why_not(rows)
    notes += _models(rows)
    notes += _certainty(sweep, rows)
    if sweep.calibration:
        notes.append(f"With the constants of {sweep.calibration}.")
    if rows and is_whole and (empty := list(empty_points(sweep, rows))):
        more = f", and {human.count(len(empty) - MOST_EMPTY)} more" if len(empty) > MOST_EMPTY else ""
        notes.append(f"{NO_LAYOUT} at {', '.join(empty[:MOST_EMPTY])}{more}{HOW_TO_ASK}")
    sentences(console, ["", *notes] if rows else [f"{NO_LAYOUT} at any size{HOW_TO_ASK}"])


def empty_points(sweep: Sweep, rows: list[Row]) -> Iterator[str]:
    """Yields the sizes that have no design, with the values of the axes."""
    filled = {(*(str(row[axis]) for axis in sweep.axes), row["num_gpus"]) for row in rows}
    for values in product(*sweep.axes.values()):
        where = ", ".join(
            f"{axis} = {as_written(value)}" for axis, value in zip(sweep.axes, values, strict=True)
        )
        for size in sweep.num_gpus:
            if (*map(str, values), size) not in filled:
                yield f"{human.count(size)} GPUs" + (f" ({where})" if where else "")


def _why_not(rows: list[Row]) -> Iterator[str]:
    """Yields why schemes have no layout at some size, each constraint once."""
    schemes: dict[str, dict[str, None]] = {}
    for row in rows:
        if not can_run(row):
            schemes.setdefault(str(row[BROKEN]), {})[str(row["checkpoint_scheme"])] = None
    for rule, kept_out in schemes.items():
        tried = f"every layout of the search that fits violates {rule}"
        yield f"{NONE} {', '.join(kept_out)}: {tried}: {CONSTRAINTS[rule].sentence}."


def _models(rows: list[Row]) -> Iterator[str]:
    """Yields which models differ from known ones, and in what."""
    for model in dict.fromkeys(str(row.get(MODEL)) for row in rows if can_run(row)):
        yield from told_changes(model)


def _certainty(sweep: Sweep, rows: list[Row]) -> Iterator[str]:
    """Yields how well the steps are known, and each reason why some are known less well once; of which, unless of all."""
    designs = list(filter(can_run, rows))
    intervals = _grouped(designs, _interval)
    notes: dict[str, list[tuple[StepNote, Row]]] = {}
    for row in designs:
        for note in step_notes_of(row):
            notes.setdefault(note.sentence, []).append((note, row))
    if len(intervals) > 1:
        told = "; ".join(f"{interval} for {_which(sweep, some)}" for interval, some in intervals.items())
    else:
        told = "".join(intervals)
    if told:
        yield f"80 % interval of the step time, beside the simulated one: {told}."
    for found in notes.values():
        told, some = merged([note for note, _ in found]).text, [row for _, row in found]
        yield told if len(some) == len(designs) else f"{_which(sweep, some)}: {told}"


def _grouped(rows: Iterable[Row], key: Callable[[Row], str]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def _which(sweep: Sweep, rows: list[Row]) -> str:
    """How many designs these are, and where, if they share values of axes: `4 designs (workload.model = x)`."""
    shared = [axis for axis in sweep.axes if len(_grouped(rows, partial(_axes_of, [axis]))) == 1]
    return human.designs(len(rows)) + (f" ({_axes_of(shared, rows[0])})" if shared else "")


def _axes_of(axes: Iterable[str], row: Row) -> str:
    return ", ".join(f"{axis} = {as_written(row[axis])}" for axis in axes)


def _interval(row: Row) -> str:
    """How far the ends of the interval of a step are from it: `-4 % to +7 %`."""
    step_s = number(row, "step_time_s")
    low, high = (number(row, end) / step_s - 1.0 for end in ("step_time_low_s", "step_time_high_s"))
    return f"{human.signed_percent(low, num_decimals=0)} to {human.signed_percent(high, num_decimals=0)}"


def best_by_scheme(rows: list[Row]) -> dict[str, Row]:
    """Returns the row with the highest goodput for every checkpoint scheme that some layout supports."""
    best: dict[str, Row] = {}
    for row in filter(can_run, rows):
        scheme = str(row["checkpoint_scheme"])
        if scheme not in best or number(row, "goodput_fraction") > number(best[scheme], "goodput_fraction"):
            best[scheme] = row
    return best


def number(row: Row, name: str) -> float:
    """Returns a figure of a row."""
    return float(cast(float, row[name]))


def _points(sweep: Sweep, rows: list[Row]) -> Iterator[tuple[str, list[Row]]]:
    """The rows by the values of the axes, with a heading each."""
    for values, point in _grouped(rows, partial(_axes_of, sweep.axes)).items():
        yield f"at {values}" if values else "at every size", point


def _table(sweep: Sweep, rows: list[Row], *, has_others: bool) -> Iterator[tuple[str, ...]]:
    schemes = [scheme.value for scheme in sweep.checkpoint_schemes]
    yield *_first_columns(has_others=has_others), *schemes
    for size, here in _grouped(rows, lambda row: human.count(cast(int, row["num_gpus"]))).items():
        best = best_by_scheme(here)
        yield size, *_best_figures(best, has_others=has_others), *_cells(best, schemes)


def _first_columns(*, has_others: bool) -> tuple[str, ...]:
    return (*FIRST_COLUMNS, *OTHER_COLUMNS) if has_others else FIRST_COLUMNS


def _best_figures(best: Mapping[str, Row], *, has_others: bool) -> tuple[str, ...]:
    """Accelerator, MFU and time of the fastest scheme, and what else of it is asked for."""
    if not best:
        return (NONE,) * (len(_first_columns(has_others=has_others)) - 1)
    # Runs that never end are told apart by their goodput.
    first = min(
        best.values(),
        key=lambda row: (number(row, "time_to_train_days"), -number(row, "goodput_fraction")),
    )
    mfu, days = number(first, "mfu_fraction"), number(first, "time_to_train_days")
    known = (str(first["accelerator"]), human.percent(mfu), human.days(days))
    return (*known, *_others(first)) if has_others else known


def _others(row: Row) -> Iterator[str]:
    """Cost, energy and carbon; none of a run that never ends."""
    written = ((human.dollars, "cost_usd"), (human.energy, "energy_kwh"), (human.carbon, "carbon_kgco2e"))
    for write, name in written:
        yield write(number(row, name)) if math.isfinite(number(row, name)) else NONE


def _cells(best: Mapping[str, Row], schemes: Sequence[str]) -> Iterator[str]:
    for scheme in schemes:
        if scheme in best:
            yield _cell(best[scheme]) + ("" if best[scheme][IS_FASTEST] else ELSEWHERE)
        else:
            yield NONE


def _cell(row: Row) -> str:
    minutes = number(row, "used_interval_s") / MINUTE
    goodput = f"{number(row, 'goodput_fraction') * 100:.2f}"
    if not math.isfinite(minutes):
        return goodput
    return f"{goodput} {minutes:7,.1f}" if minutes >= LEAST_MINUTES else f"{goodput} {minutes:7.1g}"
