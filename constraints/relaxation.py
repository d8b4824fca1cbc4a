"""What would make the job feasible? For each limit the smallest value that works while all others stay.

Layouts are simulated in the order of their bound on the relaxed quantity, best first, and the search ends when no bound
that is left could still win. So the answer is exact: the least value that any design of the space reaches, run in any way
that an answer may run it (`constraints.answers`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal

import numpy as np

from constraints.answers import (
    designs_of_answers,
    has_other_intervals,
    with_other_intervals,
)
from constraints.evaluation import Evaluation, evaluate
from constraints.interval_bounds import least_by_intervals
from constraints.limits import excess_over, limited_quantities, set_limits
from constraints.space import Space
from simulator.job import Job
from simulator.plan import PlanTable
from simulator.table import Floats, total

FIRST_ROUND = 128
"""Layouts that are simulated before the first look at the bounds; every round doubles them."""
LARGEST_ROUND = 1024
"""Layouts of one round at most."""
TUNED_TOGETHER = 256
"""Designs whose intervals are tried together."""
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
            space, space.layouts, getattr(space.bounds, name)[space.is_kept], _quantity(space, name)
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
        found = self._best(space, space.all_layouts.take(fits), least, _distance(space.job))
        return None if found is None else found[1]

    def _best(
        self, space: Space, layouts: PlanTable, bounds: Floats, aim: _Aim
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
            part = evaluate(space.job, designs_of_answers(space.job, layouts.take(rows)))
            best = _with_intervals(space.job, part, aim, _better(part, aim, best))
        return best


@dataclass(frozen=True, kw_only=True)
class _Aim:
    """What is to be small."""

    value_of: Callable[[Evaluation], Floats]
    """Of designs, `(n,)`; infinite for those that do not count."""
    least_of: Callable[[Evaluation], Floats]
    """What another interval between saves could lower it to, `(n,)`."""


def _better(
    part: Evaluation, aim: _Aim, best: tuple[float, Evaluation] | None
) -> tuple[float, Evaluation] | None:
    """The best of some designs and the one known before; only a finite value counts."""
    values = aim.value_of(part)
    row = int(np.argmin(values))
    if np.isfinite(values[row]) and (best is None or values[row] < best[0]):
        return float(values[row]), part.take(np.array([row]))
    return best


def _with_intervals(
    job: Job, part: Evaluation, aim: _Aim, best: tuple[float, Evaluation] | None
) -> tuple[float, Evaluation] | None:
    """The best with other intervals between saves, too, of those designs that these could make the best."""
    if not has_other_intervals(job):
        return best
    least = aim.least_of(part)
    near = np.flatnonzero(least < (np.inf if best is None else best[0]))
    near = near[np.argsort(least[near], kind="stable")]
    for start in range(0, len(near), TUNED_TOGETHER):
        rows = near[start : start + TUNED_TOGETHER]
        designs = part.take(rows if best is None else rows[least[rows] < best[0]])
        others = with_other_intervals(job, designs.plans, designs.outcomes.run.checkpoint_interval_s)
        if len(others) == 0:
            break
        best = _better(evaluate(job, others), aim, best)
    return best


def rounded_up(value: float) -> float:
    """Returns the least number of `SIGNIFICANT_DIGITS` decimal digits that is not below a positive value."""
    exact = Decimal(value)
    last_digit = Decimal(1).scaleb(exact.adjusted() - SIGNIFICANT_DIGITS + 1)
    return float(exact.quantize(last_digit, rounding=ROUND_CEILING))


def _quantity(space: Space, name: str) -> _Aim:
    """What a limit bounds; infinite for designs that break the limits they are evaluated under."""
    job = space.job

    def quantity(part: Evaluation) -> Floats:
        return limited_quantities(job, part.plans, part.scores, part.outcomes)[name]

    def least(part: Evaluation) -> Floats:
        reached = least_by_intervals(job, part)
        values = reached[name] if name in reached else quantity(part)
        return np.where(_least_excess(job, part, reached) == 0.0, values, np.inf)

    return _Aim(
        value_of=lambda part: np.where(part.is_feasible, quantity(part), np.inf),
        least_of=least,
    )


def _distance(job: Job) -> _Aim:
    """By how much limits are exceeded in sum; infinite for designs that no change of limits makes possible."""

    def least(part: Evaluation) -> Floats:
        excess = _least_excess(job, part, least_by_intervals(job, part))
        return np.where(part.excess.is_possible, excess, np.inf)

    return _Aim(
        value_of=lambda part: np.where(part.excess.is_possible, part.excess.total, np.inf), least_of=least
    )


def _least_excess(job: Job, part: Evaluation, reached: Mapping[str, Floats]) -> Floats:
    """By how much limits are exceeded in sum at least, `(n,)`, whatever the interval between saves.

    Args:
        job: the job.
        part: designs.
        reached: what no interval lowers them below.
    """
    helped = {name: excess_over(getattr(job.limits, name), values) for name, values in reached.items()}
    return total(helped.get(name, getattr(part.excess, name)) for name in part.excess.names())
