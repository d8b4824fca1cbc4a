"""How does a reader see which design is best in what, why, and what it gives up? A paragraph for each objective."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from planner.recommended.comparisons import Best, Driver
from planner.recommended.design_words import layout, offer_words, site_words
from planner.recommended.recommendation import Design, Recommendation
from planner.text import human
from planner.text.objective_words import OBJECTIVE_WORDS, amount
from planner.text.text_blocks import sentences, title
from simulator.domain.job import Objective

if TYPE_CHECKING:
    from rich.console import Console

_DEEPER = 4


def show_bests(answer: Recommendation, console: Console) -> None:
    """Writes the best design for each objective; nothing if there is nothing to compare."""
    bests = [best for best in answer.best_of_each if best.compared_with is not None]
    if not bests:
        return
    title(console, "Best design for each objective")
    for best in bests:
        first, *more = paragraph(answer, best)
        sentences(console, [first])
        sentences(console, more, indent=_DEEPER)


def paragraph(answer: Recommendation, best: Best) -> Iterator[str]:
    """Yields the lines on the best design for one objective: what it is, why it is the best, what is worse."""
    objective = Objective(best.objective)
    design = next(design for design in answer.front if design.design_id == best.design_id)
    is_chosen = answer.recommends(best.design_id)
    who = "the recommended design" if is_chosen else f"design {best.design_id}"
    shared = _shared(len(best.shared_with))
    figure = f"{amount(objective, best.value)} with {_cluster(answer, design)}"
    yield f"Lowest {OBJECTIVE_WORDS[objective]}: {who}, {figure}{shared}."
    rival = f"design {best.compared_with}" if is_chosen else "the recommended design"
    why = "; ".join(driver_text(driver) for driver in best.drivers)
    if best.compared_with in best.shared_with:
        why = "they are equal"
    yield f"Compared with {rival}: {why or 'nothing differs by more than 0.5 %'}."
    changes = [
        (Objective(name), value)
        for name, value in best.changes.items()
        if abs(value) >= human.LEAST_TOLD_FRACTION
    ]
    than = next(design for design in answer.front if design.design_id == best.compared_with)
    worse = [change_text(name, value, _of(than, name)) for name, value in changes if value > 0.0]
    better = [change_text(name, value, _of(than, name)) for name, value in changes if value < 0.0]
    gains = f"; better: {', '.join(better)}" if better else ""
    yield f"Worse: {', '.join(worse) or 'nothing'}{gains}."


def _shared(num_others: int) -> str:
    if num_others == 0:
        return ""
    return f"; {human.count(num_others)} other{' has' if num_others == 1 else 's have'} the same value"


def _cluster(answer: Recommendation, design: Design) -> str:
    num_spares = design.plan.num_spare_nodes
    spares = f", {human.counted(num_spares, 'spare node')}" if num_spares else ""
    what = f"{design.accelerator}{offer_words(design, answer.front)}{site_words(answer, design)}"
    return f"{human.count(design.plan.num_gpus)} x {what}, {layout(design.plan)}{spares}"


def driver_text(driver: Driver) -> str:
    """Returns one factor in both designs: `GPUs: 512 instead of 128 (x 4.00)`; the ratio only for factors of a product."""
    write = human.count if driver.name == "GPUs" else human.short
    value, reference = write(driver.value), write(driver.reference)
    has_ratio = driver.is_factor and driver.reference
    ratio = f" (x {human.digits(driver.value / driver.reference)})" if has_ratio else ""
    return f"{driver.name}: {value} instead of {reference}{ratio}"


def _of(design: Design, objective: Objective) -> float | None:
    return design.objective_values.get(objective.value)


def change_text(objective: Objective, change: float, reference: float | None) -> str:
    """Returns the change of another objective: `+12.0 % cost`, or `+$168 cost` where the reference is 0."""
    if reference == 0.0 and not objective.is_risk:
        return f"+{amount(objective, change)} {OBJECTIVE_WORDS[objective]}"
    points = " points of" if objective.is_risk else ""
    return f"{human.change(change)}{points} {OBJECTIVE_WORDS[objective]}"
