"""Which layout is sure to fit? The best one on the accelerators of a plan that barely does."""

from __future__ import annotations

from constraints.evaluation import evaluate
from planner.input.plan_input import plan_text
from planner.recommended.same_accelerators import ROOMY_FRACTION, SameAccelerators
from planner.text import human
from simulator.domain.plan import PlanTable


def roomier_text(others: SameAccelerators) -> str:
    """Returns what the best layout costs that surely fits, and how it is written as a plan."""
    roomy = others.roomiest()
    filled = f"no more than {human.whole_percent(ROOMY_FRACTION)}"
    if roomy is None:
        return f"No layout on the same accelerators that keeps the limits fills {filled}."
    both = evaluate(others.job, PlanTable.from_plans([others.plan, roomy]))
    summary, times_s, costs_usd = both.outcomes.summary, both.scores.time_to_train_s, both.scores.cost_usd
    used = human.percent(float(summary.peak_memory_bytes[1] / summary.memory_capacity_bytes[1]))
    time, cost = (human.change(float(each[1] / each[0]) - 1.0) for each in (times_s, costs_usd))
    return (
        f"The best layout on the same accelerators that fills {filled} trains in {human.duration(float(times_s[1]))} ({time}), "
        f"for {human.dollars(float(costs_usd[1]))} ({cost}), and fills {used}: {plan_text(roomy)}."
    )
