"""What would make the job feasible? For each limit, the smallest value that works while all others stay.

Layouts are simulated best first, in the order of their bound on the relaxed quantity. The search ends when no remaining
bound could still win. So the answer is exact: the least value that any design of the space reaches, in any way that an
answer may run it (`constraints.answers`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal

import numpy as np

from constraints.answers import (
    has_fewer_spares,
    has_other_intervals,
    with_fewer_spares,
    with_other_intervals,
    without_spares,
)
from constraints.bounds import kept_by_bounds
from constraints.evaluation import Evaluation, evaluate, judge
from constraints.interval_bounds import holds_with_any_spares, least_by_intervals
from constraints.lattice import cross_run_knobs
from constraints.limits import check_limits, excess_over, limited_quantities, set_limits, with_limits
from constraints.space import Space
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.table import Floats, Integers, total

FIRST_ROUND = 128
"""Layouts that are simulated in the first round, before bounds are checked; the number doubles in every round."""
LARGEST_ROUND = 1024
"""Most layouts of one round."""
TUNED_TOGETHER = 256
"""Designs whose checkpoint intervals are tried together."""
SPARED_TOGETHER = 2**17
"""Approximate number of designs with fewer spares than enough that are simulated together. It keeps them within main
memory: where nodes fail all the time, it takes thousands of spares to have enough."""
SIGNIFICANT_DIGITS = 4
"""Digits to which a proposed limit is rounded up."""

Stop = Callable[[], bool]
"""Called between rounds; true ends the search."""


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


_Best = tuple[float, Evaluation] | None
"""The least value found, and its design, one row."""


class LeastValues:
    """Least values of a job's limited quantities, under any subset of its limits; each is searched once and remembered."""

    def __init__(self, space: Space, should_stop: Stop = lambda: False) -> None:
        self._space = space
        self._limits = set_limits(space.job)
        self._should_stop = should_stop
        self._known: dict[tuple[str, frozenset[str]], LeastValue | None] = {}
        self.was_stopped = False
        """Whether a search was ended early; values found since then may not be the least."""

    def of(self, name: str, others: Collection[str]) -> LeastValue | None:
        """Returns the least value of one limited quantity among the designs that keep some other limits of the job.

        Args:
            name: one of `LIMIT_NAMES`; the job's own limit of that name is ignored.
            others: names of limits that the job sets.

        Returns:
            The value and its design, or `None` if no design keeps the other limits.
        """
        key = name, frozenset(others) - {name}
        if key not in self._known:
            self._known[key] = self._of_fewer_limits(*key) or self._search(*key)
        return self._known[key]

    def can_keep(self, names: Collection[str]) -> bool:
        """Returns whether any design keeps all the named limits of the job."""
        name = next(iter(names), "num_gpus")
        least = self.of(name, names)
        return least is not None and (name not in names or least.value <= self._limits[name])

    def _search(self, name: str, others: frozenset[str]) -> LeastValue | None:
        space, job = self._space, self._under(others)
        kept = np.flatnonzero(np.logical_and.reduce(list(kept_by_bounds(job, space.bounds).values())))
        bounds = getattr(space.bounds, name)[kept]
        best = self._known_best(job, name)
        found = self._best(job, space.all_layouts.take(kept), bounds, _quantity(job, name), best)
        if found is None:
            return None
        return LeastValue(name=name, value=found[0], design=found[1])

    def _of_fewer_limits(self, name: str, others: frozenset[str]) -> LeastValue | None:
        """An answer that is already known: the least value under some of these limits, if its design keeps them all."""
        job = self._under(others)
        for (known_name, known_others), known in self._known.items():
            is_under_fewer = known_name == name and known_others < others
            if is_under_fewer and known is not None and _keeps_limits(job, known.design):
                return replace(known, design=judge(job, known.design.plans, known.design.outcomes))
        return None

    def _under(self, others: Collection[str]) -> Job:
        """The job with only these of its limits, and with the same bounds."""
        return with_limits(self._space.job, {other: self._limits[other] for other in sorted(others)})

    def _known_best(self, job: Job, name: str) -> _Best:
        """The best design found for the same quantity under other limits that also keeps the limits of the job."""
        known = [value for key, value in self._known.items() if key[0] == name and value is not None]
        kept = [least for least in known if _keeps_limits(job, least.design)]
        if not kept:
            return None
        best = min(kept, key=lambda least: least.value)
        return best.value, judge(job, best.design.plans, best.design.outcomes)

    def nearest_design(self) -> Evaluation | None:
        """Returns the design with the least total excess over its limits, one row; `None` where none fits memory or ends.

        For jobs in which no single limit is at fault.
        """
        space, fits = self._space, self._space.bounds.fits_memory
        bounds = [
            excess_over(limit, getattr(space.bounds, name)[fits]) for name, limit in self._limits.items()
        ]
        least = np.sum([np.zeros(int(fits.sum())), *bounds], axis=0)
        found = self._best(space.job, space.all_layouts.take(fits), least, _distance(space.job))
        return None if found is None else found[1]

    def _best(self, job: Job, layouts: PlanTable, bounds: Floats, aim: _Aim, best: _Best = None) -> _Best:
        """The least finite value of any design, and the design; layouts are taken in the order of their bounds."""
        order = np.argsort(bounds, kind="stable")
        start, size = 0, FIRST_ROUND
        while start < len(order):
            rows = order[start : start + size]
            start, size = start + size, min(2 * size, LARGEST_ROUND)
            rows = rows if best is None else rows[bounds[rows] < best[0]]
            self.was_stopped = self.was_stopped or self._should_stop()
            if len(rows) == 0 or self.was_stopped:
                break
            best = self._best_of_layouts(job, layouts.take(rows), aim, best)
        return best

    def _best_of_layouts(self, job: Job, layouts: PlanTable, aim: _Aim, best: _Best) -> _Best:
        """The best of the design known before and of all designs that an answer may have with some layouts.

        Designs with fewer spare nodes than enough are simulated only if they could be the best. This is judged by the lower
        bound, over all checkpoint intervals, of the same design without spares.
        """
        listed = evaluate(job, cross_run_knobs(job, layouts))
        best = _better(listed, aim, best)
        enough = np.flatnonzero(has_fewer_spares(job, listed.plans))
        if len(enough):
            without = listed.take(without_spares(job, enough))
            could_win = aim.least_of(without) < (np.inf if best is None else best[0])
            enough = enough[could_win | ~holds_with_any_spares(job, without)]
        first, *others = _spared_together(listed.plans, enough)
        parts = [listed, *([evaluate(job, with_fewer_spares(first))] if len(first) else [])]
        best = self._with_intervals(job, Evaluation.concatenate(parts), aim, _better(parts[-1], aim, best))
        for plans in others:
            self.was_stopped = self.was_stopped or self._should_stop()
            if self.was_stopped:
                break
            part = evaluate(job, with_fewer_spares(plans))
            best = self._with_intervals(job, part, aim, _better(part, aim, best))
        return best

    def _with_intervals(self, job: Job, part: Evaluation, aim: _Aim, best: _Best) -> _Best:
        """The best design, including other checkpoint intervals for the designs that could become the best with them."""
        if not has_other_intervals(job):
            return best
        least = aim.least_of(part)
        near = np.flatnonzero(least < (np.inf if best is None else best[0]))
        near = near[np.argsort(least[near], kind="stable")]
        for start in range(0, len(near), TUNED_TOGETHER):
            self.was_stopped = self.was_stopped or self._should_stop()
            if self.was_stopped:
                break
            rows = near[start : start + TUNED_TOGETHER]
            designs = part.take(rows if best is None else rows[least[rows] < best[0]])
            used_s, stall_s = designs.outcomes.run.checkpoint_interval_s, designs.outcomes.checkpoints.stall_s
            others = with_other_intervals(job, designs.plans, used_s, stall_s)
            if len(others) == 0:
                break
            best = _better(evaluate(job, others), aim, best)
        return best


@dataclass(frozen=True, kw_only=True)
class _Aim:
    """The quantity to minimise."""

    value_of: Callable[[Evaluation], Floats]
    """Value of each design, `(n,)`; infinite for designs that do not count."""
    least_of: Callable[[Evaluation], Floats]
    """Lower bound on that value with another checkpoint interval, `(n,)`."""


def _keeps_limits(job: Job, design: Evaluation) -> bool:
    """Whether a design that was found under other limits keeps those of the job; far cheaper than to score it again."""
    excess = check_limits(job, design.plans, design.outcomes, design.scores)
    return bool(excess.is_feasible[0])


def _spared_together(listed: PlanTable, enough: Integers) -> list[PlanTable]:
    """Rows of designs with enough spares, in one or more groups with about `SPARED_TOGETHER` designs with fewer spares."""
    num_fewer = np.cumsum(listed.num_spare_nodes[enough] - 1)
    groups = np.split(enough, np.flatnonzero(np.diff(num_fewer // SPARED_TOGETHER)) + 1)
    return [listed.take(rows) for rows in groups]


def _better(part: Evaluation, aim: _Aim, best: _Best) -> _Best:
    """The best of some designs and the one known before; only a finite value counts."""
    values = aim.value_of(part)
    row = int(np.argmin(values))
    if np.isfinite(values[row]) and (best is None or values[row] < best[0]):
        return float(values[row]), part.take(np.array([row]))
    return best


def rounded_up(value: float) -> float:
    """Returns a positive value, rounded up to `SIGNIFICANT_DIGITS` decimal digits."""
    exact = Decimal(value)
    last_digit = Decimal(1).scaleb(exact.adjusted() - SIGNIFICANT_DIGITS + 1)
    return float(exact.quantize(last_digit, rounding=ROUND_CEILING))


def _quantity(job: Job, name: str) -> _Aim:
    """The quantity that a limit bounds; infinite for designs that break the limits they are evaluated under."""

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
    """Total excess over the limits; infinite for designs that no change of limits makes possible."""

    def least(part: Evaluation) -> Floats:
        excess = _least_excess(job, part, least_by_intervals(job, part))
        return np.where(part.excess.is_possible, excess, np.inf)

    return _Aim(
        value_of=lambda part: np.where(part.excess.is_possible, part.excess.total, np.inf), least_of=least
    )


def _least_excess(job: Job, part: Evaluation, reached: Mapping[str, Floats]) -> Floats:
    """Lower bound on the total excess over the limits, `(n,)`, whatever the checkpoint interval.

    Args:
        job: the job.
        part: designs.
        reached: lower bounds on their limited quantities over all intervals.
    """
    helped = {name: excess_over(getattr(job.limits, name), values) for name, values in reached.items()}
    return total(helped.get(name, getattr(part.excess, name)) for name in part.excess.names())
