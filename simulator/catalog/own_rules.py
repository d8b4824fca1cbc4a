"""Which rules does a user's own price list or region file break, by row and by entry?

A row can be wrong by itself: a misspelt quantity, a unit of another kind, a non-numeric figure, a duplicate. An entry can be
wrong given its rows and the catalogue: a new region without a tariff, a PUE below 1, a rent for an unknown accelerator.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Self

from simulator.catalog.files import TEXT_UNIT, Confidence, Figure, Overlay, entries, figure_of, overlaid
from simulator.catalog.frameworks import framework
from simulator.catalog.lookup import FILES, Kind, accelerator, fabric, figures, names, node, site
from simulator.errors import CatalogError, Problem
from simulator.file_text import other_decimal

COLUMNS = ("kind", "id", "quantity", "value", "unit", "source", "date", "confidence")
KINDS = tuple(kind.value for kind in FILES)
"""Kinds whose figures can be replaced; model shapes are written into jobs instead."""
LIKE_UNITS = (("GB", "GiB"), ("GB/s", "Gbit/s"), ("W", "kW"), ("fraction", "ratio"))
"""Units that can replace each other."""
MOST_TIMES = 100.0
"""Largest ratio of a user's own factor to the catalogue's: different sources differ by less, different units by more."""
REFERENCES: Mapping[tuple[str, str], Kind] = {
    ("nodes", "accelerator"): Kind.ACCELERATORS,
    ("accelerators", "default_node"): Kind.NODES,
    ("accelerators", "default_fabric"): Kind.FABRICS,
}
"""Quantities that name an entry of another kind."""
_MAKERS: Mapping[str, Callable[[str], object]] = {
    "accelerators": accelerator,
    "nodes": node,
    "fabrics": fabric,
    "sites": site,
    "frameworks": framework,
}


@dataclass(frozen=True, kw_only=True)
class OwnRow:
    """One row of a file that satisfies the row rules."""

    number: int
    """Line number in the file."""
    kind: str
    name: str
    figure: Figure

    @classmethod
    def of(cls, number: int, written: Sequence[str]) -> Self:
        """Returns the row with its figure."""
        cells = dict(zip(COLUMNS, written, strict=True))
        return cls(number=number, kind=cells["kind"], name=cells["id"], figure=figure_of(cells))


def broken_rows(rows: Sequence[tuple[int, Sequence[str]]]) -> list[Problem]:
    """Returns the first rule that each row breaks, and duplicate rows."""
    problems, seen = [], dict[tuple[str, ...], int]()
    for number, written in rows:
        if len(written) != len(COLUMNS):
            rule = f"must have {len(COLUMNS)} columns: {','.join(COLUMNS)}"
            problems.append(Problem(path=f"row {number}", value=",".join(written)[:60], rule=rule))
            continue
        cells = dict(zip(COLUMNS, written, strict=True))
        before = seen.setdefault(_identity(cells), number)
        broken = next(
            chain(_broken_names(cells), _broken_figure(cells), _repeated(cells, before, number)), None
        )
        if broken:
            column, rule = broken
            problems.append(Problem(path=f"row {number}, {column}", value=cells[column][:60], rule=rule))
    return problems


def _identity(cells: Mapping[str, str]) -> tuple[str, ...]:
    """The key that no two rows may share; rents of one accelerator differ by vendor and date."""
    columns = ("kind", "id", "quantity")
    return tuple(
        cells[name] for name in (*columns, "source", "date") if name in columns or cells["kind"] == "rents"
    )


def _repeated(cells: Mapping[str, str], before: int, number: int) -> Iterator[tuple[str, str]]:
    if before != number:
        yield "quantity", f"stands for {cells['id']} in row {before} already"


def _broken_names(cells: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yields columns with unknown names, with the rule; columns after the first of them cannot be checked."""
    kind, name, quantity = cells["kind"], cells["id"], cells["quantity"]
    if kind not in KINDS:
        yield "kind", f"must be one of {', '.join(KINDS)}{_nearest(kind, KINDS)}"
    if not name:
        yield "id", "must not be empty"
    if kind == "factors" and name not in _units_by_entry(kind):
        yield "id", f"is not among the catalogue's factors{_nearest(name, tuple(_units_by_entry(kind)))}"
    known = tuple(_units_of(kind, name))
    if quantity not in known:
        near = _nearest(quantity, known) or f"; known: {', '.join(known)}"
        yield "quantity", f"is no figure of {name if kind == 'factors' else kind}{near}"


def _broken_figure(cells: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yields columns of a figure that break a rule, with the rule."""
    units = _units_of(cells["kind"], cells["id"])[cells["quantity"]]
    if cells["unit"] not in units:
        yield "unit", f"must be {' or '.join(units)} for {cells['quantity']}"
    if cells["unit"] == TEXT_UNIT and not cells["value"]:
        yield "value", "must not be empty"
    if cells["unit"] != TEXT_UNIT and not _is_number(cells["value"]):
        yield "value", f"must be a finite number that is not negative{other_decimal(cells['value'])}"
    if not cells["source"]:
        yield "source", "must say where the figure comes from"
    if not re.fullmatch(r"\d{4}(-(0[1-9]|1[0-2])(-\d\d)?)?", cells["date"], re.ASCII):
        yield "date", "must be a year, month or day, such as 2026-11"
    if cells["confidence"] not in list(Confidence):
        yield "confidence", f"must be one of {', '.join(Confidence)}"


def _is_number(text: str) -> bool:
    try:
        number = float(text)
    except ValueError:
        return False
    return math.isfinite(number) and number >= 0.0


def _units_of(kind: str, name: str) -> Mapping[str, tuple[str, ...]]:
    """Allowed units of each quantity; each factor has its own quantities and no others."""
    shipped = _units_by_entry(kind)
    if kind == "factors":
        return shipped.get(name, {})
    return {quantity: units for known in shipped.values() for quantity, units in known.items()}


@cache
def _units_by_entry(kind: str) -> Mapping[str, Mapping[str, tuple[str, ...]]]:
    shipped = entries(FILES[Kind(kind)])
    return {
        name: {figure.quantity: _like(figure.unit) for figure in known} for name, known in shipped.items()
    }


def _like(unit: str) -> tuple[str, ...]:
    return next((units for units in LIKE_UNITS if unit in units), (unit,))


def _nearest(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=3)
    return f"; nearest: {', '.join(near)}" if near else ""


def broken_entries(rows: Sequence[OwnRow], overlay: Overlay) -> list[Problem]:
    """Returns the problems of the entries that a file names, on top of the catalogue and all own figures."""
    with overlaid(overlay):
        problems = [problem for row in rows for problem in _broken_reference(row)]
        first = {(row.kind, row.name): row for row in reversed(rows)}
        for row in reversed(first.values()):
            problems.extend(_broken_entry(row))
    return problems


def _broken_factor(row: OwnRow) -> Iterator[Problem]:
    """A factor that exceeds the catalogue's so far that it must be in another unit."""
    shipped = {figure.quantity: figure.si_value for figure in entries(FILES[Kind.FACTORS])[row.name]}
    known, own = shipped[row.figure.quantity], row.figure.si_value
    if isinstance(known, float) and isinstance(own, float) and 0.0 < known * MOST_TIMES < own:
        rule = f"is more than {MOST_TIMES:g} times the catalogue's {known:.3g} (SI); is it in another unit?"
        yield Problem(path=f"row {row.number}, value", value=f"{row.figure.value:g}", rule=rule)


def _broken_reference(row: OwnRow) -> Iterator[Problem]:
    """A figure that refers to an unknown entry."""
    kind = REFERENCES.get((row.kind, row.figure.quantity))
    if kind and row.figure.value not in names(kind):
        rule = f"is not among the catalogue's {kind.value}{_nearest(str(row.figure.value), names(kind))}"
        yield Problem(path=f"row {row.number}, value", value=str(row.figure.value), rule=rule)


def _broken_entry(row: OwnRow) -> Iterator[Problem]:
    """An entry that is incomplete or breaks the rules of its type, or rents of an unknown accelerator."""
    if row.kind == "factors":
        yield from _broken_factor(row)
        return
    if row.kind == "rents":
        known = names(Kind.ACCELERATORS)
        if row.name not in known:
            rule = f"is not among the catalogue's accelerators{_nearest(row.name, known)}"
            yield Problem(path=f"row {row.number}, id", value=row.name, rule=rule)
        return
    missing = [
        quantity
        for (kind, quantity) in REFERENCES
        if kind == row.kind and quantity not in {figure.quantity for figure in figures(Kind(kind), row.name)}
    ]
    if missing:
        rule = f"must have {' and '.join(missing)}, too, as every new entry of {row.kind}"
        yield Problem(path=f"row {row.number}, id", value=row.name, rule=rule)
    try:
        _MAKERS[row.kind](row.name)
    except CatalogError as error:
        yield Problem(path=f"row {row.number}, id", value=row.name, rule=error.problems[0].rule)
