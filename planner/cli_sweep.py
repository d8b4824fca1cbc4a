"""What do you type to see how size and checkpoints change a job? `capplan sweep` with a grid of designs.

Only click is imported here; everything heavier waits until the command runs, as in `planner.cli`.
"""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command(short_help="Simulate a grid of cluster sizes, checkpoint schemes and intervals.")
@click.argument("sweep", type=click.Path(path_type=Path), metavar="SWEEP.yaml")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE.csv",
    help="Write all designs, one a row, into a new file.",
)
@click.option("--json", "as_json", is_flag=True, help="Print all designs as one JSON object.")
def sweep(*, sweep: Path, output: Path | None, as_json: bool) -> None:
    """Simulate every combination of the axes, sizes, checkpoint schemes and intervals of SWEEP.yaml.

    At each size the layout of the shortest step that fits the memory is taken, so that designs of one size differ only
    in how they save. docs/sweep.md lists the fields; examples/studies/ has a sweep from 128 to 16,384 GPUs.

    Exit codes: 0 an answer; 2 broken input.
    """
    from planner.cli import _check_installation, _quiet_libraries, _rendered, _write

    _check_installation()
    from planner.sweep import load_sweep, run_sweep
    from planner.sweep_table import sweep_rows, write_rows
    from planner.sweep_view import show_sweep

    if output is not None:
        _refuse_existing(output)
    with _quiet_libraries():
        grid = load_sweep(sweep)
        rows = sweep_rows(grid, run_sweep(grid, sweep.parent))
    if output is not None:
        write_rows(rows, output)
    if as_json:
        _write(json.dumps({"schema_version": 1, "rows": rows}, indent=2) + "\n")
    else:
        _write(_rendered(lambda console: show_sweep(grid, rows, console)))


def _refuse_existing(output: Path) -> None:
    from simulator.errors import InputError, Problem

    if output.exists():
        rule = "is there already, and answers are never overwritten: choose another file"
        raise InputError([Problem(path="output", value=str(output), rule=rule)])
    if not output.parent.is_dir():
        raise InputError([Problem(path="output", value=str(output), rule="must lie in a folder that exists")])
