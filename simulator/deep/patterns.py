"""To whom does each rank of a collective send? One pattern for all steps that are alike, so that none of them has to be made.

Ranks `(..., n)` are groups of n that all run at once. A pattern is two arrays of ranks, those that send, each
once, and those that they send to, place by place.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from simulator.errors import InputError, Problem
from simulator.table import Integers

Pattern = tuple[Integers, Integers]
"""Who sends, and to whom."""


def ring_pattern(ranks: Integers) -> Pattern:
    """Returns what goes around a ring: from each rank to the next one."""
    return ranks, np.roll(ranks, -1, axis=-1)


def exchange_patterns(ranks: Integers) -> Iterator[Pattern]:
    """Yields the exchanges of halving and doubling; raises `InputError` unless n is a power of two."""
    places = np.arange(ranks.shape[-1])
    for distance in distances(len(places)):
        yield ranks, ranks[..., places ^ distance]


def tree_patterns(ranks: Integers) -> Iterator[Pattern]:
    """Yields what goes up the two trees, each half of the buffer, and back down to the first and the second children."""
    for parents in two_trees(ranks.shape[-1]):
        children = np.flatnonzero(parents != np.arange(len(parents)))
        yield ranks[..., children], ranks[..., parents[children]]
        _, places = np.unique(parents[children], return_index=True)
        first, second = children[places], np.delete(children, places)
        for each in (first, second):
            yield ranks[..., parents[each]], ranks[..., each]


def across(groups: Integers) -> Integers:
    """Returns counterparts in different nodes next to each other, of ranks `(..., k, m)` by node `(..., m, k)`."""
    return np.swapaxes(groups, -1, -2)


def distances(size: int) -> list[int]:
    """Returns how far apart the ranks are that swap parts, the nearest first; raises `InputError` unless a power of two."""
    if size & (size - 1):
        rule = f"needs groups of a power of two, and one has {size} accelerators; a ring takes any"
        raise InputError([Problem(path="collectives", value="halving-doubling", rule=rule)])
    return [1 << level for level in range(size.bit_length() - 1)]


def two_trees(size: int) -> tuple[Integers, Integers]:
    """Returns the parents `(n,)` in two balanced binary trees: leaves of one are inner in the other; roots are their own."""
    parents = _tree_parents(size)
    return parents, _other_tree(parents)


def _tree_parents(size: int) -> Integers:
    """Parents of a tree whose leaves are the odd ranks.

    The lowest set bit of a rank is its level: rank r hangs on r with that bit cleared and the next one set.
    """
    ranks = np.arange(size)
    parents = np.zeros(size, dtype=np.int64)
    for rank in ranks[1:].tolist():
        low = rank & -rank
        up = (rank ^ low) | (low << 1)
        parents[rank] = up if up < size else rank ^ low
    return parents


def _other_tree(parents: Integers) -> Integers:
    """The tree in which leaves are inner: counted from the other end, or one further for an odd number of ranks."""
    size = len(parents)
    if size % 2 == 0:
        return np.asarray(size - 1 - parents[::-1])
    return (np.roll(parents, 1) + 1) % size
