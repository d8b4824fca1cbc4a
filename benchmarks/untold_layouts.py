"""How far are published layouts from the fastest one, and steps simulated without knowing the layout from measured ones?

    python -m benchmarks.untold_layouts --measured training_runs.csv --write

Takes degrees of parallelism and chunks of stages out of the configurations on several nodes that tell them, so that the
fastest layout that fits stands in (`planner.measured.untold_layouts`), and simulates both. `--write` puts the table into
docs/validation.md.
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

LAYOUT_COLUMNS = ("tp", "pp", "vpp", "ep", "dp")
TAILS = (0.1, 0.9)
"""Quantiles of how far published layouts are from the fastest one."""


@dataclass(frozen=True, kw_only=True)
class Untold:
    """A measured configuration with its own layout and with the one that stands in."""

    source: str
    """Its publisher, whatever the release."""
    told: Modelled
    untold: Modelled

    @property
    def log_ratio(self) -> float:
        """ln(step of the published layout / step of the one that stands in)."""
        return float(np.log(self.told.comparison.simulated_s / self.untold.comparison.simulated_s))


def untold_of(measured: Path) -> list[Untold]:
    """Returns the configurations of a file whose layout can be taken out, the first row of each."""
    with measured.open(encoding="utf-8", newline="") as file:
        rows = list({row["config_key"]: row for row in reversed(list(csv.DictReader(file)))}.values())
    blank = [{**row, **dict.fromkeys(LAYOUT_COLUMNS, "")} for row in rows]
    pairs = zip(_entries(rows), _entries(blank), strict=True)
    return [
        Untold(source=source_of(row["source"]), told=told, untold=untold)
        for row, (told, untold) in zip(rows, pairs, strict=True)
        if isinstance(told, Modelled)
        and isinstance(untold, Modelled)
        and told.comparison.is_timed
        and has_told_layout(told.comparison.row)
        and not has_told_layout(untold.comparison.row)
    ]


def _entries(rows: Sequence[Mapping[str, str]]) -> Sequence[object]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        return entries_of(read_measured(path))


def sheet_of(found: Sequence[Untold]) -> Sheet:
    """Returns the errors with and without the layout, and how far layouts are from the fastest, of every source and of all."""
    lines = [_line(source, members) for source, members in by_group(found, lambda each: each.source).items()]
    head = (
        "source",
        "configurations",
        "mean error",
        "layout not told",
        "bias",
        "in 80 % interval",
        "published over chosen: one in ten below",
        "middle",
        "one in ten above",
    )
    return Sheet(name="untold-layouts", head=head, lines=[*lines, _line("all", found)])


def _line(name: str, members: Sequence[Untold]) -> list[str]:
    told, untold = (
        np.array([entry.comparison.error_fraction for entry in entries])
        for entries in zip(*((each.told, each.untold) for each in members), strict=True)
    )
    ratios = np.array([each.log_ratio for each in members])
    low, high = np.quantile(ratios, TAILS)
    return [
        name,
        str(len(members)),
        f"{np.abs(told).mean():.1%}",
        f"{np.abs(untold).mean():.1%}",
        f"{untold.mean():+.1%}",
        f"{np.mean([each.untold.is_inside for each in members]):.0%}",
        *(f"{np.expm1(value):+.1%}" for value in (low, np.median(ratios), high)),
    ]


@click.command(help=__doc__)
@click.option("--measured", type=click.Path(path_type=Path, exists=True, dir_okay=False), required=True)
@click.option("--write", is_flag=True, help="put the table into docs/validation.md")
def main(*, measured: Path, write: bool) -> None:
    """Prints the table."""
    sheet = sheet_of(untold_of(measured))
    print(sheet.markdown())
    if write:
        REPORT_FILE.write_text(
            with_tables(REPORT_FILE.read_text(encoding="utf-8"), [sheet]), encoding="utf-8"
        )


if __name__ == "__main__":
    main()
