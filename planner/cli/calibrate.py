"""What do you type to fit the simulator to a cluster? `capplan calibrate` with measured steps, kernels, or the GPU itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.options.shared import json_option, own_figures_option, progress_options
from planner.cli.terminal.help import examples

if TYPE_CHECKING:
    from planner.calibration.answer import CalibrationAnswer
    from planner.calibration.table import Kernel
    from studies.progress import Report

KERNEL_TABLE, CALIBRATION_FILES = ".csv", (".yaml", ".yml")
"""The suffixes of --output that ask for each kind of file."""


@click.command(
    short_help="Fit constants to measurements on your own cluster.",
    epilog=examples(
        "capplan calibrate --measured steps.csv --output calibration.yaml",
        "capplan calibrate --device --output kernels.csv --output calibration.yaml",
        "capplan calibrate --kernels kernels.csv --output calibration.yaml",
    ),
)
@click.option(
    "--measured",
    type=click.Path(path_type=Path),
    metavar="FILE.csv",
    help="Fit to measured steps, one per row, as for capplan validate --measured.",
)
@click.option(
    "--device",
    is_flag=True,
    help="Measure the GPU of this machine; takes five minutes (needs capplan[torch]).",
)
@click.option(
    "--kernels",
    type=click.Path(path_type=Path),
    metavar="FILE.csv",
    help="Fit to kernels measured by --device --output FILE.csv.",
)
@click.option(
    "--accelerator",
    metavar="NAME",
    help="With --measured: use only rows of this accelerator. Otherwise: the device, if its own name does not identify it.",
)
@click.option(
    "--date", metavar="DATE", help="Date of the measurement; default: the date of the file, or today."
)
@click.option(
    "--output",
    "outputs",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the calibration (.yaml), or the kernels of --device (.csv), into a new file; may be repeated.",
)
@own_figures_option
@json_option
@progress_options
def calibrate(
    *,
    measured: Path | None,
    device: bool,
    kernels: Path | None,
    accelerator: str | None,
    date: str | None,
    outputs: tuple[Path, ...],
    as_json: bool,
    quiet: bool,
) -> None:
    """Fit the few physical constants of a cluster to measurements, with the published constants as prior.

    Give one of --measured, --device and --kernels. Constants that the measurements do not determine keep their published
    values and are named. docs/calibrate.md shows the whole procedure in ten minutes.

    Exit codes: 0 an answer, also one with warnings; 2 broken input, too few or contradictory rows; 1 no device.
    """
    if sum([measured is not None, device, kernels is not None]) != 1:
        raise click.UsageError("give exactly one of --measured FILE.csv, --device and --kernels FILE.csv")
    _check_outputs(outputs, has_table=device)
    from planner.calibration.view import show_calibration
    from planner.cli.terminal.output import progress, quiet_libraries, tell
    from studies.progress import Progress

    with quiet_libraries(), progress(is_shown=not quiet) as report:
        report(Progress(stage="calibrating", num_done=0, num_total=None))
        if measured is not None:
            from planner.calibration.calibrate import calibrate as fitted

            answer = fitted(measured, accelerator=accelerator, date=date)
        else:
            answer = _of_kernels(kernels, accelerator, date, outputs, report)
    _write(answer, outputs)
    tell(answer, lambda console: show_calibration(answer, console), as_json=as_json)


def _of_kernels(
    kernels: Path | None, accelerator: str | None, date: str | None, outputs: tuple[Path, ...], report: Report
) -> CalibrationAnswer:
    """Measures the device or reads a table of kernels, saves the table, and fits; a failed fit loses no measurement."""
    from planner.calibration.kernels import calibrate_kernels
    from planner.calibration.table import read_kernels, write_kernels
    from studies.progress import Progress

    notes: tuple[str, ...] = ()
    if kernels is not None:
        table = read_kernels(kernels, date=date)
    else:
        from planner.calibration.device import measure, note_of_skipped
        from planner.calibration.torch import torch_device

        def tell(num_done: int, num_total: int) -> None:
            report(Progress(stage="timing kernels and layers", num_done=num_done, num_total=num_total))

        skipped: list[Kernel] = []
        table = measure(torch_device(), date=date, tell=tell, skip=skipped.append)
        notes = tuple(note_of_skipped(skipped))
    for file in outputs:
        if file.suffix == KERNEL_TABLE:
            write_kernels(table, file)
    answer = calibrate_kernels(table, accelerator=accelerator)
    return answer.model_copy(update={"warnings": (*answer.warnings, *notes)})


def _check_outputs(outputs: tuple[Path, ...], *, has_table: bool) -> None:
    """Raises if a result could not be written, before minutes are spent on measuring."""
    from planner.calibration.file import check_new_file

    known = (*CALIBRATION_FILES, *([KERNEL_TABLE] if has_table else []))
    for file in outputs:
        if file.suffix not in known:
            raise click.UsageError(f"--output {file} must end in {' or '.join(known)}")
        check_new_file(file)
    if len(set(outputs)) != len(outputs):
        raise click.UsageError("--output names a file twice")


def _write(answer: CalibrationAnswer, outputs: tuple[Path, ...]) -> None:
    from planner.calibration.file import write_calibration

    for file in outputs:
        if file.suffix in CALIBRATION_FILES:
            write_calibration(answer.calibration, file)
            click.echo(f"Calibration: {file} (use it with --calibration {file})", err=True)
        else:
            click.echo(f"Kernels: {file}", err=True)
