"""Where does a search begin? At the layouts whose bounds nothing beats, in the corners of the space, and at random.

The bounds are within a few per cent of what a simulation says (`constraints.step_bound`), so their front is most of the
way to the front that is sought, before anything is simulated.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from constraints.bounds import BoundTable
from constraints.space import Space
from objectives.pareto import front_rows
from simulator.job import Objective
from simulator.table import Floats, Integers
from studies.knobs import Knobs

FRONT_SHARE = 0.8
"""Share of a first generation that comes from the front of the bounds; of later restarts, from the corners."""
CORNERS = ("memory_fraction", "num_gpus", "power_w", "deadline_days", "budget_usd", "carbon_kgco2e")
"""Bounds whose least values are corners of the space."""
BOUND_OF = {
    Objective.TIME: "deadline_days",
    Objective.TIME_P95: "deadline_days",
    Objective.COST: "budget_usd",
    Objective.COST_P95: "budget_usd",
    Objective.DEADLINE_RISK: "deadline_days",
    Objective.BUDGET_RISK: "budget_usd",
    Objective.ENERGY: "carbon_kgco2e",
    Objective.CARBON: "carbon_kgco2e",
}
"""Which bound stands for each objective; energy has the grid's intensity in common with carbon."""

_Rows = NDArray[np.intp]


def first_rows(space: Space, knobs: Knobs, size: int, restart: int, seed: int) -> Integers:
    """Returns index rows `(size, k)` for the first generation of a restart.

    Args:
        space: has at least one layout.
        knobs: encode layouts; the knobs of the run are drawn at random.
        size: rows that are wanted; layouts repeat, with other knobs of the run, where the space has fewer.
        restart: 0 begins at the front of the bounds, all others in the corners.
        seed: of everything random.
    """
    random = np.random.default_rng(seed)
    most = int(FRONT_SHARE * size)
    chosen = _front(space, most) if restart == 0 else _corners(space.kept_bounds, most)
    rest = size - len(chosen)
    drawn = random.choice(space.num_kept, size=rest, replace=space.num_kept < rest)
    rows = np.concatenate([chosen, drawn])
    return knobs.encode(space.layouts.take(rows), random)


def _front(space: Space, most: int) -> _Rows:
    """Layouts on the front of the bounds, then on the front of the others, and so on."""
    names = dict.fromkeys(BOUND_OF[objective] for objective in space.job.objectives)
    values: Floats = np.column_stack([getattr(space.kept_bounds, name) for name in names])
    left = np.arange(len(values))
    chosen = left[:0]
    while len(chosen) < most and len(left) > 0:
        rows = front_rows(values[left])
        spread = np.unique(np.linspace(0, len(rows) - 1, min(most - len(chosen), len(rows))).astype(np.intp))
        chosen = np.concatenate([chosen, left[rows[spread]]])
        left = np.delete(left, rows)
    return chosen


def _corners(bounds: BoundTable, most: int) -> _Rows:
    """Layouts with the least values of every bound, as many of each."""
    each = max(1, most // len(CORNERS))
    least = [np.argsort(getattr(bounds, name), kind="stable")[:each] for name in CORNERS]
    return np.unique(np.concatenate(least))[:most]
