"""Which algorithm does a collective take? The one that is over first, as libraries choose, or a given one.

Libraries estimate latency and bandwidth of each algorithm once for a group, and take the shorter time for each size (NCCL
"will move from one combination to another depending on the size", by nodes, members of each, and bandwidths: its maintainers
in github.com/NVIDIA/nccl/issues/754). So it is here, with the flow model itself as the estimate: the collective is played
with nothing else on the network, once with next to no bytes (a seconds) and once with many (b seconds for each byte), and
a size S is expected to take a + b S. Of rings, whose steps are alike, two are played.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from simulator.deep.collectives import Collectives
from simulator.deep.play import play
from simulator.deep.tasks import NONE, TaskGraphBuilder
from simulator.record import Choice
from simulator.table import Floats, Integers

MANY_BYTES = 2.0**30
"""Buffer whose latency does not count any more."""
MOST_RANKS = 4_096
"""Groups with more ranks together take the ring untried."""
LEAST_GAIN_FRACTION = 1e-9
"""Times that differ by less are equal: then it is the ring."""


class Algorithm(Choice):
    """How collectives run."""

    AUTO = "auto"
    """Ring, tree or hierarchical, whichever is over first for the group and the size; above 4,096 ranks the ring."""
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
    _costs: dict[tuple[object, ...], tuple[float, float]] = field(default_factory=dict)
    """Seconds, and seconds for each byte, by algorithm, operation and groups."""

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
        if groups.size > MOST_RANKS:
            return Algorithm.RING
        best, least_s = Algorithm.RING, np.inf
        for candidate in CANDIDATES:
            if self._exists(candidate, operation, groups):
                fixed_s, seconds_per_byte = self._cost(candidate, operation, groups)
                expected_s = fixed_s + seconds_per_byte * num_bytes
                if expected_s < least_s * (1.0 - LEAST_GAIN_FRACTION):
                    best, least_s = candidate, expected_s
        return best

    def run(self, operation: Operation, ranks: Integers, num_bytes: float, after: Integers) -> Integers:
        """Adds one of the three; rings can have fewer tasks than ranks, as in `Collectives`."""
        algorithm = self.choose(operation, ranks, num_bytes)
        return _add(self.collectives, algorithm, operation, self._shaped(algorithm, ranks), num_bytes, after)

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

    def _cost(self, algorithm: Algorithm, operation: Operation, groups: Integers) -> tuple[float, float]:
        """Seconds without bytes, and what each byte adds."""
        key = (algorithm, operation, groups.shape, groups.tobytes())
        if key not in self._costs:
            alone_s = self._ring_s if algorithm is Algorithm.RING else partial(self._alone_s, algorithm)
            fixed_s, long_s = alone_s(operation, groups).tolist()
            self._costs[key] = fixed_s, (long_s - fixed_s) / MANY_BYTES
        return self._costs[key]

    def _ring_s(self, operation: Operation, groups: Integers) -> Floats:
        """How long rings take with nothing else on the network, `(2,)`, if every step takes as long as the second one."""
        num_steps = (2 if operation is Operation.ALL_REDUCE else 1) * (groups.shape[-1] - 1)
        one_s, two_s = (
            self._played_s(partial(_add_steps, groups=groups, num_steps=count)) for count in (1, 2)
        )
        return np.asarray(one_s + (num_steps - 1) * (two_s - one_s))

    def _alone_s(self, algorithm: Algorithm, operation: Operation, groups: Integers) -> Floats:
        """How long a collective takes with nothing else on the network, `(2,)`."""
        shaped = self._shaped(algorithm, groups)
        ready = np.full(shaped.shape, NONE)
        return self._played_s(lambda alone: _add(alone, algorithm, operation, shaped, MANY_BYTES, ready))

    def _played_s(self, add: Callable[[Collectives], object]) -> Floats:
        """How long what is added takes without bytes and with many, `(2,)`."""
        router, builder = self.collectives.router, TaskGraphBuilder()
        add(replace(self.collectives, graph=builder))
        graph, paths = builder.build(), router.table()
        graphs = replace(graph, num_bytes=np.zeros(len(graph))), graph
        return np.array([play(each, router.topology, paths).makespan_s for each in graphs])


def _add_steps(collectives: Collectives, *, groups: Integers, num_steps: int) -> Integers:
    return collectives.ring_steps(groups, MANY_BYTES, num_steps, np.full(groups.shape, NONE), "ring")


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
    begin = after if shaped.ndim == after.ndim else after.reshape(shaped.shape)
    return added(shaped, num_bytes, begin).reshape(after.shape)
