"""Which numbers may an option take? Those of a range, without "nan", which is above no bound and below none.

Only click is imported here: the command line is built with it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click import Context, Parameter


class FiniteRange(click.FloatRange):
    """Numbers of a range; `click.FloatRange` lets "nan" pass, and infinity where an end is open."""

    def convert(self, value: float, param: Parameter | None, ctx: Context | None) -> float:
        """Returns the number; raises `click.BadParameter` for one outside of the range, or none."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is no finite number.", param, ctx)
        return number
