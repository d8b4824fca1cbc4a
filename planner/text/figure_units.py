"""How is a field written for readers? The unit in its name decides, mostly at the end."""

from __future__ import annotations

from collections.abc import Callable

from planner.text import human

_UNITS: tuple[tuple[str, Callable[[float], str]], ...] = (
    ("usd_per_million_tokens", lambda usd: f"${human.digits(usd)}"),
    ("usd_per_effective_pflop_hour", lambda usd: f"${human.digits(usd)}"),
    ("kwh_per_million_tokens", lambda kwh: f"{human.digits(kwh)} kWh"),
    ("gco2e_per_exaflop", lambda gco2e: f"{human.digits(gco2e)} g CO2e"),
    ("_kgco2e_s", lambda kgco2e_s: f"{human.carbon_delay(kgco2e_s)} (tCDP)"),
    ("_w_per_s", human.power_ramp),
    ("_per_s", human.digits),
    ("_days", human.days),
    ("_usd", human.dollars),
    ("_kwh", human.energy),
    ("_kgco2e", human.carbon),
    ("_bytes", human.memory),
    ("_fraction", human.percent),
    ("_probability", human.percent),
    ("_months", lambda months: f"{human.digits(months)} months"),
    ("_l", human.water),
    ("_w", human.power),
    ("_s", human.duration),
)
"""Formats by the suffix of a name; the first match is used."""
_LEAST_COUNTED = 1000.0
_UNITLESS = ("text", "count", "fraction", "ratio")
"""Units of the catalogue that no reader needs."""


def figure_text(name: str, value: float) -> str:
    """Returns a figure with its unit: `31.4 days` for a name that ends in `_days`.

    Args:
        name: field of an answer, with its unit at the end; of a part, such as `cost_parts_usd.rent_usd`, the whole path.
        value: the figure.
    """
    for suffix, write in _UNITS:
        if name.endswith(suffix):
            return write(value)
    return human.count(value) if value >= _LEAST_COUNTED else human.digits(value)


def with_unit(written: str, unit: str) -> str:
    """Returns a figure of the catalogue with its unit, where it has one: `80 GiB`."""
    return written if unit in _UNITLESS else f"{written} {unit}"


def change_text(name: str, change: float) -> str:
    """Returns a change with its sign and unit: `+1.20 days`, `-$30.0 k`; `0` where nothing changes."""
    if change == 0.0:
        return "0"
    return f"{'+' if change > 0 else '-'}{figure_text(name, abs(change))}"
