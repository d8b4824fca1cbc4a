"""How is a calibration shown to a person? How much it helps, which constants moved, which did not, and the warnings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table

from planner.calibration.answer import CalibrationAnswer, KindFit, LayerFit, PassFit
from planner.text.human import change, count, percent
from planner.text.text_blocks import headline, plain_table, sentences, title
from simulator.domain.calibration import CalibratedConstant, Calibration
from simulator.domain.hardware import Precision
from simulator.units import MILLISECOND

if TYPE_CHECKING:
    from rich.console import Console

SURE_DEVIATIONS = 1.6449
"""Standard deviations on either side of the mean that contain nine of ten cases."""


def show_calibration(answer: CalibrationAnswer, console: Console) -> None:
    """Prints the whole answer."""
    found = answer.calibration
    is_better = found.error_left_out_fraction < found.error_before_fraction
    headline(console, _headline(found), is_good=is_better)
    title(console, "Mean error")
    console.print(Padding(_kinds(answer.kinds) if answer.kinds else _errors(found), (0, 0, 0, 2)))
    if answer.layers:
        title(console, "Layers")
        console.print(Padding(_layers(answer.layers), (0, 0, 0, 2)))
        sentences(console, list(_kept(answer.layers)))
    title(console, "Constants")
    console.print(Padding(_constants(found), (0, 0, 0, 2)))
    if answer.held:
        title(console, "Constants that keep their published values")
        sentences(console, [f"{held.name} = {held.value:.4g}: {held.why}" for held in answer.held])
    if found.loaded_power_w and found.idle_power_w:
        title(console, "Power")
        sentences(
            console,
            [f"{found.idle_power_w:.0f} W idle, {found.loaded_power_w:.0f} W during matrix products."],
        )
    if answer.warnings:
        title(console, "Warnings")
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
    table.add_row("calibrated, on configurations left out of the fit", percent(found.error_left_out_fraction))
    for one in found.residuals:
        kind = f"{one.accelerator} {one.precision.value}{' experts' if one.has_experts else ''}"
        high = percent(math.expm1(one.interval_log_half_width))
        table.add_row(f"80 % of errors within, {kind} ({one.num_configurations})", high)
    return table


def _kinds(kinds: Sequence[KindFit]) -> Table:
    """For kernels, every fifth one was left out; for layers, each model in turn."""
    table = _table("kernels", "number", "published", "calibrated", "left out")
    for one in kinds:
        errors = (one.error_before_fraction, one.error_after_fraction, one.error_left_out_fraction)
        table.add_row(one.name, str(one.num_kernels), *(percent(error) for error in errors))
    return table


def _layers(layers: Sequence[LayerFit]) -> Table:
    """Both passes of each layer side by side, with errors for published and for left-out constants."""
    table = plain_table(gap=1)
    for heading in ("layer", "tokens", "software"):
        table.add_column(heading, no_wrap=True)
    for heading in ("forward", "published", "left out", "backward", "published", "left out"):
        table.add_column(heading, justify="right")
    for layer in layers:
        software = layer.software if layer.precision is Precision.BF16 else layer.precision.value
        cells = [cell for one in (layer.forward, layer.backward) for cell in _pass_cells(one)]
        table.add_row(layer.model, f"{layer.batch} x {layer.sequence_length}", software, *cells)
    return table


def _pass_cells(one: PassFit) -> Iterator[str]:
    yield f"{one.measured_s / MILLISECOND:.4g} ms"
    yield change(one.error_before_fraction)
    yield change(one.error_left_out_fraction)


def _kept(layers: Sequence[LayerFit]) -> Iterator[str]:
    errors = [one.kept_error_fraction for one in layers if one.kept_error_fraction is not None]
    if errors:
        low, high = change(min(errors)), change(max(errors))
        yield f"Activations kept for the backward pass: simulated with errors of {low} to {high} for {len(errors)} of them."


def _constants(found: Calibration) -> Table:
    table = _table("constant", "published", "calibrated", "change", "90 % interval")
    for one in found.constants:
        reach = SURE_DEVIATIONS * one.log_deviation
        most = 1.0 if one.name.value.endswith("_fraction") else math.inf
        sure = f"{one.value * math.exp(-reach):.3g} to {min(most, one.value * math.exp(reach)):.3g}"
        moved = change(one.value / one.published - 1.0)
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
