"""What does a search try when it has found nothing feasible? Designs in random order, until one keeps all limits."""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from constraints.space import Space
from simulator.domain.plan import PlanTable
from studies.algorithm import Results, SearchAlgorithm


@final
class UntilFeasible(SearchAlgorithm):
    """Suggests designs of a space in a random order; nothing more once one of them keeps all limits."""

    stage: ClassVar[str] = "looking for a feasible design"

    def __init__(self, space: Space, batch_size: int, seed: int) -> None:
        """Draws an order.

        Args:
            space: where designs are drawn from.
            batch_size: how many are suggested together.
            seed: seed of the order.
        """
        self._space = space
        self._numbers = np.random.default_rng(seed).permutation(space.num_designs)
        self._batch_size = batch_size
        self._is_found = False

    def suggest(self) -> PlanTable:
        """Returns the next designs of the order; some may have been evaluated before this search began."""
        if self._is_found:
            return self._space.no_designs()
        drawn, self._numbers = np.split(self._numbers, [self._batch_size])
        return self._space.designs_at(drawn)

    def update(self, results: Results) -> None:
        """Ends the search with the first design that keeps all limits."""
        self._is_found = bool((results.excess == 0.0).any())
