"""What do you type to show a study to others? `capplan report` with a study or a folder of `recommend --output`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.options.shared import progress_options, store_option
from planner.cli.terminal.help import examples

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.report.build import DrawnReport
    from studies.progress import Report

FORMATS = ("html", "png", "svg", "json")


@click.command(
    short_help="Write the report of a study as a page or as pictures.",
    epilog=examples(
        "capplan report llama-3.1-70b",
        "capplan report answer-folder --output report.html",
        "capplan report llama-3.1-70b --format svg --figure cost",
    ),
)
@click.argument("study", metavar="STUDY|FOLDER")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE|DIR",
    help="Page or record to write, or folder for the pictures; default: named after the study.",
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(FORMATS),
    default="html",
    show_default=True,
    help="html: one page; png, svg: one picture per figure; json: the underlying record.",
)
@click.option(
    "--figure",
    "names",
    multiple=True,
    metavar="NAME",
    help="With png and svg: only this figure, such as cost or front; may be repeated.",
)
@store_option
@progress_options
def report(
    *, study: str, output: Path | None, kind: str, names: tuple[str, ...], folder: Path, quiet: bool
) -> None:
    """Write the report of a study, or of a FOLDER that `capplan recommend --output` wrote.

    The page shows the recommendation with its reasons, an interactive front, breakdowns of cost, energy and time, their
    uncertainty and sensitivity, every input with its source, and how to reproduce the answer. It is one file that opens
    in any browser without a network.

    Exit codes: 0 written; 2 FOLDER holds no answer, or a wrong option or target; 1 no such study, or it is not complete.
    """
    if names and kind not in ("png", "svg"):
        raise click.UsageError("--figure goes with --format png or svg: give one of them")
    from planner.cli.terminal.output import progress, quiet_libraries, write

    target = output or _default_target(study, kind)
    with quiet_libraries(), progress(is_shown=not quiet) as tell:
        files = _written(lambda: _report_of(study, folder, tell), target, kind, names)
    write("".join(f"{path}\n" for path in files))


def _default_target(study: str, kind: str) -> Path:
    """A file or folder in the working folder, named after the study."""
    stem = Path(study).stem or "report"
    return Path(f"{stem}-figures" if kind in ("png", "svg") else f"{stem}-report.{kind}")


def _written(make: Callable[[], DrawnReport], target: Path, kind: str, names: tuple[str, ...]) -> list[Path]:
    """Makes and writes a report, once it is known that the target can be written."""
    from planner.report.files import check_target, write_page, write_pictures, write_record

    match kind:
        case "html" | "json":
            check_target(target, f".{kind}")
            write = write_page if kind == "html" else write_record
            return [write(make(), target)]
        case "png" | "svg":
            return write_pictures(make(), target, kind, names)
    raise AssertionError(kind)


def _report_of(study: str, folder: Path, progress: Report) -> DrawnReport:
    """The report of the folder of that name if it exists, else of the study."""
    from planner.report.sources import report_of_folder, report_of_study
    from studies.files.store import StudyStore

    if Path(study).is_dir():
        return report_of_folder(Path(study), progress)
    return report_of_study(StudyStore(folder).find(study), progress)
