"""How does a person read a calibration? How much it helps, which constants moved, which did not, and what to mind."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table

from planner.calibration.answer import CalibrationAnswer
from planner.human import count, percent
from planner.text_blocks import headline, plain_table, sentences, title
from simulator.calibration import CalibratedConstant, Calibration

if TYPE_CHECKING:
    from rich.console import Console

SURE_DEVIATIONS = 1.6449
"""Standard deviations either side that hold nine of ten."""


def show_calibration(answer: CalibrationAnswer, console: Console) -> None:
    """Writes the whole answer."""
    found = answer.calibration
    is_better = found.error_left_out_fraction < found.error_before_fraction
    headline(console, _headline(found), is_good=is_better)
    title(console, "mean error")
    console.print(Padding(_errors(found), (0, 0, 0, 2)))
    title(console, "constants")
    console.print(Padding(_constants(found), (0, 0, 0, 2)))
    if answer.held:
        title(console, "as published")
        sentences(console, [f"{held.name} = {held.value:.4g}: {held.why}" for held in answer.held])
    if found.loaded_power_w and found.idle_power_w:
        title(console, "power")
        sentences(console, [f"{found.idle_power_w:.0f} W idle, {found.loaded_power_w:.0f} W under products."])
    if answer.warnings:
        title(console, "mind")
        sentences(console, list(answer.warnings))


def _headline(found: Calibration) -> str:
    what = (
        f"{count(found.num_configurations)} configurations of {found.source}"
        if found.residuals
        else found.source
    )
    return f"Calibrated {', '.join(found.accelerators)}: {what} ({found.date})"


def _errors(found: Calibration) -> Table:
    table = _table("constants", "error")
    table.add_row("published", percent(found.error_before_fraction))
    table.add_row("calibrated", percent(found.error_after_fraction))
    table.add_row("calibrated without the one in question", percent(found.error_left_out_fraction))
    for one in found.residuals:
        kind = f"{one.accelerator} {one.precision.value}{' experts' if one.has_experts else ''}"
        high = percent(math.expm1(one.interval_log_half_width))
        table.add_row(f"four of five within, {kind} ({one.num_configurations})", high)
    return table


def _constants(found: Calibration) -> Table:
    table = _table("constant", "published", "calibrated", "moved", "nine of ten within")
    for one in found.constants:
        reach = SURE_DEVIATIONS * one.log_deviation
        most = 1.0 if one.name.value.endswith("_fraction") else math.inf
        sure = f"{one.value * math.exp(-reach):.3g} to {min(most, one.value * math.exp(reach)):.3g}"
        moved = f"{one.value / one.published - 1.0:+.1%}"
        table.add_row(_name(one), f"{one.published:.4g}", f"{one.value:.4g}", moved, sure)
    return table


def _name(one: CalibratedConstant) -> str:
    parts = [one.accelerator, one.precision and one.precision.value, one.name.value]
    return " ".join(part for part in parts if part)


def _table(first: str, *headings: str) -> Table:
    table = plain_table()
    table.add_column(first, no_wrap=False)
    for heading in headings:
        table.add_column(heading, justify="right")
    return table
