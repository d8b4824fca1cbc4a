"""To whom does each rank of a collective send? Rings, exchanges, trees and direct messages, step by step or all at once.

Ranks `(..., n)` are groups of n that all run at once. A pattern is two arrays of ranks, the senders and their receivers,
element by element. Equal steps share one pattern, so that not every step has to be built.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from simulator.errors import InputError, Problem
from simulator.table import Integers

Pattern = tuple[Integers, Integers]
"""Senders, each once, and their receivers."""

TREE_CHUNKS = 16
"""Number of parts in which a tree moves its buffer, so that all levels work at once."""


def ring_pattern(ranks: Integers) -> Pattern:
    """Returns the pattern of a ring: from each rank to the next one."""
    return ranks, np.roll(ranks, -1, axis=-1)


def exchange_patterns(ranks: Integers) -> Iterator[Pattern]:
    """Yields the exchanges of halving and doubling; raises `InputError` unless n is a power of two."""
    places = np.arange(ranks.shape[-1])
    for distance in distances(len(places)):
        yield ranks, ranks[..., places ^ distance]


def all_reduced_share(distance: int) -> float:
    """Returns the share of the buffer that an all-reduce by halving and doubling swaps at a distance, each way.

    Half of it with the nearest rank, and the less the farther.
    """
    return 0.5 / distance


def direct_patterns(ranks: Integers) -> Iterator[Pattern]:
    """Yields what each rank sends at once: to the next rank, the one after that, and so on."""
    for distance in range(1, ranks.shape[-1]):
        yield ranks, np.roll(ranks, -distance, axis=-1)


def tree_patterns(ranks: Integers) -> Iterator[Pattern]:
    """Yields what goes up the two trees, each with half of the buffer, and back down to first and second children."""
    for parents in tree_parents(ranks.shape[-1]):
        yield from _edge_patterns(ranks, parents, np.flatnonzero(parents != np.arange(len(parents))))


def level_patterns(ranks: Integers) -> Iterator[tuple[list[Pattern], list[Pattern]]]:
    """Yields what goes between two levels of both trees, from the root: up, and back down."""
    both = [(parents, tree_levels(parents)) for parents in tree_parents(ranks.shape[-1])]
    for level in range(max(len(levels) for _, levels in both)):
        up, down = list[Pattern](), list[Pattern]()
        for parents, levels in both:
            if level < len(levels):
                to_parents, *to_children = _edge_patterns(ranks, parents, levels[level])
                up.append(to_parents)
                down += to_children
        yield up, down


def _edge_patterns(ranks: Integers, parents: Integers, children: Integers) -> Iterator[Pattern]:
    """Up from children to their parents, down to the first ones and down to the second ones."""
    yield ranks[..., children], ranks[..., parents[children]]
    _, places = np.unique(parents[children], return_index=True)
    for each in (children[places], np.delete(children, places)):
        yield ranks[..., parents[each]], ranks[..., each]


def across(groups: Integers) -> Integers:
    """Returns `(..., m, k)` ranks with counterparts of different nodes next to each other, from ranks by node `(..., k, m)`."""
    return np.swapaxes(groups, -1, -2)


def other_members(size: int) -> tuple[Integers, Integers]:
    """Returns the positions in a group of all pairs of different members, `(n (n-1),)` each, sorted by the first."""
    one, other = np.nonzero(~np.eye(size, dtype=np.bool_))
    return one, other


def distances(size: int) -> list[int]:
    """Returns the distances of ranks that swap parts, nearest first; raises `InputError` unless `size` is a power of two."""
    if size & (size - 1):
        rule = f"needs groups of a power of two, and one has {size} accelerators; a ring takes any"
        raise InputError([Problem(path="collectives", value="halving-doubling", rule=rule)])
    return [1 << level for level in range(size.bit_length() - 1)]


def tree_parents(size: int) -> tuple[Integers, Integers]:
    """Returns the parents `(n,)` in two balanced binary trees: leaves of one are inner in the other; roots are their own."""
    parents = _balanced_parents(size)
    return parents, _other_tree(parents)


def _balanced_parents(size: int) -> Integers:
    """Parents of a tree whose leaves are the odd ranks.

    The lowest set bit of a rank is its level: the parent of rank r is r with that bit cleared and the next one set.
    """
    ranks = np.arange(size)
    parents = np.zeros(size, dtype=np.int64)
    for rank in ranks[1:].tolist():
        low = rank & -rank
        up = (rank ^ low) | (low << 1)
        parents[rank] = up if up < size else rank ^ low
    return parents


def _other_tree(parents: Integers) -> Integers:
    """The tree in which leaves become inner: counted from the other end, or shifted by one for an odd number of ranks."""
    size = len(parents)
    if size % 2 == 0:
        return np.asarray(size - 1 - parents[::-1])
    return (np.roll(parents, 1) + 1) % size


def tree_levels(parents: Integers) -> list[Integers]:
    """Returns the ranks of every level below the root, which is its own parent, from the top."""
    levels = []
    above = parents == np.arange(len(parents))
    is_placed = above.copy()
    while not is_placed.all():
        below = above[parents] & ~is_placed
        levels.append(np.flatnonzero(below))
        above = below
        is_placed |= below
    return levels
