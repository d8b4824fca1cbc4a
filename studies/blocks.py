"""Which part of a space is one piece of work for a worker? A block of layouts by its number, and which of it are kept.

Nobody lists the designs of a large space in one place: whoever reduces a part lists its layouts himself, and crosses them
with what else a design decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from constraints.evaluation import evaluate
from constraints.lattice import cross_run_knobs, layouts_in, rough_blocks
from constraints.space import Space
from simulator.job import Job
from simulator.plan import PlanTable
from studies.reduction import Reduction

DESIGNS_AT_ONCE: Final = 32_768
"""Designs that are simulated together: what a worker holds in memory, about 50 MB."""


@dataclass(frozen=True, kw_only=True)
class BlockPart:
    """Some of the layouts of a block."""

    number: int
    """Of the block among all blocks of the space."""
    kept: bytes
    """Which layouts of the block may keep every limit, eight to a byte."""
    first: int
    last: int
    """Which of those are in this part: from `first` up to, not including, `last`."""


def block_parts(space: Space, num_designs: int) -> Iterator[BlockPart]:
    """Yields the parts of a space in the order of its designs, each of about so many designs."""
    num_layouts = max(1, num_designs * space.num_kept // max(1, space.num_designs))
    for number, bits in enumerate(space.kept_bits):
        num_kept = int(np.unpackbits(bits).sum())
        for first in range(0, num_kept, num_layouts):
            last = min(first + num_layouts, num_kept)
            yield BlockPart(number=number, kept=bits.tobytes(), first=first, last=last)


@final
class BlockReducer:
    """Lists and reduces parts of the space of one job; quickest when their numbers rise."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._blocks = rough_blocks(job)
        self._next = 0
        self._layouts: PlanTable | None = None

    def reduce(self, part: BlockPart) -> Reduction:
        """Returns the front and the counts of all designs of a part."""
        layouts = self._block(part.number)
        kept = np.unpackbits(np.frombuffer(part.kept, dtype=np.uint8), count=len(layouts)).astype(np.bool_)
        plans = cross_run_knobs(self._job, layouts.take(np.flatnonzero(kept)[part.first : part.last]))
        starts = range(0, max(1, len(plans)), DESIGNS_AT_ONCE)
        slices = (plans.take(slice(start, start + DESIGNS_AT_ONCE)) for start in starts)
        return Reduction.concatenate(
            self._job, [Reduction.of(self._job, evaluate(self._job, some)) for some in slices]
        )

    def _block(self, number: int) -> PlanTable:
        """The layouts of a block; those before it are passed over without being made."""
        if self._layouts is None or number != self._next - 1:
            if number < self._next:
                self._blocks, self._next = rough_blocks(self._job), 0
            for _ in range(number - self._next):
                next(self._blocks)
            self._layouts = layouts_in(self._job, next(self._blocks))
            self._next = number + 1
        return self._layouts
