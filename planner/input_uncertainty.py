"""Which reasons survive unsure inputs? The front under draws of prices, grids, power and making."""

from __future__ import annotations

import numpy as np

from constraints.evaluation import Evaluation
from objectives.input_uncertainty import NUM_DRAWS, DrawnObjectives, draw_objectives
from planner.comparisons import DrawnFigure, InputUncertainty, Ordering
from simulator.job import Job
from simulator.table import Integers

MOST_RIVALS = 60
"""Designs of a long front that are drawn, evenly spread, with the best in every objective."""


def input_uncertainty_of(job: Job, front: Evaluation, ids: Integers, row: int, seed: int) -> InputUncertainty:
    """Returns what becomes of the recommended design, a row of the front, under draws of the inputs."""
    values = front.objectives(job)
    best = [int(np.argmin(values[:, k])) for k in range(values.shape[1])]
    spread = np.linspace(0, len(front) - 1, min(len(front), MOST_RIVALS)).astype(np.intp)
    rows = np.unique([row, *best, *spread])
    part = front.take(rows)
    drawn = draw_objectives(job, part.plans, part.scores, seed=seed)
    place = int(np.searchsorted(rows, row))
    names = [objective.value for objective in job.objectives]
    quantiles = drawn.quantiles((0.05, 0.5, 0.95))[:, place]
    return InputUncertainty(
        num_draws=NUM_DRAWS,
        figures={
            name: DrawnFigure(p5=float(low), p50=float(middle), p95=float(high))
            for name, (low, middle, high) in zip(names, quantiles.T, strict=True)
        },
        on_front_fraction=float(drawn.on_front_fraction[place]),
        orderings=tuple(
            Ordering(
                objective=name,
                design_id=int(ids[rival]),
                holds_fraction=_holds(drawn, int(np.searchsorted(rows, rival)), place, k),
            )
            for k, (name, rival) in enumerate(zip(names, best, strict=True))
            if rival != row
        ),
    )


def _holds(drawn: DrawnObjectives, rival: int, place: int, k: int) -> float:
    return float(drawn.better_fraction(rival, place)[k])
