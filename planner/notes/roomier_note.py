"""Which layout is sure to fit? The best one on the accelerators of a plan that barely does."""

from __future__ import annotations

from planner.input.plan_input import plan_text
from planner.notes.gain_words import gain_words
from planner.recommended.same_accelerators import ROOMY_FRACTION, SameAccelerators
from planner.text import human


def roomier_text(others: SameAccelerators) -> str:
    """Returns what the best layout costs that surely fits, and how it is written as a plan."""
    roomy = others.best_roomy()
    filled = f"no more than {human.whole_percent(ROOMY_FRACTION)}"
    if roomy is None:
        return f"No layout on the same accelerators that keeps the limits fills {filled}."
    plan, summary = roomy.plans.plan(0), roomy.outcomes.summary
    used = human.percent(float(summary.peak_memory_bytes[0] / summary.memory_capacity_bytes[0]))
    return (
        f"The best layout on the same accelerators that fills {filled} {gain_words(others.job, others.plan, plan)}, "
        f"and fills {used}: {plan_text(plan)}."
    )
