"""What would make the job feasible? For each limit the smallest value that works while all others stay.

Layouts are simulated in the order of their bound on the relaxed quantity, best first, and the search ends when no bound
that is left could still win. So the answer is exact: the least value that any design of the space reaches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from constraints.evaluation import Evaluation, evaluate
from constraints.lattice import cross_run_knobs
from constraints.limits import LIMIT_NAMES, limited_quantities
from constraints.space import Space, pruned_space
from simulator.job import Job, Limits
from simulator.table import Floats

LAYOUTS_PER_ROUND = 2048
"""Layouts that are simulated before the next look at the bounds."""
SIGNIFICANT_DIGITS = 4
"""Digits to which a proposed limit is rounded up."""

Stop = Callable[[], bool]


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


def set_limits(job: Job) -> dict[str, float]:
    """Returns the limits that the job sets, by name."""
    limits = {name: getattr(job.limits, name) for name in LIMIT_NAMES}
    return {name: limit for name, limit in limits.items() if limit is not None}


def with_limits(job: Job, limits: dict[str, float]) -> Job:
    """Returns the job with these limits and no others."""
    return job.model_copy(update={"limits": Limits(**limits)})


def least_value(job: Job, name: str, *, should_stop: Stop = lambda: False) -> LeastValue | None:
    """Returns the least value of one limited quantity among designs that keep all other limits of the job.

    Args:
        job: the job; its own limit of that name is ignored.
        name: one of `LIMIT_NAMES`.
        should_stop: asked between rounds; the answer so far is returned when it says so.

    Returns:
        The value and its design, or `None` where no design keeps the other limits.
    """
    others = with_limits(job, {other: limit for other, limit in set_limits(job).items() if other != name})
    space = pruned_space(others)
    bounds = _bounds_of_kept(space, name)
    order = np.argsort(bounds, kind="stable")
    best: LeastValue | None = None
    for start in range(0, len(order), LAYOUTS_PER_ROUND):
        rows = order[start : start + LAYOUTS_PER_ROUND]
        if should_stop() or (best is not None and bounds[rows[0]] >= best.value):
            break
        best = _better(best, name, evaluate(others, cross_run_knobs(others, space.layouts.take(rows))))
    return best


def nearest_design(job: Job, space: Space, *, should_stop: Stop = lambda: False) -> Evaluation | None:
    """Returns the design whose limits are exceeded least in sum, one row; `None` where nothing fits memory.

    For jobs in which no single limit is at fault; looks at every layout that fits memory.
    """
    layouts = space.all_layouts.take(space.bounds.fits_memory)
    best: Evaluation | None = None
    for start in range(0, len(layouts), LAYOUTS_PER_ROUND):
        if should_stop():
            break
        part = evaluate(job, cross_run_knobs(job, layouts.take(slice(start, start + LAYOUTS_PER_ROUND))))
        row = part.take(np.array([np.argmin(part.excess.total)]))
        if best is None or row.excess.total[0] < best.excess.total[0]:
            best = row
    return best


def rounded_up(value: float) -> float:
    """Returns the least number of `SIGNIFICANT_DIGITS` decimal digits that is not below a positive value."""
    step = 10.0 ** (np.floor(np.log10(value)) - SIGNIFICANT_DIGITS + 1)
    rounded = float(f"{np.ceil(value / step) * step:.12g}")
    return rounded if rounded >= value else float(f"{(np.ceil(value / step) + 1) * step:.12g}")


def _bounds_of_kept(space: Space, name: str) -> Floats:
    return np.asarray(getattr(space.bounds, name)[space.is_kept])


def _better(best: LeastValue | None, name: str, part: Evaluation) -> LeastValue | None:
    values = limited_quantities(part.plans, part.scores, part.outcomes)[name]
    values = np.where(part.is_feasible, values, np.inf)
    row = int(np.argmin(values))
    if not np.isfinite(values[row]) or (best is not None and values[row] >= best.value):
        return best
    return LeastValue(name=name, value=float(values[row]), design=part.take(np.array([row])))
