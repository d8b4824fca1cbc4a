"""How often is saved? `--interval` in seconds, in steps, or `auto`; nothing is imported, so that `--help` is free."""

from __future__ import annotations

import math
from typing import NamedTuple

AUTO = "auto"
RULE = f"must be seconds above 0 such as 600, whole steps such as 100steps, or {AUTO}"
MOST_DIGITS = 12
"""Of a number of steps: no run has more."""
_STEPS = ("steps", "step")


class Interval(NamedTuple):
    """Training between two saves; without seconds and steps the interval that loses least."""

    seconds: float | None = None
    steps: int | None = None


def parse_interval(text: str) -> Interval:
    """Returns what a user typed; raises `ValueError` with the rule where it is none of the three."""
    word = text.strip().lower()
    if word == AUTO:
        return Interval()
    for unit in _STEPS:
        if number := word.removesuffix(unit).strip() if word.endswith(unit) else "":
            if number.isascii() and number.isdigit() and len(number) <= MOST_DIGITS and int(number) > 0:
                return Interval(steps=int(number))
            raise ValueError(RULE)
    try:
        seconds = float(word)
    except ValueError:
        raise ValueError(RULE) from None
    if not (math.isfinite(seconds) and seconds > 0):
        raise ValueError(RULE)
    return Interval(seconds=seconds)
