"""How does a report write its numbers? A formatter for every quantity, and axes with round numbers on them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

from planner import human
from planner.report_data import Quantity

FORMATS: Final[Mapping[Quantity, Callable[[float], str]]] = {
    "usd": human.dollars,
    "kwh": human.energy,
    "kgco2e": human.carbon,
    "bytes": human.memory,
    "s": human.duration,
    "days": human.days,
    "w": human.power,
    "fraction": human.percent,
    "change": lambda value: f"{value:+.0%}" if value else "0 %",
    "count": human.count,
}
UNITS: Final[Mapping[Quantity, str]] = {
    "usd": "USD",
    "kwh": "kWh",
    "kgco2e": "kg CO2e",
    "bytes": "bytes",
    "s": "s",
    "days": "days",
    "w": "W",
    "fraction": "share",
    "change": "share",
    "count": "count",
}
"""The same as they stand in JSON and in the tables behind the figures."""
ROUND_STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)
GIB: Final = 2.0**30


def text(value: float | None, quantity: Quantity) -> str:
    """Returns a number with its unit for readers; nothing known is said so."""
    if value is None:
        return "never ends"
    return FORMATS[quantity](value)


def ticks(low: float, high: float, quantity: Quantity, num_wanted: int = 4) -> list[float]:
    """Returns round numbers within a range, in the unit in which they are shown."""
    unit = GIB if quantity == "bytes" else 1.0
    low, high = low / unit, high / unit
    if not high > low:
        return [low * unit]
    rough = (high - low) / num_wanted
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in ROUND_STEPS if size * factor >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [number * step * unit for number in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Returns 1, 2 and 5 times powers of ten within a range, the powers alone where these are many."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    every = (1.0,) if len(powers) > 4 else (1.0, 2.0, 5.0)
    found = [factor * 10.0**power for power in powers for factor in every]
    return [value for value in found if low * 0.999 <= value <= high * 1.001]
