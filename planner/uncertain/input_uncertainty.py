"""Which results hold under uncertain inputs? The front over draws of times, failures, prices, grids, power and carbon."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from constraints.evaluation import Evaluation
from objectives.input_uncertainty import NUM_DRAWS, DrawnObjectives
from planner.recommended.comparisons import DrawnDesign, DrawnFigure, InputUncertainty, Neighbours, Ordering
from planner.uncertain.drawn_front import drawn_front
from planner.uncertain.sensitivity import front_tornado
from planner.uncertain.uncertainty import share_within
from simulator.domain.job import Job
from simulator.order_statistics import percentiles
from simulator.table import Floats, Integers
from simulator.units import DAY
from studies.designs.spread_rows import spread_rows

MOST_RIVALS = 60
"""Most designs of a long front that are drawn: evenly spread, with the best in every objective."""


def input_uncertainty_of(job: Job, front: Evaluation, ids: Integers, row: int, seed: int) -> InputUncertainty:
    """Returns the results of the recommended design, a row of the front, over draws of the inputs."""
    rows, best = _drawn_rows(job, front, row)
    values = front.objectives(job)
    # A front that is drawn whole is passed on as it is, since `drawn_front` remembers the very same one.
    part = front if len(rows) == len(front) else front.take(rows)
    unsure, drawn = drawn_front(job, part, seed)
    place = int(np.searchsorted(rows, row))
    designs = _designs(job, drawn, ids[rows])
    bars = front_tornado(unsure, ids[rows])
    return InputUncertainty(
        num_draws=NUM_DRAWS,
        figures=designs[place].figures,
        on_front_fraction=designs[place].on_front_fraction,
        recommended_fraction=designs[place].recommended_fraction,
        within_deadline_fraction=share_within(
            drawn.figures["time_to_train"][:, place] / DAY, job.limits.deadline_days
        ),
        within_budget_fraction=share_within(drawn.figures["cost"][:, place], job.limits.budget_usd),
        orderings=tuple(
            Ordering(
                objective=objective.value,
                design_id=int(ids[rival]),
                holds_fraction=float(drawn.better_fraction(int(np.searchsorted(rows, rival)), place)[k]),
            )
            for k, (objective, rival) in enumerate(zip(job.objectives, best, strict=True))
            if values[rival, k] < values[row, k]  # equal ones have no order
        ),
        neighbours=tuple(_neighbours(job, part, drawn, ids[rows])),
        designs=designs,
        tornado=tuple(bar for bar in bars if bar.design_id == ids[row]),
    )


def _neighbours(job: Job, part: Evaluation, drawn: DrawnObjectives, ids: Integers) -> Iterator[Neighbours]:
    """Yields neighbouring pairs by each objective with all inputs at the middle; equal designs have no order."""
    values = part.objectives(job)
    for k, objective in enumerate(job.objectives):
        order = np.argsort(values[:, k], kind="stable")
        for row, rival in pairwise(order.tolist()):
            if values[row, k] < values[rival, k]:
                yield Neighbours(
                    objective=objective.value,
                    design_id=int(ids[row]),
                    next_design_id=int(ids[rival]),
                    holds_fraction=float(drawn.better_fraction(row, rival)[k]),
                )


def _drawn_rows(job: Job, front: Evaluation, row: int) -> tuple[NDArray[np.intp], list[int]]:
    """Rows of the front that are drawn, and the best one in every objective."""
    best = [int(found) for found in front.objectives(job).argmin(axis=0)]
    spread = spread_rows(len(front), MOST_RIVALS)
    return np.unique([row, *best, *spread]), best


def _designs(job: Job, drawn: DrawnObjectives, ids: Integers) -> tuple[DrawnDesign, ...]:
    names = [objective.value for objective in job.objectives]
    weights = np.array(job.objective_weights)
    on_front, chosen, least = drawn.on_front_fraction, drawn.chosen_fraction(weights), drawn.least_fraction()
    figures = {name: drawn.values[:, :, k] for k, name in enumerate(names)} | dict(drawn.figures)
    return tuple(
        DrawnDesign(
            design_id=int(ids[row]),
            figures=_figures(figures, row),
            on_front_fraction=float(on_front[row]),
            recommended_fraction=float(chosen[row]),
            least_fraction={name: float(share) for name, share in zip(names, least[row], strict=True)},
        )
        for row in range(len(ids))
    )


def _figures(figures: Mapping[str, Floats], row: int) -> dict[str, DrawnFigure]:
    found = {}
    for name, values in figures.items():
        low, middle, high = percentiles(values[:, row])
        found[name] = DrawnFigure(p5=low, p50=middle, p95=high)
    return found
