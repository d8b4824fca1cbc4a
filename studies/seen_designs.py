"""What is a design worth that was tried before? Objectives and broken limits of every design of a search, by its key."""

from __future__ import annotations

from typing import final

import numpy as np
from numpy.typing import NDArray

from simulator.plan import PlanTable
from studies.algorithm import Results
from studies.plan_keys import Keys, plan_keys


@final
class SeenDesigns:
    """Grows with every design that is evaluated; 16 bytes and the results of each in memory."""

    def __init__(self, num_objectives: int) -> None:
        self._keys: Keys = np.zeros(0, dtype=np.uint64)
        self._rows: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        self._results = Results(values=np.zeros((0, num_objectives)), excess=np.zeros(0))
        self._parts: list[Results] = []

    def __len__(self) -> int:
        return len(self._keys)

    def new_rows(self, plans: PlanTable) -> NDArray[np.intp]:
        """Returns the rows of designs that were not seen, each design once, in their order."""
        keys, first = np.unique(plan_keys(plans), return_index=True)
        return np.sort(first[~self._is_seen(keys)])

    def add(self, plans: PlanTable, results: Results) -> None:
        """Takes in designs of which none was seen before."""
        keys = plan_keys(plans)
        order = np.argsort(keys)
        place = np.searchsorted(self._keys, keys[order])
        self._rows = np.insert(self._rows, place, len(self) + order)
        self._keys = np.insert(self._keys, place, keys[order])
        self._parts.append(results)

    def results(self, plans: PlanTable) -> Results:
        """Returns what designs are worth that were all seen."""
        self._results = Results.concatenate([self._results, *self._parts])
        self._parts.clear()
        return self._results.take(self._rows[np.searchsorted(self._keys, plan_keys(plans))])

    def _is_seen(self, keys: Keys) -> NDArray[np.bool_]:
        if len(self) == 0:
            return np.zeros(len(keys), dtype=np.bool_)
        place = np.minimum(np.searchsorted(self._keys, keys), len(self) - 1)
        return np.asarray(self._keys[place] == keys)
