"""Is a design of the front beaten by one that differs in a knob or two? A local search behind the evolutionary one.

Pareto local search (Paquete, Chiarandini and Stützle, 2004): every design of the front is compared with all neighbours
until no neighbour improves the front, or the evaluations are spent.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from simulator.plan import PlanTable
from simulator.table import Integers
from studies.knobs import Knobs
from studies.search import Searcher

STAGE = "comparing the front with its neighbours"


def search_neighbours(searcher: Searcher, knobs: Knobs, known: set[bytes], num_evaluations: int) -> bool:
    """Evaluates neighbours of the front that are not known yet; returns whether it was not interrupted.

    Args:
        searcher: evaluates and records.
        knobs: encode and decode designs.
        known: index rows that were evaluated before, as bytes; grows.
        num_evaluations: evaluations to spend at most.
    """
    expanded: set[bytes] = set()
    num_done = 0
    while num_done < num_evaluations:
        if searcher.should_stop():
            return False
        front = _unexpanded(searcher, knobs, expanded)
        candidates = (
            _new_rows(np.concatenate([_neighbours(row, knobs) for row in front]), known)
            if len(front)
            else front
        )
        plans = knobs.decode(candidates)
        valid = np.flatnonzero(knobs.excess(plans) == 0.0)[: num_evaluations - num_done]
        expanded |= {row.tobytes() for row in front}
        if len(valid) == 0:
            return True
        known |= {row.tobytes() for row in candidates[valid]}
        searcher.evaluate(plans.take(valid), STAGE, num_done, num_evaluations)
        num_done += len(valid)
    return True


def _unexpanded(searcher: Searcher, knobs: Knobs, expanded: set[bytes]) -> Integers:
    """Index rows `(n, k)` of the front whose neighbours were not looked at yet."""
    plans: PlanTable | None = None if searcher.archive.front is None else searcher.archive.front.plans
    if plans is None:
        return np.zeros((0, len(knobs.largest)), dtype=np.int64)
    rows = knobs.encode_designs(plans)
    return rows[[row.tobytes() not in expanded for row in rows]]


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


def _new_rows(rows: Integers, known: set[bytes]) -> Integers:
    rows = np.unique(rows, axis=0)
    return rows[[row.tobytes() not in known for row in rows]]
