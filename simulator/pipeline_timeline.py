"""What does every stage of the pipeline do, and when? One step of one plan event by event, and where its seconds go.

The pipeline is that of `simulator.step`, played by the kernel of `simulator.pipeline`. Around its forwards and backwards
stands what else holds a stage up: sends that block, parameters and gradients that nothing hides, and the optimizer. A
stage that waits for inputs of other stages is in a bubble; one that has them and still waits, waits for communication.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simulator.chunks import split_layers
from simulator.errors import InputError, Problem
from simulator.job import Job
from simulator.pipeline import PipelineTimeline, pipeline_timeline
from simulator.pipeline_kernel import streamed_end_s
from simulator.plan import Plan, PlanTable
from simulator.rank import Rank
from simulator.record import Choice
from simulator.step import StepParts, step_parts
from simulator.table import Booleans, Floats, Integers, Table

MOST_OPERATIONS = 200_000
"""Forwards and backwards of the longest step that is written out event by event; as a trace that is about 70 MB."""
ALL = -1
"""Chunk and micro-batch of events that concern all of them."""


class EventKind(Choice):
    """What happens."""

    FORWARD = "forward"
    BACKWARD = "backward"
    SEND = "send"
    """An activation or a gradient travels to a neighbouring stage."""
    PARAMETER_GATHER = "parameter_gather"
    """Weights are gathered from the replicas."""
    GRADIENT_SYNC = "gradient_sync"
    """Gradients are reduced over the replicas; those of a tied embedding between first and last stage."""
    OPTIMIZER = "optimizer"
    WEIGHT_GRADIENT = "weight_gradient"
    """The part of a backward that ZB-H1 and ZB-V do later."""


@dataclass(frozen=True, kw_only=True)
class StepEvents(Table):
    """Events of one step, `(k,)`; those of one stage never overlap, but for the ones in the background."""

    kind: Integers
    """Codes of `EventKind`."""
    stage: Integers
    chunk: Integers
    """Position of the chunk in the model, or `ALL`."""
    micro_batch: Integers
    """Number of the micro-batch, or `ALL`."""
    start_s: Floats
    end_s: Floats
    communication_s: Floats
    """How much of it is communication that nothing hides."""
    is_background: Booleans
    """Whether the stage works on meanwhile."""


@dataclass(frozen=True, kw_only=True)
class StageSeconds(Table):
    """One step by what each stage spends it on, `(p,)`; the columns sum to the step time."""

    busy_s: Floats
    """Forwards and backwards, recomputation included, exposed communication not."""
    exposed_communication_s: Floats
    """Collectives, blocking sends, parameters and gradients that nothing hides."""
    bubble_s: Floats
    """Waiting for other stages."""
    optimizer_s: Floats


@dataclass(frozen=True, kw_only=True)
class StepTimeline:
    """One step of one plan."""

    num_stages: int
    num_chunks_per_stage: int
    num_micro_batches: int
    step_time_s: float
    """When all stages have updated their weights."""
    events: StepEvents
    """By stage, and there by time."""
    stages: StageSeconds


def step_timeline(job: Job, plan: Plan) -> StepTimeline:
    """Returns one step of a plan, event by event.

    Args:
        job: the job.
        plan: a plan with a valid layout (`constraints.layout`).

    Raises:
        InputError: the step has too many operations, or its schedule does not exist.
    """
    plans = PlanTable.from_plans([plan])
    parts = step_parts(
        Rank.of(job, plans), split_layers(job.workload.model, plans, job.workload.stage_layers)
    )
    step = _Step.of(parts)
    step_time_s = step.last_s + step.tied_s + step.optimizer_s
    parts_of_step = (step.operations(), step.sends(), *step.replica_traffic(), step.tied(), step.optimizer())
    events = StepEvents.concatenate(parts_of_step)
    return StepTimeline(
        num_stages=step.num_stages,
        num_chunks_per_stage=step.num_chunks // step.num_stages,
        num_micro_batches=step.num_micro_batches,
        step_time_s=step_time_s,
        events=events.take(np.lexsort((events.end_s, events.start_s, events.is_background, events.stage))),
        stages=_stage_seconds(events, step.num_stages, step_time_s),
    )


def _stage_seconds(events: StepEvents, num_stages: int, step_time_s: float) -> StageSeconds:
    own = events.take(~events.is_background)

    def per_stage(seconds: Floats) -> Floats:
        return np.asarray(np.bincount(own.stage, seconds, num_stages), dtype=np.float64)

    is_optimizer = own.kind == EventKind.OPTIMIZER.code
    working_s = own.end_s - own.start_s - own.communication_s
    occupied_s = per_stage(own.end_s - own.start_s)
    return StageSeconds(
        busy_s=per_stage(np.where(is_optimizer, 0.0, working_s)),
        exposed_communication_s=per_stage(own.communication_s),
        bubble_s=np.maximum(0.0, step_time_s - occupied_s),  # rounding must not make it negative
        optimizer_s=per_stage(np.where(is_optimizer, working_s, 0.0)),
    )


@dataclass(frozen=True, kw_only=True)
class _Step:
    """The played pipeline of one design, and the numbers around it; C chunks."""

    played: PipelineTimeline
    num_stages: int
    num_micro_batches: int
    stages: Integers
    """`(C,)`: the stage of each chunk."""
    send_s: float
    send_blocks_sender: bool
    num_overlap_buckets: int
    compute_s: Floats
    """`(3, C)`: forward, backward and weight gradient of one micro-batch without exposed communication."""
    gather_s: Floats
    """`(C,)`: gathering the parameters of a chunk."""
    gathered_s: Floats
    """`(C, 2)`: when that begins and ends."""
    synced_s: Floats
    """`(C, 2)`: when the reduction of a chunk's gradients begins and ends."""
    tied_s: float
    optimizer_s: float

    @classmethod
    def of(cls, parts: StepParts) -> _Step:
        """Plays the only row of the parts; raises `InputError` where that would be too long."""
        row = {name: np.asarray(column)[0] for name, column in parts.pipeline.items()}
        num_stages, num_micro_batches = int(row["num_stages"]), int(row["num_micro_batches"])
        num_chunks = num_stages * int(row["num_chunks_per_stage"])
        _refuse_too_many(2 * num_chunks * num_micro_batches)
        played = pipeline_timeline(**parts.pipeline)
        num_buckets = int(row["num_overlap_buckets"])
        stages = np.zeros(num_chunks, dtype=np.int64)
        stages[played.chunk] = played.stage
        gather_s, sync_s = row["parameter_gather_s"][:num_chunks], row["gradient_sync_s"][:num_chunks]
        return cls(
            played=played,
            num_stages=num_stages,
            num_micro_batches=num_micro_batches,
            stages=stages,
            send_s=float(row["send_s"]) if num_stages > 1 else 0.0,
            send_blocks_sender=bool(row["send_blocks_sender"]),
            num_overlap_buckets=num_buckets,
            compute_s=_compute_s(parts, played)[:, :num_chunks],
            gather_s=gather_s,
            gathered_s=_gathered_s(gather_s, stages),
            synced_s=_synced_s(_last_gradients_s(played, num_chunks), sync_s, stages, num_buckets),
            tied_s=float(parts.tied_gradient_s[0]),
            optimizer_s=float(parts.optimizer_s[0]),
        )

    @property
    def num_chunks(self) -> int:
        """C."""
        return len(self.stages)

    @property
    def last_s(self) -> float:
        """When the last backward and the last reduction have ended."""
        return float(max(self.played.end_s.max(), self.synced_s.max()))

    def operations(self) -> StepEvents:
        """Forwards and backwards, and weight gradients where they are operations of their own."""
        ops = self.played
        duration_s = ops.end_s - ops.start_s
        direction = np.where(ops.is_weight_gradient, 2, ops.is_backward.astype(np.int64))
        compute_s = self.compute_s[direction, ops.chunk]
        codes = [kind.code for kind in (EventKind.FORWARD, EventKind.BACKWARD, EventKind.WEIGHT_GRADIENT)]
        kinds = np.array(codes)[direction]
        return _events(
            kinds,
            ops.stage,
            ops.start_s,
            ops.end_s,
            chunk=ops.chunk,
            micro_batch=ops.micro_batch,
            communication_s=np.maximum(0.0, duration_s - compute_s),
        )

    def sends(self) -> StepEvents:
        """Transfers of activations and gradients; the stage stands still for them if they block."""
        ops = self.played
        rows = np.flatnonzero(self._sends() & (self.send_s > 0.0))
        return _events(
            EventKind.SEND.code,
            ops.stage[rows],
            ops.end_s[rows],
            ops.end_s[rows] + self.send_s,
            chunk=ops.chunk[rows],
            micro_batch=ops.micro_batch[rows],
            is_background=not self.send_blocks_sender,
        )

    def _sends(self) -> Booleans:
        """Whether each operation sends what it has computed to another stage, `(k,)`."""
        ops = self.played
        leaves = np.diff(self.stages) != 0
        leaves_forward, leaves_backward = np.append(leaves, False), np.insert(leaves, 0, False)
        sends = np.where(ops.is_backward, leaves_backward[ops.chunk], leaves_forward[ops.chunk])
        return np.asarray(sends & ~ops.is_weight_gradient)

    def replica_traffic(self) -> tuple[StepEvents, ...]:
        """Parameters and gradients: what holds the stages up, and in the background all of it."""
        chunk = np.arange(self.num_chunks)
        stage = self.stages
        gather, sync = EventKind.PARAMETER_GATHER.code, EventKind.GRADIENT_SYNC.code
        return (
            self._exposed_gathers(),
            self._exposed_syncs(),
            _events(gather, stage, *self.gathered_s.T, chunk=chunk, is_background=True),
            _events(sync, stage, *self.synced_s.T, chunk=chunk, is_background=True),
        )

    def _exposed_gathers(self) -> StepEvents:
        """From a first forward's inputs to its first piece of parameters."""
        ops = self.played
        is_first = (ops.micro_batch == 0) & _is_forward(ops) & (self.gather_s[ops.chunk] > 0.0)
        rows = np.flatnonzero(is_first)
        ready_s = np.minimum(self._inputs_ready_s()[rows], ops.start_s[rows])
        # Without overlap a stage gathers everything at once, before it looks at any input.
        kind = EventKind.PARAMETER_GATHER.code
        return _events(kind, ops.stage[rows], ready_s, ops.start_s[rows], chunk=ops.chunk[rows])

    def _inputs_ready_s(self) -> Floats:
        """When the stage was free and the activation there, for every forward, `(k,)`; of no meaning for backwards."""
        ops = self.played
        is_blocked = self._sends() & self.send_blocks_sender
        free_s = np.where(is_blocked, ops.end_s + self.send_s, ops.end_s)
        is_first_of_stage = np.diff(ops.stage, prepend=-1) != 0
        free_s = np.where(is_first_of_stage, 0.0, np.roll(free_s, 1))
        forward_end_s = np.zeros((self.num_chunks, self.num_micro_batches))
        forwards = _is_forward(ops)
        forward_end_s[ops.chunk[forwards], ops.micro_batch[forwards]] = ops.end_s[forwards]
        is_sent = np.diff(self.stages, prepend=self.stages[0]) != 0
        arrival_s = (
            forward_end_s[ops.chunk - 1, ops.micro_batch] + np.where(is_sent, self.send_s, 0.0)[ops.chunk]
        )
        return np.maximum(free_s, np.where(ops.chunk > 0, arrival_s, 0.0))

    def _exposed_syncs(self) -> StepEvents:
        """From the last backward of a stage, and its send, to the end of its last reduction."""
        stage = np.arange(self.num_stages)
        backward_end_s = _latest_s(_last_gradients_s(self.played, self.num_chunks)[:, 1], self.stages)
        is_blocked = (stage > 0) & self.send_blocks_sender
        start_s = backward_end_s + np.where(is_blocked, self.send_s, 0.0)
        end_s = _latest_s(self.synced_s[:, 1], self.stages)
        return _events(EventKind.GRADIENT_SYNC.code, stage, start_s, np.maximum(start_s, end_s))

    def tied(self) -> StepEvents:
        """All-reduce of a tied embedding's gradient; the stages between first and last wait for it."""
        ends = np.array([0, self.num_stages - 1])
        return _events(EventKind.GRADIENT_SYNC.code, ends, self.last_s, self.last_s + self.tied_s)

    def optimizer(self) -> StepEvents:
        """Update of the weights by all stages."""
        start_s = self.last_s + self.tied_s
        stages = np.arange(self.num_stages)
        end_s = start_s + self.optimizer_s
        return _events(EventKind.OPTIMIZER.code, stages, start_s, end_s, communication_s=0.0)


def _refuse_too_many(num_operations: int) -> None:
    if num_operations > MOST_OPERATIONS:
        rule = f"makes {num_operations:,} forwards and backwards in a step; at most {MOST_OPERATIONS:,} are written out"
        raise InputError([Problem(path="timeline", value="", rule=rule)])


def _events(
    kind: npt.ArrayLike,
    stage: Integers,
    start_s: npt.ArrayLike,
    end_s: npt.ArrayLike,
    *,
    chunk: npt.ArrayLike = ALL,
    micro_batch: npt.ArrayLike = ALL,
    communication_s: npt.ArrayLike | None = None,
    is_background: bool = False,
) -> StepEvents:
    """Returns the events that take any time; those without a share of communication are communication."""
    columns = [np.broadcast_to(column, len(stage)) for column in (start_s, end_s)]
    starts_s, ends_s = (np.asarray(column, dtype=np.float64) for column in columns)
    shares_s = ends_s - starts_s if communication_s is None else communication_s
    events = StepEvents(
        kind=np.broadcast_to(np.asarray(kind, dtype=np.int64), len(stage)),
        stage=stage,
        chunk=np.broadcast_to(np.asarray(chunk, dtype=np.int64), len(stage)),
        micro_batch=np.broadcast_to(np.asarray(micro_batch, dtype=np.int64), len(stage)),
        start_s=starts_s,
        end_s=ends_s,
        communication_s=np.broadcast_to(np.asarray(shares_s, dtype=np.float64), len(stage)),
        is_background=np.full(len(stage), is_background),
    )
    return events.take(ends_s > starts_s)


def _is_forward(played: PipelineTimeline) -> Booleans:
    return np.asarray(~played.is_backward & ~played.is_weight_gradient)


def _compute_s(parts: StepParts, played: PipelineTimeline) -> Floats:
    """Forward, backward and weight gradient of one micro-batch without exposed communication, `(3, C)`."""
    backward_s = parts.backward_compute_s[0]
    has_weight_gradients = played.is_weight_gradient.any()
    weight_s = np.asarray(parts.pipeline.get("chunk_weight_gradient_s", np.zeros((1, 1))))[0]
    weight_s = weight_s * has_weight_gradients + np.zeros_like(backward_s)
    return np.stack([parts.forward_compute_s[0], backward_s - weight_s, weight_s])


def _last_gradients_s(played: PipelineTimeline, num_chunks: int) -> Floats:
    """Start and end of what completes the gradients of every chunk, `(C, 2)`."""
    spans_s = np.zeros((num_chunks, 2))
    has_weight_gradients = played.is_weight_gradient.any()
    is_gradient = played.is_weight_gradient if has_weight_gradients else played.is_backward
    rows = np.flatnonzero(is_gradient & (played.micro_batch == played.micro_batch.max()))
    spans_s[played.chunk[rows]] = np.column_stack([played.start_s[rows], played.end_s[rows]])
    return spans_s


def _latest_s(time_s: Floats, stages: Integers) -> Floats:
    """The latest time of each stage, `(P,)`, among those of its chunks, `(C,)`."""
    latest_s = np.zeros(int(stages.max()) + 1)
    np.maximum.at(latest_s, stages, time_s)
    return latest_s


def _gathered_s(gather_s: Floats, stages: Integers) -> Floats:
    """When the parameters of every chunk are gathered, `(C, 2)`: one chunk of a stage after another, from time zero."""
    spans_s, free_s = np.zeros((len(stages), 2)), np.zeros(int(stages.max()) + 1)
    for chunk, stage in enumerate(stages):
        spans_s[chunk] = free_s[stage], free_s[stage] + gather_s[chunk]
        free_s[stage] = spans_s[chunk, 1]
    return spans_s


def _synced_s(gradients_s: Floats, sync_s: Floats, stages: Integers, num_buckets: int) -> Floats:
    """When the gradients of every chunk are reduced, `(C, 2)`, from what completes them, `(C, 2)`.

    Chunks of a stage follow each other from the last to the first, as their last backwards do. With overlap a chunk's
    pieces follow what completes its gradients; without, the first reduction follows all work of the stage.
    """
    spans_s = np.zeros_like(gradients_s)
    stages_end_s = _latest_s(gradients_s[:, 1], stages)
    free_s = np.zeros_like(stages_end_s) if num_buckets else stages_end_s
    for chunk in reversed(range(len(sync_s))):
        stage = stages[chunk]
        start_s, end_s = gradients_s[chunk]
        busy_until_s, duration_s = float(free_s[stage]), float(sync_s[chunk])
        if num_buckets:
            first_piece_s = start_s + (end_s - start_s) / num_buckets
            done_s = streamed_end_s(start_s, end_s - start_s, busy_until_s, duration_s, num_buckets)
            spans_s[chunk] = min(done_s, max(busy_until_s, first_piece_s)), done_s
        else:
            spans_s[chunk] = busy_until_s, busy_until_s + duration_s
        free_s[stage] = spans_s[chunk, 1]
    return spans_s
