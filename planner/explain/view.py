"""What does an explanation look like? A list of constraints, the checks of a plan, or the designs that each one removes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from constraints.registry import CONSTRAINTS, Constraint
from planner.explain.explanation import Check, PlanExplanation, SpaceExplanation, State, Untried
from planner.job.named_model import told_changes
from planner.recommended.choice_words import CHOICE_WORDS, PRODUCT_WORDS, written
from planner.recommended.comparisons import OtherChoice
from planner.recommended.design_words import headline as design_headline
from planner.text import human
from planner.text.text_blocks import grid, headline, sentences, title

if TYPE_CHECKING:
    from rich.console import Console

KINDS = {
    "layout": "Layouts",
    "physics": "Physical constraints",
    "limit": "Limits of a job",
    "purchase": "Purchase plans for several jobs",
}
"""Headings of the kinds of constraints."""
STATES: dict[State, str] = {
    "broken": "Violated",
    "kept": "Met",
    "not_set": "Not set",
    "not_known": "Unknown, because the layout cannot run",
}
"""Headings of the states of checks, the most urgent first."""
WAYS_OUT = "Single changes with which it meets every constraint"
"""Heading of the ways out of a plan that violates some."""
NO_WAY_OUT = "None, of the values that the search tries; `capplan recommend` changes several choices at once."
"""What stands there if there are none."""
NO_RIGHT_PRODUCT = "None, of single degrees and numbers of accelerators; `capplan recommend` changes several choices at once."
"""What stands there if the degrees contradict the number of accelerators."""
UNTRIED = "Not tried by the search, so no recommendation has it"
"""Heading of the choices that are outside of the space."""
STAGES = {
    "rules": "layout rules",
    "bounds": "bounds before simulation",
    "simulation": "simulation",
}
"""Names of the stages of counting."""
AMOUNTS = {
    "deadline_days": ("time to train", human.days),
    "budget_usd": ("cost", human.dollars),
    "carbon_kgco2e": ("carbon", human.carbon),
}
"""What a limit can increase, and how to write it."""


def show_constraints(texts: Sequence[Constraint], console: Console) -> None:
    """Writes constraints; a single one in full."""
    if len(texts) == 1:
        return _show_one(texts[0], console)
    headline(console, f"{len(texts)} constraints; `capplan explain NAME` shows one in full", is_good=True)
    for kind, heading in KINDS.items():
        title(console, heading)
        grid(console, [(text.name, text.sentence) for text in texts if text.kind == kind])
    return None


def _show_one(text: Constraint, console: Console) -> None:
    headline(console, text.name, is_good=True)
    sentences(console, [text.sentence])
    unit = "a count or a share" if text.unit == "1" else text.unit
    rows = [("formula", text.formula), ("unit", unit), ("source", text.source), ("remedy", text.way_out)]
    grid(console, rows)


def show_plan(explained: PlanExplanation, console: Console) -> None:
    """Writes the checks of one plan, violated ones first."""
    broken = sum(check.state == "broken" for check in explained.checks)
    violates = f"violates {human.counted(broken, 'constraint')}"
    verdict = "meets every constraint" if explained.is_feasible else violates
    headline(console, f"Job {explained.job}: the plan {verdict}", is_good=explained.is_feasible)
    sentences(console, told_changes(explained.model))
    for state, heading in STATES.items():
        checks = [check for check in explained.checks if check.state == state]
        if checks:
            title(console, heading)
            grid(console, [(check.constraint, _told(check)) for check in checks])
        if state == "broken" and checks:
            title(console, WAYS_OUT)
            _show_ways_out(explained, console)
    if explained.untried:
        title(console, UNTRIED)
        grid(console, [(one.choice, _told_untried(one)) for one in explained.untried])


def _show_ways_out(explained: PlanExplanation, console: Console) -> None:
    words = {**CHOICE_WORDS, **PRODUCT_WORDS}
    rows = [
        (words[name], ", ".join(f"{written(each.plan, name)} ({_took(each)})" for each in found))
        for name, found in groupby(explained.ways_out, key=lambda choice: choice.name)
    ]
    if rows:
        grid(console, rows)
    else:
        is_right = all(check.state == "kept" for check in explained.checks if check.constraint == "degrees")
        sentences(console, [NO_WAY_OUT if is_right else NO_RIGHT_PRODUCT])


def _took(choice: OtherChoice) -> str:
    return human.days(choice.time_to_train_days or 0.0)


def _told_untried(one: Untried) -> str:
    return f"{one.value}; the search tries {', '.join(one.tried)} ({one.field})"


def _told(check: Check) -> str:
    """The whole sentence of a violated constraint; only the figures of others."""
    if check.state == "broken":
        return check.sentence
    return check.sentence.removeprefix(f"{CONSTRAINTS[check.constraint].sentence}: ")


def show_space(explained: SpaceExplanation, console: Console) -> None:
    """Writes how many designs the constraints leave, and which limits bind."""
    left = explained.num_admitted if explained.num_feasible is None else explained.num_feasible
    by = "may meet, by their bounds," if explained.num_feasible is None else "meet"
    headline(
        console,
        f"Job {explained.job}: {human.count(left)} of {human.count(explained.num_tried)} designs {by} every constraint",
        is_good=explained.infeasibility is None,
    )
    title(console, "What each constraint removes")
    grid(console, _removed_rows(explained))
    sentences(console, _notes(explained))
    if explained.infeasibility:
        title(console, "Why no design is feasible")
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
    yield "constraint", "found by", "designs", "only this"
    for row in explained.removed:
        yield (
            row.constraint,
            STAGES[row.stage],
            human.count(row.num_designs),
            human.count(row.num_only),
        )


def _notes(explained: SpaceExplanation) -> Iterator[str]:
    yield from told_changes(explained.model)
    yield "Last column: designs that violate no other constraint at the same stage."
    if explained.num_feasible is None:
        yield (
            f"The {human.count(explained.num_admitted)} designs that pass the bounds were not simulated; --simulate-up-to "
            "sets how many may be."
        )


def _binding_sentences(explained: SpaceExplanation) -> Iterator[str]:
    for one in explained.binding:
        name, written = AMOUNTS[one.quantity]
        yield f"{one.constraint}: the lowest {name} is {written(one.least)}; without it {written(one.least_without)}"
    if not explained.has_limits:
        yield "None: the job sets no limits."
    elif not explained.binding:
        yield "None: removing any one of them lowers neither the lowest time nor the lowest cost or carbon."
