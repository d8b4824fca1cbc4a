"""What were the results of a design that was tried before? Objectives and excess of every design of a search, by key."""

from __future__ import annotations

from typing import final

import numpy as np
from numpy.typing import NDArray

from simulator.table import Floats
from studies.algorithm import Results
from studies.designs.key_index import KeyIndex, with_room
from studies.designs.plan_keys import Keys


@final
class SeenDesigns:
    """Grows with every evaluated design; its results and 16 to 32 bytes more per design are in memory."""

    def __init__(self, num_objectives: int) -> None:
        self._index = KeyIndex()
        self._values: Floats = np.zeros((0, num_objectives))
        self._excess: Floats = np.zeros(0)

    def __len__(self) -> int:
        return len(self._index)

    def new_rows(self, keys: Keys) -> NDArray[np.intp]:
        """Returns the rows of designs that were not seen before, each design once, in order."""
        return self._index.new_rows(keys)

    def add(self, keys: Keys, results: Results) -> None:
        """Adds distinct designs, none of which was seen before."""
        first = len(self)
        self._index.add(keys)
        self._values, self._excess = (with_room(array, len(self)) for array in (self._values, self._excess))
        self._values[first : len(self)] = results.values
        self._excess[first : len(self)] = results.excess

    def results(self, keys: Keys) -> Results:
        """Returns the results of designs that were all seen before."""
        rows = self._index.places(keys)
        return Results(values=self._values[rows], excess=self._excess[rows])
