"""How are slower or faster accelerators given on the command line? As `RANK=FACTOR`, each rank once."""

from __future__ import annotations

import re
from collections.abc import Callable

import click

FACTOR = r"(\d{1,4}(?:\.\d{1,12})?|\.\d{1,12})"
"""The factor of such a pair: digits with or without a fraction, without sign or exponent."""
IN_DIGITS = "in digits, at least 0.000000000001"
"""How such a factor must be written, and the smallest one above zero; for messages."""

Callback = Callable[[click.Context, click.Parameter, tuple[str, ...]], dict[int, float]]


def speeds_over(other: str) -> Callback:
    """Returns the callback of an option that reads speeds relative to another, such as `the usual one`."""

    def speeds(
        _context: click.Context, _option: click.Parameter, values: tuple[str, ...]
    ) -> dict[int, float]:
        found: dict[int, float] = {}
        for value in values:
            pair = re.fullmatch(rf"(\d{{1,7}})={FACTOR}", value, re.ASCII)
            if pair is None or float(pair[2]) == 0.0:
                rule = f"must be an accelerator and its speed over {other}, such as 3=0.8; {IN_DIGITS} and below 10000"
                raise click.BadParameter(f"{value!r} {rule}")
            if int(pair[1]) in found:
                raise click.BadParameter(
                    f"{value!r} gives accelerator {int(pair[1])} a second speed: give one"
                )
            found[int(pair[1])] = float(pair[2])
        return found

    return speeds
