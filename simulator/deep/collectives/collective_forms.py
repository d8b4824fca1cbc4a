"""Which forms can a collective take? An operation by an algorithm, for the groups that it suits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from simulator.deep.collectives.collective_steps import (
    Step,
    direct_steps,
    exchange_steps,
    hierarchical_steps,
    ring_steps,
    tree_steps,
)
from simulator.deep.collectives.patterns import (
    Pattern,
    across,
    direct_patterns,
    exchange_patterns,
    ring_pattern,
    tree_patterns,
)
from simulator.deep.collectives.schedules import Collectives
from simulator.record import Choice
from simulator.table import Integers


class Algorithm(Choice):
    """How collectives run."""

    AUTO = "auto"
    """The fastest of all below for the group and the size: what the network allows a library that has all of them."""
    NCCL = "nccl"
    """Ring, tree or hierarchical, whichever is fastest: what NCCL has as installed."""
    RING = "ring"
    TREE = "tree"
    """Two binary trees; all-gathers and reduce-scatters, which trees do not support, use the ring."""
    HIERARCHICAL = "hierarchical"
    """Inside nodes, then across; groups that are not spread evenly over several nodes use the ring."""
    HALVING_DOUBLING = "halving-doubling"
    """For groups of a power of two."""
    DIRECT = "direct"
    """Every member sends its part to every other one at once."""


class Operation(Choice):
    """What collectives with several algorithms do."""

    ALL_REDUCE = "all-reduce"
    ALL_GATHER = "all-gather"
    REDUCE_SCATTER = "reduce-scatter"


Add = Callable[[Collectives, Integers, float, Integers], Integers]
"""Adds a collective of groups to the task graph of a `Collectives`."""


def _any_groups(_ranks: Integers, _ranks_per_node: int) -> bool:
    return True


def _as_they_are(ranks: Integers, _ranks_per_node: int) -> Integers:
    return ranks


@dataclass(frozen=True, kw_only=True)
class Description:
    """The description of an algorithm."""

    adds: Mapping[Operation, Add]
    """For each operation that it supports, the function that adds it."""
    patterns: Callable[[Integers], Iterable[Pattern]]
    """Who sends to whom; equal steps are listed once."""
    steps: Callable[[Integers, int], Iterator[Step]]
    """Its steps, given groups and how often data goes around."""
    suits: Callable[[Integers, int], bool] = _any_groups
    """Whether it supports groups that lie like these, given the number of ranks in a node."""
    shaped: Callable[[Integers, int], Integers] = _as_they_are
    """Groups `(..., n)` as it wants them."""


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
        """Returns whether the algorithm supports the operation for groups `(..., n)` that lie like these."""
        return self.operation in self._description.adds and self._description.suits(ranks, ranks_per_node)

    def shaped(self, ranks: Integers, ranks_per_node: int) -> Integers:
        """Returns groups as the algorithm wants them: by nodes `(..., k, m)`, or as they are."""
        return self._description.shaped(ranks, ranks_per_node)

    def patterns(self, shaped: Integers) -> Iterable[Pattern]:
        """Returns who sends to whom, equal steps once, for groups in the shape that the algorithm wants."""
        return self._description.patterns(shaped)

    def steps(self, shaped: Integers) -> Iterator[Step]:
        """Returns the steps, equal ones once, for groups in the shape that the algorithm wants."""
        return self._description.steps(shaped, self.num_passes)

    def add(self, collectives: Collectives, shaped: Integers, num_bytes: float, after: Integers) -> Integers:
        """Adds a collective of groups in the shape that the algorithm wants; returns tasks of the shape of `after`.

        There can be fewer of them than ranks, as in `Collectives`.
        """
        begin = after
        if shaped.ndim > after.ndim:  # by nodes: whole ones, or a part of the first one
            begin = after.reshape(*after.shape[:-1], -1, min(after.shape[-1], shaped.shape[-1]))
        added = self._description.adds[self.operation]
        return added(collectives, shaped, num_bytes, begin).reshape(after.shape)

    @property
    def _description(self) -> Description:
        return _DESCRIPTIONS[self.algorithm]


def members_of_nodes(ranks: Integers, ranks_per_node: int) -> int | None:
    """Returns how many consecutive members each node has, the same in every group, or `None` if they lie otherwise."""
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


def _lie_in_nodes(ranks: Integers, ranks_per_node: int) -> bool:
    return members_of_nodes(ranks, ranks_per_node) is not None


def _by_nodes(ranks: Integers, ranks_per_node: int) -> Integers:
    members = members_of_nodes(ranks, ranks_per_node)
    assert members is not None, "only groups that lie evenly in nodes come here"
    return ranks.reshape(*ranks.shape[:-1], -1, members)


def _are_powers_of_two(ranks: Integers, _ranks_per_node: int) -> bool:
    size = int(ranks.shape[-1])
    return size & (size - 1) == 0


_DESCRIPTIONS: Mapping[Algorithm, Description] = MappingProxyType(
    {
        Algorithm.RING: Description(
            adds={
                Operation.ALL_REDUCE: Collectives.ring_all_reduce,
                Operation.ALL_GATHER: Collectives.ring_all_gather,
                Operation.REDUCE_SCATTER: Collectives.ring_reduce_scatter,
            },
            patterns=lambda ranks: [ring_pattern(ranks)],
            steps=ring_steps,
        ),
        Algorithm.TREE: Description(
            adds={Operation.ALL_REDUCE: Collectives.tree_all_reduce},
            patterns=tree_patterns,
            steps=tree_steps,
        ),
        Algorithm.HIERARCHICAL: Description(
            adds={
                Operation.ALL_REDUCE: Collectives.hierarchical_all_reduce,
                Operation.ALL_GATHER: Collectives.hierarchical_all_gather,
                Operation.REDUCE_SCATTER: Collectives.hierarchical_reduce_scatter,
            },
            patterns=lambda by_nodes: [ring_pattern(by_nodes), ring_pattern(across(by_nodes))],
            steps=hierarchical_steps,
            suits=_lie_in_nodes,
            shaped=_by_nodes,
        ),
        Algorithm.HALVING_DOUBLING: Description(
            adds={
                Operation.ALL_REDUCE: Collectives.halving_doubling_all_reduce,
                Operation.ALL_GATHER: Collectives.doubling_all_gather,
                Operation.REDUCE_SCATTER: Collectives.halving_reduce_scatter,
            },
            patterns=exchange_patterns,
            steps=exchange_steps,
            suits=_are_powers_of_two,
        ),
        Algorithm.DIRECT: Description(
            adds={
                Operation.ALL_REDUCE: Collectives.direct_all_reduce,
                Operation.ALL_GATHER: Collectives.direct_all_gather,
                Operation.REDUCE_SCATTER: Collectives.direct_reduce_scatter,
            },
            patterns=direct_patterns,
            steps=direct_steps,
        ),
    }
)
"""All but `AUTO` and `NCCL`, which choose among them."""
