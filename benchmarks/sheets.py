"""How are the errors of measured rows tabulated? Groups of rows, statistics of their errors, and a text table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from planner.measured.runs import Comparison, Row


@dataclass(frozen=True, kw_only=True)
class ErrorStatistics:
    """Errors of several configurations, as fractions of what was measured."""

    num_rows: int
    bias: float
    mean_absolute: float
    median: float
    worst: float

    @classmethod
    def of(cls, errors: Sequence[float]) -> ErrorStatistics:
        """Returns the statistics of at least one error."""
        values = np.asarray(errors)
        return cls(
            num_rows=len(values),
            bias=float(values.mean()),
            mean_absolute=float(np.abs(values).mean()),
            median=float(np.median(values)),
            worst=float(values[np.abs(values).argmax()]),
        )

    def cells(self) -> list[str]:
        """Returns the statistics as text."""
        fractions = (self.bias, self.mean_absolute, self.median, self.worst)
        signs = ("+", "", "+", "+")
        return [
            str(self.num_rows),
            *(f"{value:{sign}.1%}" for value, sign in zip(fractions, signs, strict=True)),
        ]


_Member = TypeVar("_Member")


def by_group(members: Sequence[_Member], name: Callable[[_Member], str]) -> dict[str, list[_Member]]:
    """Returns comparisons, or what was made of them, by a name of theirs, sorted by it."""
    groups: dict[str, list[_Member]] = defaultdict(list)
    for member in members:
        groups[name(member)].append(member)
    return dict(sorted(groups.items()))


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """One table of the report."""

    name: str
    """Its marker in the report."""
    head: tuple[str, ...]
    lines: list[list[str]]

    def markdown(self) -> str:
        """Returns the table as Markdown, numbers to the right."""
        rule = ["---", *["---:"] * (len(self.head) - 1)]
        return "\n".join(markdown_row(*line) for line in [self.head, rule, *self.lines])


def markdown_row(*cells: object) -> str:
    """Returns a row of a Markdown table."""
    return f"| {' | '.join(map(str, cells))} |"


STATISTICS = ("n", "bias", "mean abs. error", "median", "worst")


def statistics_sheet(
    name: str, label: str, groups: Mapping[str, Sequence[Comparison]], error: Callable[[Comparison], float]
) -> Sheet:
    """Returns the statistics of one error for every group."""
    return Sheet(
        name=name,
        head=(label, *STATISTICS),
        lines=[
            [group, *ErrorStatistics.of([error(member) for member in members]).cells()]
            for group, members in groups.items()
        ],
    )


def layout(row: Row) -> str:
    """Returns a configuration in one line."""
    degrees = " ".join(
        f"{letters}{row[name]}"
        for letters, name in (
            ("TP", "tensor_parallel"),
            ("PP", "pipeline_parallel"),
            ("VPP", "virtual_pipeline"),
            ("CP", "context_parallel"),
            ("EP", "expert_parallel"),
        )
        if row[name] != "1"
    )
    sizes = f"sequence {row['sequence_length']}, micro-batch {row['micro_batch_size']}, {row['precision']}"
    return f"{row['model']}, {row['num_gpus']} {row['accelerator']}, {degrees or 'data parallel'}, {sizes}"
