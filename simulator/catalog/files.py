"""What do the catalogue's files contain? Every figure with its unit, source, date and confidence.

Each CSV file has one figure per row, `id,quantity,value,unit,source,date,confidence`, in the unit of its source. Only this
module reads the files, and only here their units become SI.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

from simulator.record import Choice, Record
from simulator.units import GIB, GIGA, KILO, SQUARE_CENTIMETRE, SQUARE_MILLIMETRE, TERA, gigabits_per_s

PRICE_LIST = "rents.csv"
"""The file where one quantity of an entry may have several figures."""
TEXT_UNIT = "text"
"""Unit of textual figures, such as the vendor."""

SI_PER_UNIT: Mapping[str, float] = {
    "count": 1.0,
    "fraction": 1.0,
    "ratio": 1.0,
    "B": 1.0,
    "GB": GIGA,
    "GiB": GIB,
    "GB/s": GIGA,
    "Gbit/s": gigabits_per_s(1.0),
    "TFLOP/s": TERA,
    "W": 1.0,
    "kW": KILO,
    "kgCO2e": 1.0,
    "kgCO2e/kWh": 1.0,
    "USD": 1.0,
    "USD/kWh": 1.0,
    "USD/GPU-hour": 1.0,
    "L/kWh": 1.0,
    "mm2": SQUARE_MILLIMETRE,
    "kWh/cm2": 1.0 / SQUARE_CENTIMETRE,
    "kgCO2e/cm2": 1.0 / SQUARE_CENTIMETRE,
    "kgCO2e/GB": 1.0 / GIGA,
    "USD/TB": 1.0 / TERA,
    "USD/W": 1.0,
    "W/TB": 1.0 / TERA,
    "1/year": 1.0,
}
"""SI value of each unit allowed in the files; prices, energy and carbon factors stay per hour, year and kWh."""


class Confidence(Choice):
    """How reliable a figure is."""

    VERIFIED = "verified"
    """Read in the cited source."""
    PARTIAL = "partial"
    """Cited, but read in a secondary source, or sources disagree."""
    ESTIMATE = "estimate"
    """Derived by a stated rule, or unverified."""


class Figure(Record):
    """One figure of the catalogue as given by its source."""

    quantity: str
    """What is measured, such as `memory_bandwidth`."""
    value: float | str
    """The figure in its unit, or a word where the unit is `text`."""
    unit: str
    """Unit used by the source, such as `GB/s` (decimal)."""
    source: str
    """Keys of `docs/catalog-sources.md`, separated by `; `, each with an optional note after `: `."""
    date: str
    """Date, month or year that the figure is valid for; empty if the source gives none."""
    confidence: Confidence
    """How reliable it is."""

    @property
    def si_value(self) -> float | str:
        """The value in SI units; text is unchanged."""
        return self.value if isinstance(self.value, str) else self.value * SI_PER_UNIT[self.unit]


Entries = Mapping[str, tuple[Figure, ...]]
"""Figures by entry name, in file order."""


Overlay = Mapping[str, Entries]
"""A user's own figures by the name of the file whose figures they replace; see `simulator.catalog.own`."""
_overlay: ContextVar[Overlay] = ContextVar("figures of the user")


@contextmanager
def overlaid(overlay: Overlay) -> Iterator[None]:
    """Replaces catalogue figures by a user's own while the block runs."""
    token = _overlay.set(overlay)
    try:
        yield
    finally:
        _overlay.reset(token)


def current_entries(file_name: str) -> Entries:
    """Returns the figures of one CSV file by entry, with the user's own replacing the catalogue's."""
    shipped, own = entries(file_name), _overlay.get({}).get(file_name, {})
    if not own:
        return shipped
    replaces_all = file_name == PRICE_LIST
    return {
        **shipped,
        **{name: _merged(shipped.get(name, ()), figures, replaces_all) for name, figures in own.items()},
    }


def is_own(file_name: str, name: str) -> bool:
    """Returns whether the user supplies figures for an entry."""
    return name in _overlay.get({}).get(file_name, {})


def _merged(shipped: tuple[Figure, ...], own: tuple[Figure, ...], replaces_all: bool) -> tuple[Figure, ...]:
    """Own figures replace shipped ones of the same quantity; own prices, which may be many, replace all shipped ones."""
    replaced = {figure.quantity for figure in own}
    kept = () if replaces_all else tuple(figure for figure in shipped if figure.quantity not in replaced)
    return (*kept, *own)


@cache
def entries(file_name: str) -> Entries:
    """The figures of one CSV file in the package; the file is read once."""
    rows: dict[str, list[Figure]] = {}
    for row in csv.DictReader(read_text(file_name).splitlines()):
        rows.setdefault(row["id"], []).append(figure_of(row))
    return {name: tuple(figures) for name, figures in rows.items()}


@cache
def model_document() -> Mapping[str, Mapping[str, object]]:
    """Returns the raw entries of `models.yaml`."""
    import yaml

    # The C reader is eight times as fast, but PyYAML can be built without it.
    safe_loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    document = yaml.load(read_text("models.yaml"), Loader=safe_loader)  # noqa: S506 - both loaders are safe ones
    assert isinstance(document, dict)
    return document


def data_folder() -> Traversable:
    """Returns the folder of the data files inside the package."""
    return resources.files("simulator.catalog").joinpath("data")


def read_text(file_name: str) -> str:
    """Returns the text of one data file of the catalogue."""
    return data_folder().joinpath(file_name).read_text(encoding="utf-8")


@cache
def catalog_hash() -> str:
    """Returns 16 hexadecimal digits that change whenever any data file of the catalogue does (SHA-256)."""
    digest = hashlib.sha256()
    for file in sorted(data_folder().iterdir(), key=lambda file: file.name):
        if file.name.endswith((".csv", ".yaml")):
            content = file.read_bytes()
            digest.update(f"{file.name} {len(content)}\n".encode())
            digest.update(content)
    return digest.hexdigest()[:16]


def figure_of(row: Mapping[str, str]) -> Figure:
    """Returns the figure in a row, given by column names."""
    value = row["value"] if row["unit"] == TEXT_UNIT else float(row["value"])
    return Figure(
        quantity=row["quantity"],
        value=value,
        unit=row["unit"],
        source=row["source"],
        date=row["date"],
        confidence=Confidence(row["confidence"]),
    )
