"""Where should the search look? The layouts that may keep every limit, and what ruled out the others.

Small spaces stay in memory with their bounds. Large ones keep one bit per layout, and the layouts are listed again
whenever they are needed, so memory hardly grows with the number of designs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from constraints.bounds import BoundTable, bound, kept_by_bounds
from constraints.lattice import (
    BlockIndex,
    cross_run_knobs,
    layout_blocks,
    layouts_in,
    no_layouts,
    num_run_knobs,
)
from constraints.limits import with_limits
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.table import Booleans, Integers

MOST_IN_MEMORY = 500_000
"""Most layouts that stay in memory: about 100 MB with their bounds."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """Some layouts of a space, kept or not."""

    layouts: PlanTable
    bounds: BoundTable
    num_designs: Integers
    """Designs of each layout."""

    def take(self, rows: Booleans) -> Self:
        """Returns the chosen layouts."""
        return type(self)(
            layouts=self.layouts.take(rows), bounds=self.bounds.take(rows), num_designs=self.num_designs[rows]
        )

    @classmethod
    def concatenate(cls, blocks: Sequence[Self]) -> Self:
        """Returns the layouts of all blocks in sequence; raises `ValueError` if there are no blocks."""
        return cls(
            layouts=PlanTable.concatenate([block.layouts for block in blocks]),
            bounds=BoundTable.concatenate([block.bounds for block in blocks]),
            num_designs=np.concatenate([block.num_designs for block in blocks]),
        )


@dataclass(frozen=True, kw_only=True)
class PrunedBlock:
    """The result of pruning a block; it does not depend on which process does it."""

    num_layouts: int
    """Valid layouts, kept or not."""
    num_kept: int
    """Layouts that may keep every limit."""
    num_designs: int
    """Designs of the layouts that may keep every limit."""
    num_pruned: dict[str, int]
    """Pruned designs, by the first constraint whose bound they break."""
    kept_bits: NDArray[np.uint8]
    """Which layouts may keep every limit, one bit each."""


@dataclass(frozen=True, kw_only=True)
class Space:
    """The valid layouts of a job, pruned by bounds."""

    job: Job
    num_layouts: int
    """Valid layouts, kept or not."""
    num_kept: int
    """Layouts that may keep every limit."""
    num_designs: int
    """Designs that remain to be searched."""
    num_pruned: dict[str, int]
    """Pruned designs, by the first constraint whose bound they break."""
    kept_bits: tuple[NDArray[np.uint8], ...]
    """Which layouts of each block may keep every limit, one bit each."""
    in_memory: tuple[Block, ...] | None
    """All layouts with their bounds; `None` for a space of more than `MOST_IN_MEMORY`."""
    kept_in_memory: tuple[Block, ...] | None
    """Layouts that may keep every limit, with their bounds; `None` for more than `MOST_IN_MEMORY` of them."""

    @cached_property
    def _whole(self) -> Block:
        """Every valid layout with its bounds; listed once for both if neither stays in memory."""
        return Block.concatenate([_bounded(self.job, no_layouts(self.job)), *self.blocks()])

    @property
    def all_layouts(self) -> PlanTable:
        """Every valid layout, kept or not."""
        return self._whole.layouts

    @property
    def bounds(self) -> BoundTable:
        """Bounds of `all_layouts`."""
        return self._whole.bounds

    @cached_property
    def layouts(self) -> PlanTable:
        """Layouts that may keep every limit, in one table."""
        kept = self.kept_in_memory
        blocks = self.kept_blocks() if kept is None else (block.layouts for block in kept)
        return PlanTable.concatenate([no_layouts(self.job), *blocks])

    def kept_blocks(self) -> Iterator[PlanTable]:
        """Yields the layouts that may keep every limit, a block at a time."""
        for layouts, bits in zip(self._blocks(), self.kept_bits, strict=True):
            yield layouts.take(_unpacked(bits, len(layouts)))

    @cached_property
    def kept_bounds(self) -> BoundTable:
        """Bounds of `layouts`."""
        if not self.kept_in_memory:
            return bound(self.job, self.layouts)
        return BoundTable.concatenate([block.bounds for block in self.kept_in_memory])

    def designs_at(self, numbers: NDArray[np.intp]) -> PlanTable:
        """Returns the rows of `designs` with these numbers, without building the others."""
        after = np.cumsum(num_run_knobs(self.job, self.layouts))
        rows, inverse = np.unique(np.searchsorted(after, numbers, side="right"), return_inverse=True)
        num_each = num_run_knobs(self.job, self.layouts.take(rows))
        first_before, first_here = (after - np.diff(after, prepend=0))[rows], np.cumsum(num_each) - num_each
        places = numbers - first_before[inverse] + first_here[inverse]
        return cross_run_knobs(self.job, self.layouts.take(rows)).take(places)

    def no_designs(self) -> PlanTable:
        """Returns a table of designs without rows."""
        return cross_run_knobs(self.job, no_layouts(self.job))

    def designs(self) -> PlanTable:
        """Returns all remaining designs, one row each, in one table."""
        return cross_run_knobs(self.job, self.layouts)

    def design_batches(self, num_designs: int) -> Iterator[PlanTable]:
        """Yields the same designs in tables of `num_designs` rows; the last one may have fewer."""
        waiting = self.no_designs()
        for layouts in self.kept_blocks():
            waiting = PlanTable.concatenate([waiting, cross_run_knobs(self.job, layouts)])
            num_full = len(waiting) // num_designs * num_designs
            for start in range(0, num_full, num_designs):
                yield waiting.take(slice(start, start + num_designs))
            waiting = waiting.take(slice(num_full, None))
        if len(waiting):
            yield waiting

    def under(self, limits: Mapping[str, float]) -> Space:
        """Returns the space of these layouts under these limits and no others."""
        return _pruned(with_limits(self.job, limits), self.blocks())

    def blocks(self) -> Iterable[Block]:
        """Returns every valid layout with its bounds, a block at a time."""
        return self.in_memory or _bounded_blocks(self.job)

    def _blocks(self) -> Iterable[PlanTable]:
        return layout_blocks(self.job) if self.in_memory is None else (b.layouts for b in self.in_memory)


def pruned_space(job: Job) -> Space:
    """Returns the layouts of a job that may keep every limit."""
    return _pruned(job, _bounded_blocks(job))


def _bounded_blocks(job: Job) -> Iterator[Block]:
    """Yields all layouts with their bounds; what does not depend on the power cap is computed only for the first one."""
    under_first_cap: dict[int, Block] = {}
    num_layouts, index = 0, BlockIndex(job)
    for number in range(len(index)):
        place, power_cap_fraction = index.place_of(number)
        if place in under_first_cap:
            yield _capped(job, under_first_cap[place], power_cap_fraction)
            continue
        block = _bounded(job, layouts_in(job, index.block(number)))
        num_layouts += len(block.layouts)
        if len(job.power_caps) > 1 and num_layouts <= MOST_IN_MEMORY:
            under_first_cap[place] = block
        yield block


def _capped(job: Job, block: Block, power_cap_fraction: float) -> Block:
    """The layouts of a block under another power cap."""
    caps = np.full(len(block.layouts), power_cap_fraction)
    layouts = replace(block.layouts, power_cap_fraction=caps)
    return replace(block, layouts=layouts, bounds=bound(job, layouts, under_other_cap=block.bounds))


def _bounded(job: Job, layouts: PlanTable) -> Block:
    return Block(layouts=layouts, bounds=bound(job, layouts), num_designs=num_run_knobs(job, layouts))


def space_of(job: Job, pruned: Iterable[PrunedBlock]) -> Space:
    """Returns the space of a job from all its blocks, pruned elsewhere, in order; no layouts stay in memory."""
    return _joined(job, list(pruned), None, None)


def prune_layouts(job: Job, layouts: PlanTable) -> PrunedBlock:
    """Returns the result of pruning the layouts of a block."""
    return _prune(job, _bounded(job, layouts))


def _pruned(job: Job, blocks: Iterable[Block]) -> Space:
    pruned: list[PrunedBlock] = []
    in_memory: list[Block] = []
    kept: list[Block] = []
    num_layouts = num_kept = 0
    for block in blocks:
        found = _prune(job, block)
        pruned.append(found)
        num_layouts += found.num_layouts
        num_kept += found.num_kept
        if num_layouts <= MOST_IN_MEMORY:
            in_memory.append(block)
        else:
            in_memory.clear()
        if num_kept <= MOST_IN_MEMORY:
            kept.append(block.take(_unpacked(found.kept_bits, found.num_layouts)))
        else:
            kept.clear()
    return _joined(
        job,
        pruned,
        tuple(in_memory) if num_layouts <= MOST_IN_MEMORY else None,
        tuple(kept) if num_kept <= MOST_IN_MEMORY else None,
    )


def _joined(
    job: Job,
    pruned: Sequence[PrunedBlock],
    in_memory: tuple[Block, ...] | None,
    kept_in_memory: tuple[Block, ...] | None,
) -> Space:
    num_pruned: dict[str, int] = {}
    for block in pruned:
        for name, number in block.num_pruned.items():
            num_pruned[name] = num_pruned.get(name, 0) + number
    return Space(
        job=job,
        num_layouts=sum(block.num_layouts for block in pruned),
        num_kept=sum(block.num_kept for block in pruned),
        num_designs=sum(block.num_designs for block in pruned),
        num_pruned=num_pruned,
        kept_bits=tuple(block.kept_bits for block in pruned),
        in_memory=in_memory,
        kept_in_memory=kept_in_memory,
    )


def _prune(job: Job, block: Block) -> PrunedBlock:
    """Counts the designs of pruned layouts by the first bound that they break."""
    remaining = np.ones(len(block.layouts), dtype=np.bool_)
    num_pruned: dict[str, int] = {}
    for name, kept in kept_by_bounds(job, block.bounds).items():
        if num_broken := int(block.num_designs[remaining & ~kept].sum()):
            num_pruned[name] = num_broken
        remaining &= kept
    return PrunedBlock(
        num_layouts=len(block.layouts),
        num_kept=int(remaining.sum()),
        num_designs=int(block.num_designs[remaining].sum()),
        num_pruned=num_pruned,
        kept_bits=np.packbits(remaining),
    )


def _unpacked(bits: NDArray[np.uint8], size: int) -> Booleans:
    return np.unpackbits(bits, count=size).astype(np.bool_)
