"""Which algorithm does a collective use? The fastest of all algorithms, the fastest of NCCL's, or a given one.

Communication libraries estimate the latency and bandwidth of each algorithm once per group, and take the faster one for each
size (NCCL "will move from one combination to another depending on the size", by nodes, members of each, and bandwidths: its
maintainers in github.com/NVIDIA/nccl/issues/754). The same is done here. Each algorithm is estimated step by step on the paths
of its messages (`simulator.deep.collectives.collective_times`). For few accelerators those whose estimates are close to the
lowest one are also played, with nothing else on the network: once without bytes and once with many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from simulator.deep.collectives.collective_forms import Algorithm, Form, Operation, members_of_nodes
from simulator.deep.collectives.collective_times import Line, estimated, played
from simulator.deep.collectives.moved_flows import Flows
from simulator.deep.collectives.schedules import Collectives
from simulator.deep.playing.tasks import TaskGraphBuilder
from simulator.table import Integers

MOST_PLAYED = 512
"""Total ranks up to which algorithms that cross nodes are played before one is chosen; above, estimates choose."""
MOST_PLAYED_INSIDE = 4_096
"""The same inside nodes, where messages do not meet those of other groups, and with circuits, which estimates do not cover;
above, circuits carry rings."""
MOST_HALVED = 512
"""Total ranks up to which halving and doubling is tried across nodes; its messages go half around the network."""
MOST_DIRECT = 32
"""Members up to which direct messages are tried: 64 in a torus, 4,032 messages that all meet, take a second to play."""
MOST_MESSAGES = 1_024
"""Total direct messages of all groups up to which they are tried across nodes; inside nodes, groups do not meet."""
NEAR_FACTOR = 1.25
"""Algorithms whose estimates are at most this many times the lowest one are played."""
EQUAL_FACTOR = 1.01
"""Times up to this many times the lowest count as equal; then the algorithm listed first below is taken. Rings come first
because one can stand for all; direct messages come last because they all meet, which takes long to play."""

Found = Callable[[Form, Integers, Collectives], Line]
"""Returns the time of groups, in the shape that the form wants."""

CANDIDATES: Mapping[Algorithm, Sequence[Algorithm]] = MappingProxyType(
    {
        Algorithm.AUTO: (
            Algorithm.RING,
            Algorithm.TREE,
            Algorithm.HIERARCHICAL,
            Algorithm.HALVING_DOUBLING,
            Algorithm.DIRECT,
        ),
        Algorithm.NCCL: (Algorithm.RING, Algorithm.TREE, Algorithm.HIERARCHICAL),
    }
)
"""Algorithms to choose among. NCCL's rings use the cards of all members of a node, which is `hierarchical` here."""


@dataclass(frozen=True, kw_only=True)
class ChosenCollectives:
    """Adds collectives to a task graph, each by its chosen algorithm; groups `(..., n)` as in `Collectives`."""

    collectives: Collectives
    algorithm: Algorithm = Algorithm.AUTO
    is_alike: bool = False
    """Whether only algorithms are chosen for which one node can stand for all, because the step is too large otherwise."""
    _lines: dict[tuple[object, ...], Line] = field(default_factory=dict)
    """Times found so far, by method, form and groups."""
    _are_alike: dict[tuple[object, ...], bool] = field(default_factory=dict)
    """Whether nodes are alike, by form and groups."""

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
        """Adds a message for each pair of ranks; it leaves when it arrives, as in `simulator.deep.plans.plan_traffic`."""
        sent = self.send(source, target, num_bytes, after, label)
        return sent, sent

    def on(self, graph: TaskGraphBuilder) -> ChosenCollectives:
        """Returns these collectives for another graph, with the times found so far."""
        return replace(self, collectives=replace(self.collectives, graph=graph))

    def taking(self, algorithm: Algorithm) -> ChosenCollectives:
        """Returns these collectives with another algorithm."""
        return replace(self, algorithm=algorithm)

    def taking_what_is_alike(self) -> ChosenCollectives:
        """Returns collectives that choose only rings and algorithms in which all nodes of a group do the same."""
        return replace(self, is_alike=True)

    def called(self, label: str) -> ChosenCollectives:
        """Returns these collectives with another label for their flows."""
        return replace(self, collectives=replace(self.collectives, label=label))

    def choose(self, operation: Operation, ranks: Integers, num_bytes: float) -> Algorithm:
        """Returns the algorithm of a collective of the groups `(..., n)`, which all run at once."""
        if ranks.shape[-1] == 1:
            return Algorithm.RING
        if self.algorithm not in CANDIDATES:
            return self._given(Form(algorithm=self.algorithm, operation=operation), ranks)
        groups = np.unique(ranks.reshape(-1, ranks.shape[-1]), axis=0)
        forms = [Form(algorithm=each, operation=operation) for each in CANDIDATES[self.algorithm]]
        tried = [form for form in forms if self._suits(form, groups) and self._is_tried(form, groups)]
        return self._fastest(tried, groups, num_bytes).algorithm

    def run(self, operation: Operation, ranks: Integers, num_bytes: float, after: Integers) -> Integers:
        """Adds one of the three; there can be fewer tasks than ranks, as in `Collectives`."""
        form = Form(algorithm=self.choose(operation, ranks, num_bytes), operation=operation)
        return form.add(self.collectives, form.shaped(ranks, self._ranks_per_node), num_bytes, after)

    @property
    def _ranks_per_node(self) -> int:
        return self.collectives.router.topology.ranks_per_node

    def _suits(self, form: Form, ranks: Integers) -> bool:
        return form.suits(ranks, self._ranks_per_node)

    def _is_inside(self, groups: Integers) -> bool:
        """Whether each group lies inside a node, where its messages do not meet those of others."""
        nodes = groups // self._ranks_per_node
        return bool((nodes == nodes[:, :1]).all())

    def _is_tried(self, form: Form, groups: Integers) -> bool:
        """Whether a form is tried for groups `(g, n)`: it has few enough messages and, with `is_alike`, nodes are alike."""
        is_inside = self._is_inside(groups)
        if not self._is_affordable(form, groups, is_inside=is_inside):
            return False
        return not self.is_alike or is_inside or self._has_nodes_alike(form, groups)

    def _is_affordable(self, form: Form, groups: Integers, *, is_inside: bool) -> bool:
        size = int(groups.shape[-1])
        match form.algorithm:
            case Algorithm.HALVING_DOUBLING:
                return is_inside or groups.size <= MOST_HALVED
            case Algorithm.DIRECT:
                is_few = groups.size * (size - 1) <= MOST_MESSAGES
                return size <= MOST_DIRECT and (is_inside or is_few)
            case _:
                return True

    def _has_nodes_alike(self, form: Form, groups: Integers) -> bool:
        """Whether nothing changes when each node of a group moves to the place of the next one; always true for rings."""
        if form.algorithm is Algorithm.RING:
            return True
        key = (form.algorithm, groups.shape, groups.tobytes())
        if key not in self._are_alike:
            router = self.collectives.router
            moved = np.arange(router.topology.num_ranks)
            members = members_of_nodes(groups, self._ranks_per_node) or 1
            moved[groups] = np.roll(groups, -members, axis=-1)
            patterns = list(form.patterns(form.shaped(groups, self._ranks_per_node)))
            self._are_alike[key] = Flows.of(patterns, router).is_kept(moved)
        return self._are_alike[key]

    def _given(self, form: Form, ranks: Integers) -> Algorithm:
        """The algorithm that was asked for, or the ring; halving and doubling refuses what it cannot do."""
        is_there = form.algorithm is Algorithm.HALVING_DOUBLING or self._suits(form, ranks)
        return form.algorithm if is_there else Algorithm.RING

    def _fastest(self, forms: Sequence[Form], groups: Integers, num_bytes: float) -> Form:
        """The fastest form; of equally fast ones, the first."""
        if len(forms) == 1:
            return forms[0]
        has_circuits = self.collectives.router.topology.circuits is not None
        is_apart = has_circuits or self._is_inside(groups)
        is_played = groups.size <= (MOST_PLAYED_INSIDE if is_apart else MOST_PLAYED)
        if not has_circuits:
            factor = NEAR_FACTOR if is_played else EQUAL_FACTOR
            forms = self._least(estimated, forms, groups, num_bytes, factor)
        if is_played and len(forms) > 1:
            forms = self._least(played, forms, groups, num_bytes, EQUAL_FACTOR)
        return forms[0]

    def _least(
        self,
        found: Found,
        forms: Sequence[Form],
        groups: Integers,
        num_bytes: float,
        factor: float,
    ) -> Sequence[Form]:
        """Forms that take at most `factor` times as long as the fastest."""
        times_s = [self._line(found, form, groups).at(num_bytes) for form in forms]
        most_s = min(times_s) * factor
        return [form for form, time_s in zip(forms, times_s, strict=True) if time_s <= most_s]

    def _line(self, found: Found, form: Form, groups: Integers) -> Line:
        """The time of groups, which is computed once."""
        key = (found, form, groups.shape, groups.tobytes())
        if key not in self._lines:
            self._lines[key] = found(form, form.shaped(groups, self._ranks_per_node), self.collectives)
        return self._lines[key]
