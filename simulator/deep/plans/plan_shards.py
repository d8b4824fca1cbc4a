"""When are sharded weights gathered, and sharded gradients reduced? ZeRO-2 and ZeRO-3, part by part in every pass.

    ZeRO-3    a part waits until its weights are gathered. The gather begins when the previous part begins to compute, or with
              the pass if the part is the first forward. Without prefetch it begins when it is its turn, after the reduction
              before it.
    both      gradients of a part are reduced when its backward pass is over. The computation waits for those of the part two
              before it, and the next pass for all of them. On the computation's own stream (`overlaps_gradient_sync` false)
              it waits for those of the part just finished at once.

Gathers and reductions are in one queue, since they share a communicator: g(1), g(2), r(1), g(3), r(2) and so on; without
prefetch g(1), r(1), g(2), r(2) (`simulator.step.shard_passes` has the fast depth's sums of this). Where a stage goes on while
the gradients of a pass are reduced, those of its next pass follow them.

Under ZeRO-2 in pipelines the gradients of a chunk are reduced once for several micro-batches (`model_states.reduced_fraction`).
On the computation's stream this happens after the last pass of each group, whose messages have left by then, and for the last
group after all passes of the stage (`simulator.deep.plans.plan_graph`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil

import numpy as np

from simulator.deep.plans.plan_collectives import Collective
from simulator.deep.plans.plan_items import BACKWARD, FORWARD, WEIGHT_GRADIENT, Items, cover_s, work
from simulator.deep.plans.plan_parts import PlanParts
from simulator.deep.plans.plan_traffic import After, PlanTraffic
from simulator.deep.playing.tasks import NONE, TaskGraphBuilder
from simulator.layout.weight_gathers import regathers
from simulator.pipeline.shape import PipelineShape, stage_of
from simulator.step.first_gathers import follows_forward, keeps_last_weights
from simulator.step.parts import Part, has_backward
from simulator.step.shard_passes import reduces_in_every_pass
from simulator.table import Integers
from simulator.traffic.layer_collectives import CORE_SHARE

GATHERS_AGAIN, REDUCES_OFTEN = 3, 2
"""Lowest ZeRO stages at which weights are gathered, and gradients reduced, in every micro-batch."""
LENT_TO_SHARDS = "cores lent to weight traffic"


@dataclass(kw_only=True)
class Shards:
    """Gathers and reductions in the passes; one pass is added at a time."""

    graph: TaskGraphBuilder
    traffic: PlanTraffic
    parts: PlanParts
    zero_stage: int
    pipeline: PipelineShape
    reduces_every: int
    last_direction: int
    """Direction in which gradients of weights are complete."""
    _direction: int = 0
    _chunk: int = 0
    _stage: int = 0
    _begins: After = ()
    """Tasks at which the previous part begins to compute; the next gather may begin then."""
    _gathered: After = ()
    """The latest gather of the pass; the next one follows it."""
    _scattered: list[After] = field(default_factory=list)
    """Reductions of the pass."""
    _turn: Integers | None = None
    """The turn of the latest reduction: it waits for the gather that was issued before it."""
    _gates: dict[tuple[int, int], Integers] = field(default_factory=dict)
    """Tasks at which the first gather of a backward pass may begin, by direction and chunk."""
    _of_parts: dict[tuple[int, int], list[After]] = field(default_factory=dict)
    """The reductions of the parts of a pass, in their order."""
    _ends: dict[tuple[int, int], After] = field(default_factory=dict)
    """Tasks at which the last part of a pass begins to compute."""
    _left: tuple[Collective, ...] = ()
    """Reductions that follow the pass as a whole."""
    _freed: dict[tuple[int, int], Integers] = field(default_factory=dict)
    """Tasks at which these are done after a pass, `(m, R)`, by direction and chunk."""
    _reduced: dict[int, list[Integers]] = field(default_factory=dict)
    """All reductions, by stage."""
    _queued: dict[int, Integers] = field(default_factory=dict)
    """Tasks at which the first reductions of a chunk may begin where no pass waits for the previous ones, `(g, R)`."""
    _latest: dict[int, list[Integers]] = field(default_factory=dict)
    """The latest reductions of each stage in its order, `(R,)` each."""

    def begin_pass(self, direction: int, chunk: int, stage: int, begin: Integers) -> None:
        """Begins a pass of all micro-batches, whose `(m, R)` first tasks are `begin`."""
        self._direction, self._chunk, self._stage = direction, chunk, stage
        self._gathered, self._scattered, self._begins, self._turn = (), [], (begin,), None
        self._left = ()
        if direction > 0 and self._gathers and self._prefetches:
            gate = self.graph.add("prefetch", after=[np.full(begin.shape, NONE)]).reshape(begin.shape)
            self._gates[direction, chunk], self._begins = gate, (gate,)

    def before_part(self, kind: Part, after: After) -> After:
        """Adds the gather of a part; returns the tasks for which its first operator waits."""
        gathers = self._gathers_of(kind)
        if not gathers:
            self._begins = after
            return after
        queued = self._ahead_of_gather()
        done = (*(self._begins if self._prefetches else after), *self._gathered, *queued)
        for each in gathers:
            done = self.traffic.collective(each, self._stage, done)
        if self._turn is not None:
            for each_done in done:
                self.graph.add_edges(each_done, self._turn)
        self._gathered = done
        self._begins = (*after, *done)
        return self._begins

    def _gathers_of(self, kind: Part) -> tuple[Collective, ...]:
        """The gathers for which a part waits in this pass."""
        return self.parts.part_gathers(kind) if self._gathers and not self._is_whole(kind) else ()

    def _ahead_of_gather(self) -> After:
        """The reduction before the next gather in the queue; a prefetched gather overtakes the latest reduction."""
        place = 2 if self._prefetches else 1
        return self._scattered[-place] if len(self._scattered) >= place else ()

    def after_part(self, kind: Part, after: After) -> After:
        """Adds the reduction of a part's gradients; returns the tasks for which the next part waits."""
        if self._direction != self.last_direction or self.zero_stage < REDUCES_OFTEN:
            return after
        before = self._scattered[-1] if self._scattered else ()
        # Without gradients, or replicas, there is nothing to reduce.
        reductions = self.parts.part_reductions(kind)
        if self.follows_groups:
            self._left += reductions
            return after
        self._scattered.append(self._reduce(reductions, after, before) if reductions else before)
        if not self._hides_reductions:
            return (*after, *self._scattered[-1])
        is_full = len(self._scattered) > 1 and self._reduces_always
        return (*after, *self._scattered[-2]) if is_full else after

    def _reduce(self, reductions: tuple[Collective, ...], after: After, before: After) -> After:
        """Adds reductions that follow a part and the reductions before it; returns the tasks that end them."""
        if self._gathers and self._prefetches:
            shape = after[0].shape
            self._turn = self.graph.add("turn", after=[np.full(shape, NONE)]).reshape(shape)
            after = (*after, self._turn)
        done = (*(each[self._reducing] for each in after), *before)
        if not (before or self._reduces_always or self.follows_groups):
            queued = self.graph.add("queued", after=[np.full(done[0].shape, NONE)]).reshape(done[0].shape)
            self._queued[self._chunk], done = queued, (*done, queued)
        for each in reductions:
            done = self.traffic.collective(each, self._stage, done)
        self._reduced.setdefault(self._stage, []).extend(done)
        return done

    def _reduce_behind(self, after: After) -> Integers:
        """Adds the reductions of a whole pass after it; returns the tasks after which its successor may begin, `(m, R)`."""
        freed = self.graph.add("reduced", after=list(after)).reshape(after[0].shape)
        for each in self._reduce(self._left, after, ()):
            self.graph.add_edges(each, freed[self._reducing])
        return freed

    def lent(self, passes: list[tuple[Part, Items]]) -> list[Items]:
        """Returns how much longer each part of a pass takes because overlapping traffic takes cores.

        Args:
            passes: kinds of its parts in their order, and what each does.
        """
        kinds = [kind for kind, _ in passes]
        beside_s = [
            min(self._beside_s(kinds, place), cover_s(items)) + self._beside_groups_s(kind, items)
            for place, (kind, items) in enumerate(passes)
        ]
        return [work(LENT_TO_SHARDS, CORE_SHARE * each_s) for each_s in beside_s]

    def _beside_groups_s(self, kind: Part, items: Items) -> float:
        """Mean time for which reductions of groups overlap with a part: they overlap with passes of both directions alike."""
        if self._reduces_always or not self._reductions_of_a_pass:
            return 0.0
        passes = self.parts.passes[kind]
        reductions_s = sum(each.alone_s for each in self.parts.part_reductions(kind))
        both_s = cover_s(passes.forward) + cover_s(passes.backward)
        return cover_s(items) * min(1.0, reductions_s * self._reductions_of_a_pass / both_s)

    def _beside_s(self, kinds: list[Part], place: int) -> float:
        """Traffic of a pass that overlaps with a part: the reduction of the previous part, and the gather of the next one.

        A gather that is not ahead of its turn overlaps with nothing, nor does the reduction for which it waits.
        """
        waits = not self._prefetches and self._gathers_of(kinds[place])
        traffic_s = self._reduction_s(kinds[place - 1]) if place and not waits else 0.0
        if place + 1 < len(kinds):
            return traffic_s + self._prefetched_s(kinds[place + 1], self._direction)
        is_ahead = self._direction == FORWARD and follows_forward(self.parts.rank.plans)[0]
        return traffic_s + (self._prefetched_s(kinds[place], BACKWARD) if is_ahead else 0.0)

    def end_pass(self, after: After) -> After:
        """Records the reductions of a pass and the start of its last part; returns what everything after the pass waits for."""
        self._ends[self._direction, self._chunk] = self._begins
        self._of_parts[self._direction, self._chunk] = self._scattered
        if self._left and len(self._reducing):
            self._freed[self._direction, self._chunk] = self._reduce_behind(after)
        return (*after, *self._scattered[-1]) if self._scattered and self._reduces_always else after

    def follow(
        self, previous: tuple[int, int, int], following: tuple[int, int, int], begin: Integers
    ) -> None:
        """Lets the first gather of a backward pass begin with the last part of the previous pass, after its reductions.

        The pass itself waits for those reductions that follow the previous pass as a whole.

        Args:
            previous: direction, chunk and micro-batch.
            following: the same for the next pass on the same stage.
            begin: the first tasks of the next pass, `(R,)`.
        """
        if previous[:2] in self._freed:
            self.graph.add_edges(self._freed[previous[:2]][previous[2]], begin)
        self._queue(following)
        gate = self._gates.get(following[:2])
        if gate is None:
            return
        reductions = self._of_parts[previous[:2]] if self._reduces_always else []
        for each in (*self._ends[previous[:2]], *(reductions[-1] if reductions else ())):
            self.graph.add_edges(each[previous[2]], gate[following[2]])

    def _queue(self, following: tuple[int, int, int]) -> None:
        """Lets the reductions of a pass, given as in `follow`, begin behind those of earlier passes of its stage."""
        direction, chunk, micro_batch = following
        if direction != self.last_direction or chunk not in self._queued:
            return
        (groups,) = np.nonzero(self._reducing == micro_batch)
        stage = int(stage_of(self.pipeline, chunk))
        for group in groups:
            for each in self._latest.get(stage, []):
                self.graph.add_edges(each, self._queued[chunk][group])
            self._latest[stage] = [each[group] for each in self._of_parts[direction, chunk][-1]]

    def last_of_parts(self, chunk: int, fraction: float) -> After:
        """Returns the last reduction of a chunk when a share of its parts is over, for one micro-batch, `(1, R)`."""
        reductions = self._of_parts.get((self.last_direction, chunk), [])
        if not reductions:
            return ()
        place = max(0, ceil(fraction * len(reductions)) - 1)
        return tuple(each[-1:] for each in reductions[place])

    def reduced(self, stage: int) -> After:
        """Returns all reductions of a stage."""
        return tuple(self._reduced.get(stage, ()))

    @property
    def regathers(self) -> bool:
        """Whether ZeRO-2 gathers weights in every forward pass."""
        return bool(regathers(self.parts.rank.workload, self.parts.rank.plans)[0])

    @property
    def _gathers(self) -> bool:
        return self._gathers_in(self._direction)

    def _gathers_in(self, direction: int) -> bool:
        if direction == FORWARD and self.regathers:
            return True
        return self.zero_stage == GATHERS_AGAIN and direction != WEIGHT_GRADIENT

    @property
    def _prefetches(self) -> bool:
        return self._prefetches_in(self._direction)

    def _prefetches_in(self, direction: int) -> bool:
        chosen = self.parts.rank.workload.weight_prefetch
        return chosen in ("both", "backward" if direction else "forward")

    def _is_whole(self, kind: Part) -> bool:
        """Whether a part needs no gather in a backward pass.

        Its weights are still gathered from the forward pass that has just ended, or it has no backward pass.
        """
        if self._direction == 0:
            return False
        rank = self.parts.rank
        is_there = kind is Part.OUTPUT and bool(keeps_last_weights(rank.plans)[0])
        return is_there or not has_backward(rank.workload, kind)

    def _prefetched_s(self, kind: Part, direction: int) -> float:
        """Time of a part's gather if it is prefetched ahead of its turn."""
        is_none = direction > 0 and not has_backward(self.parts.rank.workload, kind)
        if is_none or not (self._gathers_in(direction) and self._prefetches_in(direction)):
            return 0.0
        return sum(each.alone_s for each in self.parts.part_gathers(kind))

    def _reduction_s(self, kind: Part) -> float:
        """Time of a part's reduction in a backward pass if every pass reduces."""
        is_none = self._direction != self.last_direction or self.zero_stage < REDUCES_OFTEN
        if is_none or not (self._hides_reductions and self._reduces_always):
            return 0.0
        return sum(each.alone_s for each in self.parts.part_reductions(kind))

    @property
    def _reductions_of_a_pass(self) -> float:
        """Mean number of reductions of groups that follow a backward pass, without the last one; 0 if nothing hides them."""
        if self.zero_stage != REDUCES_OFTEN or not self._hides_reductions:
            return 0.0
        num_passes = self.pipeline.num_micro_batches
        return self._num_reductions / num_passes - 1.0 / num_passes

    @property
    def _reducing(self) -> Integers:
        """Micro-batches whose backward passes reduce: the last of each group, except a last one that follows all passes."""
        last_ones = (np.arange(self._num_reductions) + 1) * self.reduces_every - 1
        last_ones = np.minimum(last_ones, self.pipeline.num_micro_batches - 1)
        return last_ones[:-1] if self.follows_groups else last_ones

    @property
    def follows_groups(self) -> bool:
        """Whether gradients of several micro-batches are reduced after their last pass, hidden behind nothing."""
        return self.zero_stage == REDUCES_OFTEN and not (self._reduces_always or self._hides_reductions)

    @property
    def _hides_reductions(self) -> bool:
        return self.parts.rank.workload.overlaps_gradient_sync

    @property
    def _num_reductions(self) -> int:
        """Number of reductions of a chunk in a step."""
        return ceil(self.pipeline.num_micro_batches / self.reduces_every)

    @property
    def _reduces_always(self) -> bool:
        return bool(reduces_in_every_pass(self.parts.rank.plans)[0])
