"""What does random search find? Designs of the space drawn at random, none twice: the baseline for every other search."""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from constraints.space import Space
from simulator.domain.plan import PlanTable
from studies.algorithm import Results, SearchAlgorithm


@final
class RandomSearch(SearchAlgorithm):
    """Suggests a random order of the designs of a space, batch by batch."""

    stage: ClassVar[str] = "searching at random"

    def __init__(self, space: Space, num_designs: int, batch_size: int, seed: int) -> None:
        """Draws designs.

        Args:
            space: where they are drawn from.
            num_designs: how many at most.
            batch_size: how many are suggested together.
            seed: seed of the draw.
        """
        random = np.random.default_rng(seed)
        drawn = random.choice(space.num_designs, min(num_designs, space.num_designs), replace=False)
        self._designs = space.designs_at(drawn)
        self._batch_size = batch_size
        self._start = 0

    def suggest(self) -> PlanTable:
        """Returns the next designs of the order."""
        batch = slice(self._start, self._start + self._batch_size)
        self._start += self._batch_size
        return self._designs.take(batch)

    def update(self, results: Results) -> None:
        """Results change nothing about what comes next."""
        del results
