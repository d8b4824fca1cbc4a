"""How do comparisons look on a terminal? What survives unsure inputs, and what other circumstances would change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner import human
from planner.comparisons import InputUncertainty, WhatIfCase
from planner.recommendation import Recommendation
from planner.text_blocks import grid, sentences, title

if TYPE_CHECKING:
    from rich.console import Console


def show_comparisons(answer: Recommendation, console: Console) -> None:
    """Writes what an answer compares its design with; nothing where it compares nothing."""
    if answer.input_uncertainty and len(answer.front) > 1:
        title(console, "If prices, grids and footprints are not what they seem")
        sentences(console, survivals(answer.input_uncertainty))
    if answer.what_if:
        title(console, "What if")
        grid(console, [_cells(case) for case in answer.what_if])


def survivals(sure: InputUncertainty) -> list[str]:
    """Returns which orderings survive draws of the inputs, in sentences."""
    lead = (
        f"Design {ordering.design_id} keeps the lead in {human.words(ordering.objective)} over it in "
        f"{human.percent(ordering.holds_fraction)} of them."
        for ordering in sure.orderings
    )
    unbeaten = human.percent(sure.on_front_fraction)
    return [
        f"In {unbeaten} of {human.count(sure.num_draws)} draws no design of the front beats it in everything.",
        *lead,
    ]


def _cells(case: WhatIfCase) -> tuple[str, ...]:
    figures = (
        (human.days, case.time_to_train_days),
        (human.dollars, case.cost_usd),
        (human.energy, case.energy_kwh),
        (human.carbon, case.carbon_kgco2e),
    )
    return (case.case, *("" if value is None else show(value) for show, value in figures), case.note)
