"""How does a step at the deep depth read on a terminal? Its parts next to those of the fast depth, waits, and hot links."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from planner.deep.answer import DeepStep
from planner.deep.link_rows import link_rows
from planner.job.named_model import told_changes
from planner.recommended.design_words import layout, part_words
from planner.text import human
from planner.text.text_blocks import bar, grid, headline, sentences, title

if TYPE_CHECKING:
    from rich.console import Console

MOST_SLOW = 10
"""Number of slow parts that are named."""


def show_deep(answer: DeepStep, console: Console) -> None:
    """Writes the whole answer."""
    step, fast = human.duration(answer.step_time_s), human.duration(answer.fast_step_time_s)
    headline(
        console,
        f"{answer.job}: {layout(answer.plan)}: {step} a step ({fast} at the fast depth)",
        is_good=True,
    )
    sentences(console, answer.differences)
    title(console, "Time of an average accelerator: deep depth, fast depth")
    grid(console, _parts(answer, console))
    title(console, "Waits between accelerators")
    sentences(console, answer.waits)
    if answer.hot_links:
        title(console, "Links with the longest waits, per average accelerator that was played")
        grid(console, link_rows(answer.hot_links, len(answer.roles)))
    title(console, "Notes")
    sentences(console, _notes(answer))


def _parts(answer: DeepStep, console: Console) -> Iterator[tuple[str, ...]]:
    for part in answer.parts:
        if max(part.deep_s, part.fast_s) > 0.0:
            fraction = part.deep_s / answer.step_time_s
            figures = human.duration(part.deep_s), human.duration(part.fast_s), human.percent(fraction)
            yield part_words(part.name, [answer.plan]), *figures, bar(console, fraction)


def _notes(answer: DeepStep) -> list[str]:
    num_gpus, num_played = answer.plan.num_gpus, len(answer.roles)
    if answer.is_folded:
        played = (
            f"{human.count(num_played)} of {human.count(num_gpus)} accelerators {'was' if num_played == 1 else 'were'} played, "
            f"one for each role, in {human.count(answer.num_tasks)} tasks; the others do the same at the same time."
        )
    else:
        played = f"Every message of all {human.count(num_gpus)} accelerators was played: {human.count(answer.num_tasks)} tasks."
    slow, hidden = answer.slow[:MOST_SLOW], len(answer.slow) - MOST_SLOW
    more = f"; and {human.count(hidden)} more" if hidden > 0 else ""
    told = [f"Slower parts: {'; '.join(slow)}{more}."] if slow else []
    broken = [f"The plan violates a limit: {sentence}" for sentence in answer.warnings]
    return [
        *told_changes(answer.model),
        *told,
        played,
        "One step, without failures and random stragglers.",
        *broken,
    ]
