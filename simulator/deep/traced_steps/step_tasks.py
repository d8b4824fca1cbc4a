"""Which tasks does a step on many accelerators consist of? Passes of micro-batches, traffic between them, the optimizer.

Used by `simulator.deep.traced_steps.extrapolate`, where traffic becomes flows, and by
`simulator.deep.traced_steps.chakra_export`, where it stays whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from simulator.deep.collectives.schedules import Traffic
from simulator.deep.playing.tasks import NONE, TaskGraphBuilder
from simulator.deep.traced_steps.division import (
    Bucket,
    boundary_bytes,
    buckets,
    local_parameter_bytes,
    shared_bytes,
    stages,
)
from simulator.deep.traced_steps.sharded import ShardedStage, bytes_of_layers
from simulator.deep.traced_steps.step_request import StepRequest
from simulator.deep.traces.parallelism import GradientSync, Parallelism, interleaved_order, stage_order
from simulator.deep.traces.trace import OperatorTrace, Phase
from simulator.table import Floats, Integers


def add_step(
    asked: StepRequest,
    graph: TaskGraphBuilder,
    traffic: Traffic,
    *,
    ended: dict[int, Integers] | None = None,
    played: Integers | None = None,
) -> Integers:
    """Adds the step of a trace on many accelerators to a graph; see `extrapolate`.

    Args:
        asked: the requested step.
        graph: the graph to which the tasks are added; resources 0 and up are the played accelerators.
        traffic: moves data between them.
        ended: filled with the tasks of each operator in its last micro-batch, `(replicas, parts)`.
        played: `(stages, replicas, parts)` accelerators that are played: the first replicas and parts, which the others
            repeat (`simulator.deep.traced_steps.fold`); default: all.

    Returns:
        The stage of each layer, `(num_layers,)`.

    Raises:
        InputError: the trace cannot be divided that way.
    """
    asked.check()
    ranks = asked.parallelism.ranks()
    step = _Step(
        trace=asked.micro_batch(),
        parallelism=asked.parallelism,
        graph=graph,
        traffic=traffic,
        speed=asked.speeds,
        ended={} if ended is None else ended,
        ranks=ranks,
        played=ranks if played is None else played,
    )
    step.add()
    return step.stage_of_layer


@dataclass(kw_only=True)
class _Step:
    """Adds the tasks of one step. Arrays of tasks are `(replicas, parts)`: the played ones of one stage."""

    trace: OperatorTrace
    """Trace of one micro-batch."""
    parallelism: Parallelism
    graph: TaskGraphBuilder
    traffic: Traffic
    speed: Floats
    ended: dict[int, Integers]
    """Tasks of each operator in its last micro-batch."""
    ranks: Integers
    """`(stages, replicas, parts)` all accelerators."""
    played: Integers
    """`(stages, replicas, parts)` accelerators that are played: the first replicas and parts."""

    def add(self) -> None:
        """Adds all tasks."""
        self.graph.add_resources(self.played.size)
        arrived = self._new_gates(), self._new_gates()
        forward, backward = np.full(arrived[0].shape, NONE), np.full(arrived[0].shape, NONE)
        for stage in range(self.parallelism.pipeline_parallel):
            self._add_stage(stage, arrived, (forward, backward))
        sent = boundary_bytes(self.trace, self.chunk_of_layer)
        for chunk in range(len(forward) - 1):
            self._send(chunk, chunk + 1, sent[chunk], forward, arrived[0])
            self._send(chunk + 1, chunk, sent[chunk], backward, arrived[1])

    @cached_property
    def resources(self) -> Integers:
        """`(stages, replicas, parts)` compute streams of the played accelerators."""
        return np.arange(self.played.size).reshape(self.played.shape)

    @cached_property
    def chunk_of_layer(self) -> Integers:
        """Chunks are numbered in the order in which a micro-batch passes them; each stage has every p-th one."""
        return stages(self.trace, self.parallelism.pipeline_parallel * self.parallelism.num_chunks)

    @cached_property
    def stage_of_layer(self) -> Integers:
        return np.asarray(self.chunk_of_layer % self.parallelism.pipeline_parallel)

    @cached_property
    def duration_s(self) -> Floats:
        """`(n,)` duration on one of the accelerators that share an operator."""
        split = 1.0 / self.parallelism.tensor_parallel
        return np.where(self.trace.can_split, split, 1.0) * self.trace.duration_s

    @cached_property
    def parameter_bytes(self) -> Floats:
        return local_parameter_bytes(self.trace, self.parallelism.tensor_parallel)

    @cached_property
    def shared_bytes(self) -> Floats:
        is_shared = self.parallelism.tensor_parallel > 1
        return shared_bytes(self.trace) if is_shared else np.zeros(len(self.trace))

    def _new_gates(self) -> Integers:
        """Joins that wait for the messages to a chunk, `(chunks, micro-batches, replicas, parts)`."""
        num_stages, *inside = self.played.shape
        shape = (num_stages * self.parallelism.num_chunks, self.parallelism.num_microbatches, *inside)
        return self.graph.add("arrived", after=[np.full(shape, NONE)]).reshape(shape)

    def _add_stage(
        self, stage: int, arrived: tuple[Integers, Integers], done: tuple[Integers, Integers]
    ) -> None:
        """Adds what a stage does, and records when each micro-batch has passed its chunks.

        Args:
            stage: its number.
            arrived: gates of all chunks, `(chunks, micro-batches, replicas, parts)`, forward and backward.
            done: the same, to be filled in.
        """
        before = np.full(self.played.shape[1:], NONE)
        shards = self._shards(stage)
        for is_forward, chunk, microbatch in self._turns(stage):
            way, phase = (0, Phase.FORWARD) if is_forward else (1, Phase.BACKWARD)
            gate = arrived[way][chunk, microbatch]
            self.graph.add_edges(before, gate)
            operators = self._operators(chunk, phase)
            before = self._add_operators(stage, operators, gate, microbatch, shards)
            done[way][chunk, microbatch] = before
        summed = self._add_sync(stage, before) if shards is None else shards.scattered
        self._add_optimizer(stage, self.graph.add("gradients ready", after=[before, summed]))

    def _turns(self, stage: int) -> list[tuple[bool, int, int]]:
        """What a stage does, in order: whether forward, which chunk, which micro-batch."""
        cut = self.parallelism
        if cut.num_chunks == 1:
            order = stage_order(cut.order, stage, cut.pipeline_parallel, cut.num_microbatches)
            return [(is_forward, stage, microbatch) for is_forward, microbatch in order]
        interleaved = interleaved_order(stage, cut.pipeline_parallel, cut.num_chunks, cut.num_microbatches)
        return [
            (is_forward, chunk * cut.pipeline_parallel + stage, number)
            for is_forward, chunk, number in interleaved
        ]

    def _operators(self, chunk: int, phase: Phase) -> Integers:
        is_here = self.trace.is_in(phase)
        is_here[is_here] = self.chunk_of_layer[self.trace.layer[is_here]] == chunk
        return np.flatnonzero(is_here)

    def _shards(self, stage: int) -> ShardedStage | None:
        """The traffic of a stage's weights, if its replicas keep parts of them."""
        if self.parallelism.sync is not GradientSync.SHARDED or self.parallelism.data_parallel == 1:
            return None
        layer_bytes, gradient_bytes = bytes_of_layers(self.trace, self.parameter_bytes)
        return ShardedStage(
            graph=self.graph,
            traffic=self.traffic,
            ranks=self.ranks[stage],
            shape=self.played[stage].shape,
            layer_bytes=layer_bytes,
            gradient_bytes=gradient_bytes,
        )

    def _add_operators(
        self,
        stage: int,
        operators: Integers,
        after: Integers,
        microbatch: int,
        shards: ShardedStage | None,
    ) -> Integers:
        """Adds operators one after another, with the traffic between them; records their tasks in `ended`."""
        for run in self._runs(operators):
            if shards is not None:
                after = shards.gather(int(self.trace.layer[run[0]]), after)
            after = self._add_run(stage, run, self.duration_s[run], after, microbatch)
            self.ended.update(zip(run.tolist(), np.moveaxis(after, -1, 0), strict=True))
            if shards is not None:
                shards.scatter(run, after[..., -1])
            after = self._share(stage, int(run[-1]), after[..., -1])
        return after

    def _runs(self, operators: Integers) -> Iterator[Integers]:
        """Cuts the operators after each that is followed by traffic, and between layers that are gathered."""
        is_cut = self.shared_bytes[operators[:-1]] > 0
        if self.parallelism.sync is GradientSync.SHARDED:
            is_cut |= np.diff(self.trace.layer[operators]) != 0
        cuts = np.flatnonzero(is_cut) + 1
        yield from (run for run in np.split(operators, cuts) if len(run))

    def _add_run(
        self, stage: int, run: Integers, duration_s: Floats, after: Integers, microbatch: int
    ) -> Integers:
        """Adds operators without traffic between them; returns their tasks, `(replicas, parts, k)`."""
        suffix = f" #{microbatch}" if self.parallelism.num_microbatches > 1 else ""
        names = self.graph.names([self.trace.names[operator] + suffix for operator in run.tolist()])
        speed = self.speed[self.played[stage]][..., None]
        tasks = self.graph.add(
            names, duration_s=duration_s / speed, resource=self.resources[stage][..., None]
        )
        tasks = tasks.reshape(*self.played[stage].shape, len(run))
        self.graph.add_edges(after, tasks[..., 0])
        self.graph.add_edges(tasks[..., :-1], tasks[..., 1:])
        return tasks

    def _share(self, stage: int, operator: int, after: Integers) -> Integers:
        """Adds the exchange between accelerators that share an operator."""
        num_bytes = float(self.shared_bytes[operator])
        if num_bytes == 0.0:
            return after
        if self.trace.phase[operator] == Phase.FORWARD.code:
            return self.traffic.all_gather(self.ranks[stage], num_bytes, after)
        return self.traffic.all_reduce(self.ranks[stage], num_bytes, after)

    def _add_sync(self, stage: int, backward_done: Integers) -> Integers:
        """Adds the all-reduce of gradients over replicas, bucket by bucket; returns the tasks that end the last one."""
        if self.parallelism.data_parallel == 1:
            return backward_done
        summed = np.full(backward_done.shape, NONE)
        for number, bucket in enumerate(self._buckets(stage)):
            is_early = self.parallelism.sync is GradientSync.BUCKETS
            ready = self.ended[bucket.ready] if is_early else backward_done
            begin = self.graph.add(f"bucket {number}", after=[ready, summed]).reshape(ready.shape)
            summed = self.traffic.all_reduce(self.ranks[stage].T, bucket.num_bytes, begin.T).T
        return summed

    def _buckets(self, stage: int) -> Iterator[Bucket]:
        """The buckets of a stage; its parameters are those whose gradients its operators complete."""
        trace, parallelism = self.trace, self.parallelism
        ready = trace.gradient_ready[trace.parameters]
        here = trace.parameters[self.stage_of_layer[trace.layer[ready]] == stage]
        is_early = parallelism.sync is GradientSync.BUCKETS
        sizes = (parallelism.first_bucket_bytes, parallelism.bucket_bytes) if is_early else (np.inf, np.inf)
        yield from buckets(here, self.parameter_bytes, trace.gradient_ready, *sizes)

    def _add_optimizer(self, stage: int, after: Integers) -> None:
        """Adds the optimizer, whose time is proportional to the stage's part of the parameters."""
        trace = self.trace
        operators = np.flatnonzero(trace.is_in(Phase.OPTIMIZER))
        if len(operators):
            share = sum(bucket.num_bytes for bucket in self._buckets(stage)) / (trace.parameter_bytes or 1.0)
            if self.parallelism.sync is GradientSync.SHARDED:
                share /= self.parallelism.data_parallel
            tasks = self._add_run(
                stage, operators, share * trace.duration_s[operators], after.reshape(self.played.shape[1:]), 0
            )
            self.ended.update(zip(operators.tolist(), np.moveaxis(tasks, -1, 0), strict=True))

    def _send(self, source: int, target: int, num_bytes: float, done: Integers, arrived: Integers) -> None:
        """Sends the output of each micro-batch of a chunk to another chunk, from each accelerator to its counterpart."""
        num_stages = self.parallelism.pipeline_parallel
        here, there = (
            np.broadcast_to(self.played[chunk % num_stages], done[source].shape).ravel()
            for chunk in (source, target)
        )
        sent = self.traffic.send(here, there, num_bytes, done[source].ravel(), "send")
        self.graph.add_edges(sent, arrived[target].ravel())
