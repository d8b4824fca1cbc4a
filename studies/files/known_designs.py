"""What have other studies already simulated? Designs by key, in journals with the same simulator and simulated inputs.

Prices, limits, objectives and the search may differ between the studies, because the simulation depends on none of them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import final

import numpy as np
from numpy.typing import NDArray

from simulator.domain.plan import PlanTable
from simulator.errors import StudyError
from simulator.simulate import Outcomes
from studies.designs.plan_keys import Keys, are_same, plan_keys
from studies.files.journal import Batch, Journal

MAX_BATCHES_IN_MEMORY = 8
"""Batches that stay decoded: searches ask for designs in about the same order as earlier ones."""

_Rows = NDArray[np.intp]


@final
class KnownDesigns:
    """An index over the designs of other studies: 16 bytes per design in memory, the rest on disk."""

    def __init__(self, paths: Sequence[Path] = ()) -> None:
        """Reads the keys of all designs in these studies; unreadable studies are left out."""
        self._paths = tuple(paths)
        self._batches: OrderedDict[tuple[int, int], Batch] = OrderedDict()
        parts = [part for index, path in enumerate(self._paths) for part in _keys_of(index, path)]
        keys = [part_keys for _, _, part_keys in parts]
        self._places = [(index, number) for index, number, _ in parts]
        sizes = np.array([len(part_keys) for part_keys in keys], dtype=np.int64)
        place = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
        row = np.concatenate([np.arange(size, dtype=np.int32) for size in sizes] or [np.zeros(0, np.int32)])
        all_keys: Keys = np.concatenate(keys) if keys else np.zeros(0, dtype=np.uint64)
        order = np.argsort(all_keys, kind="stable")
        self._keys, self._place, self._row = all_keys[order], place[order], row[order]

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, plans: PlanTable) -> tuple[_Rows, Outcomes | None]:
        """Returns the rows of known designs, and their outcomes in that order; `None` for no rows."""
        if len(self) == 0:
            return np.zeros(0, dtype=np.intp), None
        keys = plan_keys(plans)
        found = np.minimum(np.searchsorted(self._keys, keys), len(self) - 1)
        rows = np.flatnonzero(self._keys[found] == keys)
        found = found[rows]
        parts: list[tuple[_Rows, Outcomes]] = []
        for place in np.unique(self._place[found]).tolist():
            is_here = self._place[found] == place
            batch = self._batch(place)
            wanted, there = rows[is_here], self._row[found[is_here]].astype(np.intp)
            if batch is None:
                continue
            same = are_same(plans.take(wanted), batch.plans.take(there))
            parts.append((wanted[same], batch.outcomes.take(there[same])))
        if not parts:
            return np.zeros(0, dtype=np.intp), None
        return np.concatenate([part for part, _ in parts]), Outcomes.concatenate([part for _, part in parts])

    def _batch(self, place: int) -> Batch | None:
        """The batch at a position; `None` if it has become unreadable."""
        key = self._places[place]
        if key not in self._batches:
            batch = _batch_of(self._paths[key[0]], key[1])
            if batch is None:
                return None
            self._batches[key] = batch
            if len(self._batches) > MAX_BATCHES_IN_MEMORY:
                self._batches.popitem(last=False)
        return self._batches[key]


def _keys_of(index: int, path: Path) -> list[tuple[int, int, Keys]]:
    try:
        with Journal.read(path) as journal:
            return [(index, number, keys) for number, keys in journal.design_keys()]
    except StudyError:  # another study's damage is no reason to stop this one
        return []


def _batch_of(path: Path, number: int) -> Batch | None:
    try:
        with Journal.read(path) as journal:
            return journal.batch(number)
    except StudyError:
        return None
