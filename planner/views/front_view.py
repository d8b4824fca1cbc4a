"""How is a front shown on a terminal of any width? As a table if it fits, otherwise in two lines per design."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from planner.recommended.design_words import layout, offer_words
from planner.recommended.recommendation import Design
from planner.recommended.told_apart import unseen_decisions
from planner.text import human
from planner.text.text_blocks import plain_table
from simulator.domain.job import Objective
from simulator.units import DAY

if TYPE_CHECKING:
    from rich.console import Console

FIGURES = ("time", "cost", "energy", "carbon")
"""Figures in every row."""
ROBUST = {
    Objective.TIME_P95: "P95 time",
    Objective.COST_P95: "P95 cost",
    Objective.DEADLINE_RISK: "deadline risk",
    Objective.BUDGET_RISK: "budget risk",
}
"""Additional columns, if they are objectives."""
EFFICIENCY = "MFU"
_LAYOUT = "layout"
_TO_THE_RIGHT = {"design", "GPUs", EFFICIENCY, *FIGURES, *ROBUST.values()}
_INDENT = 2
_WIDE = 100
"""Terminal width from which there is room for two blanks between columns."""


def show_designs(
    console: Console,
    designs: Sequence[Design],
    *,
    marks: Sequence[str] = (),
    has_site: bool = False,
    has_efficiency: bool = False,
) -> None:
    """Writes designs, one below the other.

    Args:
        console: where to.
        designs: the designs, in the order of the front.
        marks: a mark for each design; none by default.
        has_site: whether to show regions, because they differ.
        has_efficiency: whether to show MFU.
    """
    headings = [*([""] if marks else []), "design", "GPUs", "accelerator", *(["site"] if has_site else [])]
    headings += [_LAYOUT, *FIGURES, *_robust_headings(designs), *([EFFICIENCY] if has_efficiency else [])]
    rows = [
        dict(zip(headings, [*([marks[row]] if marks else []), *_cells(design, headings)], strict=True))
        for row, design in enumerate(designs)
    ]
    for row, design, decisions in zip(rows, designs, unseen_decisions(designs), strict=True):
        row[_LAYOUT] += f"{offer_words(design, designs)}{decisions}"
    gap = 1 if has_site or console.width < _WIDE else 2
    if _least_width(headings, rows, gap) <= console.width - _INDENT:
        console.print(Padding(_table(headings, rows, gap), (0, 0, 0, _INDENT)))
    else:
        _show_lines(console, rows)


def _cells(design: Design, headings: Sequence[str]) -> list[str]:
    return [
        str(design.design_id),
        human.count(design.plan.num_gpus),
        design.accelerator,
        *([design.region] if "site" in headings else []),
        layout(design.plan),
        human.days(design.time_to_train_days),
        human.dollars(design.cost_usd),
        human.energy(design.energy_kwh),
        human.carbon(design.carbon_kgco2e).removesuffix(" CO2e"),
        *(
            _robust(objective, design.objective_values.get(objective.value))
            for objective, heading in ROBUST.items()
            if heading in headings
        ),
        *([human.percent(design.mfu_fraction)] if EFFICIENCY in headings else []),
    ]


def _robust_headings(designs: Sequence[Design]) -> list[str]:
    """Headings of P95 values and risks that are objectives."""
    return [
        heading
        for objective, heading in ROBUST.items()
        if any(objective.value in design.objective_values for design in designs)
    ]


def _robust(objective: Objective, value: float | None) -> str:
    if value is None:
        return "-"
    match objective:
        case Objective.TIME_P95:
            return human.days(value / DAY)
        case Objective.COST_P95:
            return human.dollars(value)
        case _:
            return human.risk(value)


def _least_width(headings: Sequence[str], rows: Sequence[dict[str, str]], gap: int) -> int:
    """Minimum width of the table: only layouts may wrap, between their degrees."""
    widths = []
    for heading in headings:
        cells = [heading, *(row[heading] for row in rows)]
        words = [word for cell in cells for word in cell.split()] if heading == _LAYOUT else cells
        widths.append(max(map(len, words)))
    return sum(widths) + gap * (len(widths) - 1)


def _table(headings: Sequence[str], rows: Sequence[dict[str, str]], gap: int) -> Table:
    table = plain_table(gap=gap)
    for heading in headings:
        is_number = heading in _TO_THE_RIGHT
        table.add_column(heading, justify="right" if is_number else "left", no_wrap=heading != _LAYOUT)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row.values()))
    return table


def _show_lines(console: Console, rows: Sequence[dict[str, str]]) -> None:
    """Writes each design in one line and its figures in the next, indented behind marks and numbers."""
    labels = [f"{row.get('', '')} {row['design']}".strip() for row in rows]
    width = max(map(len, labels), default=0)
    for label, row in zip(labels, rows, strict=True):
        places = [row["site"]] if "site" in row else []
        what = ", ".join([f"{row['GPUs']} x {row['accelerator']}", *places, row[_LAYOUT]])
        figures = [row[name] for name in FIGURES]
        figures += [f"{name} {row[name]}" for name in ROBUST.values() if name in row]
        figures += [f"{EFFICIENCY} {row[EFFICIENCY]}"] if EFFICIENCY in row else []
        lines = Table.grid(padding=(0, 2, 0, 0))
        lines.add_column(width=width, justify="right", no_wrap=True)
        lines.add_row(Text(label), Text(what))
        lines.add_row("", Text(", ".join(figures)))
        console.print(Padding(lines, (0, 0, 0, _INDENT)))
