"""What is in the catalogue? Its kinds, the entries of a kind, and one entry with where every figure comes from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from planner.json_forms import CatalogAnswer
from planner.text import human
from planner.text.figure_units import with_unit
from planner.text.text_blocks import plain_table
from simulator.argument_names import Argument
from simulator.catalog import Figure, Kind, figures, names, rent
from simulator.errors import CatalogError, InputError, Problem

if TYPE_CHECKING:
    from rich.console import Console

COLUMNS: dict[Kind, tuple[str, ...]] = {
    Kind.ACCELERATORS: (
        "memory",
        "memory_bandwidth",
        "bf16_peak",
        "fp8_peak",
        "fp4_peak",
        "thermal_design_power",
    ),
    Kind.NODES: ("accelerator", "num_accelerators", "network_bandwidth", "purchase_price"),
    Kind.FABRICS: ("switch_ports", "switch_power", "optic_power", "port_price"),
    Kind.MODELS: (
        "num_layers",
        "hidden_size",
        "num_heads",
        "num_parameters",
        "num_active_parameters",
        "vision_parameters",
        "linear_kind",
        "indexer_chosen_tokens",
        "compressed_chosen_tokens",
    ),
    Kind.SITES: ("grid_carbon", "electricity_price", "power_usage_effectiveness"),
    Kind.FRAMEWORKS: ("name", "zero_stages", "checkpoint_schemes"),
    Kind.RENTS: ("low", "mid", "high", "newest"),
    Kind.FACTORS: ("figures",),
}
"""What the list of a kind shows of each entry."""

_KIND_WORDS: dict[Kind, str] = {
    Kind.ACCELERATORS: "GPUs and other accelerators",
    Kind.NODES: "servers with these accelerators",
    Kind.FABRICS: "networks between nodes",
    Kind.MODELS: "shapes of published models",
    Kind.SITES: "countries, states and cloud regions",
    Kind.FRAMEWORKS: "training software and its habits",
    Kind.RENTS: "accelerator rents, USD per GPU-hour",
    Kind.FACTORS: "carbon footprints and prices that apply to all hardware",
}
_LONGEST_SHOWN = len("1,234,567,890.12")
"""Digits of figures that are not whole numbers; longer ones are rounded."""
_SOURCES = (
    "A source is a key in docs/catalog-sources.md, followed by the place in that source or the derivation."
)


def show(kind: Kind | None, name: str | None, console: Console) -> None:
    """Writes the kinds, the entries of a kind, or one entry.

    Raises:
        CatalogError: There is no entry of that name.
    """
    if kind is None:
        _show_kinds(console)
    elif name is None:
        _show_entries(kind, console)
    else:
        _show_entry(kind, name, console)


def as_json(kind: Kind | None, name: str | None) -> str:
    """Returns the same as one JSON object with a line end; values in the unit that stands beside them.

    Raises:
        CatalogError: There is no entry of that name.
    """
    if kind is None:
        answer = CatalogAnswer(kinds={each.value: names(each) for each in Kind})
    else:
        chosen = names(kind) if name is None else (name,)
        answer = CatalogAnswer(entries={entry: _figures(kind, entry) for entry in chosen})
    return answer.model_dump_json(indent=2, exclude_none=True) + "\n"


def _figures(kind: Kind, name: str) -> tuple[Figure, ...]:
    if not name:
        raise InputError(
            [
                Problem(
                    path=Argument("name"),
                    value="''",
                    rule="must not be empty; omit it to list all",
                )
            ]
        )
    return figures(kind, name)


def _show_kinds(console: Console) -> None:
    rows = [(kind.value, human.count(len(names(kind))), _KIND_WORDS[kind]) for kind in Kind]
    _show_table(console, ("kind", "entries", ""), rows)
    console.print()
    console.print(
        Text("`capplan catalog KIND` lists entries; `capplan catalog KIND NAME` shows one with its sources.")
    )


def _show_entries(kind: Kind, console: Console) -> None:
    columns = COLUMNS[kind]
    cells = {Kind.RENTS: _rent_cells, Kind.FACTORS: _factor_cells}.get(kind, _entry_cells)
    rows = [(name, *cells(kind, name)) for name in names(kind)]
    _show_table(console, ("name", *(human.words(column) for column in columns)), rows)


def _entry_cells(kind: Kind, name: str) -> list[str]:
    found = {figure.quantity: figure for figure in figures(kind, name)}
    return [_value_with_unit(found[column]) if column in found else "" for column in COLUMNS[kind]]


def _factor_cells(kind: Kind, name: str) -> list[str]:
    """Returns all figures in one cell, since no two factors have the same ones."""
    told = (f"{human.words(figure.quantity)} {_value_with_unit(figure)}" for figure in figures(kind, name))
    return ["; ".join(told)]


def _rent_cells(kind: Kind, name: str) -> list[str]:
    """Returns the range that a job without prices of its own takes, and the date of the newest price."""
    newest = max(figure.date for figure in figures(kind, name))
    try:
        estimate, _ = rent(name)
    except CatalogError:  # only prices that no run can rely on, such as spot
        return ["", "", "", newest]
    return [*(f"${value:.2f}" for value in (estimate.low, estimate.mid, estimate.high)), newest]


def _show_entry(kind: Kind, name: str, console: Console) -> None:
    found = _figures(kind, name)
    console.print(Text(f"{kind.value}: {name}", style="bold"))
    if kind is Kind.RENTS:
        _show_rent(name, console)
    console.print()
    rows = [
        (
            _quantity(kind, f.quantity),
            _value(f),
            "" if f.unit == "text" else f.unit,
            f.source,
            f.date,
            f.confidence.value,
        )
        for f in found
    ]
    _show_table(console, ("figure", "value", "unit", "source", "date", "confidence"), rows)
    console.print()
    console.print(Text(_SOURCES))


def _quantity(kind: Kind, quantity: str) -> str:
    """Returns a quantity in words; habits of a framework by the names of the fields for which they hold."""
    return quantity if kind is Kind.FRAMEWORKS else human.words(quantity)


def _show_rent(name: str, console: Console) -> None:
    low, mid, high, _ = _rent_cells(Kind.RENTS, name)
    if mid:
        used = mid if low == high else f"{low} to {high}"
        middle = "" if low == high else f", with a middle of {mid}"
        console.print(Text(f"A job without its own price uses {used} per GPU-hour{middle}."))


def _value(figure: Figure) -> str:
    if isinstance(figure.value, str):
        return figure.value
    exact = f"{figure.value:,.15g}"
    # A whole number that is cut would look as if it were exact: 1,026,410,000,000 parameters.
    is_whole = float(figure.value).is_integer() and "e" not in exact
    return exact if is_whole or len(exact) <= _LONGEST_SHOWN else human.digits(figure.value, significant=6)


def _value_with_unit(figure: Figure) -> str:
    return with_unit(_value(figure), figure.unit)


def _show_table(console: Console, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    kept = list(rows)
    table = plain_table()
    for index, heading in enumerate(headings):
        is_number = any(
            row[index][:1].isdigit() or row[index][:1] == "$" for row in kept
        ) and heading not in ("date", "source")
        table.add_column(
            heading, justify="right" if is_number else "left", overflow="fold", no_wrap=index == 0
        )
    for row in kept:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)
