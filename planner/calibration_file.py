"""How is a calibration kept? As a YAML file that a person can read, change and pass on, checked whenever it is read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from planner.plain import plain_copy
from planner.problems import Findings, shown
from planner.yaml_text import read_document
from simulator.calibration import Calibration
from simulator.errors import InputError, Problem

HEAD = """\
# Constants of a cluster that were measured on it; `capplan calibrate` wrote this file, --calibration FILE uses it.
# Fractions are 0..1, times in seconds, errors simulated over measured, less one.
"""


def load_calibration(path: str | Path) -> Calibration:
    """Returns the calibration in a file.

    Raises:
        InputError: the file cannot be read, or breaks rules; all of them are in `problems`.
    """
    file = Path(path)
    document = read_document(file)
    if not isinstance(document, Mapping) or "constants" not in document:
        rule = f"{shown(document)} must be a calibration file, as `capplan calibrate --output FILE.yaml` writes it"
        raise InputError([Problem(path="", value="", rule=rule)], str(file))
    findings = Findings()
    plain = plain_copy(document, findings)
    findings.raise_if_any(str(file))
    try:
        return Calibration.model_validate(plain)
    except ValidationError as error:
        problems = [
            Problem(path=_place(detail["loc"]), value=shown(detail["input"]), rule=_rule(detail["msg"]))
            for detail in error.errors(include_url=False)
        ]
    raise InputError(problems, str(file))


def calibration_text(calibration: Calibration) -> str:
    """Returns a calibration as the text of a file; reading it gives the same calibration."""
    import yaml

    values = calibration.model_dump(mode="json", exclude_none=True)
    text: str = yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=120)
    return HEAD + text


def write_calibration(calibration: Calibration, path: Path) -> None:
    """Writes a new file.

    Raises:
        InputError: the file is there already, or its folder is not.
    """
    check_new_file(path)
    path.write_text(calibration_text(calibration), encoding="utf-8")


def check_new_file(path: Path) -> None:
    """Raises `InputError` where a file could not be written."""
    if path.exists():
        rule = "is there already, and measurements are never overwritten: choose another file"
        raise InputError([Problem(path="output", value=str(path), rule=rule)])
    if not path.parent.is_dir():
        raise InputError([Problem(path="output", value=str(path), rule="must lie in a folder that exists")])


def _place(location: tuple[str | int, ...]) -> str:
    text = ""
    for step in location:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def _rule(message: str) -> str:
    text = message.removeprefix("Value error, ")
    return text[:1].lower() + text[1:]
