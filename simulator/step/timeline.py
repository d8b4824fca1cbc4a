"""What does every stage of the pipeline do, and when? One step of one plan event by event, and where its seconds go.

The pipeline is that of `simulator.step.step`, played by the kernel of `simulator.pipeline.schedule`. Everything else that holds
a stage up stands around its forwards and backwards: blocking sends, waits (`simulator.step.waits`), exposed gradients, and the
optimizer. Every second of every stage has its event, and the mean over the stages is the reported breakdown.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.domain.job import Job
from simulator.domain.plan import Plan, PlanTable
from simulator.errors import InputError, Problem
from simulator.layout.chunks import split_layers
from simulator.machine.rank import Rank
from simulator.pipeline.kernel import streamed_end_s
from simulator.pipeline.schedule import PipelineTimeline, pipeline_timeline
from simulator.step.step import StepParts, step_parts
from simulator.step.step_events import PASSES, EventKind, StageSeconds, StepEvents, events_of, stage_seconds
from simulator.step.waits import StageWork, waits_of
from simulator.table import Booleans, Floats, Integers

MOST_OPERATIONS = 200_000
"""Forwards and backwards of the longest step that is written event by event; as a trace that is about 70 MB."""


@dataclass(frozen=True, kw_only=True)
class StepTimeline:
    """One step of one plan."""

    num_stages: int
    num_chunks_per_stage: int
    num_micro_batches: int
    step_time_s: float
    """When all stages have updated their weights."""
    first_backward_s: float
    """When the first stage begins its first backward. That one takes no time if the stage holds only an embedding that is
    frozen or whose gradient comes later."""
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
    step_time_s = step.last_s + step.lent_s + step.summed_s + step.optimizer_s
    parts_of_step = (step.operations(), step.sends(), step.waits(), step.background(), step.ends())
    events = StepEvents.concatenate(parts_of_step)
    return StepTimeline(
        num_stages=step.num_stages,
        num_chunks_per_stage=step.num_chunks // step.num_stages,
        num_micro_batches=step.num_micro_batches,
        step_time_s=step_time_s,
        first_backward_s=step.first_backward_s,
        events=events.take(np.lexsort((events.end_s, events.start_s, events.is_background, events.stage))),
        stages=stage_seconds(events, step.num_stages),
    )


@dataclass(frozen=True, kw_only=True)
class _Reduced:
    """The r reductions of gradients of a step, in the order in which these are complete."""

    stages: Integers
    """`(r,)`."""
    chunks: Integers
    """`(r,)`."""
    spans_s: Floats
    """`(r, 2)`: when each begins and ends."""


@dataclass(frozen=True, kw_only=True)
class _Step:
    """The played pipeline of one design, k operations of C chunks, and the numbers around it."""

    played: PipelineTimeline
    direction: Integers
    """`(k,)`: the position in `PASSES` of each operation."""
    start_s: Floats
    """`(k,)`: when it begins to compute, once everything it needs is there."""
    delay_s: Floats
    """`(k,)`: by how much the traffic of the replicas makes its end later."""
    num_stages: int
    num_micro_batches: int
    stages: Integers
    """`(C,)`: the stage of each chunk."""
    send_s: float
    send_blocks_sender: bool
    hidden_s: Floats
    """`(3, C)`: how much of the traffic of experts is hidden in pairs, by direction and chunk."""
    exposed_s: dict[str, Floats]
    """`(3, C)`: exposed communication of one micro-batch by name, direction and chunk."""
    gathered_s: Floats
    """`(C, 2)`: when gathering the parameters of a chunk begins and ends."""
    reduced: _Reduced
    lent_s: float
    summed_s: float
    optimizer_s: float

    @classmethod
    def of(cls, parts: StepParts) -> _Step:
        """Plays the only row of the parts; raises `InputError` if that would be too long."""
        row = {name: np.asarray(column)[0] for name, column in parts.pipeline.items()}
        num_stages, num_micro_batches = int(row["num_stages"]), int(row["num_micro_batches"])
        num_chunks = num_stages * int(row["num_chunks_per_stage"])
        _refuse_too_many(2 * num_chunks * num_micro_batches)
        played = pipeline_timeline(**parts.pipeline)
        direction = _directions(played)
        stages = np.zeros(num_chunks, dtype=np.int64)
        stages[played.chunk] = played.stage
        return cls(
            played=played,
            direction=direction,
            start_s=_computing_s(played, _durations_s(row, direction)[direction, played.chunk]),
            delay_s=_delays_s(parts, played),
            num_stages=num_stages,
            num_micro_batches=num_micro_batches,
            stages=stages,
            send_s=float(row["send_s"]) if num_stages > 1 else 0.0,
            send_blocks_sender=bool(row["send_blocks_sender"]),
            hidden_s=_hidden_s(row),
            exposed_s=_exposed_s(parts),
            gathered_s=_gathered_s(row["parameter_gather_s"][:num_chunks], stages),
            reduced=_reduced(played, row),
            lent_s=float(parts.lent_s[0]),
            summed_s=float((parts.whole_gradient_s + parts.tied_gradient_s)[0]),
            optimizer_s=float(parts.optimizer_s[0]),
        )

    @property
    def num_chunks(self) -> int:
        """C."""
        return len(self.stages)

    @property
    def last_s(self) -> float:
        """When the last backward and the last reduction have ended."""
        return float(max(self.played.end_s.max(), self.reduced.spans_s.max()))

    @property
    def first_backward_s(self) -> float:
        """When the first stage begins its first backward, however long that takes."""
        ops = self.played
        return float(self.start_s[(ops.stage == 0) & ops.is_backward].min())

    def operations(self) -> StepEvents:
        """Forwards and backwards, and weight gradients where they are operations of their own."""
        ops = self.played
        codes = np.array([kind.code for kind in PASSES])
        exposed_s = {name: column[self.direction, ops.chunk] for name, column in self.exposed_s.items()}
        exposed_s["expert_comm_s"] -= ops.is_paired * self.hidden_s[self.direction, ops.chunk]
        return events_of(
            codes[self.direction],
            ops.stage,
            self.start_s,
            ops.end_s,
            chunk=ops.chunk,
            micro_batch=ops.micro_batch,
            exposed_s=exposed_s,
        )

    def sends(self) -> StepEvents:
        """Transfers of activations and gradients; a stage stands still during its sends if they block."""
        ops = self.played
        rows = np.flatnonzero(self._sends())
        return events_of(
            EventKind.SEND.code,
            ops.stage[rows],
            ops.leaves_s[rows],
            ops.leaves_s[rows] + self.send_s,
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

    def waits(self) -> StepEvents:
        """What the stages wait for until all backwards have ended."""
        ops = self.played
        free_s = ops.end_s + np.where(self._sends() & self.send_blocks_sender, self.send_s, 0.0)
        last_s = float(ops.end_s.max())
        last_delay_s = last_s - float((ops.end_s - self.delay_s).max())
        waits = []
        for stage in range(self.num_stages):
            own = ops.stage == stage
            work = StageWork(
                start_s=self.start_s[own], end_s=ops.end_s[own], free_s=free_s[own], delay_s=self.delay_s[own]
            )
            waits.append(waits_of(stage, work, last_s, last_delay_s))
        return StepEvents.concatenate(waits)

    def background(self) -> StepEvents:
        """All traffic of the replicas, hidden or not: parameters and gradients, chunk by chunk."""
        chunk, reduced = np.arange(self.num_chunks), self.reduced
        gather, sync = EventKind.PARAMETER_GATHER.code, EventKind.GRADIENT_SYNC.code
        return StepEvents.concatenate(
            [
                events_of(gather, self.stages, *self.gathered_s.T, chunk=chunk, is_background=True),
                events_of(sync, reduced.stages, *reduced.spans_s.T, chunk=reduced.chunks, is_background=True),
            ]
        )

    def ends(self) -> StepEvents:
        """What all stages end with: the last gradients, those that other ranks sum, and the update of the weights.

        All stages wait for the slowest reduction and the slowest sum, including that of a tied embedding between the ends of
        the model. The time by which passes are longer because they lend cores to the traffic of the replicas is counted here,
        too.
        """
        stages = np.arange(self.num_stages)
        backwards_end_s, lent_end_s = float(self.played.end_s.max()), self.last_s + self.lent_s
        summed_end_s = lent_end_s + self.summed_s
        sync, optimizer = EventKind.GRADIENT_SYNC.code, EventKind.OPTIMIZER.code
        return StepEvents.concatenate(
            [
                events_of(sync, stages, backwards_end_s, self.last_s),
                events_of(sync, stages, self.last_s, lent_end_s),
                events_of(sync, stages, lent_end_s, summed_end_s),
                events_of(optimizer, stages, summed_end_s, summed_end_s + self.optimizer_s),
            ]
        )


def _refuse_too_many(num_operations: int) -> None:
    if num_operations > MOST_OPERATIONS:
        rule = f"makes {num_operations:,} forwards and backwards in a step; at most {MOST_OPERATIONS:,} are written out"
        raise InputError([Problem(path="timeline", value="", rule=rule)])


def _directions(played: PipelineTimeline) -> Integers:
    """Returns the position in `PASSES` of every operation, `(k,)`."""
    return np.where(played.is_weight_gradient, 2, played.is_backward.astype(np.int64))


def _durations_s(row: dict[str, Floats], direction: Integers) -> Floats:
    """Returns how long one micro-batch takes in every chunk, `(3, C)` by direction."""
    backward_s = row["chunk_backward_s"]
    weight_s = row["chunk_weight_gradient_s"] if (direction == 2).any() else np.zeros_like(backward_s)
    return np.stack([row["chunk_forward_s"], backward_s - weight_s, weight_s])


def _hidden_s(row: dict[str, Floats]) -> Floats:
    """Returns by how much one micro-batch takes less in every chunk as one of a pair, `(3, C)` by direction."""
    forward_s, backward_s = row["chunk_hidden_forward_s"], row["chunk_hidden_backward_s"]
    return np.stack([forward_s, backward_s, np.zeros_like(backward_s)])


def _computing_s(played: PipelineTimeline, duration_s: Floats) -> Floats:
    """Returns when every operation begins to compute, `(k,)`: behind pieces of its parameters, never earlier than allowed."""
    return np.maximum(played.start_s, played.end_s - duration_s)


def _exposed_s(parts: StepParts) -> dict[str, Floats]:
    """Returns the exposed communication of the only row by name, each `(3, C)`; weight gradients expose nothing."""
    return {
        name: np.stack([there[0], back[0], np.zeros_like(back[0])])
        for (name, there), back in zip(
            parts.forward.columns().items(), parts.backward.columns().values(), strict=True
        )
    }


def _delays_s(parts: StepParts, played: PipelineTimeline) -> Floats:
    """Returns by how much gathered parameters delay the end of every operation, `(k,)`; reductions delay none."""
    columns = parts.pipeline.copy()
    columns["parameter_gather_s"] = np.zeros_like(columns["parameter_gather_s"])
    undelayed = pipeline_timeline(**columns)
    delays_s = np.empty(len(played.stage))
    delays_s[_by_name(played)] = played.end_s[_by_name(played)] - undelayed.end_s[_by_name(undelayed)]
    return delays_s


def _by_name(played: PipelineTimeline) -> Integers:
    """Returns the order of the operations by chunk, micro-batch and direction, which is the same whenever they run."""
    return np.lexsort((_directions(played), played.micro_batch, played.chunk))


def _completing(played: PipelineTimeline, row: dict[str, Floats]) -> Integers:
    """Returns the operations that complete gradients which are then reduced, `(r,)`, in the order in which they end.

    They are the last ones of every chunk, and of each of its groups of micro-batches if these are reduced.
    """
    is_gradient = played.is_weight_gradient if played.is_weight_gradient.any() else played.is_backward
    is_last = played.micro_batch == played.micro_batch.max()
    group = int(row["group_size"]) or int(row["num_stages"])
    ends_group = (played.micro_batch % group == group - 1) & (row["gradient_groups_s"][played.chunk] > 0.0)
    rows = np.flatnonzero(is_gradient & (is_last | ends_group))
    return rows[np.argsort(played.end_s[rows], kind="stable")]


def _latest_s(time_s: Floats, stages: Integers) -> Floats:
    """The latest time of each stage, `(P,)`, among times on stages, `(r,)`."""
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


def _reduced(played: PipelineTimeline, row: dict[str, Floats]) -> _Reduced:
    """Returns what is reduced, and when.

    A stage reduces in the order in which gradients are complete. With overlap, the pieces of a chunk follow what completes its
    gradients. Without it, the first reduction follows all work of the stage.
    """
    rows = _completing(played, row)
    chunks, stages = played.chunk[rows], played.stage[rows]
    is_last = played.micro_batch[rows] == played.micro_batch.max()
    sync_s = np.where(is_last, row["gradient_sync_s"][chunks], row["gradient_groups_s"][chunks])
    num_buckets, spans_s = row["num_overlap_buckets"][chunks], np.zeros((len(rows), 2))
    stages_end_s = _latest_s(played.end_s[rows], stages)
    free_s = np.zeros_like(stages_end_s) if num_buckets.any() else stages_end_s
    for place, stage in enumerate(stages):
        start_s, end_s = float(played.start_s[rows[place]]), float(played.end_s[rows[place]])
        busy_until_s, duration_s = float(free_s[stage]), float(sync_s[place])
        if num_pieces := int(num_buckets[place]):
            first_piece_s = start_s + (end_s - start_s) / num_pieces
            done_s = streamed_end_s(start_s, end_s - start_s, busy_until_s, duration_s, num_pieces)
            spans_s[place] = min(done_s, max(busy_until_s, first_piece_s)), done_s
        else:
            spans_s[place] = busy_until_s, busy_until_s + duration_s
        free_s[stage] = spans_s[place, 1]
    return _Reduced(stages=stages, chunks=chunks, spans_s=spans_s)
