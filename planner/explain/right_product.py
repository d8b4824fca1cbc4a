"""Which degree, or which number of accelerators, makes the product of the degrees right?

Each alone, where the plan then meets every constraint.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from constraints.evaluation import evaluate
from constraints.layout import is_valid_layout
from planner.explain.violations import DEGREES
from planner.recommended.comparisons import OtherChoice
from planner.recommended.same_accelerators import other_choice
from simulator.domain.job import Job
from simulator.domain.plan import Plan, PlanTable

NUM_GPUS = "num_gpus"
"""The number of accelerators, as a choice."""


def right_products(job: Job, plan: Plan, num_gpus: int) -> tuple[OtherChoice, ...]:
    """Returns the changes of one degree, or of the number of accelerators, with which a plan meets every constraint.

    Args:
        job: the question.
        plan: the decisions, on as many accelerators as its degrees multiply to.
        num_gpus: accelerators that were asked for, which are not as many.
    """
    changed = dict(_changed(plan, num_gpus))
    plans = PlanTable.from_plans(list(changed.values()))
    rows = np.flatnonzero(is_valid_layout(job, plans))
    found = evaluate(job, plans.take(rows))
    names = [list(changed)[row] for row in rows]
    is_kept = found.is_feasible
    return tuple(other_choice(job, name, found, row) for row, name in enumerate(names) if is_kept[row])


def _changed(plan: Plan, num_gpus: int) -> Iterator[tuple[str, Plan]]:
    """Yields the plan with each degree that makes the product right, and with the accelerators that its degrees have."""
    for name in DEGREES:
        others = plan.num_gpus // getattr(plan, name)
        if num_gpus % others == 0:
            yield name, plan.model_copy(update={name: num_gpus // others, NUM_GPUS: num_gpus})
    yield NUM_GPUS, plan
