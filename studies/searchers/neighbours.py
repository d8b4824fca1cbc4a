"""Is a design of the front beaten by one that differs in a knob or two? A local search after the evolutionary one.

Pareto local search (Paquete, Chiarandini and Stützle, 2004): every design of the front is compared with all neighbours
until no neighbour improves the front, or the evaluations are spent.
"""

from __future__ import annotations

from itertools import combinations
from typing import ClassVar, final

import numpy as np

from simulator.domain.plan import PlanTable
from simulator.table import Integers
from studies.algorithm import Results, SearchAlgorithm
from studies.designs.archive import Archive
from studies.designs.knobs import Knobs
from studies.searchers.estimates import Estimator

ROWS_PER_SUGGESTION = 50_000
"""Neighbours, valid or not, that are considered together."""


@final
class Neighbours(SearchAlgorithm):
    """Suggests all neighbours of the designs that have joined an archive's front since the last suggestion."""

    stage: ClassVar[str] = "comparing the front with its neighbours"

    def __init__(self, knobs: Knobs, archive: Archive, estimator: Estimator | None = None) -> None:
        """Begins with a front.

        Args:
            knobs: knobs of the space.
            archive: holds the front and all later improvements.
            estimator: has learned from designs of the space; the most promising neighbours come first.
        """
        self._knobs = knobs
        self._archive = archive
        self._estimator = estimator
        self._expanded: dict[int, set[bytes]] = {1: set(), 2: set()}

    def suggest(self) -> PlanTable:
        """Returns the valid designs that differ from designs of the front in one knob; after these, in two."""
        for num_knobs, expanded in self._expanded.items():
            front = self._unexpanded(expanded)[: _most_at_once(self._knobs, num_knobs)]
            if len(front) > 0:
                expanded |= {row.tobytes() for row in front}
                rows = np.concatenate([_neighbours(row, self._knobs, num_knobs) for row in front])
                return self._in_order(np.unique(rows, axis=0))
        return self._knobs.no_designs()

    def update(self, results: Results) -> None:
        """Does nothing: improvements are already in the archive."""
        del results

    def _in_order(self, rows: Integers) -> PlanTable:
        """The designs of index rows `(n, k)` that are in the space."""
        _, plans = self._knobs.designs(rows)
        if self._estimator is None or len(plans) == 0:
            return plans
        return plans.take(np.argsort(self._estimator.shortfalls(plans), kind="stable"))

    def _unexpanded(self, expanded: set[bytes]) -> Integers:
        """Index rows `(n, k)` of the front whose neighbours have not been considered yet."""
        front = self._archive.front
        if front is None:
            return np.zeros((0, len(self._knobs.largest)), dtype=np.int64)
        rows = self._knobs.encode(front.plans)
        return rows[[row.tobytes() not in expanded for row in rows]]


def _most_at_once(knobs: Knobs, num_knobs: int) -> int:
    """Number of designs of the front whose neighbours are considered together."""
    others = knobs.largest.astype(np.float64)
    num_each = others.sum() if num_knobs == 1 else (others.sum() ** 2 - (others**2).sum()) / 2
    return max(1, int(ROWS_PER_SUGGESTION / max(1.0, num_each)))


def _neighbours(row: Integers, knobs: Knobs, num_knobs: int) -> Integers:
    """The row itself and all rows that differ from it in at most `num_knobs` knobs (one or two), `(n, k)`."""
    sizes = knobs.largest + 1
    parts = [row[None]]
    for changed_knobs in combinations(range(len(row)), num_knobs):
        axes = np.meshgrid(*(np.arange(sizes[knob]) for knob in changed_knobs))
        changed = np.tile(row, (axes[0].size, 1))
        changed[:, changed_knobs] = np.stack(axes, axis=-1).reshape(-1, num_knobs)
        parts.append(changed)
    return np.unique(np.concatenate(parts), axis=0)
