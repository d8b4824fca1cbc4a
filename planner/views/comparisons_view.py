"""How do comparisons look on a terminal? What survives unsure inputs, and what other circumstances would change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from planner.recommended.comparisons import SURE_FRACTION, InputUncertainty, WhatIfCase
from planner.recommended.recommendation import Recommendation
from planner.text import human
from planner.text.text_blocks import grid, sentences, title
from simulator.units import JOULES_PER_KWH, KILO

if TYPE_CHECKING:
    from rich.console import Console


MOST_DRIVERS = 3
"""Inputs that are named for each objective."""
SMALLEST_SWING_FRACTION = 0.02
"""Smaller swings, as shares of the figure, are not worth a word."""
SAME_FRACTION = 1e-9
"""Differences of a smaller share of a figure come from the order in which it was summed."""
_UNITS: Mapping[str, tuple[str, Callable[[float], str]]] = {
    "time_to_train": ("time to train", human.duration),
    "cost": ("cost", human.dollars),
    "energy": ("energy", lambda value: human.energy(value / JOULES_PER_KWH)),
    "carbon": ("carbon", human.carbon),
    "water": ("water", lambda value: f"{human.digits(value / KILO)} m3"),
}
"""Figures that are shown, in words and in a unit for readers."""


def show_comparisons(answer: Recommendation, console: Console) -> None:
    """Writes what an answer compares its design with; nothing where it compares nothing."""
    if answer.input_uncertainty:
        title(console, "If times, failures, prices, grids and footprints are not what they seem")
        grid(console, intervals(answer.input_uncertainty))
        if told := survivals(answer.input_uncertainty):
            console.print()
            sentences(console, told)
    if answer.what_if:
        title(console, "What if")
        grid(console, [cells for case in answer.what_if for cells in what_if_rows(case)])


def intervals(sure: InputUncertainty) -> Iterator[tuple[str, str, str]]:
    """Yields the figures in nine of ten draws, with the inputs that move each of them most."""
    for name, (words, unit) in _UNITS.items():
        if name in sure.figures:
            drawn = sure.figures[name]
            yield words, f"{unit(drawn.p5)} to {unit(drawn.p95)}", _driven_by(sure, name)


def _driven_by(sure: InputUncertainty, objective: str) -> str:
    bars = [
        bar
        for bar in sure.tornado
        if bar.objective == objective and abs(bar.at_high - bar.at_low) > SMALLEST_SWING_FRACTION * bar.middle
    ]
    return "; ".join(
        f"{human.words(bar.input)} {_percent(bar.at_low / bar.middle)} to {_percent(bar.at_high / bar.middle)}"
        for bar in bars[:MOST_DRIVERS]
    )


def _percent(ratio: float) -> str:
    return f"{100.0 * (ratio - 1.0):+.0f} %"


def survivals(sure: InputUncertainty) -> list[str]:
    """Returns which limits and orderings survive draws of the inputs, in sentences."""
    again, unbeaten = human.percent(sure.recommended_fraction), human.percent(sure.on_front_fraction)
    draws = f"Of {human.count(sure.num_draws)} draws of all unsure inputs"
    kept = (
        f"{draws} {human.percent(share)} keep the {limit}."
        for limit, share in (
            ("deadline", sure.within_deadline_fraction),
            ("budget", sure.within_budget_fraction),
        )
        if share is not None
    )
    lead = (
        f"Design {ordering.design_id} keeps the lead in {human.words(ordering.objective)} over it in "
        f"{human.percent(ordering.holds_fraction)} of them."
        for ordering in sure.orderings
    )
    front = f"{draws} {again} recommend it again, and in {unbeaten} no design of the front beats it in everything."
    return [*kept, *((front, *lead, *_orders(sure)) if len(sure.designs) > 1 else ())]


def _orders(sure: InputUncertainty) -> Iterator[str]:
    """Says of each objective how many neighbours of the front can be told apart."""
    for objective in dict.fromkeys(pair.objective for pair in sure.neighbours):
        shares = [pair.holds_fraction for pair in sure.neighbours if pair.objective == objective]
        num_sure = sum(share >= SURE_FRACTION for share in shares)
        words, least = human.words(objective), human.percent(min(shares))
        if len(shares) == 1:
            yield f"The one pair of designs that differs in {words} keeps its order in {least} of them."
            continue
        keep = "keeps its" if num_sure == 1 else "keep their"
        yield (
            f"Of {len(shares)} pairs of designs that follow each other in {words}, {num_sure} {keep} "
            f"order in {human.percent(SURE_FRACTION)} of them or more; the least sure pair does in {least}."
        )


def what_if_rows(case: WhatIfCase) -> Iterator[tuple[str, ...]]:
    """Yields the figures of a case, and below them what they change and which limits they break."""
    figures = (
        (human.days, case.time_to_train_days, case.time_change_days),
        (human.dollars, case.cost_usd, case.cost_change_usd),
        (human.energy, case.energy_kwh, case.energy_change_kwh),
        (human.carbon, case.carbon_kgco2e, case.carbon_change_kgco2e),
    )
    yield (case.case, *("" if value is None else show(value) for show, value, _ in figures), case.note)
    changes = tuple(_change(show, value, change) for show, value, change in figures)
    if any(changes) or case.limits_broken:
        yield ("  against the answer", *changes, _broken(case.limits_broken))


def _change(show: Callable[[float], str], value: float | None, change: float | None) -> str:
    """A difference with its sign; nothing where it is lost in rounding."""
    if value is None or change is None or abs(change) <= SAME_FRACTION * abs(value):
        return ""
    return f"{'+' if change > 0.0 else '-'}{show(abs(change))}"


def _broken(limits: Mapping[str, float | None]) -> str:
    shares = (
        f"{human.words(name)}{'' if share is None else f' by {human.percent(share)}'}"
        for name, share in limits.items()
    )
    return f"breaks {', '.join(shares)}" if limits else ""
