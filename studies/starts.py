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
from simulator.plan import PlanTable
from simulator.table import Integers
from studies.estimates import bounds_of
from studies.knobs import Knobs

FRONT_SHARE = 0.8
"""Share of a first generation that comes from the front of the bounds; of later restarts, from the corners."""
CORNERS = ("memory_fraction", "num_gpus", "power_w", "deadline_days", "budget_usd", "carbon_kgco2e")
"""Bounds whose least values are corners of the space."""
_Rows = NDArray[np.intp]


def first_layouts(space: Space, size: int, restart: int, seed: int) -> _Rows:
    """Returns rows `(size,)` of the layouts with which a search begins.

    Args:
        space: has at least one layout.
        size: rows that are wanted; layouts repeat where the space has fewer.
        restart: 0 begins at the front of the bounds, all others in the corners.
        seed: of the rows that are drawn at random.
    """
    random = np.random.default_rng(seed)
    most = int(FRONT_SHARE * size)
    chosen = _front(space, most) if restart == 0 else _corners(space.kept_bounds, most)
    rest = size - len(chosen)
    drawn = random.choice(space.num_kept, size=rest, replace=space.num_kept < rest)
    return np.concatenate([chosen, drawn])


def first_rows(
    space: Space, knobs: Knobs, size: int, restart: int, seed: int, front: PlanTable | None = None
) -> Integers:
    """Returns index rows `(size, k)` for the first generation of a restart.

    Args:
        space: has at least one layout.
        knobs: encode layouts; the knobs of the run are drawn at random.
        size: rows that are wanted; layouts repeat, with other knobs of the run, where the space has fewer.
        restart: 0 begins at the front, all others in the corners.
        seed: of everything random.
        front: designs that were found before, from which restart 0 goes on.
    """
    random = np.random.default_rng(seed + 1)
    rows = knobs.encode(space.layouts.take(first_layouts(space, size, restart, seed)), random)
    if front is None or restart > 0:
        return rows
    spread = np.unique(np.linspace(0, len(front) - 1, size // 2).astype(np.intp))
    return np.concatenate([knobs.encode_designs(front.take(spread)), rows])[:size]


def _front(space: Space, most: int) -> _Rows:
    """Layouts on the front of the bounds, then on the front of the others, and so on."""
    values = bounds_of(space.job, space.kept_bounds)
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
