"""How does each stage of the pipeline spend one step? The timeline of a plan as a value that serialises."""

from __future__ import annotations

import numpy as np

from simulator.record import Record
from simulator.step.step_events import EventKind
from simulator.step.timeline import StepTimeline


class StageTime(Record):
    """How one stage spends one step; the parts sum to the step.

    The mean over all stages is `step_seconds` of the design.
    """

    stage: int
    """Number of the stage, from 0; the first holds the embedding, the last the output layer."""
    compute_s: float
    """Forward and backward passes, including recomputation but not exposed communication."""
    tensor_comm_s: float
    """Exposed collectives of tensor and context parallelism."""
    expert_comm_s: float
    """Exposed all-to-alls of expert parallelism."""
    shard_comm_s: float
    """Exposed gathers and reductions of ZeRO-2 and ZeRO-3 in every micro-batch."""
    host_copy_s: float
    """Exposed copies of activations and gradients to main memory and back."""
    pipeline_send_s: float
    """Sends to the neighbouring stages, as far as they hold the stage up."""
    gradient_sync_s: float
    """Exposed waits for parameters and gradients that no later wait makes up for; the same for all stages."""
    pipeline_bubble_s: float
    """Waits for other stages."""
    optimizer_s: float
    """Update of the weights."""


class TimelineSummary(Record):
    """One step of the pipeline, stage by stage; `--timeline FILE` writes every event of it."""

    num_stages: int
    """Number of pipeline stages."""
    num_chunks_per_stage: int
    """Model chunks of each stage."""
    num_micro_batches: int
    """Number of micro-batches of one step on one replica."""
    step_time_s: float
    """Time from the first forward pass to the last weight update."""
    warm_up_s: float
    """Time until the first stage begins its first backward pass."""
    cool_down_s: float
    """Time from the end of the first stage's last forward pass to the end of the step."""
    stages: tuple[StageTime, ...]
    """Each stage, in the order of the model."""


def summary_of(timeline: StepTimeline) -> TimelineSummary:
    """Returns what a reader needs to know about a timeline, without its events."""
    events, parts = timeline.events, timeline.stages
    forwards_s = events.end_s[(events.stage == 0) & (events.kind == EventKind.FORWARD.code)]
    return TimelineSummary(
        num_stages=timeline.num_stages,
        num_chunks_per_stage=timeline.num_chunks_per_stage,
        num_micro_batches=timeline.num_micro_batches,
        step_time_s=timeline.step_time_s,
        warm_up_s=timeline.first_backward_s,
        cool_down_s=timeline.step_time_s - float(np.max(forwards_s)),
        stages=tuple(
            StageTime(stage=stage, **{name: float(getattr(parts, name)[stage]) for name in parts.names()})
            for stage in range(timeline.num_stages)
        ),
    )
