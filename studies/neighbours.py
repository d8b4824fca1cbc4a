"""Is a design of the front beaten by one that differs in a knob or two? A local search behind the evolutionary one.

Pareto local search (Paquete, Chiarandini and Stützle, 2004): every design of the front is compared with all neighbours
until no neighbour improves the front, or the evaluations are spent.
"""

from __future__ import annotations

from itertools import combinations
from typing import ClassVar, final

import numpy as np

from simulator.plan import PlanTable
from simulator.table import Integers
from studies.algorithm import Results, SearchAlgorithm
from studies.archive import Archive
from studies.knobs import Knobs

ROWS_PER_SUGGESTION = 50_000
"""Neighbours, valid or not, that are looked at together."""


@final
class Neighbours(SearchAlgorithm):
    """Suggests all neighbours of the designs that have come onto an archive's front since the last suggestion."""

    stage: ClassVar[str] = "comparing the front with its neighbours"

    def __init__(self, knobs: Knobs, archive: Archive) -> None:
        self._knobs = knobs
        self._archive = archive
        self._expanded: set[bytes] = set()

    def suggest(self) -> PlanTable:
        """Returns the valid designs that differ from one of the front in at most two knobs."""
        front = self._unexpanded()
        self._expanded |= {row.tobytes() for row in front}
        parts = [_neighbours(row, self._knobs) for row in front]
        rows = np.unique(np.concatenate([front, *parts]), axis=0)
        plans = self._knobs.decode(rows)
        return plans.take(self._knobs.excess(plans) == 0.0)

    def update(self, results: Results) -> None:
        """What is better than the front is on it now."""
        del results

    def _unexpanded(self) -> Integers:
        """Index rows `(n, k)` of some designs of the front whose neighbours were not looked at yet."""
        front = self._archive.front
        if front is None:
            return np.zeros((0, len(self._knobs.largest)), dtype=np.int64)
        rows = self._knobs.encode_designs(front.plans)
        new = rows[[row.tobytes() not in self._expanded for row in rows]]
        return new[: max(1, ROWS_PER_SUGGESTION // _num_neighbours(self._knobs))]


def _num_neighbours(knobs: Knobs) -> int:
    """Designs, valid or not, that differ from one design in one or two knobs."""
    others = knobs.largest.astype(np.float64)
    return max(1, int(others.sum() + (others.sum() ** 2 - (others**2).sum()) / 2))


def _neighbours(row: Integers, knobs: Knobs) -> Integers:
    """All rows that differ in one or two knobs, `(n, k)`."""
    sizes = knobs.largest + 1
    parts = []
    for first, second in combinations(range(len(row)), 2):
        values = np.stack(np.meshgrid(np.arange(sizes[first]), np.arange(sizes[second])), axis=-1).reshape(
            -1, 2
        )
        changed = np.tile(row, (len(values), 1))
        changed[:, first], changed[:, second] = values.T
        parts.append(changed)
    return np.unique(np.concatenate(parts), axis=0)
