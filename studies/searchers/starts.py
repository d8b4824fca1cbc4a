"""Where does a search begin? At the layouts whose bounds nothing beats, in the corners of the space, and at random.

The bounds are within a few per cent of simulated values (`constraints.step_bound`), so their front is close to the sought
front before anything is simulated.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from constraints.bounds import BoundTable
from constraints.lattice import cross_run_knobs, num_run_knobs
from constraints.space import Space
from objectives.pareto import front_rows
from simulator.compiled import compiled, inner
from simulator.domain.plan import PlanTable
from simulator.table import Booleans, Floats, Integers
from studies.designs.knobs import Knobs
from studies.designs.spread_rows import spread_rows
from studies.searchers.estimates import LEAST_VALUE, bounds_of

FRONT_SHARE = 0.8
"""Share of a first generation that comes from the front of the bounds; in later restarts, from the corners."""
CORNERS = ("memory_fraction", "num_gpus", "power_w", "deadline_days", "budget_usd", "carbon_kgco2e")
"""Bounds whose least values are corners of the space; tests compare them with those that CP-SAT finds."""
NEAREST_PER_PLACE = 10
"""Layouts per place, with the least products of their bounds, whose fronts show which other layouts can be left out."""
_Rows = NDArray[np.intp]


def first_designs(space: Space, size: int, restart: int, seed: int) -> PlanTable:
    """Returns the designs with which a search begins, `(size,)` or fewer: each layout once, however it was chosen.

    Args:
        space: a space with at least one layout.
        size: number of designs wanted, each with a different layout.
        restart: 0 begins at the front of the bounds, all others in the corners.
        seed: seed of the layouts that are drawn at random, and of how each is run.
    """
    random = np.random.default_rng(seed)
    most = int(FRONT_SHARE * size)
    chosen = _front(space, most) if restart == 0 else _corners(space.kept_bounds, most)
    drawn = random.choice(space.num_kept, size=min(space.num_kept, size - len(chosen)), replace=False)
    layouts = space.layouts.take(np.unique(np.concatenate([chosen, drawn])))
    num_each = num_run_knobs(space.job, layouts)
    ways = np.cumsum(num_each) - num_each + random.integers(0, num_each)
    return cross_run_knobs(space.job, layouts).take(ways)


def first_rows(
    space: Space, knobs: Knobs, size: int, restart: int, seed: int, front: PlanTable | None = None
) -> Integers:
    """Returns the same designs as index rows `(size, k)`; restart 0 continues from a front that was found before.

    Args:
        space: a space with at least one layout.
        knobs: encode designs.
        size: number of rows wanted.
        restart: see `first_designs`.
        seed: see `first_designs`.
        front: designs that were found before; they fill at most half of the first generation.
    """
    rows = knobs.encode(first_designs(space, size, restart, seed))
    if front is not None and restart == 0:
        spread = spread_rows(len(front), max(1, size // 2))
        rows = np.concatenate([knobs.encode(front.take(spread)), rows])
    _, first = np.unique(knobs.design_codes(rows), return_index=True)
    return rows[np.sort(first)][:size]


def _front(space: Space, most: int) -> _Rows:
    """Layouts on the front of the bounds, then on the front of the remaining ones, and so on."""
    values = bounds_of(space.job, space.kept_bounds)
    left = near_fronts(values, most)
    chosen = left[:0]
    while len(chosen) < most and len(rows := front_rows(values[left])):
        spread = spread_rows(len(rows), most - len(chosen))
        chosen = np.concatenate([chosen, left[rows[spread]]])
        left = np.delete(left, rows)
    return chosen


def near_fronts(values: Floats, most: int) -> _Rows:
    """Returns rows that may be among the first `most` in the order of successive fronts; all rows if none can be ruled out.

    A row behind the m-th front of some rows is also behind the m-th front of all rows. So if the rows with the least
    products have enough rows on their first m fronts, no row behind the last of these fronts is needed.
    """
    products = np.log(np.maximum(values, LEAST_VALUE)).sum(axis=1)
    nearest = least_rows(products, NEAREST_PER_PLACE * most)
    others = np.delete(np.arange(len(values)), nearest)
    num_found, front, left = 0, nearest[:0], nearest
    while num_found < most and len(others):
        rows = front_rows(values[left])
        if len(rows) == 0:  # too few to rule anything out
            return np.arange(len(values))
        num_found, front, left = num_found + len(rows), left[rows], np.delete(left, rows)
    others = others[~_is_behind(values[others], values[front])]
    return np.sort(np.concatenate([nearest, others]))


def least_rows(values: Floats, size: int) -> _Rows:
    """Returns the rows of the `size` least of many values, first come first for ties, without sorting the rest."""
    size = min(size, len(values))
    if size == 0:
        return np.zeros(0, dtype=np.intp)
    rows = np.flatnonzero(values <= np.partition(values, size - 1)[size - 1])
    return rows[np.argsort(values[rows], kind="stable")[:size]]


@compiled
def _is_behind(values: Floats, points: Floats) -> Booleans:
    """Which rows `(n, k)` are dominated (nowhere better, somewhere worse) by one of the points `(m, k)`, `(n,)`."""
    is_behind = np.zeros(len(values), dtype=np.bool_)
    for row in range(len(values)):
        for point in range(len(points)):
            if _is_dominated(values, row, points, point):
                is_behind[row] = True
                break
    return is_behind


@inner
def _is_dominated(values: Floats, row: int, points: Floats, point: int) -> bool:
    is_worse = False
    for column in range(values.shape[1]):
        if values[row, column] < points[point, column]:
            return False
        is_worse = is_worse or values[row, column] > points[point, column]
    return is_worse


def _corners(bounds: BoundTable, most: int) -> _Rows:
    """Layouts with the least values of every bound, equally many for each bound."""
    each = max(1, most // len(CORNERS))
    least = [np.argsort(getattr(bounds, name), kind="stable")[:each] for name in CORNERS]
    return np.unique(np.concatenate(least))[:most]
