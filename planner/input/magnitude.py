"""Is every number of a value within reach of the arithmetic? Products and squares of figures have to stay finite.

A 64-bit float ends near 1.8e308, and the smallest one with full precision is near 2.2e-308. Figures in the units of capplan
lie between 1e-12 (kg CO2e per byte) and 1e26 (FLOP of a run), so that those outside 1e-30 to 1e30 are mistakes.
"""

from __future__ import annotations

from collections.abc import Iterator

from planner.input.schema import Location
from simulator.record import Record

LEAST = 1e-30
MOST = 1e30
"""Absolute values that figures may have, beside 0: the third power of each is a float."""


def out_of_reach(value: object, location: Location = ()) -> Iterator[tuple[Location, float, str]]:
    """Yields the place, value and broken rule of every float that is too large or too small."""
    match value:
        case float() if abs(value) > MOST:
            rule = f"must be at most {MOST:g}" if value > 0.0 else f"must be at least {-MOST:g}"
            yield location, value, rule
        case float() if 0.0 < abs(value) < LEAST:
            yield (
                location,
                value,
                f"must be at least {LEAST:g}, or 0" if value > 0.0 else f"must be at most {-LEAST:g}, or 0",
            )
        case Record():
            for name in type(value).model_fields:
                yield from out_of_reach(getattr(value, name), (*location, name))
        case dict():
            for name, item in value.items():
                yield from out_of_reach(item, (*location, str(name)))
        case list() | tuple():
            for index, item in enumerate(value):
                yield from out_of_reach(item, (*location, index))
        case _:
            return
