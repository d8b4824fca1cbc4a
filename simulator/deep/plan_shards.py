"""How do replicas that share out weights and gradients hand them on? ZeRO-2 and ZeRO-3, part by part in every pass.

    ZeRO-3    a part waits until its weights are gathered, which begins when the part before it begins to compute, or with
              its pass where it is the first forward; without prefetch when it is its turn
    both      gradients of a part are reduced when its backward pass is over; computing waits for those of the last but one
              part before it, so that no more than two are on their way, and the next pass for all of them

Under ZeRO-2 in pipelines the gradients of a chunk are reduced once for several micro-batches (`memory.reduced_fraction`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from simulator.deep.plan_collectives import Collective, Operation
from simulator.deep.plan_items import Items, cover_s, work
from simulator.deep.plan_parts import PlanParts
from simulator.deep.plan_traffic import After, PlanTraffic
from simulator.deep.tasks import NONE, TaskGraphBuilder
from simulator.layer_collectives import CORE_SHARE
from simulator.pipeline.turns import PipelineShape
from simulator.table import Integers

GATHERS_AGAIN, REDUCES_OFTEN = 3, 2
"""Least ZeRO stages at which weights are gathered, and gradients reduced, in every micro-batch."""
LENT_TO_SHARDS = "cores lent to weight traffic"


@dataclass(kw_only=True)
class Shards:
    """What is gathered and reduced in the passes; one pass is added at a time."""

    graph: TaskGraphBuilder
    traffic: PlanTraffic
    parts: PlanParts
    zero_stage: int
    pipeline: PipelineShape
    reduces_every: int
    last_direction: int
    """That in which gradients of weights are complete."""
    _direction: int = 0
    _chunk: int = 0
    _stage: int = 0
    _begins: After = ()
    """When the part before began to compute; the next gather may begin then."""
    _gathered: After = ()
    """The last gather of the pass: one follows the other."""
    _scattered: list[After] = field(default_factory=list)
    """Reductions of the pass."""
    _gates: dict[tuple[int, int], Integers] = field(default_factory=dict)
    """When the first gather of a backward pass may begin, by direction and chunk."""
    _firsts: dict[tuple[int, int], Integers] = field(default_factory=dict)
    """The first tasks of a pass, `(m, R)`."""
    _lasts: dict[tuple[int, int], After] = field(default_factory=dict)
    """The last reductions of a pass."""
    _ends: dict[tuple[int, int], After] = field(default_factory=dict)
    """When the last part of a pass begins to compute."""
    _reduced: dict[int, list[Integers]] = field(default_factory=dict)
    """All reductions, by stage."""

    def begin_pass(self, direction: int, chunk: int, stage: int, begin: Integers) -> None:
        """Begins a pass of all micro-batches, whose `(m, R)` first tasks are `begin`."""
        self._direction, self._chunk, self._stage = direction, chunk, stage
        self._gathered, self._scattered, self._begins = (), [], (begin,)
        self._firsts[direction, chunk] = begin
        if direction > 0 and self._gathers and self._prefetches:
            gate = self.graph.add("prefetch", after=[np.full(begin.shape, NONE)]).reshape(begin.shape)
            self._gates[direction, chunk], self._begins = gate, (gate,)

    def before_part(self, kind: int, after: After) -> After:
        """Adds the gather of a part; returns what its first operator waits for."""
        gathers = self._gathers_of(kind) if self._gathers else ()
        if not gathers:
            self._begins = after
            return after
        done = (*(self._begins if self._prefetches else after), *self._gathered)
        for each in gathers:
            done = self.traffic.collective(each, self._stage, done)
        self._gathered = done
        self._begins = (*after, *done)
        return self._begins

    def after_part(self, kind: int, after: After) -> After:
        """Adds the reduction of a part's gradients; returns what the next part waits for."""
        if self._direction != self.last_direction or self.zero_stage < REDUCES_OFTEN:
            return after
        trained, _ = self.parts.weights_of(kind)
        reductions = self.parts.gradients(Operation.REDUCE_SCATTER, trained) if trained.is_any else ()
        before = self._scattered[-1] if self._scattered else ()
        self._scattered.append(self._reduce(reductions, after, before) if reductions else before)
        is_full = len(self._scattered) > REDUCES_OFTEN and self._reduces_always
        return (*after, *self._scattered[-1 - REDUCES_OFTEN]) if is_full else after

    def _reduce(self, reductions: tuple[Collective, ...], after: After, before: After) -> After:
        """Adds reductions behind a part and those before it; returns what is done with them."""
        every = slice(self.reduces_every - 1, None, self.reduces_every)
        done = (*(each[every] for each in after), *before)
        for each in reductions:
            done = self.traffic.collective(each, self._stage, done)
        self._reduced.setdefault(self._stage, []).extend(done)
        return done

    def lent(self, passes: list[tuple[int, Items]]) -> Items:
        """Returns what a pass takes longer because traffic behind it takes cores.

        Args:
            passes: kinds of its parts, and what each does.
        """
        traffic_s = sum(self._hidden_s(kind) for kind, _ in passes)
        return work(LENT_TO_SHARDS, CORE_SHARE * min(traffic_s, sum(cover_s(items) for _, items in passes)))

    def end_pass(self) -> None:
        """Notes when the last part of the pass began, and its last reduction."""
        self._ends[self._direction, self._chunk] = self._begins
        if self._scattered and self._reduces_always:
            self._lasts[self._direction, self._chunk] = self._scattered[-1]

    def follow(self, previous: tuple[int, int, int], following: tuple[int, int, int]) -> None:
        """Lets a pass wait for the reductions of the one before it on the same stage.

        If it is a backward pass, its first gather begins with the last part of that one.

        Args:
            previous: direction, chunk and micro-batch.
            following: the same of the pass behind it.
        """
        for each in self._lasts.get(previous[:2], ()):
            self.graph.add_edges(each[previous[2]], self._firsts[following[:2]][following[2]])
        gate = self._gates.get(following[:2])
        if gate is not None:
            for each in self._ends[previous[:2]]:
                self.graph.add_edges(each[previous[2]], gate[following[2]])

    def reduced(self, stage: int) -> After:
        """Returns all reductions of a stage."""
        return tuple(self._reduced.get(stage, ()))

    @property
    def _gathers(self) -> bool:
        return self.zero_stage == GATHERS_AGAIN and self._direction < REDUCES_OFTEN

    @property
    def _prefetches(self) -> bool:
        chosen = self.parts.rank.workload.weight_prefetch
        return chosen in ("both", "backward" if self._direction else "forward")

    def _gathers_of(self, kind: int) -> tuple[Collective, ...]:
        return self.parts.gathers(*(part for part in self.parts.weights_of(kind) if part.is_any))

    def _hidden_s(self, kind: int) -> float:
        """Traffic of a part that travels behind the pass."""
        hidden_s = 0.0
        if self._gathers and self._prefetches:
            hidden_s += sum(each.alone_s for each in self._gathers_of(kind))
        trained, _ = self.parts.weights_of(kind)
        if self._direction == self.last_direction and self.zero_stage >= REDUCES_OFTEN and trained.is_any:
            scatters = self.parts.gradients(Operation.REDUCE_SCATTER, trained)
            hidden_s += sum(each.alone_s for each in scatters) * self._reductions_of_a_pass
        return hidden_s

    @property
    def _reductions_of_a_pass(self) -> float:
        """How many reductions travel behind a backward pass; the mean where only some reduce, without the last one."""
        if self._reduces_always:
            return 1.0
        return 1.0 / self.reduces_every - 1.0 / self.pipeline.num_micro_batches

    @property
    def _reduces_always(self) -> bool:
        """Whether gradients are never left whole for another micro-batch, as ZeRO-2 does in pipelines."""
        return self.zero_stage == GATHERS_AGAIN or self.pipeline.num_stages == 1
