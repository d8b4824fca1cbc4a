"""Where is a report written? To a page, a JSON record, or a folder of pictures; never over any other file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from planner.input.own_files import OUTPUT, check_own_file, filling, replacing
from planner.report.build import DrawnReport
from planner.report.data import FAMILY
from planner.report.page import page
from planner.report.plots import PictureFormat, save_picture
from simulator.argument_names import Argument
from simulator.errors import InputError, Problem

HEAD_CHARACTERS: Final = 2_000
"""Every report identifies itself within this many characters."""
PAGE_SUFFIX: Final = ".html"
"""Suffix of a page."""
RECORD_SUFFIX: Final = ".json"
"""Suffix of a record."""
SUFFIXES: Final = frozenset({PAGE_SUFFIX, RECORD_SUFFIX, ".pdf", ".png", ".svg"})
"""Suffixes that promise one format; a file with any other suffix, or none, may hold a page or a record."""


def write_page(drawn: DrawnReport, path: Path) -> Path:
    """Writes the page, replacing an older report as a whole, and returns the file.

    Raises:
        InputError: the file cannot be written, exists and is not a report, or has the suffix of another format.
    """
    return _write(path, PAGE_SUFFIX, page(drawn))


def write_record(drawn: DrawnReport, path: Path) -> Path:
    """Writes the record behind the page as JSON; raises like `write_page`."""
    return _write(path, RECORD_SUFFIX, drawn.report.model_dump_json(indent=2) + "\n")


def write_pictures(
    drawn: DrawnReport, folder: Path, picture_format: PictureFormat, names: Sequence[str] = ()
) -> list[Path]:
    """Draws figures into a folder, which is created if missing, and returns the files.

    Args:
        drawn: the report.
        folder: where to; pictures of the same name are replaced, once all are drawn.
        picture_format: `png` or `svg`.
        names: figures to draw; all if none is named.

    Raises:
        InputError: a figure is not in the report, or a file cannot be written.
    """
    figures = {figure.name: figure for figure in drawn.report.figures}
    unknown = [name for name in names if name not in figures]
    if unknown:
        rule = f"is not a figure of this report; available: {', '.join(figures) or 'none'}"
        raise InputError([Problem(path=Argument("figure"), value=name, rule=rule) for name in unknown])
    files = {name: f"{name}.{picture_format}" for name in names or figures}
    with filling(folder) as new:
        for name, file in files.items():
            save_picture(figures[name], drawn.cloud, new / file)
    return [folder / file for file in files.values()]


def check_target(path: Path, suffix: str) -> None:
    """Raises `InputError` if a report cannot be written, or would replace anything but a report.

    Args:
        path: the file.
        suffix: of the format that it is to hold.
    """
    given = path.suffix.lower()
    if given in SUFFIXES - {suffix}:
        way = ": for a PDF, print the page from a browser" if given == ".pdf" else ""
        rule = f"ends in {given}, but would be written as {suffix}{way}"
        raise InputError([Problem(path=OUTPUT, value=str(path), rule=rule)])
    check_own_file(path, "report", OUTPUT, _is_report)


def _is_report(path: Path) -> bool:
    with path.open(encoding="utf-8", errors="replace") as file:
        return FAMILY in file.read(HEAD_CHARACTERS)


def _write(path: Path, suffix: str, text: str) -> Path:
    check_target(path, suffix)
    with replacing(path, OUTPUT) as draft:
        draft.write_text(text, encoding="utf-8")
    return path
