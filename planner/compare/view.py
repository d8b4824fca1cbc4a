"""What does a comparison look like? Inputs, decisions and figures side by side, and the causes of the differences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.text import Text

from planner.compare.comparison import Comparison, DecisionRow, Explanation, MetricRow
from planner.compare.figures import Metrics
from planner.compare.words import name_words, values_words
from planner.recommended.design_words import part_words
from planner.text import human
from planner.text.figure_units import change_text, figure_text
from planner.text.text_blocks import plain_table, sentences, title

if TYPE_CHECKING:
    from rich.console import Console

SHOWN_METRICS = (
    "time_to_train_days",
    "time_to_train_p95_days",
    "cost_usd",
    "cost_p95_usd",
    "energy_kwh",
    "carbon_kgco2e",
    "peak_power_w",
    "step_time_s",
    "mfu_fraction",
    "goodput_fraction",
    "num_failures",
    "peak_memory_bytes",
)
"""Figures of the table; JSON and HTML hold every one."""
STEP_PARTS = "step_seconds."
"""How the names of the parts of a step begin."""
LEAST_REST_FRACTION = 0.01
"""Share of the total above which what the rows leave out is a row of its own."""
LEAST_PART_FRACTION = 5e-3
"""Share of the step below which a part is left out on all sides."""
EXPLAINED = ("time_to_train_days", "cost_usd", "energy_kwh", "carbon_kgco2e")
"""Figures whose differences are explained on the terminal."""
_INDENT = 2


def letters(number: int) -> list[str]:
    """Returns the short names of the sides: A, B, C."""
    return [chr(ord("A") + index) if index < 26 else f"#{index + 1}" for index in range(number)]


def explained(found: Comparison) -> Iterator[tuple[str, Explanation]]:
    """Returns each explanation after the short name of its side; sides without a design have none."""
    (accelerators,) = (row.values for row in found.decisions if row.decision == "accelerator")
    sides = zip(letters(len(found.sides)), accelerators, strict=True)
    with_design = [letter for letter, accelerator in sides if accelerator is not None]
    # Nothing is explained if the first side has no design.
    return zip(with_design[1:], found.explanations, strict=False)


def show_comparison(found: Comparison, console: Console) -> None:
    """Writes a comparison."""
    sides = letters(len(found.sides))
    console.print(Text(f"Compared: {', '.join(sides)}", style="bold"))
    _table(console, ("", ""), zip(sides, found.sides, strict=True))
    _show_inputs(console, found)
    title(console, "designs")
    if all(row.is_same for row in found.decisions):
        sentences(console, ["All decisions are the same."])
    else:
        _table(console, ("decision", *sides), _decisions(found))
    title(console, "figures")
    _table(console, ("figure", *sides), figure_rows(found, SHOWN_METRICS), from_right=1)
    if parts := step_rows(found):
        title(console, "one step")
        _table(console, ("part", *sides), parts, from_right=1)
    title(console, "grids")
    _table(console, GRID_HEADS, grid_rows(found))
    for letter, explanation in explained(found):
        _show_explanation(console, explanation, found.metrics, letter)
    if found.warnings:
        title(console, "notes")
        sentences(console, found.warnings)


def _show_inputs(console: Console, found: Comparison) -> None:
    if not found.inputs:
        title(console, "inputs")
        sentences(console, ["All inputs are the same."])
        return
    title(console, "different inputs")
    _table(console, ("input", *letters(len(found.sides)), ""), input_rows(found))
    if any(row.decides_choice_only for row in found.inputs):
        sentences(console, ["choice only: affects which design is chosen, but no figure of a design."])


def input_rows(found: Comparison) -> list[tuple[str, ...]]:
    """Returns the different inputs side by side; those that affect only the choice are marked."""
    return [
        (
            name_words(row.input),
            *values_words(row.input, row.values),
            "choice only" if row.decides_choice_only else "",
        )
        for row in found.inputs
    ]


def decision_row(row: DecisionRow) -> tuple[str, ...]:
    """Returns one decision of the designs, side by side."""
    return name_words(row.decision), *values_words(row.decision, row.values)


def _decisions(found: Comparison) -> Iterator[tuple[str, ...]]:
    """Yields the decisions that differ, and one line that counts the others."""
    alike = [row.decision for row in found.decisions if row.is_same]
    for row in found.decisions:
        if not row.is_same:
            yield decision_row(row)
    if alike:
        yield f"same: {len(alike)} of {len(found.decisions)}", *("" for _ in found.sides)


def figure_rows(found: Comparison, names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yields figures with their units, those of the others with the change from the first in per cent."""
    for row in found.metrics:
        if row.metric in names:
            yield name_words(row.metric), *_figures(row)


def _figures(row: MetricRow) -> Iterator[str]:
    first = row.values[0]
    for index, value in enumerate(row.values):
        yield _figure(row.metric, value, first if index else None)


def step_rows(found: Comparison) -> list[tuple[str, ...]]:
    """Returns the parts of a step that are visible on any side, where the steps differ; none where they are alike."""
    steps = next(row.values for row in found.metrics if row.metric == "step_time_s")
    if len(set(steps)) == 1:
        return []
    degrees = _degrees(found)
    return [
        (part_words(row.metric.removeprefix(STEP_PARTS), degrees), *_figures(row))
        for row in found.metrics
        if row.metric.startswith(STEP_PARTS)
        and any(
            (part or 0.0) > LEAST_PART_FRACTION * (step or 0.0)
            for part, step in zip(row.values, steps, strict=True)
        )
    ]


@dataclass(frozen=True, kw_only=True)
class _Degrees:
    """The degrees of a side's design, as its decisions have them."""

    tensor_parallel: int
    context_parallel: int
    pipeline_parallel: int


def _degrees(found: Comparison) -> list[_Degrees]:
    """The degrees of every side; 1 where it has no design, and so no parts either."""
    values = {row.decision: row.values for row in found.decisions}
    names = [field.name for field in fields(_Degrees)]
    sides = zip(*(values[name] for name in names), strict=True)
    return [
        _Degrees(**{name: int(degree or 1) for name, degree in zip(names, side, strict=True)})
        for side in sides
    ]


GRID_HEADS = ("", "region", "kg CO2e/kWh", "convention", "source")


def grid_rows(found: Comparison) -> list[tuple[str, ...]]:
    """Returns carbon intensity, convention and source of the grid of each side."""
    return [
        (letter, each.region, f"{each.kgco2e_per_kwh:.3g}", each.words_with_area, each.source)
        for letter, grids in zip(letters(len(found.sides)), found.grids, strict=False)
        for each in grids
    ]


def _figure(name: str, value: float | None, first: float | None) -> str:
    if value is None:
        return "-"
    text = figure_text(name, value)
    return f"{text}  {human.change(value / first - 1.0)}" if first else text


def explanation_rows(
    explanation: Explanation, metrics: Sequence[MetricRow], names: Sequence[str]
) -> list[tuple[str, ...]]:
    """Returns one row for each cause with a visible effect on one of the figures, and the total; none where all are alike.

    Smaller causes are one row together where the others alone would not add up to the total.
    """
    base = {row.metric: row.values[0] or 0.0 for row in metrics}
    causes = [(name_words(cause.input), cause.effects) for cause in explanation.causes]
    parts = [*causes, ("interaction of inputs", explanation.interaction), *_chosen(explanation)]
    seen = [part for part in parts if _is_seen(part[1], base, names)]
    small = [part for part in parts if part not in seen and any(part[1].get(name) for name in names)]
    rest = {name: sum(effects.get(name, 0.0) for _, effects in small) for name in names}
    is_missed = any(
        abs(rest[name]) > LEAST_REST_FRACTION * abs(explanation.total.get(name, 0.0)) for name in names
    )
    others = [(small[0][0] if len(small) == 1 else "smaller causes", rest)] if seen and is_missed else []
    rows = [_effects(name, effects, names) for name, effects in (*seen, *others)]
    is_alike = not rows and not any(explanation.total.get(name) for name in names)
    return [] if is_alike else [*rows, _effects("total", explanation.total, names)]


def _chosen(explanation: Explanation) -> list[tuple[str, Metrics]]:
    """The effect of the different design, by the inputs that lead to it where they are known."""
    is_same_design = not any(explanation.design.values())
    if is_same_design or not explanation.choices:
        return [("different design", explanation.design)]
    alone = [
        (f"different design due to {name_words(each.input)}", each.effects) for each in explanation.choices
    ]
    rest = "several inputs" if len(alone) > 1 else "the search"
    return [*alone, (f"different design due to {rest}", explanation.choice_interaction)]


def alike_words(letter: str, names: Sequence[str]) -> str:
    """Returns what replaces the rows of figures that are the same.

    Example:
        >>> alike_words("B", ["time to train", "cost", "carbon"])
        'B has the same time to train, cost and carbon as A.'
    """
    return f"{letter} has the same {', '.join(names[:-1])} and {names[-1]} as A."


def explanation_notes(explanation: Explanation) -> list[str]:
    """Returns the notes below the rows: the design that an input leads to, why a cause has no figure, and warnings."""
    causes = [(name_words(cause.input), cause.note) for cause in (*explanation.causes, *explanation.choices)]
    return [*(f"{name}: {note}" for name, note in causes if note), *explanation.notes]


def _is_seen(effects: Metrics, base: Metrics, names: Sequence[str]) -> bool:
    return any(
        abs(effects.get(name, 0.0)) > human.LEAST_TOLD_FRACTION * abs(base.get(name, 0.0)) for name in names
    )


def _effects(cause: str, effects: Metrics, names: Sequence[str]) -> tuple[str, ...]:
    return (cause, *(change_text(name, effects.get(name, 0.0)) for name in names))


def _show_explanation(
    console: Console, explanation: Explanation, metrics: Sequence[MetricRow], letter: str
) -> None:
    title(console, f"why {letter} differs from A")
    heads = [human.words(name) for name in EXPLAINED]
    if rows := explanation_rows(explanation, metrics, EXPLAINED):
        _table(console, ("cause", *heads), rows, from_right=1)
    else:
        sentences(console, [alike_words(letter, heads)])
    sentences(console, explanation_notes(explanation))


def _table(
    console: Console,
    heads: Sequence[str],
    rows: Iterator[Sequence[str]] | Sequence[Sequence[str]],
    *,
    from_right: int = 0,
) -> None:
    """Writes a table; columns from `from_right` on are numbers."""
    table = plain_table(shows_headings=any(heads))
    for index, head in enumerate(heads):
        is_number = bool(from_right) and index >= from_right
        table.add_column(head, justify="right" if is_number else "left", no_wrap=is_number, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(Padding(table, (0, 0, 0, _INDENT)))
