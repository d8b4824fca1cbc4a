"""Where does a plan that uses all nodes there are get others from? How long its run takes if it waits for repairs alone."""

from __future__ import annotations

import math

from constraints.evaluation import evaluate
from planner.recommended.recommendation import Design
from planner.text import human
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.units import DAY

LEAST_DELAY_FRACTION = 0.02
"""Delay of the run by waits for repairs that is worth a note."""


def supply_notes(job: Job, design: Design) -> list[str]:
    """Returns a note on a design that leaves no node of its offer, if its run is longer where no other nodes can be had."""
    plan, reliability = design.plan, job.reliability
    most, queue_s = job.offers[plan.offer].max_nodes, reliability.restart.replace_from_queue_s
    repair_s = reliability.repair_days * DAY
    if most is None or design.num_nodes + plan.num_spare_nodes < most or queue_s >= repair_s:
        return []
    restart = reliability.restart.model_copy(update={"replace_from_queue_s": repair_s})
    alone = job.model_copy(update={"reliability": reliability.model_copy(update={"restart": restart})})
    days = float(evaluate(alone, PlanTable.from_plans([plan])).scores.time_to_train_s[0]) / DAY
    change = days / design.time_to_train_days - 1.0
    if change < LEAST_DELAY_FRACTION:
        return []
    field = "reliability.restart.replace_from_queue_s"
    takes = f"takes {human.days(days)} ({human.change(change)})" if math.isfinite(days) else "never ends"
    note = (
        f"All {most:,} nodes of offers[{plan.offer}].max_nodes are in use. The run nevertheless waits for another node only "
        f"{human.duration(queue_s)} ({field}), as if there were more elsewhere. If there are none, it waits for repairs of "
        f"{human.days(reliability.repair_days)} (reliability.repair_days) and {takes}: set {field}={human.typed(repair_s)}, "
        "and let enough nodes be spares (fewer num_gpus, a batch that splits among them)."
    )
    return [note]
