"""Which algorithm does a collective take? The one that is over first, of all of them or of those of NCCL, or a given one.

Libraries estimate latency and bandwidth of each algorithm once for a group, and take the shorter time for each size (NCCL
"will move from one combination to another depending on the size", by nodes, members of each, and bandwidths: its maintainers
in github.com/NVIDIA/nccl/issues/754). So it is here: each is estimated step by step on the ways that its messages have
(`simulator.deep.collective_times`), and those whose estimates are near the least one are played, with nothing else on the
network, once without bytes and once with many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from simulator.deep.collective_forms import Algorithm, Form, Operation
from simulator.deep.collective_times import Line, estimated, played
from simulator.deep.collectives import Collectives
from simulator.deep.tasks import TaskGraphBuilder
from simulator.table import Integers

MOST_RANKS = 4_096
"""Groups with more ranks together take the ring untried."""
MOST_HALVED = 512
"""Ranks together up to which halving and doubling is tried across nodes, whose messages go half around the network."""
MOST_DIRECT = 32
"""Members up to which direct messages are tried: 64 in a torus, 4,032 messages that all meet, take a second to play."""
MOST_MESSAGES = 1_024
"""Direct messages of all groups together up to which they are tried across nodes; inside, they do not meet those of others."""
NEAR_FACTOR = 1.25
"""Algorithms whose estimates are no more than so many times the least one are played."""
EQUAL_FRACTION = 0.01
"""Times that differ by less are equal: then it is the one that comes first below. Rings can be folded, and direct messages all
meet, which takes long to play."""

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
"""Among what is chosen. NCCL's rings use the cards of all members of a node, which is `hierarchical` here."""


@dataclass(frozen=True, kw_only=True)
class ChosenCollectives:
    """Adds collectives to a task graph, each by the algorithm that suits it; groups `(..., n)` as in `Collectives`."""

    collectives: Collectives
    algorithm: Algorithm = Algorithm.AUTO
    _lines: dict[tuple[object, ...], Line] = field(default_factory=dict)
    """Times by how they were found, form and groups."""

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
        if self.algorithm not in CANDIDATES:
            return self._given(Form(algorithm=self.algorithm, operation=operation), ranks)
        groups = np.unique(ranks.reshape(-1, ranks.shape[-1]), axis=0)
        forms = [Form(algorithm=each, operation=operation) for each in CANDIDATES[self.algorithm]]
        possible = [form for form in forms if self._suits(form, groups) and self._is_affordable(form, groups)]
        return self._fastest(possible, groups, num_bytes).algorithm

    def run(self, operation: Operation, ranks: Integers, num_bytes: float, after: Integers) -> Integers:
        """Adds one of the three; rings can have fewer tasks than ranks, as in `Collectives`."""
        form = Form(algorithm=self.choose(operation, ranks, num_bytes), operation=operation)
        return form.add(self.collectives, form.shaped(ranks, self._ranks_per_node), num_bytes, after)

    @property
    def _ranks_per_node(self) -> int:
        return self.collectives.router.topology.ranks_per_node

    def _suits(self, form: Form, ranks: Integers) -> bool:
        return form.suits(ranks, self._ranks_per_node)

    def _is_affordable(self, form: Form, groups: Integers) -> bool:
        """Whether a form is tried at all for groups `(g, n)`."""
        size = int(groups.shape[-1])
        nodes = groups // self._ranks_per_node
        is_inside = bool((nodes == nodes[:, :1]).all())
        match form.algorithm:
            case Algorithm.RING:
                return True
            case Algorithm.HALVING_DOUBLING:
                return groups.size <= (MOST_RANKS if is_inside else MOST_HALVED)
            case Algorithm.DIRECT:
                is_few = groups.size * (size - 1) <= MOST_MESSAGES
                return size <= MOST_DIRECT and groups.size <= MOST_RANKS and (is_inside or is_few)
            case _:
                return groups.size <= MOST_RANKS

    def _given(self, form: Form, ranks: Integers) -> Algorithm:
        """The algorithm that was asked for, or the ring; halving and doubling refuses what it cannot do."""
        is_there = form.algorithm is Algorithm.HALVING_DOUBLING or self._suits(form, ranks)
        return form.algorithm if is_there else Algorithm.RING

    def _fastest(self, forms: Sequence[Form], groups: Integers, num_bytes: float) -> Form:
        """The form that is over first; the first one of those that take as long."""
        near = self._near(forms, groups, num_bytes)
        if len(near) == 1:
            return near[0]
        times_s = [self._line(played, form, groups).at(num_bytes) for form in near]
        longest_s = min(times_s) * (1.0 + EQUAL_FRACTION)
        return next(form for form, time_s in zip(near, times_s, strict=True) if time_s <= longest_s)

    def _near(self, forms: Sequence[Form], groups: Integers, num_bytes: float) -> Sequence[Form]:
        """Forms that may be the fastest; all of them where they wait for circuits, of which estimates know nothing."""
        if len(forms) == 1 or self.collectives.router.topology.circuits is not None:
            return forms
        times_s = [self._line(estimated, form, groups).at(num_bytes) for form in forms]
        most_s = min(times_s) * NEAR_FACTOR
        return [form for form, time_s in zip(forms, times_s, strict=True) if time_s <= most_s]

    def _line(
        self, found: Callable[[Form, Integers, Collectives], Line], form: Form, groups: Integers
    ) -> Line:
        """The time of groups, found once."""
        key = (found, form, groups.shape, groups.tobytes())
        if key not in self._lines:
            self._lines[key] = found(form, form.shaped(groups, self._ranks_per_node), self.collectives)
        return self._lines[key]
