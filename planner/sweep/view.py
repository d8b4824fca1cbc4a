"""How does a person read a sweep? For every point of the axes one table: sizes down, checkpoint schemes across."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, cast

from planner import human
from planner.sweep.grid import Sweep, as_written
from planner.sweep.table import Row
from planner.text_blocks import grid, headline, sentences, title
from simulator.units import MINUTE

if TYPE_CHECKING:
    from rich.console import Console


MOST_EMPTY = 10
"""Sizes without a layout that are named."""


def show_sweep(sweep: Sweep, rows: list[Row], console: Console, *, is_whole: bool = True) -> None:
    """Writes the whole answer: of every scheme the interval of the largest goodput, and the sizes that have no design.

    Args:
        sweep: what was asked.
        rows: its designs.
        console: where to write.
        is_whole: whether all sizes were tried.
    """
    headline(console, f"{sweep.name}: {human.designs(len(rows))}", is_good=bool(rows))
    for name, point in _points(sweep, rows):
        title(console, name)
        grid(console, _table(sweep, point))
    notes = ["Each cell: the largest goodput of all intervals in per cent, and that interval in minutes."]
    if sweep.calibration:
        notes.append(f"With the constants of {sweep.calibration}.")
    if rows and is_whole and (empty := list(empty_points(sweep, rows))):
        more = f", and {human.count(len(empty) - MOST_EMPTY)} more" if len(empty) > MOST_EMPTY else ""
        notes.append(f"No layout fits the memory at {', '.join(empty[:MOST_EMPTY])}{more}.")
    sentences(console, ["", *notes] if rows else ["No layout fits the memory at any size."])


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


def best_by_scheme(rows: list[Row]) -> dict[str, Row]:
    """Returns for every checkpoint scheme the row of the largest goodput."""
    best: dict[str, Row] = {}
    for row in rows:
        scheme = str(row["checkpoint_scheme"])
        if scheme not in best or number(row, "goodput_fraction") > number(best[scheme], "goodput_fraction"):
            best[scheme] = row
    return best


def number(row: Row, name: str) -> float:
    """Returns a figure of a row."""
    return float(cast(float, row[name]))


def _points(sweep: Sweep, rows: list[Row]) -> Iterator[tuple[str, list[Row]]]:
    """The rows by the values of the axes, with a heading each."""
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(f"{axis} = {as_written(row[axis])}" for axis in sweep.axes), []).append(row)
    for key, point in found.items():
        yield f"at {', '.join(key)}" if key else "at every size", point


def _table(sweep: Sweep, rows: list[Row]) -> Iterator[tuple[str, ...]]:
    schemes = [scheme.value for scheme in sweep.checkpoint_schemes]
    yield "GPUs", "MFU", "time", *schemes
    sizes: dict[tuple[object, object], list[Row]] = {}
    for row in rows:
        sizes.setdefault((row["num_gpus"], row["accelerator"]), []).append(row)
    for here in sizes.values():
        best = best_by_scheme(here)
        fastest = max(best.values(), key=lambda row: number(row, "goodput_fraction"))
        yield (
            human.count(number(fastest, "num_gpus")),
            human.percent(number(fastest, "mfu_fraction")),
            human.days(number(fastest, "time_to_train_days")),
            *(_cell(best[scheme]) for scheme in schemes),
        )


def _cell(row: Row) -> str:
    minutes = number(row, "used_interval_s") / MINUTE
    goodput = f"{number(row, 'goodput_fraction') * 100:.2f}"
    return f"{goodput} {minutes:7,.1f}" if math.isfinite(minutes) else goodput
