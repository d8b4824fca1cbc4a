"""Which figures does a user put in the place of the catalogue's? A price list or a region file of one's own.

A file has the columns of the catalogue and the kind before them, one figure a row:

    kind,id,quantity,value,unit,source,date,confidence
    rents,h100-sxm5-80gb,on_demand,1.90,USD/GPU-hour,our contract,2026-11,verified
    sites,us-iowa,electricity_price,0.047,USD/kWh,our tariff,2026,verified

A figure replaces that of the same quantity; the rents of an accelerator are replaced all together. An unknown id is a new
entry, which must have every figure that its type requires.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from simulator.catalog.files import SI_PER_UNIT, TEXT_UNIT, Confidence, Figure, Overlay
from simulator.errors import InputError, Problem

COLUMNS = ("kind", "id", "quantity", "value", "unit", "source", "date", "confidence")
KINDS = ("accelerators", "nodes", "fabrics", "sites", "rents")
"""Kinds whose figures can be replaced; shapes of models are written into jobs."""
MOST_BYTES = 10_000_000


def read_own_figures(paths: Sequence[Path]) -> Overlay:
    """Returns the figures of some files; later files win.

    Raises:
        InputError: a file cannot be read or breaks the form; all problems of the first such file are in it.
    """
    overlay: dict[str, dict[str, dict[str, list[Figure]]]] = {}
    for path in paths:
        found: dict[str, dict[str, dict[str, list[Figure]]]] = {}
        for kind, name, figure in _figures(path):
            quantities = found.setdefault(f"{kind}.csv", {}).setdefault(name, {})
            quantities.setdefault(figure.quantity, []).append(figure)
        for file_name, names in found.items():
            for name, figures in names.items():
                overlay.setdefault(file_name, {}).setdefault(name, {}).update(figures)
    return {
        file_name: {
            name: tuple(f for group in groups.values() for f in group) for name, groups in names.items()
        }
        for file_name, names in overlay.items()
    }


def _figures(path: Path) -> list[tuple[str, str, Figure]]:
    rows = _rows(path)
    problems: list[Problem] = []
    figures = []
    for number, row in enumerate(rows, start=2):
        try:
            figures.append((_kind(row), _name(row), _figure(row)))
        except ValueError as error:
            shown = ",".join(str(value) for value in row.values())[:60]
            problems.append(Problem(path=f"row {number}", value=shown, rule=_rule(error)))
    if problems:
        raise InputError(problems, str(path))
    return figures


def _rows(path: Path) -> Sequence[Mapping[str, str]]:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise InputError([Problem(path="", value="", rule="is larger than 10 MB")], str(path))
        reader = csv.DictReader(path.read_text(encoding="utf-8-sig").splitlines())
        rows = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        rule = f"cannot be read: {type(error).__name__}"
        raise InputError([Problem(path="", value="", rule=rule)], str(path)) from error
    if tuple(reader.fieldnames or ()) != COLUMNS:
        rule = f"must begin with the line {','.join(COLUMNS)}"
        raise InputError(
            [Problem(path="row 1", value=",".join(reader.fieldnames or ())[:60], rule=rule)], str(path)
        )
    return rows


def _kind(row: Mapping[str, str]) -> str:
    if row["kind"] not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}")
    return row["kind"]


def _name(row: Mapping[str, str]) -> str:
    if not row["id"]:
        raise ValueError("id must not be empty")
    return row["id"]


def _figure(row: Mapping[str, str]) -> Figure:
    if any(value is None for value in row.values()) or None in row:
        raise ValueError(f"must have {len(COLUMNS)} columns")
    unit, value = row["unit"], row["value"]
    if unit != TEXT_UNIT and unit not in SI_PER_UNIT:
        raise ValueError(f"unit must be one of {', '.join((TEXT_UNIT, *SI_PER_UNIT))}")
    if row["confidence"] not in list(Confidence):
        raise ValueError(f"confidence must be one of {', '.join(Confidence)}")
    if not re.fullmatch(r"\d{4}(-\d\d(-\d\d)?)?", row["date"], re.ASCII):
        raise ValueError("date must be a year, month or day, such as 2026-11")
    if not row["source"]:
        raise ValueError("source must say where the figure comes from")
    return Figure(
        quantity=row["quantity"],
        value=value if unit == TEXT_UNIT else _number(value),
        unit=unit,
        source=row["source"],
        date=row["date"],
        confidence=Confidence(row["confidence"]),
    )


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number >= 0.0):
        raise ValueError("value must be a finite number that is not negative")
    return number


def _rule(error: ValueError) -> str:
    return error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
