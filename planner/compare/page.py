"""How does a comparison look in a browser? One file that opens offline, with every figure and every cause."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from planner.compare.comparison import Comparison, Explanation
from planner.compare.view import (
    EXPLAINED,
    GRID_HEADS,
    SHOWN_METRICS,
    alike_words,
    decision_row,
    explained,
    explanation_notes,
    explanation_rows,
    figure_rows,
    grid_rows,
    input_rows,
    letters,
    step_rows,
)
from planner.input.own_files import check_own_file
from planner.recommended.output import SINGLE_FIGURES
from planner.text.human import words
from planner.text.page_frame import page, table
from simulator.argument_names import Argument

MARK = "<!-- capplan compare -->"
"""In every page, so that only these are replaced."""

STYLE = """\
main { max-width: 84rem; }
@media (max-width: 34rem) { table, tbody, tr { display: block; } thead { position: absolute; left: -99rem; }
  tr { padding: 0.5rem 0; border-bottom: 1px solid var(--line); } td, td.number { display: block; padding: 0.1rem 0; border: 0;
  text-align: left; white-space: normal; overflow-wrap: anywhere; } td:empty { display: none; }
  td[data-head]::before { content: attr(data-head) ": "; color: var(--soft); } td:first-child { font-weight: 600; } }
"""
"""On a phone the columns of a table stand below each other, each with its head."""

_HOW_TO_READ_CAUSES = (
    '<p class="note">First the effect of each input alone with the design of A, then the interaction of all inputs, then '
    "the effect of the different design; if answers are compared, it is split by the inputs that lead to this design. "
    "The rows sum to the last one.</p>"
)


def comparison_page(found: Comparison) -> str:
    """Returns the whole page."""
    body = "\n".join(_sections(found))
    return page(f"Comparison: {' and '.join(found.sides)}", f"{MARK}\n<main>\n{body}\n</main>", style=STYLE)


def check_page_file(path: Path) -> None:
    """Raises `InputError` where a page cannot be written, or would replace something else."""
    check_own_file(path, "comparison", Argument("html"), _is_comparison)


def _is_comparison(path: Path) -> bool:
    return MARK in path.read_text(encoding="utf-8", errors="replace")


def _sections(found: Comparison) -> Iterator[str]:
    sides = letters(len(found.sides))
    yield "<h1>Comparison</h1>"
    yield table(("", "what"), zip(sides, found.sides, strict=True))
    yield "<h2>Different inputs</h2>"
    if any(row.decides_choice_only for row in found.inputs):
        yield (
            '<p class="note">Those marked as choice only decide which design is chosen, and change no figure of a '
            "design.</p>"
        )
    rows = input_rows(found)
    yield table(("input", *sides, ""), rows) if rows else "<p>All inputs are the same.</p>"
    yield "<h2>Designs</h2>"
    yield table(("decision", *sides), map(decision_row, found.decisions))
    yield "<h2>Figures</h2>"
    yield table(("figure", *sides), figure_rows(found, SHOWN_METRICS), numbers_from=1)
    if parts := step_rows(found):
        yield "<h2>One step</h2>"
        yield table(("part", *sides), parts, numbers_from=1)
    yield "<h2>Grids</h2>"
    yield table(GRID_HEADS, grid_rows(found))
    for letter, explanation in explained(found):
        yield from _explained(found, explanation, letter)
    for warning in found.warnings:
        yield f"<p><strong>Note:</strong> {escape(warning)}</p>"
    yield "<h2>All figures</h2>"
    yield f"<details><summary>{len(found.metrics)} figures</summary>"
    yield table(("figure", *sides), figure_rows(found, [row.metric for row in found.metrics]), numbers_from=1)
    yield "</details>"
    yield f'<p class="note">All sides were simulated again by capplan {escape(found.capplan_version)}.</p>'


def _explained(found: Comparison, explanation: Explanation, letter: str) -> Iterator[str]:
    yield f"<h2>Why {letter} differs from A</h2>"
    others = [name for name in SINGLE_FIGURES if name not in EXPLAINED]
    rows = explanation_rows(explanation, found.metrics, EXPLAINED)
    more = explanation_rows(explanation, found.metrics, others)
    if rows or more:
        yield _HOW_TO_READ_CAUSES
    heads = [words(name) for name in EXPLAINED]
    yield _causes(heads, rows) if rows else f"<p>{alike_words(letter, heads)}</p>"
    if more:
        yield f"<details><summary>Other figures</summary>{_causes([*map(words, others)], more)}</details>"
    for note in explanation_notes(explanation):
        yield f"<p>{escape(note)}</p>"


def _causes(heads: Sequence[str], rows: Sequence[tuple[str, ...]]) -> str:
    return table(("cause", *heads), rows, numbers_from=1, has_sum=True)
