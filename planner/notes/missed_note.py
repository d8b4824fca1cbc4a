"""Did the search miss a better layout? Where it did not try every design, the comparison of other choices may find one."""

from __future__ import annotations

import numpy as np

from constraints.evaluation import evaluate
from objectives.pareto import compromise_losses
from planner.input.plan_input import plan_text
from planner.notes.gain_words import gain_words
from planner.recommended.same_accelerators import SameAccelerators
from simulator.domain.plan import PlanTable

NOTEWORTHY_FRACTION = 0.002
"""Smaller gains, as the weighted mean of the objectives, are not told: designs of a front may lie this near to each other."""


def missed_notes(others: SameAccelerators) -> list[str]:
    """Returns a note if a layout on the same accelerators is a better compromise than the recommended one."""
    if not others.leaders.is_feasible[0]:
        return []
    best = others.leaders.plans.plan(0)
    both = evaluate(others.job, PlanTable.from_plans([others.plan, best]))
    own, other = compromise_losses(
        both.objectives(others.job), np.array(others.job.objective_weights)
    ).tolist()
    if own - other < NOTEWORTHY_FRACTION:
        return []
    note = (
        f"The search missed a better layout on the same accelerators, which {gain_words(others.job, others.plan, best)}: "
        f"{plan_text(best)}. A longer search (search.max_evaluations) may find more."
    )
    return [note]
