"""Which algorithm does a collective take? The one that is over first, as libraries choose, or a given one.

Libraries estimate latency and bandwidth of each algorithm once for a group, and take the shorter time for each size (NCCL
"will move from one combination to another depending on the size", by nodes, members of each, and bandwidths: its maintainers
in github.com/NVIDIA/nccl/issues/754). So it is here, with the flow model itself as the estimate
(`simulator.deep.collective_times`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from simulator.deep.collective_times import (
    FEW_RANKS,
    MANY_BYTES,
    ExpectedTime,
    expected_played,
    expected_rings,
    expected_trees,
    no_tasks,
)
from simulator.deep.collectives import Collectives
from simulator.deep.moved_flows import Flows
from simulator.deep.patterns import Pattern, across, exchange_patterns, ring_pattern, tree_patterns
from simulator.deep.tasks import TaskGraphBuilder
from simulator.record import Choice
from simulator.table import Integers

MOST_RANKS = 4_096
"""In groups with more ranks together only those are tried that can be played once for all nodes."""
LEAST_GAIN_FRACTION = 1e-9
"""Times that differ by less are equal: then it is the ring."""


class Algorithm(Choice):
    """How collectives run."""

    AUTO = "auto"
    """Ring, tree or hierarchical, whichever is over first for the group and the size; above 4,096 ranks not the
    tree, and the second one only where nodes are alike."""
    RING = "ring"
    TREE = "tree"
    """Two binary trees; all-gathers and reduce-scatters, which trees do not have, take the ring."""
    HALVING_DOUBLING = "halving-doubling"
    """For groups of a power of two."""
    HIERARCHICAL = "hierarchical"
    """Inside nodes and across; groups that do not lie evenly in several nodes take the ring."""


CANDIDATES = (Algorithm.RING, Algorithm.TREE, Algorithm.HIERARCHICAL)
"""What `AUTO` chooses among: what libraries for accelerators have, whose rings use the cards of all members of a node."""


class Operation(Choice):
    """What collectives with several algorithms do."""

    ALL_REDUCE = "all-reduce"
    ALL_GATHER = "all-gather"
    REDUCE_SCATTER = "reduce-scatter"


@dataclass(frozen=True, kw_only=True)
class ChosenCollectives:
    """Adds collectives to a task graph, each by the algorithm that suits it; groups `(..., n)` as in `Collectives`."""

    collectives: Collectives
    algorithm: Algorithm = Algorithm.AUTO
    _times: dict[tuple[object, ...], ExpectedTime | None] = field(default_factory=dict)
    """By algorithm, operation and groups."""

    def all_reduce(self, ranks: Integers, num_bytes: float, after: Integers) -> Integers:
        """Adds an all-reduce of a buffer."""
        return self.run(Operation.ALL_REDUCE, ranks, num_bytes, after)

    def all_gather(self, ranks: Integers, num_bytes: float, after: Integers) -> Integers:
        """Adds an all-gather; `num_bytes` is the buffer that every rank has in the end."""
        return self.run(Operation.ALL_GATHER, ranks, num_bytes, after)

    def reduce_scatter(self, ranks: Integers, num_bytes: float, after: Integers) -> Integers:
        """Adds a reduce-scatter; `num_bytes` is the whole buffer of a rank."""
        return self.run(Operation.REDUCE_SCATTER, ranks, num_bytes, after)

    def all_to_all(self, ranks: Integers, num_bytes: float, after: Integers) -> Integers:
        """Adds an exchange between the `(n,)` ranks of one group."""
        return self.collectives.all_to_all(ranks, num_bytes, after)

    def send(
        self, source: Integers, target: Integers, num_bytes: float, after: Integers, label: str
    ) -> Integers:
        """Adds a message for each pair of ranks, `(k,)`; returns the tasks `(k,)` at which they have arrived."""
        return self.collectives.send(source, target, num_bytes, after, label)

    def message(
        self, source: Integers, target: Integers, num_bytes: float, after: Integers, label: str
    ) -> tuple[Integers, Integers]:
        """Adds a message for each pair of ranks; a sender goes on when its message is on its way."""
        return after, self.send(source, target, num_bytes, after, label)

    def on(self, graph: TaskGraphBuilder) -> ChosenCollectives:
        """Returns the same for another graph, with what is known of algorithms."""
        return replace(self, collectives=replace(self.collectives, graph=graph))

    def taking(self, algorithm: Algorithm) -> ChosenCollectives:
        """Returns the same with another algorithm."""
        return replace(self, algorithm=algorithm)

    def called(self, label: str) -> ChosenCollectives:
        """Returns the same with flows of another name."""
        return replace(self, collectives=replace(self.collectives, label=label))

    def choose(self, operation: Operation, ranks: Integers, num_bytes: float) -> Algorithm:
        """Returns the algorithm of a collective of the groups `(..., n)`, which are all at work at once."""
        if ranks.shape[-1] == 1:
            return Algorithm.RING
        if self.algorithm is not Algorithm.AUTO:
            return self.algorithm if self._exists(self.algorithm, operation, ranks) else Algorithm.RING
        groups = np.unique(ranks.reshape(-1, ranks.shape[-1]), axis=0)
        best, least_s = Algorithm.RING, np.inf
        for candidate in CANDIDATES:
            expected = self._expected(candidate, operation, groups)
            if expected and expected.of(num_bytes) < least_s * (1.0 - LEAST_GAIN_FRACTION):
                best, least_s = candidate, expected.of(num_bytes)
        return best

    def run(self, operation: Operation, ranks: Integers, num_bytes: float, after: Integers) -> Integers:
        """Adds one of the three; there can be fewer tasks than ranks, as in `Collectives`."""
        algorithm = self.choose(operation, ranks, num_bytes)
        return _add(self.collectives, algorithm, operation, self._shaped(algorithm, ranks), num_bytes, after)

    def patterns(self, algorithm: Algorithm, ranks: Integers) -> list[Pattern]:
        """Returns who sends to whom in groups `(..., n)`, for which the algorithm exists."""
        match algorithm:
            case Algorithm.TREE:
                return list(tree_patterns(ranks))
            case Algorithm.HALVING_DOUBLING:
                return list(exchange_patterns(ranks))
            case Algorithm.HIERARCHICAL:
                by_node = self._shaped(algorithm, ranks)
                return [ring_pattern(by_node), ring_pattern(across(by_node))]
            case _:
                return [ring_pattern(ranks)]

    def _exists(self, algorithm: Algorithm, operation: Operation, ranks: Integers) -> bool:
        match algorithm:
            case Algorithm.TREE:
                return operation is Operation.ALL_REDUCE
            case Algorithm.HIERARCHICAL:
                return self._members(ranks) is not None
            case _:
                return True

    def _members(self, ranks: Integers) -> int | None:
        """Members of each node, next to each other in every group, or `None` where they lie otherwise."""
        size = ranks.shape[-1]
        nodes = ranks.reshape(-1, size) // self.collectives.router.topology.ranks_per_node
        changes = np.flatnonzero(np.diff(nodes[0])) + 1
        members = int(changes[0]) if len(changes) else size
        if size % members or not 1 < members < size:
            return None
        by_node = nodes.reshape(len(nodes), -1, members)
        heads = np.sort(by_node[..., 0], axis=1)
        is_even = (by_node == by_node[..., :1]).all() and (np.diff(heads, axis=1) > 0).all()
        return members if is_even else None

    def _shaped(self, algorithm: Algorithm, ranks: Integers) -> Integers:
        """Groups as an algorithm wants them: by nodes `(..., k, m)`, or as they are."""
        if algorithm is not Algorithm.HIERARCHICAL:
            return ranks
        members = self._members(ranks)
        assert members is not None, "only groups that lie evenly in nodes come here"
        return ranks.reshape(*ranks.shape[:-1], -1, members)

    def _expected(self, algorithm: Algorithm, operation: Operation, groups: Integers) -> ExpectedTime | None:
        """How long a candidate takes alone; None where it does not exist or is not tried."""
        key = (algorithm, operation, groups.shape, groups.tobytes())
        if key not in self._times:
            is_tried = self._exists(algorithm, operation, groups) and self._is_tried(algorithm, groups)
            self._times[key] = self._estimated(algorithm, operation, groups) if is_tried else None
        return self._times[key]

    def _is_tried(self, algorithm: Algorithm, groups: Integers) -> bool:
        """Whether there are few enough ranks, or what they do can be played once for all nodes."""
        if algorithm is Algorithm.RING or groups.size <= MOST_RANKS:
            return True
        return algorithm is Algorithm.HIERARCHICAL and self._has_nodes_alike(groups)

    def _has_nodes_alike(self, groups: Integers) -> bool:
        router, by_node = self.collectives.router, self._shaped(Algorithm.HIERARCHICAL, groups)
        moved = np.arange(router.topology.num_ranks)
        moved[by_node] = np.roll(by_node, -1, axis=-2)
        return Flows.of(self.patterns(Algorithm.HIERARCHICAL, groups), router).is_kept(moved)

    def _estimated(self, algorithm: Algorithm, operation: Operation, groups: Integers) -> ExpectedTime:
        is_small = groups.size <= FEW_RANKS
        if algorithm is Algorithm.TREE and not is_small:
            return expected_trees(self.collectives, groups)
        if algorithm is Algorithm.RING or not is_small:
            rings = [ranks for ranks, _ in self.patterns(algorithm, groups)]
            return expected_rings(self.collectives, rings, 2 if operation is Operation.ALL_REDUCE else 1)
        shaped = self._shaped(algorithm, groups)
        return expected_played(
            self.collectives,
            lambda alone: _add(alone, algorithm, operation, shaped, MANY_BYTES, no_tasks(shaped)),
        )


def _add(
    collectives: Collectives,
    algorithm: Algorithm,
    operation: Operation,
    shaped: Integers,
    num_bytes: float,
    after: Integers,
) -> Integers:
    """Adds a collective of groups in the shape that the algorithm wants."""
    added = {
        (Algorithm.RING, Operation.ALL_REDUCE): collectives.ring_all_reduce,
        (Algorithm.RING, Operation.ALL_GATHER): collectives.ring_all_gather,
        (Algorithm.RING, Operation.REDUCE_SCATTER): collectives.ring_reduce_scatter,
        (Algorithm.TREE, Operation.ALL_REDUCE): collectives.tree_all_reduce,
        (Algorithm.HALVING_DOUBLING, Operation.ALL_REDUCE): collectives.halving_doubling_all_reduce,
        (Algorithm.HALVING_DOUBLING, Operation.ALL_GATHER): collectives.doubling_all_gather,
        (Algorithm.HALVING_DOUBLING, Operation.REDUCE_SCATTER): collectives.halving_reduce_scatter,
        (Algorithm.HIERARCHICAL, Operation.ALL_REDUCE): collectives.hierarchical_all_reduce,
        (Algorithm.HIERARCHICAL, Operation.ALL_GATHER): collectives.hierarchical_all_gather,
        (Algorithm.HIERARCHICAL, Operation.REDUCE_SCATTER): collectives.hierarchical_reduce_scatter,
    }[algorithm, operation]
    begin = after
    if shaped.ndim > after.ndim:  # by nodes: whole ones, or a part of the first one
        begin = after.reshape(*after.shape[:-1], -1, min(after.shape[-1], shaped.shape[-1]))
    return added(shaped, num_bytes, begin).reshape(after.shape)
