"""How close are simulated steps to the step times and memory that others measured and published?

Simulates every configuration of planner/data/published_steps.csv, prints the errors, and rewrites the tables of
docs/validation.md and the files simulator/data/accuracy.csv and planner/data/residuals.csv:

    python -m benchmarks.validate_steps --date 2026-11-22

An error is the simulated over the measured value, less one. Averages of production runs include the fleet's stragglers, so
there the simulated step is multiplied by their expected slow-down.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from importlib import resources
from pathlib import Path

import numpy as np

from benchmarks.sheets import ErrorStatistics, Sheet, by_group, layout, statistics_sheet
from benchmarks.step_order import order_sheet, rank_sheet
from benchmarks.validate_further import further_sheets, jobs_sheet
from benchmarks.validate_held_out import held_out_again_sheet
from benchmarks.validate_memory import memory_sheets
from docs.markdown import replaced
from planner import __version__
from planner.measured.runs import STEPS_FILE, Comparison, Row, compare, network_of, read_rows
from planner.validation.comparison import (
    Choice,
    choices_among,
    unsure_log_ratios,
)
from planner.validation.interval import interval_of, residual_of
from simulator.catalog import catalog_hash
from simulator.errors import InputError, Problem
from simulator.table import Floats
from simulator.units import GIB

ROOT = Path(__file__).parents[1]
ACCURACY_FILE = ROOT / "simulator" / "data" / "accuracy.csv"
RESIDUALS_FILE = ROOT / "planner" / "data" / "residuals.csv"
TRAINING_FILE = ROOT / "simulator" / "data" / "training_efficiency.csv"
REPORT_FILE = ROOT / "docs" / "validation.md"

LLAMA_3 = "llama3-0002"
NUM_WORST = 12


@dataclass(frozen=True)
class Coverage:
    """Whether a measured step lies in its 80 % interval."""

    source: str
    without_source: bool
    """Whether it lies in the interval from other sources."""
    without_architecture: bool
    """Whether it lies in the interval from other architectures."""


def sheets(rows: Sequence[Row], comparisons: Sequence[Comparison]) -> list[Sheet]:
    """Returns all tables of the report."""

    def error(comparison: Comparison) -> float:
        return comparison.error_fraction

    return [
        _left_out_sheet(rows),
        statistics_sheet("by-source", "source", by_group(comparisons, lambda c: c.row["group"]), error),
        statistics_sheet(
            "by-accelerator",
            "accelerator, format, model",
            by_group(
                comparisons, lambda c: f"{c.row['accelerator']}, {c.row['precision']}, {network_of(c.row)}"
            ),
            error,
        ),
        _production_sheet(comparisons),
        _llama_sheet(rows),
        rank_sheet(comparisons),
        order_sheet(comparisons),
        jobs_sheet("same-job", choices_among(comparisons)),
        _regret_sheet(choices_among(comparisons)),
        held_out_again_sheet(),
        *further_sheets(),
        *memory_sheets(rows, comparisons),
        _worst_sheet(comparisons),
        _interval_sheet(comparisons),
        _constants_sheet(),
    ]


def _ideal_error_fraction(comparison: Comparison) -> float:
    """Relative error of the step without stragglers."""
    return comparison.simulated_s / comparison.measured_s - 1.0


def _left_out_sheet(rows: Sequence[Row]) -> Sheet:
    counts = Counter(row["left_out_because"] for row in rows if row["left_out_because"])
    lines = [[reason, str(count)] for reason, count in counts.most_common()]
    return Sheet(name="left-out", head=("left out because", "rows"), lines=lines)


def _production_sheet(comparisons: Sequence[Comparison]) -> Sheet:
    lines = [
        [
            f"{c.row['group']}, {c.row['num_gpus']} GPUs",
            f"{float(c.row['step_time_s']):.4g}",
            f"{c.simulated_s:.4g}",
            f"{_ideal_error_fraction(c):+.1%}",
            f"{c.expected_s:.4g}",
            f"{c.error_fraction:+.1%}",
        ]
        for c in comparisons
        if c.is_production
    ]
    head = ("run", "measured (s)", "simulated (s)", "error", "with stragglers (s)", "error with stragglers")
    return Sheet(name="production", head=head, lines=sorted(lines))


def _llama_sheet(rows: Sequence[Row]) -> Sheet:
    """The settings of Llama 3 405B on 16,384 accelerators that its paper leaves open."""
    published = next(row for row in rows if row["row_id"] == LLAMA_3)
    variants = [
        {**published, "zero_stage": stage, "virtual_pipeline": chunks} for stage in "12" for chunks in "48"
    ]
    lines = [
        [
            f"ZeRO-{c.row['zero_stage']}, {c.row['virtual_pipeline']} chunks per stage",
            f"{c.simulated_s:.3g}",
            f"{_ideal_error_fraction(c):+.1%}",
            f"{c.error_fraction:+.1%}",
            f"{c.simulated_memory_bytes / GIB:.0f}",
        ]
        for c in compare(variants)
    ]
    head = ("Llama 3 405B", "simulated (s)", "error", "error with stragglers", "simulated peak (GiB)")
    return Sheet(name="llama-3", head=head, lines=sorted(lines))


def _regret_sheet(found: Sequence[Choice]) -> Sheet:
    sources: dict[str, list[Choice]] = defaultdict(list)
    for choice in found:
        sources[choice.source].append(choice)
    lines = [_regret_line(source, members) for source, members in sorted(sources.items())]
    head = ("source", "jobs", "designs", "mean regret", "largest regret")
    return Sheet(name="regret", head=head, lines=[*lines, _regret_line("all", found)])


def _regret_line(name: str, found: Sequence[Choice]) -> list[str]:
    regrets = [choice.regret_fraction for choice in found]
    num_designs = sum(choice.num_designs for choice in found)
    return [name, str(len(found)), str(num_designs), f"{np.mean(regrets):.1%}", f"{max(regrets):.1%}"]


def _interval_sheet(comparisons: Sequence[Comparison]) -> Sheet:
    """How many measured steps lie in their 80 % interval, also where their whole architecture is left out."""
    coverages = _coverages(comparisons)
    groups = by_group(coverages, lambda coverage: coverage.source)
    lines = [_coverage_line(source, members) for source, members in groups.items()]
    return Sheet(
        name="intervals",
        head=("source", "n", "inside, without its source", "inside, without its architecture"),
        lines=[*lines, _coverage_line("all rows", coverages)],
    )


def _constants_sheet() -> Sheet:
    """The constants fitted on whole steps, with what each of them is worth."""
    with TRAINING_FILE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    columns = ("constant", "value", "low", "high", "unit", "error", "source")
    lines = [
        [f"{row['applies_to']}: {row['constant']}", *(row[name] for name in columns[1:])] for row in rows
    ]
    head = ("constant", "value", "lowest", "highest", "unit", "worth", "expected before")
    return Sheet(name="training-constants", head=head, lines=lines)


def _coverages(comparisons: Sequence[Comparison]) -> list[Coverage]:
    residuals = [residual_of(comparison) for comparison in comparisons]
    of_others = {
        family: [residual for residual in residuals if residual.family != family]
        for family in {comparison.family for comparison in comparisons}
    }

    def coverage(comparison: Comparison, unsure_ratios: Floats) -> Coverage:
        without_source, without_architecture = (
            interval_of(comparison, known, unsure_ratios).holds(comparison.measured_s)
            for known in (residuals, of_others[comparison.family])
        )
        return Coverage(comparison.row["group"], without_source, without_architecture)

    return list(map(coverage, comparisons, unsure_log_ratios(comparisons)))


def _coverage_line(name: str, members: Sequence[Coverage]) -> list[str]:
    without_source = np.mean([member.without_source for member in members])
    without_architecture = np.mean([member.without_architecture for member in members])
    return [name, str(len(members)), f"{without_source:.0%}", f"{without_architecture:.0%}"]


def _worst_sheet(comparisons: Sequence[Comparison]) -> Sheet:
    worst = sorted(comparisons, key=lambda c: -abs(c.error_fraction))[:NUM_WORST]
    lines = [
        [
            f"{c.row['row_id']}: {layout(c.row)}",
            f"{float(c.row['step_time_s']):.4g}",
            f"{c.error_fraction:+.0%}",
        ]
        for c in worst
    ]
    return Sheet(name="worst", head=("configuration", "measured (s)", "error"), lines=lines)


def accuracy_lines(comparisons: Sequence[Comparison]) -> list[list[str]]:
    """Returns the rows of simulator/data/accuracy.csv."""
    lines = []
    groups = by_group(comparisons, lambda c: ",".join(c.kind))
    for name, members in groups.items():
        statistics = ErrorStatistics.of([member.error_fraction for member in members])
        sources = "; ".join(sorted({member.row["group"] for member in members}))
        errors = [f"{statistics.bias:.4f}", f"{statistics.mean_absolute:.4f}"]
        lines.append([*name.split(","), str(statistics.num_rows), *errors, sources])
    return lines


def write_accuracy(comparisons: Sequence[Comparison]) -> None:
    """Rewrites simulator/data/accuracy.csv."""
    head = [
        "family",
        "precision",
        "network",
        "num_rows",
        "bias_fraction",
        "mean_absolute_error_fraction",
        "source",
    ]
    with ACCURACY_FILE.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([head, *accuracy_lines(comparisons)])


def write_residuals(comparisons: Sequence[Comparison]) -> None:
    """Rewrites planner/data/residuals.csv, from which intervals are made."""
    lines = [[c.row["row_id"], f"{residual_of(c).log_ratio:.5f}"] for c in comparisons]
    with RESIDUALS_FILE.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([["row_id", "log_ratio"], *lines])


def with_tables(page: str, tables: Sequence[Sheet]) -> str:
    """Returns a page with the text between `<!-- name -->` and `<!-- end -->` replaced by the table of that name."""
    for table in tables:
        start = f"<!-- {table.name} -->"
        if page.count(f"{start}\n") != 1:
            raise InputError(
                [Problem(path=REPORT_FILE.name, value="", rule=f"must hold the line {start} once")]
            )
        page = replaced(page, table.name, table.markdown())
    return page


def print_sheet(sheet: Sheet) -> None:
    """Prints a table to the terminal."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=sheet.name)
    for position, title in enumerate(sheet.head):
        table.add_column(title, justify="right" if position else "left")
    for line in sheet.lines:
        table.add_row(*line)
    Console().print(table)


def versions_sheet(day: str) -> Sheet:
    """Returns what the report's figures were made with; the date is an argument, so that the bytes are reproducible."""
    steps = resources.files("planner").joinpath(STEPS_FILE).read_bytes()
    lines = [
        ["date", day],
        ["capplan", __version__],
        ["catalogue", catalog_hash()[:12]],
        ["published steps (sha256)", hashlib.sha256(steps).hexdigest()[:12]],
    ]
    return Sheet(name="versions", head=("made with", ""), lines=lines)


def main() -> None:
    """Compares all rows, prints the tables and rewrites the report and both files."""
    parser = argparse.ArgumentParser(description="Compare simulated steps with published ones.")
    parser.add_argument("--date", required=True, type=date.fromisoformat, help="day that the report names")
    today = parser.parse_args().date.isoformat()
    rows = read_rows()
    comparisons = compare([row for row in rows if not row["left_out_because"]])
    write_residuals(comparisons)
    tables = [versions_sheet(today), *sheets(rows, comparisons)]
    for table in tables:
        print_sheet(table)
    write_accuracy(comparisons)
    REPORT_FILE.write_text(with_tables(REPORT_FILE.read_text(encoding="utf-8"), tables), encoding="utf-8")


if __name__ == "__main__":
    main()
