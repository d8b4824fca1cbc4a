"""How does a person read an explanation? Constraints as a list, a plan's checks, or what a space loses to each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from constraints.registry import CONSTRAINTS
from planner.explain.explanation import Check, ConstraintText, PlanExplanation, SpaceExplanation, State
from planner.recommended.design_words import headline as design_headline
from planner.text import human
from planner.text.text_blocks import grid, headline, sentences, title

if TYPE_CHECKING:
    from rich.console import Console

KINDS = {
    "layout": "Layouts",
    "physics": "What no limit can change",
    "limit": "Limits that a job sets",
    "purchase": "Purchase plans over several jobs",
}
"""Headings of the kinds of constraints."""
STATES: dict[State, str] = {
    "broken": "Broken",
    "kept": "Kept",
    "not_set": "Not set",
    "not_known": "Not known, since the layout cannot run",
}
"""Headings of the states of checks, the most urgent first."""
STAGES = {
    "rules": "rules of layouts",
    "bounds": "bounds, before simulation",
    "simulation": "simulation",
}
"""The stages of counting in words."""
AMOUNTS = {
    "deadline_days": ("time to train", human.days),
    "budget_usd": ("cost", human.dollars),
    "carbon_kgco2e": ("carbon", human.carbon),
}
"""What a limit can make larger, and how it is written."""


def show_constraints(texts: Sequence[ConstraintText], console: Console) -> None:
    """Writes constraints, in full where there is one alone."""
    if len(texts) == 1:
        return _show_one(texts[0], console)
    headline(console, f"{len(texts)} constraints; `capplan explain NAME` shows one in full", is_good=True)
    for kind, heading in KINDS.items():
        title(console, heading)
        grid(console, [(text.name, text.sentence) for text in texts if text.kind == kind])
    return None


def _show_one(text: ConstraintText, console: Console) -> None:
    headline(console, text.name, is_good=True)
    sentences(console, [text.sentence])
    unit = "a count or a share" if text.unit == "1" else text.unit
    rows = [("formula", text.formula), ("unit", unit), ("source", text.source), ("way out", text.way_out)]
    grid(console, rows)


def show_plan(explained: PlanExplanation, console: Console) -> None:
    """Writes the checks of one plan, broken ones first."""
    broken = sum(check.state == "broken" for check in explained.checks)
    breaks = f"breaks {human.counted(broken, 'constraint')}"
    verdict = "keeps every constraint" if explained.is_feasible else breaks
    headline(console, f"Job {explained.job}: the plan {verdict}", is_good=explained.is_feasible)
    for state, heading in STATES.items():
        checks = [check for check in explained.checks if check.state == state]
        if checks:
            title(console, heading)
            grid(console, [(check.constraint, _told(check)) for check in checks])


def _told(check: Check) -> str:
    """The whole sentence where something is broken, the figures alone elsewhere."""
    is_short = check.state != "broken"
    return (
        check.sentence.removeprefix(f"{CONSTRAINTS[check.constraint].sentence}: ")
        if is_short
        else check.sentence
    )


def show_space(explained: SpaceExplanation, console: Console) -> None:
    """Writes what constraints leave of a space, and which limits bind."""
    left = explained.num_admitted if explained.num_feasible is None else explained.num_feasible
    by = "by their bounds may keep" if explained.num_feasible is None else "keep"
    headline(
        console,
        f"Job {explained.job}: {human.count(left)} of {human.count(explained.num_tried)} designs {by} every constraint",
        is_good=explained.infeasibility is None,
    )
    title(console, "What each constraint removes")
    grid(console, _removed_rows(explained))
    sentences(console, _notes(explained))
    if explained.infeasibility:
        title(console, "Why not")
        reason = explained.infeasibility
        sentences(console, [*reason.reasons, f"Proof: {reason.proof}"])
        sentences(
            console, (f"A design exists with {human.settings(one.limits)}" for one in reason.relaxations)
        )
        return
    title(console, "Which limits bind")
    sentences(console, _binding_sentences(explained))
    if fewest := explained.fewest:
        title(console, "The smallest cluster")
        sentences(console, [design_headline(fewest.design), f"Proof: {fewest.proof}"])


def _removed_rows(explained: SpaceExplanation) -> Iterator[tuple[str, ...]]:
    yield "constraint", "found by", "designs", "nothing else"
    for row in explained.removed:
        yield (
            row.constraint,
            STAGES[row.stage],
            human.count(row.num_designs),
            human.count(row.num_only),
        )


def _notes(explained: SpaceExplanation) -> Iterator[str]:
    yield "The last column: designs that break no other constraint at the same stage."
    if explained.num_feasible is None:
        yield (
            f"The {human.count(explained.num_admitted)} designs that the bounds admit were not simulated; --simulate-up-to "
            "says how many are."
        )


def _binding_sentences(explained: SpaceExplanation) -> Iterator[str]:
    for one in explained.binding:
        name, written = AMOUNTS[one.quantity]
        yield f"{one.constraint}: the least {name} is {written(one.least)}; without it {written(one.least_without)}"
    if not explained.binding:
        yield "None: leaving one out makes neither the least time nor the least cost or carbon smaller."
