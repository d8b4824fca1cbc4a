"""How do comparisons look on a terminal? The effect of uncertain inputs, and of other circumstances."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from planner.recommended.comparisons import SURE_FRACTION, InputUncertainty, Ordering, WhatIfCase
from planner.recommended.recommendation import Recommendation
from planner.text import human
from planner.text.objective_words import OBJECTIVE_WORDS
from planner.text.text_blocks import grid, sentences, title
from simulator.domain.job import Objective
from simulator.units import JOULES_PER_KWH

if TYPE_CHECKING:
    from rich.console import Console


MOST_DRIVERS = 3
"""Most inputs that are named for each objective."""
SMALLEST_SWING_FRACTION = 0.02
"""Smaller swings, as shares of the figure, are left out."""
SAME_FRACTION = 1e-9
"""Differences below this share of a figure are rounding from the order of summation."""
_UNITS: Mapping[str, tuple[str, Callable[[float], str]]] = {
    "time_to_train": ("time to train", human.duration),
    "cost": ("cost", human.dollars),
    "energy": ("energy", lambda value: human.energy(value / JOULES_PER_KWH)),
    "carbon": ("carbon", human.carbon),
    "water": ("water", human.water),
}
"""Figures that are shown, in words and in a unit for readers."""


def show_comparisons(answer: Recommendation, console: Console) -> None:
    """Writes the comparisons of an answer; nothing if it has none."""
    if answer.input_uncertainty:
        title(console, "Uncertainty of the inputs")
        grid(console, intervals(answer.input_uncertainty))
        if told := survivals(answer.input_uncertainty, by_accelerator(answer)):
            console.print()
            sentences(console, told)
    if answer.what_if:
        title(console, "What if")
        grid(console, [cells for case in answer.what_if for cells in what_if_rows(case)])


def intervals(sure: InputUncertainty) -> Iterator[tuple[str, str, str]]:
    """Yields the 90 % range of each figure over the draws, with the inputs that move it most."""
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


def by_accelerator(answer: Recommendation) -> str:
    """Returns how often the draws recommend each accelerator, the most frequent first; empty where all designs have one."""
    sure, accelerators = answer.input_uncertainty, {each.design_id: each.accelerator for each in answer.front}
    shares: defaultdict[str, float] = defaultdict(float)
    for design in sure.designs if sure else ():
        shares[accelerators[design.design_id]] += design.recommended_fraction
    if len(shares) < 2:
        return ""
    (first, most), *others = sorted(shares.items(), key=lambda item: -item[1])
    *more, last = [f"{name} in {human.percent(share)}" for name, share in others]
    rest = f"{', '.join(more)} and {last}" if more else last
    return f"{first} is recommended in {human.percent(most)} of the draws, {rest}."


def lead_of(ordering: Ordering) -> str:
    """Returns what an order of two designs says, the beginning of a sentence."""
    words = OBJECTIVE_WORDS[Objective(ordering.objective)]
    return f"Design {ordering.design_id} has less {words} than the recommended one"


def survivals(sure: InputUncertainty, accelerators: str) -> list[str]:
    """Returns how often the recommendation and orderings hold over the draws of the inputs, in sentences.

    Args:
        sure: the draws.
        accelerators: how often each accelerator is recommended (`by_accelerator`); may be empty.
    """
    again, unbeaten = human.percent(sure.recommended_fraction), human.percent(sure.on_front_fraction)
    draws = f"{human.count(sure.num_draws)} draws of the uncertain inputs"
    lead = (
        f"{lead_of(ordering)} in {human.percent(ordering.holds_fraction)} of the draws."
        for ordering in sure.orderings
    )
    front = (
        f"In {again} of {draws} the same design is recommended; in {unbeaten} no design on the front beats it in every "
        "objective."
    )
    return [front, *filter(None, [accelerators]), *lead, *_orders(sure)] if len(sure.designs) > 1 else []


def _orders(sure: InputUncertainty) -> Iterator[str]:
    """Yields, for each objective, how many neighbours on the front keep their order over the draws."""
    for objective in dict.fromkeys(pair.objective for pair in sure.neighbours):
        shares = [pair.holds_fraction for pair in sure.neighbours if pair.objective == objective]
        num_sure = sum(share >= SURE_FRACTION for share in shares)
        words, least = OBJECTIVE_WORDS[Objective(objective)], human.percent(min(shares))
        if len(shares) == 1:
            yield f"The only pair of designs that differs in {words} keeps its order in {least} of the draws."
            continue
        keep = "keeps its" if num_sure == 1 else "keep their"
        yield (
            f"Of {len(shares)} pairs of neighbours on the front by {words}, {num_sure} {keep} order in at least "
            f"{human.percent(SURE_FRACTION)} of the draws; the least certain pair does in {least}."
        )


def what_if_rows(case: WhatIfCase) -> Iterator[tuple[str, ...]]:
    """Yields the figures of a case, then a row with the changes against the answer and the limits that the case breaks."""
    figures = (
        (human.days, case.time_to_train_days, case.time_change_days),
        (human.dollars, case.cost_usd, case.cost_change_usd),
        (human.energy, case.energy_kwh, case.energy_change_kwh),
        (human.carbon, case.carbon_kgco2e, case.carbon_change_kgco2e),
    )
    yield (case.case, *("" if value is None else show(value) for show, value, _ in figures), case.note)
    changes = tuple(_change(show, value, change) for show, value, change in figures)
    if any(changes) or case.limits_broken:
        yield ("  change", *changes, _broken(case.limits_broken))


def _change(show: Callable[[float], str], value: float | None, change: float | None) -> str:
    """A difference with its sign; nothing if it is only rounding."""
    if value is None or change is None or abs(change) <= SAME_FRACTION * abs(value):
        return ""
    return f"{'+' if change > 0.0 else '-'}{show(abs(change))}"


def _broken(limits: Mapping[str, float | None]) -> str:
    shares = (
        f"{human.words(name)}{'' if share is None else f' by {human.percent(share)}'}"
        for name, share in limits.items()
    )
    return f"breaks {', '.join(shares)}" if limits else ""
