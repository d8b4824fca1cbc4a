"""Which number does a person mean by `2T`, `2.5M` or `$4,000,000`?"""

from __future__ import annotations

import math
import re

from planner.input.unit_text import ends_with, number_with_unit
from planner.text.human import typed
from simulator.units import GIGA, KILO, MEGA, TERA

SUFFIXES = {"k": KILO, "m": MEGA, "b": GIGA, "g": GIGA, "t": TERA}
"""Decimal multipliers, in upper or lower case."""
_NUMBER = re.compile(r"\$?\s*([0-9.,]+(?:e[+-]?[0-9]+)?)\s*([kmbgt]?)", re.IGNORECASE | re.ASCII)
_THOUSANDS = re.compile(r"[1-9][0-9]{0,2}(?:,[0-9]{3})+(?:\.[0-9]*)?", re.ASCII)
"""Commas between groups of three digits; one comma elsewhere is a decimal point."""
_DAYS = {
    "_day": "days from the start of the horizon",
    "deadline_days": "days from the start of the run to its end",
    "_days": "days",
}
"""What a number of days is, by the end of a field's name; the first end that fits counts."""
_DATE = re.compile(r"\s*[0-9]{1,4}[-./][0-9]{1,2}[-./][0-9]{1,4}", re.ASCII)
"""A date, such as 2027-03-01, 01.03.2027 or 3/1/2027."""


def number_in_words(text: str) -> float | None:
    """Returns `2T` as 2e12, `None` if the text is not such a number.

    Example:
        >>> number_in_words("2T"), number_in_words("$4,000,000"), number_in_words("2,6"), number_in_words("3 MW")
        (2000000000000.0, 4000000.0, 2.6, None)
    """
    match = _NUMBER.fullmatch(text.replace("_", "").strip())
    try:
        return float(_with_point(match[1])) * SUFFIXES.get(match[2].lower(), 1.0) if match else None
    except ValueError:
        return None


def _with_point(digits: str) -> str:
    """Returns the digits of a number without commas; commas used both for grouping and as a point stay, and are no number."""
    if _THOUSANDS.fullmatch(digits):
        return digits.replace(",", "")
    return digits.replace(",", ".") if "." not in digits else digits


def way_out(value: object, field: str = "", *, is_whole: bool = False) -> str:
    """Returns what to write instead of a text that means a number: `; write 2e12`, or days instead of a date; else nothing.

    Args:
        value: what was given.
        field: name of the field, whose end may be a unit: `30 t` are 30,000 in `carbon_kgco2e`.
        is_whole: whether it must be a whole number.
    """
    if not isinstance(value, str):
        return ""
    written = value[:60]
    days = next((days for end, days in _DAYS.items() if ends_with(field, end)), "")
    if days and _DATE.match(written):
        return f" of {days}, not a date"
    number = number_with_unit(written, field)
    number = number_in_words(written) if number is None else number
    if number is None or not math.isfinite(number) or (is_whole and not number.is_integer()):
        return ""
    return f"; write {typed(number)}"
