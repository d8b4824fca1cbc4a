"""Which layout is sure to fit? The best one on the accelerators of a plan that barely does."""

from __future__ import annotations

from constraints.evaluation import evaluate
from planner.input.plan_input import plan_text
from planner.notes.gain_words import gain_words
from planner.recommended.same_accelerators import ROOMY_FRACTION, SameAccelerators
from planner.text import human
from simulator.domain.plan import PlanTable


def roomier_text(others: SameAccelerators) -> str:
    """Returns what the best layout costs that surely fits, and how it is written as a plan."""
    roomy = others.roomiest()
    filled = f"no more than {human.whole_percent(ROOMY_FRACTION)}"
    if roomy is None:
        return f"No layout on the same accelerators that keeps the limits fills {filled}."
    summary = evaluate(others.job, PlanTable.from_plans([roomy])).outcomes.summary
    used = human.percent(float(summary.peak_memory_bytes[0] / summary.memory_capacity_bytes[0]))
    return (
        f"The best layout on the same accelerators that fills {filled} {gain_words(others.job, others.plan, roomy)}, "
        f"and fills {used}: {plan_text(roomy)}."
    )
