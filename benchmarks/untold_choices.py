"""How accurate are steps of runs that do not state everything, and how far are published layouts from the fastest one?

    python -m benchmarks.untold_choices --measured training_runs.csv --write

Removes layout, micro-batch, recomputation, chunks per stage and framework from configurations that state them. They are
replaced by the fastest that fit (`planner.measured.untold_layouts`, `planner.measured.fitting_choices`) or by the habits of an
unknown framework, and both are simulated. `--write` puts the tables into docs/validation.md.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import numpy as np

from benchmarks.sheets import Sheet, by_group
from benchmarks.training_steps import source_of
from benchmarks.validate_steps import REPORT_FILE, with_tables
from planner.measured.rows import read_measured
from planner.measured.untold_layouts import has_told_layout
from planner.validation.comparison import Modelled, entries_of

LAYOUT: Mapping[str, tuple[str, ...]] = {"tp": ("tp", "pp", "vpp", "ep", "dp")}
"""What is removed, by a column that must be stated."""
UNTOLD: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "layout": LAYOUT,
    "micro-batch": {"micro_batch": ("micro_batch",)},
    "recomputation": {"recompute": ("recompute",)},
    "micro-batch and recomputation": {"micro_batch": ("micro_batch",), "recompute": ("recompute",)},
    "chunks": {"vpp": ("vpp",)},
    "framework": {"framework": ("framework", "source")},
    "all but the framework": {**LAYOUT, "micro_batch": ("micro_batch",), "recompute": ("recompute",)},
}
ERROR_HEAD = ("configurations", "mean error if told", "mean error", "bias", "in 80 % interval")
RATIO_HEAD = ("step if told over step if not: one in ten below", "middle", "one in ten above")
TAILS = (0.1, 0.9)
"""Quantiles of the differences from steps with the stated values."""


@dataclass(frozen=True, kw_only=True)
class Untold:
    """A measured configuration with its stated values and with their replacements."""

    source: str
    """Its publisher, whatever the release."""
    told: Modelled
    untold: Modelled

    @property
    def log_ratio(self) -> float:
        """ln(step with the stated values / step with their replacements)."""
        return float(np.log(self.told.comparison.simulated_s / self.untold.comparison.simulated_s))


def untold_of(measured: Path, columns: Mapping[str, tuple[str, ...]]) -> list[Untold]:
    """Returns the configurations of a file that tell what is taken out, the first row of each.

    Args:
        measured: the file.
        columns: what is taken out, by a column that has to be told, as in `UNTOLD`.
    """
    with measured.open(encoding="utf-8", newline="") as file:
        every = {row["config_key"]: row for row in reversed(list(csv.DictReader(file)))}
    rows = [row for row in every.values() if all(row[column] for column in columns)]
    taken = [column for names in columns.values() for column in names]
    blank = [{**row, **dict.fromkeys(taken, "")} for row in rows]
    pairs = zip(_entries(rows), _entries(blank), strict=True)
    return [
        Untold(source=source_of(row["source"]), told=told, untold=untold)
        for row, (told, untold) in zip(rows, pairs, strict=True)
        if isinstance(told, Modelled)
        and isinstance(untold, Modelled)
        and told.comparison.is_timed
        and has_told_layout(told.comparison.row)
        and has_told_layout(untold.comparison.row) == ("tp" not in columns)
    ]


def _entries(rows: Sequence[Mapping[str, str]]) -> Sequence[object]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        return entries_of(read_measured(path))


def untold_sheet(found: Mapping[str, Sequence[Untold]]) -> Sheet:
    """Returns the errors with and without what is removed, and how far the steps are apart."""
    lines = [[*_errors(name, members), *_ratios(members)] for name, members in found.items()]
    return Sheet(name="untold-choices", head=("not told", *ERROR_HEAD, *RATIO_HEAD), lines=lines)


def layouts_sheet(found: Sequence[Untold]) -> Sheet:
    """Returns the same for layouts, by source."""
    groups = {**by_group(found, lambda each: each.source), "all": list(found)}
    lines = [[*_errors(name, members), *_ratios(members)] for name, members in groups.items()]
    return Sheet(name="untold-layouts", head=("source", *ERROR_HEAD, *RATIO_HEAD), lines=lines)


def _errors(name: str, members: Sequence[Untold]) -> list[str]:
    told, untold = (
        np.array([entry.comparison.error_fraction for entry in entries])
        for entries in zip(*((each.told, each.untold) for each in members), strict=True)
    )
    return [
        name,
        str(len(members)),
        f"{np.abs(told).mean():.1%}",
        f"{np.abs(untold).mean():.1%}",
        f"{untold.mean():+.1%}",
        f"{np.mean([each.untold.is_inside for each in members]):.0%}",
    ]


def _ratios(members: Sequence[Untold]) -> list[str]:
    ratios = np.array([each.log_ratio for each in members])
    low, high = np.quantile(ratios, TAILS)
    return [f"{np.expm1(value):+.1%}" for value in (low, np.median(ratios), high)]


@click.command(help=__doc__)
@click.option("--measured", type=click.Path(path_type=Path, exists=True, dir_okay=False), required=True)
@click.option("--write", is_flag=True, help="put the tables into docs/validation.md")
def main(*, measured: Path, write: bool) -> None:
    """Prints the tables."""
    found = {name: untold_of(measured, columns) for name, columns in UNTOLD.items()}
    sheets = [untold_sheet(found), layouts_sheet(found["layout"])]
    for sheet in sheets:
        print(f"{sheet.markdown()}\n")
    if write:
        REPORT_FILE.write_text(with_tables(REPORT_FILE.read_text(encoding="utf-8"), sheets), encoding="utf-8")


if __name__ == "__main__":
    main()
