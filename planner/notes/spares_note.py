"""How long does a plan wait for replacement nodes, and what would enough spare nodes change?"""

from __future__ import annotations

from constraints.evaluation import evaluate
from planner.recommended.recommendation import Design
from planner.text import human
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.run.spare_nodes import sufficient_spare_nodes
from simulator.units import DAY

LEAST_SAVING_FRACTION = 0.02
"""Time that more spares must save to be worth a note."""


def spares_notes(job: Job, design: Design) -> list[str]:
    """Returns a note on a plan whose run would be shorter with as many spare nodes as suffice for it."""
    plan = design.plan
    own = evaluate(job, PlanTable.from_plans([plan]))
    enough = int(sufficient_spare_nodes(job, own.plans, own.outcomes.run.calm_s)[0])
    if enough <= plan.num_spare_nodes:
        return []
    spared = evaluate(job, PlanTable.from_plans([plan.model_copy(update={"num_spare_nodes": enough})]))
    days, usd = float(spared.scores.time_to_train_s[0]) / DAY, float(spared.scores.cost_usd[0])
    change = days / design.time_to_train_days - 1.0
    if change > -LEAST_SAVING_FRACTION:
        return []
    waited = human.days(design.run_seconds["replacement_wait_s"] / DAY)
    dearer = f" ({human.change(usd / design.cost_usd - 1.0)})" if design.cost_usd else ""
    note = (
        f"The run waits {waited} for replacement nodes, with {human.counted(plan.num_spare_nodes, 'spare node')}. With "
        f"{enough} (spares={enough} in the plan) it would take {human.days(days)} ({human.change(change)}) and cost "
        f"{human.dollars(usd)}{dearer}."
    )
    return [note]
