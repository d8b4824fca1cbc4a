"""Do the shipped published rows agree with what `capplan validate --measured` reads from the list that they come from?

    python -m benchmarks.published_rows --measured training_runs.csv --write

Simulates each shipped configuration and the row of the list that it is named after, and prints those whose step or memory
differ. `--write` copies what frameworks do (`READ`) from the list into planner/data/published_steps.csv.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from planner.measured.rows import Unmodelled, read_measured
from planner.measured.runs import OUT_OF_MEMORY, STEPS_FILE, Comparison, Row, compare, read_rows
from simulator.domain.workload import Workload

SHIPPED_FILE = Path(__file__).parents[1] / "planner" / STEPS_FILE
READ = (
    "vocabulary_size",
    "kernel_launch",
    "fp8_recipe",
    "gathers_cast_weights",
    "fills_expert_rows",
    "gathers_routing_maps",
    "overlaps_input_gradients",
    "separate_first_products",
    "checks_gradients",
    "divides_gradients",
    "fuses_update",
    "update_bytes",
)
"""Columns that follow from what a list says of software and precision, not from what was measured."""
SAME = 1e-9
"""Relative difference of two readings that agree."""


def read_twice(rows: Sequence[Row], measured: Path) -> list[tuple[Row, Row]]:
    """Returns the shipped rows that a list has too, each beside the list's; the first of those that one row is the mean of.

    Args:
        rows: shipped rows, named `ID`, `ID+ID` or `ID+number of others`.
        measured: the list.
    """
    listed = {row["row_id"]: row for row in read_measured(measured) if not isinstance(row, Unmodelled)}
    named = [(row, row["row_id"].split("+")[0]) for row in rows]
    return [(row, listed[name]) for row, name in named if name in listed]


def renewed(shipped: Row, listed: Row) -> Row:
    """Returns a shipped row with the cells of `READ` from the list."""
    return {**shipped, **{name: _told(name, listed.get(name, "")) for name in READ}}


def _told(name: str, cell: str) -> str:
    """Returns a cell, empty where it says what a job without it says."""
    field = Workload.model_fields.get(name)
    is_default = field is not None and isinstance(field.default, bool) and cell == str(field.default).lower()
    return "" if is_default else cell.removesuffix(".0")


def as_csv(rows: Sequence[Row], known: Sequence[str]) -> str:
    """Returns rows as text of a table of the known columns, with those of `READ` before what a memory is compared as."""
    place = known.index("memory_kind")
    columns = [*known[:place], *(name for name in READ if name not in known), *known[place:]]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def difference(shipped: Comparison, listed: Comparison) -> tuple[float, float]:
    """Returns by what fraction step and peak memory of the list's reading are larger."""
    return (
        listed.simulated_s / shipped.simulated_s - 1,
        listed.simulated_memory_bytes / shipped.simulated_memory_bytes - 1,
    )


def table_of(pairs: Sequence[tuple[Row, Row]]) -> Table:
    """Returns the rows that are read in two ways, with what it does to their steps and memory."""
    table = Table("row", "shipped step, s", "step by the list", "memory by the list")
    shipped = compare([row for row, _ in pairs])
    for ours, theirs in zip(shipped, compare([row for _, row in pairs]), strict=True):
        time, memory = difference(ours, theirs)
        if not (math.isclose(time, 0, abs_tol=SAME) and math.isclose(memory, 0, abs_tol=SAME)):
            table.add_row(ours.row["row_id"], f"{ours.simulated_s:.3f}", f"{time:+.2%}", f"{memory:+.2%}")
    return table


@click.command(help=__doc__)
@click.option("--measured", type=click.Path(path_type=Path, exists=True, dir_okay=False), required=True)
@click.option("--write", is_flag=True, help="renew planner/data/published_steps.csv")
def main(*, measured: Path, write: bool) -> None:
    """Prints the rows that are read in two ways."""
    rows = read_rows()
    if write:
        by_id = {ours["row_id"]: renewed(ours, theirs) for ours, theirs in read_twice(rows, measured)}
        columns = list(rows[0])
        rows = [by_id.get(row["row_id"], row) for row in rows]
        SHIPPED_FILE.write_text(as_csv(rows, columns), encoding="utf-8")
    pairs = read_twice([row for row in rows if row["left_out_because"] in ("", OUT_OF_MEMORY)], measured)
    table = table_of(pairs)
    console = Console()
    console.print(table)
    console.print(f"{table.row_count} of {len(pairs)} rows are read in two ways")


if __name__ == "__main__":
    main()
