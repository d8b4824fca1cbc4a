"""Which catalogue figures does a user replace? With their own price lists and region files.

A file has the columns of the catalogue preceded by the kind, one figure per row:

    kind,id,quantity,value,unit,source,date,confidence
    rents,h100-sxm5-80gb,on_demand,1.90,USD/GPU-hour,our contract,2026-11,verified
    sites,us-iowa,electricity_price,0.047,USD/kWh,our tariff,2026,verified
    factors,flash,price,250,USD/TB,our quote,2026-10,verified

A figure replaces the one of the same quantity; the rents of an accelerator are replaced as a whole. An unknown id is a new
entry, which must have every figure that its type requires. `simulator.catalog.own_rules` contains the rules for rows and
entries.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from simulator.catalog.files import PRICE_LIST, Figure, Overlay, entries
from simulator.catalog.own_rules import COLUMNS, OwnRow, broken_entries, broken_rows
from simulator.errors import InputError, Problem, refusal
from simulator.file_text import other_separator, utf8_text

MOST_BYTES = 10_000_000
_Figures = dict[str, dict[str, dict[str, list[Figure]]]]
"""Figures by catalogue file, entry and quantity."""


def read_own_figures(paths: Sequence[Path]) -> Overlay:
    """Returns the figures of some files; later files win.

    Raises:
        InputError: a file cannot be read, or rows or entries break rules; it lists all problems of the first such file.
    """
    found: _Figures = {}
    rows: dict[Path, list[OwnRow]] = {}
    for path in paths:
        rows[path] = _rows(path)
        for file_name, names in _by_entry(rows[path]).items():
            for name, figures in names.items():
                found.setdefault(file_name, {}).setdefault(name, {}).update(figures)
    overlay = _overlay(found)
    for path, own in rows.items():
        if problems := broken_entries(own, overlay):
            raise InputError(problems, str(path))
    return overlay


def _overlay(found: _Figures) -> Overlay:
    spread = _with_switches(found)
    return {
        file_name: {
            name: tuple(f for group in groups.values() for f in group) for name, groups in names.items()
        }
        for file_name, names in spread.items()
    }


def _with_switches(found: _Figures) -> _Figures:
    """A user's own carbon figure of a switch applies to all catalogue fabrics for which the user gives no other one."""
    switch = found.get("factors.csv", {}).get("switch", {}).get("embodied_carbon")
    if not switch:
        return found
    renamed = [figure.model_copy(update={"quantity": "embodied_switch_carbon"}) for figure in switch]
    own = found.get("fabrics.csv", {})
    names = dict.fromkeys([*entries("fabrics.csv"), *own])
    fabrics = {name: {"embodied_switch_carbon": renamed, **own.get(name, {})} for name in names}
    return {**found, "fabrics.csv": fabrics}


def _by_entry(rows: Sequence[OwnRow]) -> _Figures:
    found: _Figures = {}
    for row in rows:
        names = found.setdefault(PRICE_LIST if row.kind == "rents" else f"{row.kind}.csv", {})
        names.setdefault(row.name, {}).setdefault(row.figure.quantity, []).append(row.figure)
    return found


def _rows(path: Path) -> list[OwnRow]:
    written = _written_rows(path)
    if problems := broken_rows(written):
        raise InputError(problems, str(path))
    return [OwnRow.of(number, cells) for number, cells in written]


def _written_rows(path: Path) -> Sequence[tuple[int, Sequence[str]]]:
    """Returns the cells of every row except the heading, with its line number."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise refusal(path, "is larger than 10 MB")
        content = path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        rule = f"cannot be read: {getattr(error, 'strerror', None) or error}"
        raise refusal(path, rule) from error
    try:
        reader = csv.reader(utf8_text(content).splitlines())
        rows = [(reader.line_num, cells) for cells in reader if cells]
    except (ValueError, csv.Error) as error:
        raise refusal(
            path, str(error) if isinstance(error, ValueError) else f"is no CSV file: {error}"
        ) from error
    heading = rows[0][1] if rows else []
    if tuple(heading) != COLUMNS:
        raise InputError([_broken_heading(heading)], str(path))
    if not rows[1:]:
        raise refusal(path, "has a heading and no figures below it")
    return rows[1:]


def _broken_heading(heading: Sequence[str]) -> Problem:
    unknown = [column for column in heading if column not in COLUMNS]
    which = other_separator("".join(heading[:1])) or (f"; unknown: {', '.join(unknown)}" if unknown else "")
    rule = f"must begin with the line {','.join(COLUMNS)}{which}"
    return Problem(path="row 1", value=",".join(heading)[:60], rule=rule)
