"""Which designs survive and have children? NSGA-II on columns: it selects as pymoo does, without an object per design.

Deb et al., IEEE Trans. Evol. Comp. 6(2), 2002. Of parents and children, those survive that break limits least; among
feasible ones those on better fronts; and of the last front with room, those in the least crowded places.
"""

from __future__ import annotations

from typing import final

import numpy as np
from numpy.typing import NDArray

from simulator.table import Floats, Integers
from studies.searchers.mating import Mating

Ranks = NDArray[np.intp]


@final
class Nsga2:
    """A population sorted by merit."""

    def __init__(self, mating: Mating, start: Integers, seed: int) -> None:
        """Prepares a first generation.

        Args:
            mating: makes children.
            start: index rows `(n, k)` of the first generation; all generations have at most as many.
            seed: seed of parents and children.
        """
        self._mating = mating
        self._random = np.random.default_rng(seed)
        self._size = len(start)
        self._asked = start
        self._rows = start[:0]
        self._values: Floats | None = None
        self._broken = np.zeros(0)

    def ask(self) -> Integers:
        """Returns the index rows of the next generation, `(n, k)`."""
        if self._values is not None:
            self._asked = self._mating.children(self._rows, self._size, self._random)
        return self._asked

    def tell(self, values: Floats, broken: Floats) -> None:
        """Lets the best of parents and children survive.

        Args:
            values: finite objectives of the generation, `(n, k)`.
            broken: total excess over limits, `(n,)`.
        """
        rows = np.concatenate([self._rows, self._asked])
        values = values if self._values is None else np.concatenate([self._values, values])
        broken = np.concatenate([self._broken, broken])
        best = rows_by_merit(values, broken)[: self._size]
        self._rows, self._values, self._broken = rows[best], values[best], broken[best]


def rows_by_merit(values: Floats, broken: Floats) -> NDArray[np.intp]:
    """Returns all rows, the best first.

    Args:
        values: finite objectives, `(n, k)`.
        broken: total excess over limits, `(n,)`.
    """
    from moocore import pareto_rank

    feasible = np.flatnonzero(broken == 0.0)
    ranks = np.zeros(len(values), dtype=np.intp)
    crowding = np.zeros(len(values))
    if len(feasible):
        ranks[feasible] = pareto_rank(values[feasible])
        crowding[feasible] = crowding_distances(values[feasible], ranks[feasible])
    return np.asarray(np.lexsort((-crowding, ranks, broken)))


def crowding_distances(values: Floats, ranks: Ranks) -> Floats:
    """Returns the crowding distance of each row on its front, `(n,)`; infinite at the ends of the front.

    As in Deb et al.: for each objective, the distance between the neighbours on both sides as a share of the range of the
    front, averaged over the objectives. All fronts are processed together, because late populations have hundreds.

    Args:
        values: objectives, `(n, k)`.
        ranks: number of the front of each row, `(n,)`.
    """
    distances = np.zeros(len(values))
    for column in values.T:
        order = np.lexsort((column, ranks))
        distances[order] += _gaps(column[order], ranks[order])
    sizes = np.bincount(ranks)
    return np.where(sizes[ranks] <= 2, np.inf, distances / values.shape[1])


def _gaps(values: Floats, ranks: Ranks) -> Floats:
    """Sum of the distances to both neighbours, as shares of the front's range, `(n,)`; values ascend within each front."""
    is_first = np.diff(ranks, prepend=-1) != 0
    first, front = np.flatnonzero(is_first), np.cumsum(is_first) - 1
    last = np.append(first[1:], len(values)) - 1
    spans = (values[last] - values[first])[front]
    before = np.where(is_first, np.inf, np.diff(values, prepend=values[0]))
    behind = np.append(before[1:], np.inf)
    widths = np.where(spans > 0.0, spans, 1.0)
    # A front with a single value has no ends.
    return np.where(spans > 0.0, before / widths + behind / widths, 0.0)
