"""How are all designs evaluated? Batch by batch in the order of their layouts, in constant memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar, final

from constraints.space import Space
from simulator.domain.plan import PlanTable
from studies.algorithm import Results, SearchAlgorithm
from studies.designs.blocks import BlockPart, block_parts
from studies.designs.reduction import Reduction
from studies.search import Searcher

Ahead = Callable[[Iterator[PlanTable]], Iterator[PlanTable]]
"""Passes batches on and may read some ahead."""
Reducer = Callable[[Iterator[BlockPart], str], Iterator[Reduction]]
"""Takes parts of a space and the stage that asks for them; yields what to keep of each part, in order."""

DESIGNS_PER_BATCH = 16_384
"""Designs between two reports of progress: about a sixth of a second of simulation."""
NUM_PARTS = 4_096
LEAST_PER_PART, MOST_PER_PART = 32_768, 2_097_152
"""Fewest and most designs of each part in which a space is reduced: half a second to half a minute of simulation, against
14 ms in the process that hands them out. Parts grow with the space, because larger spaces tend to have more workers."""


@final
class Exhaustive(SearchAlgorithm):
    """Suggests every design of a space once."""

    stage: ClassVar[str] = "searching exhaustively"
    suggests_once: ClassVar[bool] = True

    def __init__(self, space: Space, ahead: Ahead = iter) -> None:
        """Begins with the first design.

        Args:
            space: its designs are suggested.
            ahead: sees in advance what will be suggested (`Evaluator.ahead`).
        """
        self._batches = ahead(space.design_batches(DESIGNS_PER_BATCH))
        self._none = space.no_designs()

    def suggest(self) -> PlanTable:
        """Returns the next designs of the space."""
        return next(self._batches, self._none)

    def update(self, results: Results) -> None:
        """Results change nothing about what comes next."""
        del results


def reduce_all(searcher: Searcher, space: Space, reducer: Reducer) -> bool:
    """Evaluates every design of a space and keeps the fronts of parts; returns whether it ran to the end."""
    num_done = 0
    for reduction in reducer(block_parts(space, _part_size(space)), Exhaustive.stage):
        num_done += reduction.num_evaluated
        searcher.take_in(reduction, Exhaustive.stage, num_done, space.num_designs)
        if searcher.should_stop():
            return False
    return True


def _part_size(space: Space) -> int:
    """Returns how many designs of a space are reduced together; it is the same on all machines, so all write the same."""
    return min(max(space.num_designs // NUM_PARTS, LEAST_PER_PART), MOST_PER_PART)
