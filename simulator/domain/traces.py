"""What does a file of hourly prices or grid intensities contain? Its two columns as a profile, or the first wrong row.

    timestamp,g/kWh
    2025-01-01T00:00,412
    2025-01-01T01:00,398

Timestamps are ISO 8601 and evenly spaced; rows finer than an hour are averaged, coarser ones repeated. Files whose names
end in `.parquet` are carbon traces of OpenDC: the columns `timestamp` and `carbon_intensity`.
"""

from __future__ import annotations

import csv
import math
import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np

from simulator.domain.hourly import (
    HOURS_PER_DAY,
    MOST_HOURS,
    MOST_KGCO2E_PER_KWH,
    MOST_USD_PER_KWH,
    HourlyProfile,
)
from simulator.errors import InputError, Problem
from simulator.file_text import other_decimal, other_separator, utf8_text
from simulator.table import Floats
from simulator.units import HOUR, KILO

PARQUET = ".parquet"
_PARQUET_MAGIC = b"PAR1"
PARQUET_COLUMNS = ("timestamp", "carbon_intensity")
_MOST_BYTES = 50_000_000


@dataclass(frozen=True, kw_only=True)
class TraceUnit:
    """Unit of a trace file."""

    name: str
    per_unit: float
    """Factor on a value."""
    most: float
    """Largest value that occurs in practice."""
    others: frozenset[str] = frozenset()
    """Words of other units, in small letters, by which a heading contradicts this one."""
    least_peak: float = 0.0
    """Minimum peak of a whole trace anywhere in the world, unless all of it is 0; a lower peak is a figure in another unit."""


_LARGER_UNITS = frozenset({"mwh", "gwh", "twh"})
GRID_TRACE = TraceUnit(
    name="g/kWh",
    per_unit=1.0 / KILO,
    most=KILO * MOST_KGCO2E_PER_KWH,
    others=_LARGER_UNITS | {"kg", "kgco", "lb", "lbs", "lbsco", "usd", "eur"},
    least_peak=MOST_KGCO2E_PER_KWH,
)
"""Grids in grams. A trace whose highest hour is below 2 g/kWh is in kilograms."""
PRICE_TRACE = TraceUnit(
    name="USD/kWh",
    per_unit=1.0,
    most=MOST_USD_PER_KWH,
    others=_LARGER_UNITS | {"eur", "€", "gbp", "£", "ct", "cent", "cents", "¢", "g", "gco", "kg", "kgco"},
)

_Row = tuple[int, str, datetime, float]
"""Row number in the file, timestamp as written, timestamp, value."""


def read_trace(path: Path, unit: TraceUnit = GRID_TRACE) -> HourlyProfile:
    """Returns the profile in a file of two columns, `timestamp, value`, with or without a heading.

    Raises:
        InputError: the file cannot be read, or a row breaks the format; the first such row is named.
    """
    if path.suffix == PARQUET and unit is not GRID_TRACE:
        raise _broken(
            "", "", f"must be a text file: a file of Parquet holds a grid, not {unit.name}", str(path)
        )
    cells = _parquet_cells(path) if path.suffix == PARQUET else _cells(_lines(path), str(path))
    rows = _rows(cells, unit, str(path))
    spacing_s = _spacing_s(rows, str(path))
    values = np.array([value for *_, value in rows])
    if 0.0 < values.max() < unit.least_peak:
        rule = f"is less than the highest value of any trace in {unit.name}; is it in another unit?"
        raise _broken("highest value", f"{values.max():g}", rule, str(path))
    hours = _by_the_hour(values, spacing_s, str(path)) * unit.per_unit
    return HourlyProfile(per_hour=tuple(hours.tolist()))


def _broken(place: str, value: str, rule: str, source: str) -> InputError:
    return InputError([Problem(path=place, value=value[:60], rule=rule)], source)


def _lines(path: Path) -> list[str]:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise _broken("", "", "is larger than 50 MB", str(path))
        content = path.read_bytes()
    except OSError as error:
        raise _broken("", "", f"cannot be read: {error.strerror or error}", str(path)) from error
    if content.startswith(_PARQUET_MAGIC):
        raise _broken("", "", f"is a file of Parquet, whose name must end in {PARQUET}", str(path))
    try:
        return utf8_text(content).splitlines()
    except ValueError as error:
        raise _broken("", "", str(error), str(path)) from error


def _parquet_cells(path: Path) -> list[list[str]]:
    """Returns the rows of an OpenDC carbon trace in the form of a text file's."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if path.stat().st_size > _MOST_BYTES:
            raise _broken("", "", "is larger than 50 MB", str(path))
        with path.open("rb") as file, pq.ParquetFile(file) as source:
            names = source.schema_arrow.names
            for name in PARQUET_COLUMNS:
                if names.count(name) != 1:
                    rule = f"must be a column of a carbon trace, once; the file has {', '.join(names)[:200] or 'none'}"
                    raise _broken(name, "", rule, str(path))
            columns = source.read(columns=list(PARQUET_COLUMNS)).to_pydict()
    # Broken names are no text, and broken times none that exist.
    except (OSError, pa.ArrowException, ValueError, OverflowError) as error:
        reason = (
            getattr(error, "strerror", None) or "it is another kind of file, broken off, or has broken cells"
        )
        raise _broken("", "", f"cannot be read as Parquet: {reason}", str(path)) from error
    return [[str(time), str(value)] for time, value in zip(*columns.values(), strict=True)]


def _rows(lines: list[list[str]], unit: TraceUnit, source: str) -> list[_Row]:
    rows: list[_Row] = []
    for number, cells in enumerate(lines, start=1):
        if number == 1 and _is_heading(cells):
            if _words(cells[1]) & unit.others:
                way = f"convert the values, and write {unit.name} there"
                raise _broken(
                    "heading", cells[1].strip(), f"names another unit than {unit.name}: {way}", source
                )
            continue
        if not cells:
            continue
        rule = _broken_rule(cells, unit)
        if rule:
            raise _broken(f"row {number}", ", ".join(cells), rule, source)
        rows.append((number, cells[0], datetime.fromisoformat(cells[0].strip()), float(cells[1])))
    if len(rows) < 2:
        raise _broken("", "", f"must have at least two rows of timestamp and value, not {len(rows)}", source)
    return rows


def _cells(lines: list[str], source: str) -> list[list[str]]:
    try:
        return list(csv.reader(lines))
    except csv.Error as error:
        raise _broken("", "", f"is no CSV file: {error}", source) from error


def _is_heading(cells: list[str]) -> bool:
    """Whether the first row names columns: neither of its cells is a figure."""
    return len(cells) == 2 and _time(cells[0]) is None and math.isnan(_number(cells[1]))


def _words(heading: str) -> set[str]:
    """Returns the words of a heading, and its signs of currencies, in small letters: `gCO2eq/kWh` has gco, eq and kwh.

    Kilograms per MWh are grams per kWh, and read as such.
    """
    words = re.sub(r"kg(.*)mwh", r"g\1kwh", heading.lower())
    return set(re.findall(r"[a-z]+|[€£¢]", words))


def _broken_rule(cells: list[str], unit: TraceUnit) -> str | None:
    """Returns the rule that a row breaks, if it does."""
    if len(cells) != 2:
        return f"must have two columns, timestamp and value, not {len(cells)}{other_separator(cells[0])}"
    value = _number(cells[1])
    if _time(cells[0]) is None:
        way = other_separator(cells[0])
        return f"must begin with a timestamp in ISO 8601, such as 2025-01-31T23:00{way}"
    if not math.isfinite(value):
        return f"must have a finite number of {unit.name} in its second column{other_decimal(cells[1])}"
    if value < 0.0:
        return f"must not be negative: 0 is the least {unit.name} that counts"
    if value > unit.most:
        return f"must lie between 0 and {unit.most:g} {unit.name}; is it in another unit?"
    return None


def _time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        return None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _spacing_s(rows: list[_Row], source: str) -> float:
    """Returns the time between two rows; the first row that breaks it is a gap, a duplicate or a change of time zone."""
    has_zone = rows[0][2].tzinfo is not None
    for number, text, time, _ in rows:
        if (time.tzinfo is not None) != has_zone:
            raise _broken(
                f"row {number}", text, "must have a time zone as all other rows, or none as they", source
            )
    times_s = np.array([(time - rows[0][2]).total_seconds() for _, _, time, _ in rows])
    steps_s = np.diff(times_s)
    if steps_s[0] <= 0.0:
        raise _broken(f"row {rows[1][0]}", rows[1][1], "must be later than the row before", source)
    if (uneven := np.flatnonzero(steps_s != steps_s[0])).size:
        number, text, *_ = rows[uneven[0] + 1]
        rule = f"must follow the row before by {steps_s[0]:g} s, as the second row does, not by {steps_s[uneven[0]]:g} s"
        if not has_zone and abs(steps_s[uneven[0]] - steps_s[0]) == HOUR:
            rule += "; does summer time begin or end there? Times in UTC, or with their offset (+02:00), do not jump"
        raise _broken(f"row {number}", text, rule, source)
    return float(steps_s[0])


def _by_the_hour(values: Floats, spacing_s: float, source: str) -> Floats:
    """Means of whole hours of a finer trace, repetitions of a coarser one, for whole days."""
    rows_per_hour, hours_per_row = HOUR / spacing_s, spacing_s / HOUR
    if not (rows_per_hour.is_integer() or hours_per_row.is_integer()):
        rule = "must be spaced by a whole number of hours or by a whole part of one"
        raise _broken("timestamp", f"{spacing_s:g} s", rule, source)
    num_hours = len(values) * spacing_s / HOUR
    if not (num_hours / HOURS_PER_DAY).is_integer() or num_hours > MOST_HOURS:
        rule = f"must cover whole days, since it repeats, and at most {MOST_HOURS:,} hours; not {num_hours:g} hours"
        raise _broken("number of rows", str(len(values)), rule, source)
    if rows_per_hour > 1.0:
        return np.asarray(values.reshape(-1, int(rows_per_hour)).mean(axis=1))
    return np.repeat(values, int(hours_per_row))
