"""Which tasks does one step of a plan consist of? Every pass of every stage and micro-batch, and the traffic around them.

    forward(c, j)   waits for  forward(c-1, j) and its message, and for its stage's previous pass
    backward(c, j)  waits for  backward(c+1, j) and its message, and for its stage's previous pass
    the optimizer   waits for  all gradients of all stages, since their norm is one number, and those of a tied embedding

Each stage runs its passes in the order of the fast depth (`simulator.pipeline.turns`). The number of pieces is the fast
depth's, too: gradients of a chunk are reduced in them behind its last backward pass, and parameters are gathered in them
before its first forward pass.

Arrays of tasks are `(m, R)`: micro-batches and the played accelerators of a stage.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from simulator.deep.plans.plan_collectives import Collective, even_pieces, pieces_of
from simulator.deep.plans.plan_items import (
    BACKWARD,
    FORWARD,
    WEIGHT_GRADIENT,
    Beside,
    Item,
    Items,
    Work,
    cover_s,
)
from simulator.deep.plans.plan_pairs import behind, leaving, meet, paired_batches
from simulator.deep.plans.plan_parts import PlanParts
from simulator.deep.plans.plan_pass import Pass
from simulator.deep.plans.plan_shape import StepShape
from simulator.deep.plans.plan_shards import REDUCES_OFTEN, Shards
from simulator.deep.plans.plan_traffic import After, PlanTraffic
from simulator.deep.playing.tasks import MOST_TASKS, NONE, TaskGraphBuilder
from simulator.errors import InputError, Problem
from simulator.layout.chunks import ChunkWeights
from simulator.pipeline.shape import num_directions, stage_of
from simulator.pipeline.turns import turns_of_stages
from simulator.step.gradient_buckets import FIRST_BY_PARTS
from simulator.step.lent_cores import replicas_core_share
from simulator.step.parts import Part
from simulator.table import Booleans, Floats, Integers

DIRECTIONS = ("forward", "backward", "weight gradient")
OPTIMIZER = "optimizer"
LENT_TO_REPLICAS = "cores lent to replicas"
HOST_COPIES = "copies to main memory"
GATHERS_ONCE = (1, 2)
"""ZeRO stages at which weights are gathered once per step."""
Exchanged = Callable[[ChunkWeights], tuple[Collective, ...]]
"""Returns what replicas exchange of the given weights."""


@dataclass(kw_only=True)
class PlanGraph:
    """Builds the tasks of a step; resource `stage * R + role` is the compute stream of a played accelerator."""

    graph: TaskGraphBuilder
    traffic: PlanTraffic
    parts: PlanParts
    shape: StepShape
    speed: Floats
    """`(p, R)` relative speed of the played accelerators."""
    _passes: dict[tuple[int, int], Pass] = field(default_factory=dict)
    """By direction and chunk."""
    _labels: dict[str, Integers] = field(default_factory=dict)

    def add(self) -> None:
        """Adds all tasks; raises `InputError` if there are too many."""
        pipeline = self.shape.pipeline
        self._refuse_too_many()
        self.graph.add_resources(int(self.speed.size))
        self.shards = Shards(
            graph=self.graph,
            traffic=self.traffic,
            parts=self.parts,
            zero_stage=self.shape.zero_stage,
            pipeline=pipeline,
            reduces_every=self.shape.reduces_every,
            last_direction=num_directions(pipeline.schedule) - 1,
        )
        for direction in range(num_directions(pipeline.schedule)):
            for chunk in range(pipeline.num_chunks):
                self._passes[direction, chunk] = self._add_pass(direction, chunk)
        left = self._add_sends()
        self._add_turns(left)
        self._gather_parameters()
        self._add_optimizer([self._reduce_gradients(stage) for stage in range(pipeline.num_stages)])

    def _refuse_too_many(self) -> None:
        """Refuses a plan by the number of operators and collectives of all passes, before any task is built."""
        of_each = self.parts.num_items * self.speed.shape[1]
        if self.shape.pipeline.num_micro_batches * of_each > MOST_TASKS:
            rule = (
                f"makes {self.shape.pipeline.num_micro_batches:,} micro-batches of {of_each:,} tasks or more, "
                f"and at most {MOST_TASKS:,} tasks are played: take larger micro-batches or fewer of them, "
                "or the fast depth"
            )
            path, value = "workload.global_batch_size", str(self.parts.rank.workload.global_batch_size)
            raise InputError([Problem(path=path, value=value, rule=rule)], "deep depth")

    def _stage(self, chunk: int) -> int:
        return int(stage_of(self.shape.pipeline, chunk))

    # Passes

    def _add_pass(self, direction: int, chunk: int) -> Pass:
        """Adds a pass of all micro-batches through the parts of a chunk, in the order of the model or in reverse."""
        stage, kinds = self._stage(chunk), self.parts.kinds[chunk]
        shape = (self.shape.pipeline.num_micro_batches, self.speed.shape[1])
        begin = self.graph.add("ready", after=[np.full(shape, NONE)]).reshape(shape)
        after: After = (begin,)
        works: list[tuple[Integers, float]] = []
        is_paired = paired_batches(self.shape.pipeline, min(direction, BACKWARD), chunk)
        self.shards.begin_pass(direction, chunk, stage, begin)
        in_turn = kinds if direction == FORWARD else kinds[::-1]
        lent = self.shards.lent([(kind, self._items(direction, kind)) for kind in in_turn])
        # Traffic takes cores during the pass, so the lost time is added inside it. After the last part it would hide the last
        # reduction of a backward pass; before the first part of a forward pass it would be over before the weights arrive.
        lends_at = min(1, len(kinds) - 1) if direction == FORWARD else len(kinds) - 1
        for place, kind in enumerate(in_turn):
            if place == lends_at:
                after = self._lend_to_replicas(direction, chunk, after)
            after = self.shards.before_part(kind, after)
            for item in (*self._items(direction, kind), *lent[place]):
                after = self._add_item(item, direction, stage, after, works, is_paired)
            after = self.shards.after_part(kind, after)
        done = self._copy_to_host(direction, chunk, self.shards.end_pass(after))
        return Pass(begin=begin, done=done, works=works)

    def _copy_to_host(self, direction: int, chunk: int, done: After) -> After:
        """Adds how much longer copies to main memory and back take than the pass and its shards, with which they overlap."""
        copied_s = 0.0 if direction == WEIGHT_GRADIENT else float(self.shape.host_copy_s[direction, chunk])
        if copied_s == 0.0:
            return done
        label = f"{DIRECTIONS[direction]}: {HOST_COPIES}"
        return (self._add_operator(label, copied_s, self._stage(chunk), done),)

    def _lend_to_replicas(self, direction: int, chunk: int, after: After) -> After:
        """Adds how much longer a pass takes because once-per-step traffic of the replicas takes cores.

        That concerns the model's first forward pass, when other stages have nothing to compute yet, and the last gradients of
        every chunk.
        """
        traffic: tuple[Collective, ...] = ()
        num_buckets = 0
        if direction == FORWARD and chunk == 0 and self._gathers_once:
            traffic = self.parts.gathers(self.parts.chunk_weights(chunk))
            num_buckets = int(self.shape.buckets.parameters[chunk])
        elif direction == num_directions(self.shape.pipeline.schedule) - 1:
            traffic = self._reduced_last(chunk)
            num_buckets = int(self.shape.buckets.gradients[chunk])
        beside_s = (1.0 - 1.0 / max(1, num_buckets)) * sum(each.alone_s for each in traffic)
        later_s = self._reduced_beside(direction, chunk)
        if beside_s == later_s == 0.0:
            return after
        passes = [self._items(direction, kind) for kind in self.parts.kinds[chunk]]
        share, pass_s = float(replicas_core_share(self.parts.rank)[0]), sum(map(cover_s, passes))
        lent_s = np.zeros((self.shape.pipeline.num_micro_batches, 1))
        lent_s[0 if direction == FORWARD else -1] = share * min(beside_s, pass_s)
        lent_s[-self.shape.num_last_passes :] += share * min(later_s, pass_s)
        return (self._add_work(LENT_TO_REPLICAS, lent_s, self._stage(chunk), after),)

    def _reduced_beside(self, direction: int, chunk: int) -> float:
        """Reductions that overlap with each pass of a chunk's last group: those of its stage's next chunk, in one piece."""
        pipeline = self.shape.pipeline
        later = chunk + pipeline.num_stages
        is_backward = direction == num_directions(pipeline.schedule) - 1 == BACKWARD
        if not is_backward or later >= pipeline.num_chunks or self.shape.buckets.gradients[later] != 1:
            return 0.0
        return sum(each.alone_s for each in self._reduced_last(later)) / self.shape.num_last_passes

    def _items(self, direction: int, kind: Part) -> Items:
        """What a part does; zero-bubble schedules leave gradients of weights for later."""
        passes = self.parts.passes[kind]
        if direction == FORWARD:
            return passes.forward
        if num_directions(self.shape.pipeline.schedule) == len(DIRECTIONS) - 1:
            return passes.backward
        if direction == WEIGHT_GRADIENT:
            return passes.weight_gradient
        return passes.input_gradient

    def _add_item(
        self,
        item: Item,
        direction: int,
        stage: int,
        after: After,
        works: list[tuple[Integers, float]],
        is_paired: Booleans,
    ) -> After:
        match item:
            case Work():
                label = f"{DIRECTIONS[direction]}: {item.label}"
                duration_s: Floats | float = item.duration_s
                if item.in_pairs:
                    duration_s = np.where(is_paired[:, None], item.duration_s, 0.0)
                if item.but_in_pairs:
                    duration_s = np.where(is_paired[:, None], 0.0, item.duration_s)
                works.append((self._add_work(label, duration_s, stage, after), item.duration_s))
                return (works[-1][0],)
            case Collective():
                return self.traffic.collective(item, stage, after)
            case Beside():
                sent = inner = after
                for each in item.traffic:
                    sent = self.traffic.collective(each, stage, sent)
                if item.in_pairs:
                    inner = (behind(self.graph, sent, after, ~is_paired),)
                for each_item in item.items:
                    inner = self._add_item(each_item, direction, stage, inner, works, is_paired)
                return (*sent, *inner)

    def _add_work(self, label: str, duration_s: Floats | float, stage: int, after: After) -> Integers:
        return self._add_operator(label, duration_s / self.speed[stage][None, :], stage, after)

    def _add_operator(self, label: str, duration_s: Floats | float, stage: int, after: After) -> Integers:
        shape = np.broadcast_shapes(*(each.shape for each in after))
        if label not in self._labels:
            numbers = range(shape[0])
            self._labels[label] = self.graph.names([f"{label} #{number}" for number in numbers])
        return self.graph.add(
            self._labels[label][:, None],
            duration_s=duration_s,
            resource=stage * self.speed.shape[1] + np.arange(self.speed.shape[1])[None, :],
            after=after,
        ).reshape(shape)

    # Order of the stages

    def _add_sends(self) -> dict[tuple[int, int], Integers]:
        """Adds messages between chunks of different stages; returns the tasks at which those of each pass have left."""
        left, arrivals = {}, {}
        last = self.shape.pipeline.num_chunks - 1
        for chunk in range(last):
            for direction, source, target in ((FORWARD, chunk, chunk + 1), (BACKWARD, chunk + 1, chunk)):
                done, taker = self._passes[direction, source].done, self._passes[direction, target].begin
                stages = self._stage(source), self._stage(target)
                if stages[0] == stages[1]:
                    self._wait(done, taker)
                    continue
                done = leaving(self.graph, self.shape.pipeline, self._passes, (direction, source))
                gone, arrived = self.traffic.send(self.parts.sent, stages, done)
                self._wait((arrived,), taker)
                left[direction, source], arrivals[direction, target] = gone, arrived
        self._wait(self._passes[FORWARD, last].done, self._passes[BACKWARD, last].begin)
        meet(self.graph, self.shape.pipeline, self._passes, arrivals)
        return left

    def _wait(self, before: After, after: Integers) -> None:
        for each in before:
            self.graph.add_edges(each, after)

    def _add_turns(self, left: dict[tuple[int, int], Integers]) -> None:
        """Makes each stage run one pass after another, in its order."""
        num_chunks = self.shape.pipeline.num_chunks
        for turns in turns_of_stages(self.shape.pipeline).tolist():
            counts: dict[int, int] = {}
            previous: tuple[int, int, int] | None = None
            for kind in turns:
                direction, chunk = divmod(kind, num_chunks)
                row = counts[kind] = counts.get(kind, -1) + 1
                begin = self._passes[direction, chunk].begin[row]
                if previous is not None:
                    self._follow(previous, begin, left)
                    self.shards.follow(previous, (direction, chunk, row), begin)
                previous = direction, chunk, row

    def _follow(
        self, previous: tuple[int, int, int], begin: Integers, left: dict[tuple[int, int], Integers]
    ) -> None:
        direction, chunk, row = previous
        for each in self._passes[direction, chunk].done:
            self.graph.add_edges(each[row], begin)
        if self.shape.sends_block and (direction, chunk) in left:
            self.graph.add_edges(left[direction, chunk][row], begin)

    # Traffic of the replicas

    def _chunks_of(self, stage: int) -> list[int]:
        chunks = range(self.shape.pipeline.num_chunks)
        return [chunk for chunk in chunks if self._stage(chunk) == stage]

    def _gather_parameters(self) -> None:
        """Adds gathers of ZeRO-1 and ZeRO-2: chunk after chunk, piece by piece, before the operators that need them."""
        if not self._gathers_once:
            return
        for stage in range(self.shape.pipeline.num_stages):
            begin = self.graph.add("start", after=[np.full((1, self.speed.shape[1]), NONE)]).reshape(1, -1)
            after: After = (begin,)
            for chunk in self._chunks_of(stage):
                first = self._passes[FORWARD, chunk]
                if not first.works:
                    continue
                num_buckets = int(self.shape.buckets.parameters[chunk])
                pieces = self._pieces(chunk, self.parts.gathers, num_buckets, is_late=False)
                for number, piece in enumerate(pieces):
                    for each in piece:
                        after = self.traffic.collective(each, stage, after)
                    self._wait(after, first.at(number / len(pieces))[:1])
            if not self.shape.buckets.parameters.any():
                for chunk in self._chunks_of(stage):
                    self._wait(after, self._passes[FORWARD, chunk].begin[:1])

    @property
    def _gathers_once(self) -> bool:
        return self.shape.zero_stage in GATHERS_ONCE and not self.shards.regathers

    def _reduce_gradients(self, stage: int) -> After:
        """Adds what replicas reduce once per step; returns the tasks for which the stage's weight update waits."""
        pipeline = self.shape.pipeline
        last = num_directions(pipeline.schedule) - 1
        ended = tuple(
            each[-1:] for chunk in self._chunks_of(stage) for each in self._passes[last, chunk].done
        )
        after: After = () if self.shape.buckets.gradients.any() else ended
        for chunk in reversed(self._chunks_of(stage)):
            final = self._passes[last, chunk]
            if not final.works:
                continue
            num_buckets = int(self.shape.buckets.gradients[chunk])
            pieces = self._pieces(chunk, self._reduced_once, num_buckets, is_late=True)
            for number, piece in enumerate(pieces):
                share = (number + 1) / len(pieces)
                ready = final.at(share)[-1:], *self.shards.last_of_parts(chunk, share)
                for each in piece:
                    after = self.traffic.collective(each, stage, (*after, *ready))
        return (*ended, *after, *self.shards.reduced(stage))

    def _pieces(
        self, chunk: int, exchanged: Exchanged, num_buckets: int, *, is_late: bool
    ) -> list[tuple[Collective, ...]]:
        """Cuts what is exchanged of a chunk into consecutive pieces; ZeRO-2 has a start-up and a ramp for each part."""
        count, whole = max(1, num_buckets), exchanged(self.parts.chunk_weights(chunk))
        if self.shape.zero_stage != FIRST_BY_PARTS:
            return pieces_of(whole, count, is_late=is_late)
        parts = [self.parts.weights_of(kind).trained for kind in self.parts.kinds[chunk]]
        return even_pieces(whole, count, [exchanged(weights) for weights in parts if weights.is_any])

    def _sum_whole_gradients(self, stage: int, complete: Integers) -> Integers:
        """Adds what tensor-parallel ranks of a stage sum up once its gradients are complete; returns the tasks that end it."""
        after: After = (complete,)
        for each in self.parts.between_tensor_ranks(self._chunks_of(stage)):
            after = self.traffic.collective(each, stage, after)
        return self._complete(after)

    def _reduced_once(self, weights: ChunkWeights) -> tuple[Collective, ...]:
        """What replicas reduce of weights once per step.

        From ZeRO-2 on that is only the sum between copies of hybrid sharding, and the last group of ZeRO-2 in a pipeline if it
        hides behind nothing.
        """
        copies = self.parts.between_copies(weights)
        if self.shape.zero_stage >= REDUCES_OFTEN and not self.shards.follows_groups:
            return copies
        return (*self.parts.reductions(weights), *copies)

    def _reduced_last(self, chunk: int) -> tuple[Collective, ...]:
        """What replicas reduce of a chunk after its last gradients, including the last group of ZeRO-2 in a pipeline."""
        weights = self.parts.chunk_weights(chunk)
        if self.shape.zero_stage != REDUCES_OFTEN or self.shape.pipeline.num_stages == 1:
            return self._reduced_once(weights)
        return (*self.parts.reductions(weights), *self._reduced_once(weights))

    def _complete(self, reduced: After) -> Integers:
        """Tasks at which all gradients of each accelerator of one stage are complete, `(1, R)`."""
        num_roles = self.speed.shape[1]
        complete = self.graph.add("gradients complete", after=[np.full(num_roles, NONE)])
        for each in reduced:
            self.graph.add_edges(each, complete[None, :])
        return complete.reshape(1, num_roles)

    def _add_optimizer(self, reduced: list[After]) -> None:
        """Adds the sum of a tied embedding's gradients, the norm of all gradients, and the update of the weights."""
        num_roles = self.speed.shape[1]
        complete = [
            self._sum_whole_gradients(stage, self._complete(each)) for stage, each in enumerate(reduced)
        ]
        if self._has_split_ends and self.parts.tied is not None:
            ends = complete[0], complete[-1]
            complete[0], complete[-1] = self.traffic.tied(self.parts.tied, (0, len(complete) - 1), ends)
        for stage, normed in enumerate(self.traffic.norm(complete)):
            self.graph.add(
                OPTIMIZER,
                duration_s=self.shape.optimizer_s / self.speed[stage][None, :],
                resource=stage * num_roles + np.arange(num_roles)[None, :],
                after=[normed],
            )

    @property
    def _has_split_ends(self) -> bool:
        pipeline = self.shape.pipeline
        return (
            self._stage(0) != self._stage(pipeline.num_chunks - 1) and self.parts.rank.workload.lora is None
        )
