"""Which designs live on and have children? NSGA-II on columns: as pymoo selects, without an object for each design.

Deb et al., IEEE Trans. Evol. Comp. 6(2), 2002: the designs of parents and children that break limits least, of those that
break none the better fronts, and of the last front that has room the ones in the least crowded places.
"""

from __future__ import annotations

from typing import final

import numpy as np
from numpy.typing import NDArray

from simulator.table import Floats, Integers
from studies.mating import Mating


@final
class Nsga2:
    """A population in the order of its merit."""

    def __init__(self, mating: Mating, start: Integers, seed: int) -> None:
        """Prepares a first generation.

        Args:
            mating: makes children.
            start: index rows `(n, k)` of the first generation; all generations have at most as many.
            seed: of parents and children.
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
        """Lets the best of parents and children live on.

        Args:
            values: finite objectives of the generation, `(n, k)`.
            broken: by how much it breaks limits, `(n,)`.
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
        broken: by how much limits are broken, `(n,)`.
    """
    from moocore import pareto_rank

    feasible = np.flatnonzero(broken == 0.0)
    ranks = np.zeros(len(values), dtype=np.intp)
    crowding = np.zeros(len(values))
    if len(feasible):
        ranks[feasible] = pareto_rank(values[feasible])
        crowding[feasible] = _crowding(values[feasible], ranks[feasible])
    return np.asarray(np.lexsort((-crowding, ranks, broken)))


def _crowding(values: Floats, ranks: NDArray[np.intp]) -> Floats:
    """How far the neighbours of each row on its front are, `(n,)`; infinite at the ends of the front."""
    from pymoo.operators.survival.rank_and_crowding.metrics import get_crowding_function

    measure = get_crowding_function("cd")
    order = np.argsort(ranks, kind="stable")
    crowding = np.zeros(len(values))
    for front in np.split(order, np.flatnonzero(np.diff(ranks[order])) + 1):
        crowding[front] = measure.do(values[front])
    return crowding
