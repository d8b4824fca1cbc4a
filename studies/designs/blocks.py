"""Which part of a space is one piece of work for a worker? A block of layouts by number, and which of its layouts are kept.

The designs of a large space are never listed in one place. The worker that prunes a block lists its layouts itself. The
worker that reduces a part of the block crosses these layouts with the other decisions of a design.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from constraints.evaluation import evaluate
from constraints.lattice import BlockIndex, cross_run_knobs, layouts_in
from constraints.space import PrunedBlock, Space, prune_layouts
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.table import row_blocks
from studies.designs.reduction import Reduction

DESIGNS_AT_ONCE: Final = 32_768
"""Designs that are simulated together; they take about 50 MB of a worker's memory."""


LEAST_SHARED_BLOCKS: Final = 4
"""Fewest blocks of a space that workers prune: each takes seconds to bound. Smaller spaces stay in memory anyway."""


@dataclass(frozen=True, kw_only=True)
class BlockPart:
    """Some of the layouts of a block."""

    number: int
    """Number of the block among all blocks of the space."""
    kept: bytes
    """Which layouts of the block may keep every limit, one bit each."""
    first: int
    last: int
    """The kept layouts of this part are those from `first` up to, but not including, `last`."""


def block_parts(space: Space, num_designs: int) -> Iterator[BlockPart]:
    """Yields the parts of a space in the order of its designs, each with about `num_designs` designs."""
    num_layouts = max(1, num_designs * space.num_kept // max(1, space.num_designs))
    for number, bits in enumerate(space.kept_bits):
        num_kept = int(np.unpackbits(bits).sum())
        for first in range(0, num_kept, num_layouts):
            last = min(first + num_layouts, num_kept)
            yield BlockPart(number=number, kept=bits.tobytes(), first=first, last=last)


@final
class BlockWorker:
    """Lists, prunes and reduces blocks of the space of one job; the block listed last stays in memory."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._index = BlockIndex(job)
        self._listed: tuple[int, PlanTable] | None = None

    def prune(self, number: int) -> PrunedBlock:
        """Returns which layouts of a block may keep every limit."""
        return prune_layouts(self._job, self._layouts(number))

    def reduce(self, part: BlockPart) -> Reduction:
        """Returns the front and the counts of all designs of a part."""
        layouts = self._layouts(part.number)
        kept = np.unpackbits(np.frombuffer(part.kept, dtype=np.uint8), count=len(layouts)).astype(np.bool_)
        plans = cross_run_knobs(self._job, layouts.take(np.flatnonzero(kept)[part.first : part.last]))
        slices = (plans.take(rows) for rows in row_blocks(len(plans), DESIGNS_AT_ONCE))
        return Reduction.concatenate(
            self._job, [Reduction.of(self._job, evaluate(self._job, some)) for some in slices]
        )

    def _layouts(self, number: int) -> PlanTable:
        if self._listed is None or self._listed[0] != number:
            self._listed = number, layouts_in(self._job, self._index.block(number))
        return self._listed[1]
