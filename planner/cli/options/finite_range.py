"""Which numbers may an option take? Those of a range, but not "nan", which violates neither bound."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click import Context, Parameter


class FiniteRange(click.FloatRange):
    """Finite numbers of a range; `click.FloatRange` accepts "nan", and infinity if an end is open."""

    def convert(self, value: float, param: Parameter | None, ctx: Context | None) -> float:
        """Returns the number; raises `click.BadParameter` if it is outside the range or not a number."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is no finite number.", param, ctx)
        return number
