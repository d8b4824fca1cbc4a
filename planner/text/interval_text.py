"""How often are checkpoints saved? `--interval` in seconds, steps, or `auto`; without imports, so that `--help` is fast."""

from __future__ import annotations

import math
from typing import NamedTuple

AUTO = "auto"
RULE = f"must be seconds above 0 such as 600, whole steps such as 100steps, or {AUTO}"
MOST_DIGITS = 12
"""Most digits of a number of steps; no run has more."""
_STEPS = ("steps", "step")


class Interval(NamedTuple):
    """Training between two saves; without seconds and steps, the interval with the least loss."""

    seconds: float | None = None
    steps: int | None = None


def parse_interval(text: str) -> Interval:
    """Returns the parsed interval; raises `ValueError` with the rule for anything else."""
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
