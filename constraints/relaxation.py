"""What would make the job feasible? For each limit the smallest value that works while all others stay.

Layouts are simulated in the order of their bound on the relaxed quantity, best first, and the search ends when no bound
that is left could still win. So the answer is exact: the least value that any design of the space reaches.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal

import numpy as np

from constraints.evaluation import Evaluation, evaluate
from constraints.lattice import cross_run_knobs
from constraints.limits import excess_over, limited_quantities, set_limits
from constraints.space import Space
from simulator.plan import PlanTable
from simulator.table import Floats

FIRST_ROUND = 128
"""Layouts that are simulated before the first look at the bounds; every round doubles them."""
LARGEST_ROUND = 4096
"""Layouts of one round at most."""
SIGNIFICANT_DIGITS = 4
"""Digits to which a proposed limit is rounded up."""

Stop = Callable[[], bool]
"""Asked between rounds; true ends the search."""


@dataclass(frozen=True, kw_only=True)
class LeastValue:
    """The least value of a limited quantity that any design reaches."""

    name: str
    """Name of the limit."""
    value: float
    """Least value, in the unit of the limit."""
    design: Evaluation
    """The design that reaches it, one row."""

    @property
    def proposed_limit(self) -> float:
        """The value rounded up, so that it can be written into a job."""
        return rounded_up(self.value)


class LeastValues:
    """Least values of what a job limits, under any choice of its limits; each is searched once and remembered."""

    def __init__(self, space: Space, should_stop: Stop = lambda: False) -> None:
        self._space = space
        self._limits = set_limits(space.job)
        self._should_stop = should_stop
        self._known: dict[tuple[str, frozenset[str]], LeastValue | None] = {}
        self.was_stopped = False
        """Whether a search was ended early, so that values found since may not be the least."""

    def of(self, name: str, others: Collection[str]) -> LeastValue | None:
        """Returns the least value of one limited quantity among the designs that keep some other limits of the job.

        Args:
            name: one of `LIMIT_NAMES`; the job's own limit of that name is ignored.
            others: names of limits that the job sets.

        Returns:
            The value and its design, or `None` where no design keeps the other limits.
        """
        key = name, frozenset(others) - {name}
        if key not in self._known:
            self._known[key] = self._search(*key)
        return self._known[key]

    def can_keep(self, names: Collection[str]) -> bool:
        """Returns whether any design keeps all of some limits of the job."""
        name = next(iter(names), "num_gpus")
        least = self.of(name, names)
        return least is not None and (name not in names or least.value <= self._limits[name])

    def _search(self, name: str, others: frozenset[str]) -> LeastValue | None:
        space = self._space.under({other: self._limits[other] for other in sorted(others)})
        found = self._best(
            space.layouts, getattr(space.bounds, name)[space.is_kept], _quantity(space, name), space
        )
        if found is None:
            return None
        return LeastValue(name=name, value=found[0], design=found[1])

    def nearest_design(self) -> Evaluation | None:
        """Returns the design whose limits are exceeded least in sum, one row; `None` where none fits memory or ends.

        For jobs in which no single limit is at fault.
        """
        space, fits = self._space, self._space.bounds.fits_memory
        bounds = [
            excess_over(limit, getattr(space.bounds, name)[fits]) for name, limit in self._limits.items()
        ]
        least = np.sum([np.zeros(int(fits.sum())), *bounds], axis=0)
        found = self._best(space.all_layouts.take(fits), least, _distance, space)
        return None if found is None else found[1]

    def _best(
        self, layouts: PlanTable, bounds: Floats, value_of: Callable[[Evaluation], Floats], space: Space
    ) -> tuple[float, Evaluation] | None:
        """The least finite value of any design, and the design; layouts come in the order of their bounds."""
        order = np.argsort(bounds, kind="stable")
        best: tuple[float, Evaluation] | None = None
        start, size = 0, FIRST_ROUND
        while start < len(order):
            rows = order[start : start + size]
            start, size = start + size, min(2 * size, LARGEST_ROUND)
            rows = rows if best is None else rows[bounds[rows] < best[0]]
            self.was_stopped = self.was_stopped or self._should_stop()
            if len(rows) == 0 or self.was_stopped:
                break
            part = evaluate(space.job, cross_run_knobs(space.job, layouts.take(rows)))
            values = value_of(part)
            row = int(np.argmin(values))
            if np.isfinite(values[row]) and (best is None or values[row] < best[0]):
                best = float(values[row]), part.take(np.array([row]))
        return best


def rounded_up(value: float) -> float:
    """Returns the least number of `SIGNIFICANT_DIGITS` decimal digits that is not below a positive value."""
    exact = Decimal(value)
    last_digit = Decimal(1).scaleb(exact.adjusted() - SIGNIFICANT_DIGITS + 1)
    return float(exact.quantize(last_digit, rounding=ROUND_CEILING))


def _quantity(space: Space, name: str) -> Callable[[Evaluation], Floats]:
    """What a limit bounds; infinite for designs that break the limits they are evaluated under."""

    def value_of(part: Evaluation) -> Floats:
        values = limited_quantities(space.job, part.plans, part.scores, part.outcomes)[name]
        return np.where(part.is_feasible, values, np.inf)

    return value_of


def _distance(part: Evaluation) -> Floats:
    """By how much limits are exceeded in sum; infinite for designs that no change of limits makes possible."""
    return np.where(part.excess.is_possible, part.excess.total, np.inf)
