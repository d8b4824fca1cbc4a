"""Which members of a group send to which? Pairs, distances and trees of the schedules in `simulator.deep.collectives`."""

from __future__ import annotations

import numpy as np

from simulator.errors import InputError, Problem
from simulator.table import Floats, Integers

TREE_CHUNKS = 16
"""Parts in which a tree moves its buffer, so that all levels work at once."""


def other_members(size: int) -> tuple[Integers, Integers]:
    """Returns places in a group of all pairs of a member and another one, `(n (n-1),)` each."""
    one, other = np.nonzero(~np.eye(size, dtype=np.bool_))
    return one, other


def ramped_at_once(ramp: Floats, size: int) -> Floats:
    """Returns how many messages leave together, for each of those between `other_members`: those on whose way a ramp is."""
    others = max(1, size - 1)
    by_source = (ramp > 0.0).reshape(-1, others)
    return np.repeat(by_source.sum(axis=1, dtype=np.float64), others)


def counterparts(groups: Integers) -> Integers:
    """Counterparts in different nodes next to each other."""
    return np.swapaxes(groups, -1, -2)


def distances(size: int) -> list[int]:
    """How far apart the ranks are that swap parts, the nearest first."""
    if size & (size - 1):
        rule = f"needs groups of a power of two, and one has {size} accelerators; a ring takes any"
        raise InputError([Problem(path="collectives", value="halving-doubling", rule=rule)])
    return [1 << level for level in range(size.bit_length() - 1)]


def tree_parents(size: int) -> tuple[Integers, Integers]:
    """Parents `(n,)` in each of two trees; leaves of one are inner in the other, and a root is its own parent."""
    parents = _balanced_parents(size)
    return parents, _other_tree(parents)


def _balanced_parents(size: int) -> Integers:
    """Parents `(n,)` of a balanced binary tree whose leaves are the odd ranks; the root is its own.

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


def tree_levels(parents: Integers) -> list[Integers]:
    """Ranks of every level below the root, which is its own parent, from the top."""
    levels = []
    above = parents == np.arange(len(parents))
    is_placed = above.copy()
    while not is_placed.all():
        below = above[parents] & ~is_placed
        levels.append(np.flatnonzero(below))
        above = below
        is_placed |= below
    return levels
