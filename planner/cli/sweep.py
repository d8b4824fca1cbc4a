"""What do you type to see how cluster size and checkpointing affect a job? `capplan sweep` with a grid of designs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.options.shared import CALIBRATION, calibration_option, progress_options
from planner.cli.terminal.exit_codes import INTERRUPTED, OK
from planner.cli.terminal.help import examples

if TYPE_CHECKING:
    from planner.sweep.grid import Sweep
    from planner.sweep.table import Row
    from studies.progress import Report, Stop


@click.command(
    short_help="Simulate a grid of cluster sizes, checkpoint schemes and intervals.",
    epilog=examples(
        "capplan sweep sweep.yaml",
        "capplan sweep sweep.yaml --output rows.csv",
        "capplan sweep sweep.yaml --json > rows.json",
    ),
)
@click.argument("sweep", type=click.Path(path_type=Path), metavar="SWEEP.yaml")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE.csv",
    help="Write all designs, one per row, into a new file.",
)
@calibration_option
@click.option("--json", "as_json", is_flag=True, help="Print all designs as one JSON object.")
@progress_options
def sweep(*, sweep: Path, output: Path | None, as_json: bool, quiet: bool) -> int:
    """Simulate every combination of the axes, sizes, checkpoint schemes and intervals of SWEEP.yaml.

    Each size uses the layout with the shortest step that fits the memory, so that designs of one size differ only in
    how they save. A scheme that this layout does not support uses the fastest layout that does. docs/sweep.md lists the
    fields; examples/studies/ has a sweep from 128 to 16,384 GPUs.

    Exit codes: 0 an answer; 2 broken input; 130 interrupted, with the rows so far.
    """
    from planner.cli.terminal.interrupt import stop_on_interrupt
    from planner.cli.terminal.output import progress, quiet_libraries, rendered, write
    from planner.input.own_files import replacing
    from planner.sweep.grid import load_sweep
    from planner.sweep.table import json_rows, write_rows
    from planner.sweep.view import show_sweep

    if output is not None:
        _refuse_existing(output)
    grid = load_sweep(sweep)
    if file := click.get_current_context().meta.get(CALIBRATION):
        grid = grid.model_copy(update={"calibration": str(file.absolute())})
    with stop_on_interrupt() as should_stop:
        with quiet_libraries(), progress(is_shown=not quiet) as report:
            rows, is_whole = _rows(grid, sweep.parent, report, should_stop)
        if as_json:
            document = {"schema_version": 1, "rows": json_rows(rows)}
            write(json.dumps(document, indent=2, allow_nan=False) + "\n")
        else:
            write(rendered(lambda console: show_sweep(grid, rows, console, is_whole=is_whole)))
        if output is not None:
            with replacing(output, "--output") as draft:
                write_rows(rows, draft)
    return OK if is_whole else INTERRUPTED


def _rows(grid: Sweep, folder: Path, report: Report, should_stop: Stop) -> tuple[list[Row], bool]:
    """Returns the rows of the points simulated before the end or Ctrl-C, and whether these are all."""
    from planner.sweep.grid import num_points, run_sweep
    from planner.sweep.table import point_rows
    from studies.progress import Progress

    total, rows = num_points(grid), []
    report(Progress(stage="simulating sizes", num_done=0, num_total=total))
    for number, point in enumerate(run_sweep(grid, folder), start=1):
        rows += point_rows(grid, point)
        report(Progress(stage="simulating sizes", num_done=number, num_total=total))
        if should_stop() and number < total:
            return rows, False
    return rows, True


def _refuse_existing(output: Path) -> None:
    from planner.input.own_files import check_own_file
    from simulator.errors import InputError, Problem

    check_own_file(output, "sweep", "--output", lambda _: True)
    if output.exists():
        rule = "is there already, and answers are never overwritten: choose another file"
        raise InputError([Problem(path="--output", value=str(output), rule=rule)])
