"""What would another degree, micro-batch or scheme cost? A line for each choice, the best of its other values first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from planner.recommended.choice_words import CHOICE_WORDS, written
from planner.recommended.comparisons import OtherChoice
from planner.recommended.recommendation import Design
from planner.text import human
from planner.text.objective_words import OBJECTIVE_WORDS
from planner.text.text_blocks import grid, sentences, title
from simulator.domain.job import Objective

if TYPE_CHECKING:
    from rich.console import Console

SAME_ACCELERATORS = (
    "Other choices on the same accelerators",
    "How the time to train changes with the best design that has another value of one choice; others may change with it.",
)
"""Heading of the choices of an answer, and what they are."""
ONE_CHANGE = (
    "One change at a time",
    "How the time to train changes if one choice alone is another one, on the same accelerators; data parallelism follows.",
)
"""Heading of the choices beside a simulated plan, and what they are."""
_IN_BRACKETS = "In brackets: the objective that changes most the other way."
MOST_VALUES = 5
"""Most other values of a choice that are shown with their change."""


def show_choices(
    design: Design, choices: Sequence[OtherChoice], heading: tuple[str, str], console: Console
) -> None:
    """Writes what other choices than those of a design would change; nothing if there are none."""
    if rows := list(choice_rows(design, choices)):
        title(console, heading[0])
        sentences(console, [explained(heading[1], rows)])
        grid(console, rows)


def explained(about: str, rows: Sequence[tuple[str, str, str]]) -> str:
    """Returns what the rows of choices are, and what stands in brackets where one has them."""
    return f"{about} {_IN_BRACKETS}" if any("(" in others for _, _, others in rows) else about


def choice_rows(design: Design, choices: Sequence[OtherChoice]) -> Iterator[tuple[str, str, str]]:
    """Yields each choice, its value in a design, and what its other values would change or violate."""
    for name, found in groupby(choices, key=lambda choice: choice.name):
        yield CHOICE_WORDS[name], written(design.plan, name), "; ".join(_others(design, list(found)))


def _others(design: Design, choices: Sequence[OtherChoice]) -> Iterator[str]:
    kept = sorted((choice for choice in choices if not choice.violated), key=_time_days)
    if kept:
        yield ", ".join(
            f"{written(choice.plan, choice.name)}: {_effect(design, choice)}" for choice in kept[:MOST_VALUES]
        )
    if hidden := kept[MOST_VALUES:]:
        least, most = (_effect(design, choice) for choice in (hidden[0], hidden[-1]))
        yield f"{len(hidden)} more " + (f"from {least} to {most}" if len(hidden) > 1 else f"at {least}")
    broken = [choice for choice in choices if choice.violated]
    for violated in dict.fromkeys(choice.violated for choice in broken):
        values = [written(choice.plan, choice.name) for choice in broken if choice.violated == violated]
        yield f"{', '.join(values)} violate{'s' if len(values) == 1 else ''} {', '.join(violated)}"


def _time_days(choice: OtherChoice) -> float:
    return math.inf if choice.time_to_train_days is None else choice.time_to_train_days


def _effect(design: Design, choice: OtherChoice) -> str:
    """The change of the time to train, and of the objective that changes most the other way."""
    if choice.time_to_train_days is None:
        return "without end"
    change = choice.time_to_train_days / design.time_to_train_days - 1.0
    return f"{human.change(change)}{_trade(design, choice, falls=change < 0.0)}"


def _trade(design: Design, choice: OtherChoice, *, falls: bool) -> str:
    """The objective that rises most where the time falls, or falls most where it rises: ` (+0.4 % energy)`; empty if none."""
    sign = 1.0 if falls else -1.0
    changes = [
        (sign * (value / own - 1.0), Objective(name))
        for name, value in choice.objective_values.items()
        if value is not None and (own := design.objective_values[name])
    ]
    most, objective = max(changes, key=lambda each: each[0], default=(0.0, Objective.TIME))
    told = human.change(sign * most)
    return f" ({told} {OBJECTIVE_WORDS[objective]})" if most > 0.0 and told != human.change(0.0) else ""
