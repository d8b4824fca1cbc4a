"""Which number does a person mean by `100 MW` or `30 t`, in the unit that the name of a field ends with?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from simulator.units import BITS_PER_BYTE, DAY, GIB, GIGA, HOUR, KIB, KILO, MEGA, MIB, MINUTE, PETA, TERA

_PREFIXES = {"": 1.0, "k": KILO, "m": MEGA, "g": GIGA, "t": TERA, "p": PETA}
_BYTES = {f"{prefix}b": factor for prefix, factor in _PREFIXES.items()} | {
    "kib": KIB,
    "mib": MIB,
    "gib": GIB,
    "tib": KIB * GIB,
}
_RATES = {f"{unit}/s": factor for unit, factor in _BYTES.items()} | {
    f"{prefix}{bits}": factor / BITS_PER_BYTE
    for prefix, factor in _PREFIXES.items()
    for bits in ("bit/s", "bps")
}
_HOURS = {"h": HOUR, "hour": HOUR, "hours": HOUR}
_DAYS = {"d": DAY, "day": DAY, "days": DAY, "week": 7.0 * DAY, "weeks": 7.0 * DAY}
_SECONDS = {"s": 1.0, "m": MINUTE, "min": MINUTE, **_HOURS, **_DAYS}
_SHARE = {"%": 0.01}
_GRID = {"g": 1.0 / KILO, "kg": 1.0, "g/kwh": 1.0 / KILO, "kg/kwh": 1.0}
UNITS: Mapping[str, Mapping[str, float]] = {
    "kgco2e_per_kwh": _GRID,
    "_bytes_per_s": _RATES,
    "_bytes_per_s_per_node": _RATES,
    "_kgco2e": {"kg": 1.0, "t": KILO, "kt": MEGA},
    "_bytes": _BYTES,
    "_days": {unit: factor / DAY for unit, factor in {**_HOURS, **_DAYS}.items()},
    "_w": {f"{prefix}w": factor for prefix, factor in _PREFIXES.items()},
    "_s": _SECONDS,
    "_fraction": _SHARE,
    "_probability": _SHARE,
    "power_usage_effectiveness": _SHARE,
    "power_caps": _SHARE,
    "sequence_length": {"k": KIB},
}
"""Factors of what people write, in lower case, by the end of a field's name; the first end that fits counts. Sequences of 8k
have 8,192 tokens."""
_PER = "_per_"
"""Part of the names of rates, whose last unit is not that of the number: failures_per_1000_node_days."""
_BITS = "b/s"
"""A small b is a bit: 400 Gb/s are 50 GB/s."""
_WRITTEN = re.compile(r"\s*([0-9.]+(?:e[+-]?[0-9]+)?)\s*([a-z][a-z/0-9]*|%)\s*", re.IGNORECASE | re.ASCII)


def number_with_unit(text: str, field: str) -> float | None:
    """Returns the number in the unit of a field; `None` if the text has no unit that the field can have.

    Example:
        >>> number_with_unit("100 MW", "power_w"), number_with_unit("30t", "carbon_kgco2e"), number_with_unit("2 d", "power_w")
        (100000000.0, 30000.0, None)
    """
    units = next((units for end, units in UNITS.items() if ends_with(field, end)), {})
    match = _WRITTEN.fullmatch(text.replace(_BITS, "bit/s"))
    factor = units.get(match[2].lower()) if match else None
    if match is None or factor is None:
        return None
    try:
        return float(match[1]) * factor
    except ValueError:
        return None


def grams_hint(value: object, field: str, most_kg: float) -> str:
    """Returns what an emission factor above `most_kg` is in kilograms, if it may be in grams: `; 57 g/kWh are 0.057`."""
    if not isinstance(value, (int, float)) or not field.endswith("kgco2e_per_kwh") or value > KILO * most_kg:
        return ""
    return f"; {value:g} g/kWh are {value / KILO:g}"


def ends_with(field: str, end: str) -> bool:
    """Returns whether the name of a field ends with a unit in which it is given, and not with that of what it is counted by."""
    return field.endswith(end) and (_PER in end or _PER not in field)
