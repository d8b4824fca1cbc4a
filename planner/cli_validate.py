"""What does `capplan validate` take and print? Measured steps in, errors of the simulator out.

Only click is imported here; the simulator waits until the command runs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from planner.measured_rows import Unmodelled
    from planner.measured_runs import Row


@click.command(short_help="Compare simulated steps with measured ones.")
@click.option(
    "--measured",
    type=click.Path(path_type=Path),
    metavar="FILE.csv",
    help="Measured runs, one a row; docs/validation.md lists the columns. Left out: the published runs that come "
    "with capplan.",
)
@click.option("--json", "as_json", is_flag=True, help="Print tables and all rows as one JSON object.")
def validate(*, measured: Path | None, as_json: bool) -> None:
    """Simulate steps that were measured, and report the errors of time and memory.

    Tables by source, accelerator, model family, number format and parallelism; how well designs of one job are
    ordered; what was not modelled and why. Some constants of the simulator are fitted on the shipped rows.
    """
    from planner.cli import _check_installation, _quiet_libraries, _rendered, _write

    _check_installation()
    from planner.validation import entries_of
    from planner.validation_report import as_json as report_json
    from planner.validation_report import report_of
    from planner.validation_view import show, show_whole_runs
    from planner.whole_runs import whole_runs_json

    with _quiet_libraries():
        entries = entries_of(_rows(measured))
        report = report_of(entries)
    if as_json:
        runs = None if measured else whole_runs_json()
        _write(json.dumps(report_json(report, entries, whole_runs=runs), indent=2, allow_nan=False) + "\n")
        return
    source = str(measured) if measured else "published runs that come with capplan"
    _write(_rendered(lambda console: show(report, console, source=source)))
    if measured is None:
        _write(_rendered(show_whole_runs))


def _rows(measured: Path | None) -> list[Row | Unmodelled]:
    if measured is None:
        from planner.measured_runs import read_rows

        return [*read_rows()]
    from planner.measured_rows import read_measured

    return read_measured(measured)
