"""How are all designs evaluated? One batch after another in the order of their layouts, in memory that does not grow."""

from __future__ import annotations

from typing import ClassVar, final

from constraints.space import Space
from simulator.plan import PlanTable
from studies.algorithm import Results, SearchAlgorithm

DESIGNS_PER_BATCH = 16_384
"""Designs between two reports of progress: about a sixth of a second of simulation."""


@final
class Exhaustive(SearchAlgorithm):
    """Suggests every design of a space once."""

    stage: ClassVar[str] = "searching exhaustively"
    suggests_once: ClassVar[bool] = True

    def __init__(self, space: Space) -> None:
        self._batches = space.design_batches(DESIGNS_PER_BATCH)
        self._none = space.no_designs()

    def suggest(self) -> PlanTable:
        """Returns the next designs of the space."""
        return next(self._batches, self._none)

    def update(self, results: Results) -> None:
        """Results change nothing about what comes next."""
        del results
