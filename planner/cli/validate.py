"""What does `capplan validate` take and print? Measured steps in, errors of the simulator out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.options.shared import CALIBRATION, calibration_option, own_figures_option, progress_options
from planner.cli.terminal.help import examples

if TYPE_CHECKING:
    from planner.measured.rows import Unmodelled
    from planner.measured.runs import Row
    from planner.validation.comparison import Entry
    from simulator.domain.calibration import Calibration
    from studies.progress import Report


ROWS_AT_ONCE = 100
"""Rows between two progress reports."""


@click.command(
    short_help="Compare simulated steps with measured ones.",
    epilog=examples(
        "capplan validate",
        "capplan validate --measured steps.csv",
        "capplan validate --measured steps.csv --json > errors.json",
        "capplan validate --measured steps.csv --row run-05 --write-job run-05.yaml",
    ),
)
@click.option(
    "--measured",
    type=click.Path(path_type=Path),
    metavar="FILE.csv",
    help="Measured runs, one per row (columns: docs/measured-rows.md). Default: the published runs shipped with "
    "capplan.",
)
@click.option(
    "--row",
    metavar="ID",
    help="Show one row instead: how it was read, what was assumed, and the parts of its simulated step and memory.",
)
@click.option(
    "--write-job",
    "job_file",
    type=click.Path(path_type=Path),
    metavar="FILE.yaml",
    help="With --row: also write a job file in which the row's run is a plan, for simulate and all other commands.",
)
@calibration_option
@own_figures_option
@click.option("--json", "as_json", is_flag=True, help="Print tables and all rows as one JSON object.")
@progress_options
def validate(
    *, measured: Path | None, row: str | None, job_file: Path | None, as_json: bool, quiet: bool
) -> None:
    """Simulate measured steps, and report the errors of time and memory.

    Prints tables by source, accelerator, model family, number format and parallelism, how well designs of one job are
    ranked, and which rows were not modelled and why. Some constants of the simulator are fitted to the shipped rows.
    """
    if row is not None:
        _show_row(measured, row, job_file, as_json=as_json, quiet=quiet)
        return
    if job_file is not None:
        raise click.UsageError("--write-job writes the job of one row: name it with --row.")
    from planner.cli.terminal.output import progress, quiet_libraries, rendered, write
    from planner.validation.report import as_json as report_json
    from planner.validation.report import report_of
    from planner.validation.view import show, show_whole_runs
    from planner.validation.whole_runs import whole_runs_json

    calibration = _calibration()
    with quiet_libraries(), progress(is_shown=not quiet) as tell:
        entries = _entries(_rows(measured, tell), tell, calibration)
        report = report_of(entries, _unread_columns(measured))
    if as_json:
        runs = None if measured else whole_runs_json()
        write(json.dumps(report_json(report, entries, whole_runs=runs), indent=2, allow_nan=False) + "\n")
        return
    source = str(measured) if measured else "published runs shipped with capplan"
    if calibration is not None:
        source += f", with constants of {calibration.source} ({calibration.date})"
        source += _whether_fitted_on(measured, calibration) + _not_covered(entries, calibration)
    write(rendered(lambda console: show(report, entries, console, source=source)))
    if measured is None:
        write(rendered(show_whole_runs))


def _show_row(
    measured: Path | None, row_id: str, job_file: Path | None, *, as_json: bool, quiet: bool
) -> None:
    """Prints one row, and writes its job."""
    from planner.cli.terminal.output import quiet_libraries, tell, working
    from planner.job.row_job import LAST_IN_PART, check_row_job_file, write_row_job
    from planner.measured.rows import Unmodelled
    from planner.one_design.measured_row import measured_row, step_of
    from planner.validation.comparison import entries_of
    from planner.views.measured_row_view import show_measured_row

    if job_file is not None:
        check_row_job_file(job_file)
    calibration = _calibration()
    with quiet_libraries(), working("simulating the row", is_shown=not quiet):
        (entry,) = entries_of([_row(measured, row_id)], calibration)
        answer = measured_row(entry, calibration)
        step = None if as_json else step_of(answer)
    written = None
    if job_file is not None and not isinstance(entry, Unmodelled) and answer.job is not None:
        written = job_file
        write_row_job(entry.comparison.row, written, calibration)
    tell(
        answer,
        lambda console: show_measured_row(entry, answer, console, step=step, file=written),
        as_json=as_json,
    )
    if job_file is not None and written is None:
        reason = "the row is not modelled" if isinstance(entry, Unmodelled) else LAST_IN_PART
        click.echo(f"No job file: {reason}.", err=True)


def _calibration() -> Calibration | None:
    from planner.calibration.file import load_calibration

    file = click.get_current_context().meta.get(CALIBRATION)
    return load_calibration(file) if file else None


def _whether_fitted_on(measured: Path | None, calibration: Calibration) -> str:
    """Returns a warning if the constants were fitted to these rows, which makes the errors too small; else nothing."""
    import hashlib

    is_own = measured and hashlib.sha256(measured.read_bytes()).hexdigest() == calibration.source_sha256
    return (
        ", fitted to these same rows: capplan calibrate reports the errors with each row left out"
        if is_own
        else ""
    )


def _not_covered(entries: Sequence[Entry], calibration: Calibration) -> str:
    """Returns which accelerators keep the published constants, as in a job; nothing if the calibration covers all rows."""
    from planner.measured.rows import Unmodelled

    rows = [entry.comparison.row for entry in entries if not isinstance(entry, Unmodelled)]
    others = sorted({row["accelerator"] for row in rows} - {*calibration.accelerators})
    return f"; published ones hold for {', '.join(others)}" if others else ""


def _entries(rows: Sequence[Row | Unmodelled], tell: Report, calibration: Calibration | None) -> list[Entry]:
    """Returns the rows with their simulations; works in batches, so that progress is visible."""
    from planner.validation.comparison import entries_of, job_order
    from studies.progress import Progress

    order = job_order(rows)
    entries: dict[int, Entry] = {}
    for first in range(0, len(order), ROWS_AT_ONCE):
        tell(Progress(stage="simulating measured runs", num_done=first, num_total=len(rows)))
        batch = order[first : first + ROWS_AT_ONCE]
        entries |= zip(batch, entries_of([rows[position] for position in batch], calibration), strict=True)
    return [entries[position] for position in range(len(rows))]


def _rows(measured: Path | None, tell: Report) -> list[Row | Unmodelled]:
    if measured is None:
        from planner.measured.runs import read_rows

        return [*read_rows()]
    from planner.measured.rows import read_measured

    return read_measured(measured, tell)


def _row(measured: Path | None, row_id: str) -> Row | Unmodelled:
    from planner.measured.rows import place_of, read_measured_row

    if measured is not None:
        return read_measured_row(measured, row_id)
    from planner.measured.runs import read_rows

    rows = read_rows()
    return rows[place_of(row_id, [row["row_id"] for row in rows])]


def _unread_columns(measured: Path | None) -> Mapping[str, str | None]:
    if measured is None:
        return {}
    from planner.measured.cells.file import unread_columns

    return unread_columns(measured)
