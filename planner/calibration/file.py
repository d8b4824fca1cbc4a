"""How is a calibration stored? As a YAML file that a person can read, change and pass on, validated whenever it is read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from planner.input.arguments import path_given
from planner.input.own_files import OUTPUT, replacing
from planner.input.problems import shown
from planner.input.record_input import parse_record
from planner.input.yaml_text import read_document
from simulator.domain.calibration import Calibration
from simulator.errors import InputError, Problem, refusal

HEAD = """\
# Constants of a cluster that were measured on it; `capplan calibrate` wrote this file, `calibration: FILE` in a job uses it.
# Fractions are 0..1, times in seconds, errors simulated over measured, less one.
"""
LEAST = "what `capplan calibrate --output FILE.yaml` writes"
"""What a calibration file is, for error messages."""


def load_calibration(path: str | Path) -> Calibration:
    """Returns the calibration in a file.

    Raises:
        InputError: the file cannot be read, or breaks rules; `problems` lists all of them.
    """
    file = path_given(path)
    document = read_document(file, least=LEAST)
    if not isinstance(document, Mapping) or "constants" not in document:
        rule = f"{shown(document)} must be a calibration file: {LEAST}"
        raise refusal(file, rule)
    return parse_record(Calibration, document, source=str(file))


def calibration_text(calibration: Calibration) -> str:
    """Returns a calibration as the text of a file; reading it gives the same calibration."""
    import yaml

    values = calibration.model_dump(mode="json", exclude_none=True)
    text: str = yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=120)
    return HEAD + text


def write_calibration(calibration: Calibration, path: Path) -> None:
    """Writes a new file, as a whole or not at all.

    Raises:
        InputError: the file already exists, its folder does not, or nothing can be written there.
    """
    check_new_file(path)
    with replacing(path, OUTPUT) as draft:
        draft.write_text(calibration_text(calibration), encoding="utf-8")


def check_new_file(path: Path) -> None:
    """Raises `InputError` if a file could not be written."""
    if path.exists():
        rule = "is there already, and measurements are never overwritten: choose another file"
        raise InputError([Problem(path=OUTPUT, value=str(path), rule=rule)])
    if not path.parent.is_dir():
        raise InputError([Problem(path=OUTPUT, value=str(path), rule="must lie in a folder that exists")])
