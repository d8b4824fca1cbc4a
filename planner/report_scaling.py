"""How much faster are more accelerators, and where do they stop paying? The fastest design of every size that was simulated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from planner import human
from planner.report_data import Line, LinesFigure, Mark
from planner.report_designs import DesignCloud
from planner.report_units import text
from simulator.table import Floats

LEAST_GAIN: Final = 2.0**0.5
"""Speed-up by twice the accelerators below which they hardly pay: each further one adds less than half of its share."""
LEAST_SIZES: Final = 3
"""Fewer sizes make no curve."""


@dataclass(frozen=True)
class _Curve:
    """The fastest design of every size that is faster than all smaller ones."""

    accelerator: str
    num_gpus: Floats
    days: Floats
    cost_usd: Floats

    @property
    def end_of_gain(self) -> float | None:
        """First size whose double is not worth it; `None` where every double that was simulated is."""
        reached = self.num_gpus[2.0 * self.num_gpus <= self.num_gpus[-1]]
        doubled = np.exp(np.interp(np.log(2.0 * reached), np.log(self.num_gpus), np.log(self.days)))
        is_over = self.days[: len(reached)] / doubled < LEAST_GAIN
        return float(reached[np.argmax(is_over)]) if is_over.any() else None


def scaling(cloud: DesignCloud) -> list[LinesFigure]:
    """Returns time and cost against the number of accelerators; none where too few sizes were simulated."""
    curves = [curve for curve in _curves(cloud) if len(curve.num_gpus) >= LEAST_SIZES]
    if not curves:
        return []
    note = (
        "The fastest simulated design of every size that is faster than all smaller ones, whether it keeps the limits "
        "or not. Marked: from there on twice the accelerators make the run less than 1.41 times as fast."
    )
    return [
        LinesFigure(
            name="scaling",
            title=_title(curves),
            note=note,
            x_label="accelerators",
            quantity="days",
            lines=tuple(_line(curve, curve.days) for curve in curves),
        ),
        LinesFigure(
            name="scaling-cost",
            title=_cost_title(curves),
            note="Cost of the same designs.",
            x_label="accelerators",
            quantity="usd",
            lines=tuple(_line(curve, curve.cost_usd) for curve in curves),
        ),
    ]


def _curves(cloud: DesignCloud) -> Iterator[_Curve]:
    for code, accelerator in enumerate(cloud.accelerators):
        rows = np.flatnonzero((cloud.accelerator == code) & cloud.is_possible)
        order = rows[np.lexsort((cloud.days[rows], cloud.num_gpus[rows]))]
        best_before = np.minimum.accumulate(np.concatenate([[np.inf], cloud.days[order]]))[:-1]
        kept = order[cloud.days[order] < best_before]
        sizes, first = np.unique(cloud.num_gpus[kept], return_index=True)
        fastest = kept[first]
        yield _Curve(accelerator, sizes.astype(np.float64), cloud.days[fastest], cloud.cost_usd[fastest])


def _line(curve: _Curve, values: Floats) -> Line:
    end = curve.end_of_gain
    mark = None
    if end is not None:
        mark = Mark(value=end, label=f"{human.count(end)}: doubling pays less than half")
    return Line(
        label=curve.accelerator, x=tuple(curve.num_gpus.tolist()), y=tuple(values.tolist()), mark=mark
    )


def _title(curves: list[_Curve]) -> str:
    ends = [
        f"{human.count(end)} {curve.accelerator}"
        for curve in curves
        if (end := curve.end_of_gain) is not None
    ]
    if ends:
        return f"Doubling stops paying at {' and '.join(ends)}"
    largest = max(curves, key=lambda curve: float(curve.num_gpus[-1]))
    return f"Up to {human.count(largest.num_gpus[-1])} accelerators every doubling pays"


def _cost_title(curves: list[_Curve]) -> str:
    cheapest = min(curves, key=lambda curve: float(curve.cost_usd.min()))
    row = int(np.argmin(cheapest.cost_usd))
    size = human.count(cheapest.num_gpus[row])
    return f"Of these the cheapest has {size} {cheapest.accelerator}: {text(float(cheapest.cost_usd[row]), 'usd')}"
