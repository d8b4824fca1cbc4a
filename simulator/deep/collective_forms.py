"""In which forms does a collective exist? An operation by an algorithm, for groups that it suits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from simulator.deep.collectives import Collectives
from simulator.deep.patterns import (
    Pattern,
    across,
    direct_patterns,
    exchange_patterns,
    ring_pattern,
    tree_patterns,
)
from simulator.record import Choice
from simulator.table import Integers


class Algorithm(Choice):
    """How collectives run."""

    AUTO = "auto"
    """The one of all below that is over first for the group and the size: what the network allows a library that has them."""
    NCCL = "nccl"
    """Ring, tree or hierarchical, whichever is over first: what NCCL has as it is installed."""
    RING = "ring"
    TREE = "tree"
    """Two binary trees; all-gathers and reduce-scatters, which trees do not have, take the ring."""
    HIERARCHICAL = "hierarchical"
    """Inside nodes and across; groups that do not lie evenly in several nodes take the ring."""
    HALVING_DOUBLING = "halving-doubling"
    """For groups of a power of two."""
    DIRECT = "direct"
    """Every member sends every other one its part at once."""


class Operation(Choice):
    """What collectives with several algorithms do."""

    ALL_REDUCE = "all-reduce"
    ALL_GATHER = "all-gather"
    REDUCE_SCATTER = "reduce-scatter"


@dataclass(frozen=True, kw_only=True)
class Form:
    """An operation by an algorithm."""

    algorithm: Algorithm
    operation: Operation

    @property
    def num_passes(self) -> int:
        """How often data goes around: an all-reduce is a reduce-scatter and an all-gather."""
        return 2 if self.operation is Operation.ALL_REDUCE else 1

    def suits(self, ranks: Integers, ranks_per_node: int) -> bool:
        """Returns whether the algorithm has the operation, for groups `(..., n)` that lie like these."""
        size = int(ranks.shape[-1])
        match self.algorithm:
            case Algorithm.TREE:
                return self.operation is Operation.ALL_REDUCE
            case Algorithm.HIERARCHICAL:
                return members_of_nodes(ranks, ranks_per_node) is not None
            case Algorithm.HALVING_DOUBLING:
                return size & (size - 1) == 0
            case _:
                return True

    def shaped(self, ranks: Integers, ranks_per_node: int) -> Integers:
        """Returns groups as the algorithm wants them: by nodes `(..., k, m)`, or as they are."""
        if self.algorithm is not Algorithm.HIERARCHICAL:
            return ranks
        members = members_of_nodes(ranks, ranks_per_node)
        assert members is not None, "only groups that lie evenly in nodes come here"
        return ranks.reshape(*ranks.shape[:-1], -1, members)

    def patterns(self, shaped: Integers) -> Iterator[Pattern]:
        """Yields who sends to whom, of steps that are alike once, for groups in the shape that the algorithm wants."""
        match self.algorithm:
            case Algorithm.TREE:
                yield from tree_patterns(shaped)
            case Algorithm.HIERARCHICAL:
                yield ring_pattern(shaped)
                yield ring_pattern(across(shaped))
            case Algorithm.HALVING_DOUBLING:
                yield from exchange_patterns(shaped)
            case Algorithm.DIRECT:
                yield from direct_patterns(shaped)
            case _:
                yield ring_pattern(shaped)

    def add(self, collectives: Collectives, shaped: Integers, num_bytes: float, after: Integers) -> Integers:
        """Adds a collective of groups in the shape that the algorithm wants; returns tasks of the shape of `after`.

        There can be fewer of them than ranks, as in `Collectives`.
        """
        added = {
            (Algorithm.RING, Operation.ALL_REDUCE): collectives.ring_all_reduce,
            (Algorithm.RING, Operation.ALL_GATHER): collectives.ring_all_gather,
            (Algorithm.RING, Operation.REDUCE_SCATTER): collectives.ring_reduce_scatter,
            (Algorithm.TREE, Operation.ALL_REDUCE): collectives.tree_all_reduce,
            (Algorithm.HIERARCHICAL, Operation.ALL_REDUCE): collectives.hierarchical_all_reduce,
            (Algorithm.HIERARCHICAL, Operation.ALL_GATHER): collectives.hierarchical_all_gather,
            (Algorithm.HIERARCHICAL, Operation.REDUCE_SCATTER): collectives.hierarchical_reduce_scatter,
            (Algorithm.HALVING_DOUBLING, Operation.ALL_REDUCE): collectives.halving_doubling_all_reduce,
            (Algorithm.HALVING_DOUBLING, Operation.ALL_GATHER): collectives.doubling_all_gather,
            (Algorithm.HALVING_DOUBLING, Operation.REDUCE_SCATTER): collectives.halving_reduce_scatter,
            (Algorithm.DIRECT, Operation.ALL_REDUCE): collectives.direct_all_reduce,
            (Algorithm.DIRECT, Operation.ALL_GATHER): collectives.direct_all_gather,
            (Algorithm.DIRECT, Operation.REDUCE_SCATTER): collectives.direct_reduce_scatter,
        }[self.algorithm, self.operation]
        begin = after
        if shaped.ndim > after.ndim:  # by nodes: whole ones, or a part of the first one
            begin = after.reshape(*after.shape[:-1], -1, min(after.shape[-1], shaped.shape[-1]))
        return added(shaped, num_bytes, begin).reshape(after.shape)


def members_of_nodes(ranks: Integers, ranks_per_node: int) -> int | None:
    """Returns how many members are next to each other in each node, in every group, or `None` where they lie otherwise."""
    size = ranks.shape[-1]
    nodes = ranks.reshape(-1, size) // ranks_per_node
    changes = np.flatnonzero(np.diff(nodes[0])) + 1
    members = int(changes[0]) if len(changes) else size
    if size % members or not 1 < members < size:
        return None
    by_node = nodes.reshape(len(nodes), -1, members)
    heads = np.sort(by_node[..., 0], axis=1)
    is_even = (by_node == by_node[..., :1]).all() and (np.diff(heads, axis=1) > 0).all()
    return members if is_even else None
