"""How does a report write its numbers? With a formatter for every quantity, and ticks at round numbers on axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

from planner.report.data import Quantity
from planner.text import human
from simulator.units import DAY, GIB, HOUR, MINUTE, YEAR

FORMATS: Final[Mapping[Quantity, Callable[[float], str]]] = {
    "usd": human.dollars,
    "kwh": human.energy,
    "kgco2e": human.carbon,
    "bytes": human.memory,
    "s": human.duration,
    "days": human.days,
    "w": human.power,
    "fraction": human.percent,
    "change": lambda value: f"{100.0 * value:+.0f} %" if value else "0 %",
    "count": human.count,
}
LEAST_TICKS: Final = 3
NUMS_OF_NARROW_TICKS: Final = (3, 6, 12)
"""Numbers of ticks to try on a logarithmic axis too short for its usual ticks, until one gives two or more ticks."""
MOST_SIZES: Final = 6
ROUND_STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)
SECONDS: Final[Mapping[Quantity, float]] = {"s": 1.0, "days": DAY}
"""Quantities that are times, and the seconds in one unit."""
TIMES: Final = ((YEAR, "years"), (DAY, "days"), (HOUR, "h"), (MINUTE, "min"))
"""Units of a time axis: the first that fits twice is used; shorter axes are in seconds."""


def text(value: float | None, quantity: Quantity) -> str:
    """Returns a number with its unit for readers, or words for an unknown one."""
    if value is None:
        return "never ends"
    return FORMATS[quantity](value)


def ticks(low: float, high: float, quantity: Quantity, num_wanted: int = 4) -> list[float]:
    """Returns round numbers within a range, in the unit in which they are shown."""
    unit = _unit(max(abs(low), abs(high)), quantity)
    low, high = low / unit, high / unit
    if not high > low:
        return [low * unit]
    rough = (high - low) / num_wanted
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in ROUND_STEPS if size * factor >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [number * step * unit for number in range(first, last + 1)]


def tick_text(value: float, quantity: Quantity, largest: float | None = None) -> str:
    """Returns a round number on an axis, without trailing zeros: `20 days`, `$1.5 M`, `0`.

    Args:
        value: the number.
        quantity: its quantity.
        largest: the far end of the axis, which sets the unit of all its times; if omitted, each time has its own unit.
    """
    if value == 0.0:
        return "0"
    length_s = SECONDS.get(quantity, 0.0)
    if largest is not None and (unit := _time_unit(largest * length_s)):
        joined = f"{value * length_s / unit[0]:.6g} {unit[1]}"
    else:
        number, space, own_unit = text(value, quantity).partition(" ")
        joined = (number.rstrip("0").rstrip(".") if "." in number else number) + space + own_unit
    return joined.removesuffix("s") if joined in {"1 days", "1 years"} else joined


def _time_unit(largest_s: float) -> tuple[float, str] | None:
    """Returns the unit of a time axis, in seconds, and its name; `None` for seconds themselves."""
    return next(((size_s, name) for size_s, name in TIMES if largest_s >= 2.0 * size_s), None)


def _unit(largest: float, quantity: Quantity) -> float:
    """Returns the size of the unit in which numbers up to `largest` are shown; 1 unless they are bytes or times."""
    if quantity == "bytes":
        return GIB
    if quantity not in SECONDS:
        return 1.0
    size_s, _ = _time_unit(largest * SECONDS[quantity]) or (1.0, "")
    return size_s / SECONDS[quantity]


def log_ticks(low: float, high: float) -> list[float]:
    """Returns 1, 2 and 5 times powers of ten within a range; only the powers if there are many, more numbers if few.

    There are at least two unless the range is a single point.
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1.0,), (1.0, 2.0, 5.0), (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)):
        every = (factor * 10.0**power for power in powers for factor in factors)
        found = [value for value in every if low * 0.999 <= value <= high * 1.001]
        if len(found) >= LEAST_TICKS:
            return found
    if len(found) > 1:
        return found
    finer = (ticks(low, high, "count", num_wanted) for num_wanted in NUMS_OF_NARROW_TICKS)
    return next((round_ones for round_ones in finer if len(round_ones) > 1 or not high > low), found)


def size_ticks(low: float, high: float) -> list[float]:
    """Returns at most six powers of two, the usual cluster sizes, within a range; other round numbers if it is narrow."""
    powers = range(math.ceil(math.log2(low) - 1e-9), math.floor(math.log2(high) + 1e-9) + 1)
    step = max(1, math.ceil(len(powers) / MOST_SIZES))
    found = [2.0**power for power in powers[::step]]
    return (
        found if len(found) > 1 else [value for value in ticks(low, high, "count") if value == round(value)]
    )
