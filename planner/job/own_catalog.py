"""Which of the user's own price lists and region files does a job name? Their figures, or what is wrong with them."""

from __future__ import annotations

from pathlib import Path

from planner.input.problems import Findings
from simulator.catalog import read_own_figures
from simulator.catalog.files import Overlay
from simulator.errors import InputError


def own_figures(value: object, folder: Path, findings: Findings) -> Overlay:
    """Returns the figures of the files that the field `catalog` of a job names.

    Args:
        value: a path, a list of paths, or `None`.
        folder: where relative paths start.
        findings: collects the problems.
    """
    paths = [value] if isinstance(value, str) else value
    if paths is None:
        return {}
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        findings.add(("catalog",), value, "must be a path, or a list of paths")
        return {}
    try:
        return read_own_figures([folder / path for path in paths])
    except InputError as error:
        for problem in error.problems:
            findings.add(("catalog",), _as_written(error.source, paths, folder), str(problem))
        return {}


def _as_written(source: str, paths: list[str], folder: Path) -> str:
    """Returns the path of a file as written in the job."""
    return next((path for path in paths if str(folder / path) == source), source)
