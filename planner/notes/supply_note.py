"""Where does a plan that uses nearly all nodes there are get others from? If its run waits for repairs, that is told."""

from __future__ import annotations

import numpy as np

from constraints.evaluation import evaluate
from planner.recommended.recommendation import Design
from planner.text import human
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.run.spare_nodes import USUAL_QUEUE_S
from simulator.units import DAY

LEAST_DELAY_FRACTION = 0.02
"""Delay of the run by waits for repairs that is worth a note."""
_FIELD = "reliability.restart.replace_from_queue_s"


def supply_notes(job: Job, design: Design) -> list[str]:
    """Returns a note on a design whose run is longer as its offer has few nodes left, so that it waits for repairs."""
    plans = PlanTable.from_plans([design.plan])
    most, restart = job.offers[design.plan.offer].max_nodes, job.reliability.restart
    if most is None or restart.replace_from_queue_s is not None:
        return []
    lent = job.reliability.model_copy(
        update={"restart": restart.model_copy(update={"replace_from_queue_s": USUAL_QUEUE_S})}
    )
    with_others = evaluate(job.model_copy(update={"reliability": lent}), plans).scores.time_to_train_s
    days = float(with_others[0]) / DAY
    change = days / design.time_to_train_days - 1.0 if np.isfinite(days) else 0.0
    if change > -LEAST_DELAY_FRACTION:
        return []
    note = (
        f"Once all {most:,} nodes of offers[{design.plan.offer}].max_nodes train or are in repair, the run waits for repairs "
        f"of {human.days(job.reliability.repair_days)} (reliability.repair_days). Training on fewer of them leaves spares "
        "(fewer num_gpus, a batch that splits among them). If nodes come from "
        f"elsewhere within {human.duration(USUAL_QUEUE_S)}, it takes {human.days(days)} ({human.change(change)}): set "
        f"{_FIELD}={human.typed(USUAL_QUEUE_S)}."
    )
    return [note]
