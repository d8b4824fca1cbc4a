"""Which steps does a collective consist of, with equal ones listed once? What estimates need, without building any message.

Each function takes groups in the shape that its algorithm wants, and how often data goes around: once or twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from simulator.deep.collectives.patterns import (
    TREE_CHUNKS,
    Pattern,
    across,
    all_reduced_share,
    direct_patterns,
    distances,
    exchange_patterns,
    level_patterns,
    ring_pattern,
    tree_patterns,
)
from simulator.table import Integers


@dataclass(frozen=True, kw_only=True)
class Step:
    """Messages that begin together, and how often such a step occurs."""

    patterns: Sequence[Pattern]
    share: float
    """Share of the buffer in each message."""
    count: int = 1
    in_a_row: int = 1
    """Number of messages on one path that share a ramp, including those of other steps; see `Collectives`."""
    at_once: int = 1
    """Number of messages of one accelerator that share a ramp."""


def ring_steps(groups: Integers, num_passes: int, share: float = 1.0) -> Iterator[Step]:
    """Yields one step, for a share of the buffer."""
    size = groups.shape[-1]
    count = num_passes * (size - 1)
    yield Step(patterns=[ring_pattern(groups)], share=share / size, count=count, in_a_row=count)


def hierarchical_steps(groups: Integers, num_passes: int) -> Iterator[Step]:
    """Yields a step inside the nodes and one across them, for groups arranged by node."""
    yield from ring_steps(groups, num_passes)
    yield from ring_steps(across(groups), num_passes, 1.0 / groups.shape[-1])


def exchange_steps(groups: Integers, num_passes: int) -> Iterator[Step]:
    """Yields the exchanges of halving and doubling; two passes are an all-reduce."""
    size = groups.shape[-1]
    for distance, pattern in zip(distances(size), exchange_patterns(groups), strict=True):
        share = all_reduced_share(distance) if num_passes == 2 else distance / size
        yield Step(patterns=[pattern], share=share, count=num_passes)


def direct_steps(groups: Integers, num_passes: int) -> Iterator[Step]:
    """Yields one step, in which all messages leave at once."""
    size = groups.shape[-1]
    patterns = list(direct_patterns(groups))
    yield Step(patterns=patterns, share=1.0 / size, count=num_passes, at_once=size - 1)


def tree_steps(groups: Integers, _num_passes: int) -> Iterator[Step]:
    """Yields the way of one chunk from leaves to roots and back, then a step per further chunk in which all levels send."""
    share = 0.5 / TREE_CHUNKS
    for both in level_patterns(groups):
        for patterns in both:
            yield Step(patterns=patterns, share=share, in_a_row=TREE_CHUNKS)
    everywhere = list(tree_patterns(groups))
    yield Step(patterns=everywhere, share=share, count=TREE_CHUNKS - 1, in_a_row=TREE_CHUNKS)
