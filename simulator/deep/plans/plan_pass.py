"""Which tasks form one pass of all micro-batches through a chunk, and at which of them is a given share of it over?"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from simulator.deep.plans.plan_traffic import After
from simulator.table import Floats, Integers

ROUNDING_FRACTION = 1e-9
"""Shares of a pass that differ by less are equal."""


@dataclass(frozen=True, kw_only=True)
class Pass:
    """The tasks of one pass of all micro-batches through a chunk."""

    begin: Integers
    """Tasks that wait for everything before the pass."""
    done: After
    works: list[tuple[Integers, float]]
    """Operators in their order, and how long each takes."""

    def at(self, fraction: float) -> Integers:
        """Returns the operator at which a share of the pass is over; at 0 the first."""
        until_s = fraction * self._ends_s[-1] * (1.0 - ROUNDING_FRACTION)
        place = int(np.searchsorted(self._ends_s, until_s))
        return self.works[min(place, len(self.works) - 1)][0]

    @cached_property
    def _ends_s(self) -> Floats:
        """When each operator ends if none waits, `(k,)`; asked for once for each piece of traffic beside the pass."""
        return np.cumsum([seconds for _, seconds in self.works])
