"""Where does each stage of the pipeline spend one step? The timeline of a plan as a value that serialises."""

from __future__ import annotations

import numpy as np

from simulator.pipeline_timeline import EventKind, StepTimeline
from simulator.record import Record


class StageTime(Record):
    """One step by what one stage spends it on; the four parts sum to the step time."""

    stage: int
    """Number of the stage, from 0; the first holds the embedding, the last the output layer."""
    busy_s: float
    """Forwards and backwards, recomputation included, exposed communication not."""
    exposed_communication_s: float
    """Collectives, sends, parameters and gradients that nothing hides."""
    bubble_s: float
    """Waiting for other stages."""
    optimizer_s: float
    """Update of the weights."""


class TimelineSummary(Record):
    """One step of the pipeline, stage by stage; `--timeline FILE` writes every event of it."""

    num_stages: int
    """Pipeline stages."""
    num_chunks_per_stage: int
    """Model chunks of each stage."""
    num_micro_batches: int
    """Micro-batches of one step on one replica."""
    step_time_s: float
    """From the first forward to the last weight update."""
    warm_up_s: float
    """Until the first stage begins its first backward."""
    cool_down_s: float
    """From the end of the first stage's last forward to the end of the step."""
    stages: tuple[StageTime, ...]
    """Each stage, in the order of the model."""


def summary_of(timeline: StepTimeline) -> TimelineSummary:
    """Returns what a reader needs to know of a timeline, without its events."""
    events, parts = timeline.events, timeline.stages
    is_first_stage = (events.stage == 0) & ~events.is_background
    backwards_s = events.start_s[is_first_stage & (events.kind == EventKind.BACKWARD.code)]
    forwards_s = events.end_s[is_first_stage & (events.kind == EventKind.FORWARD.code)]
    return TimelineSummary(
        num_stages=timeline.num_stages,
        num_chunks_per_stage=timeline.num_chunks_per_stage,
        num_micro_batches=timeline.num_micro_batches,
        step_time_s=timeline.step_time_s,
        warm_up_s=float(np.min(backwards_s)),
        cool_down_s=timeline.step_time_s - float(np.max(forwards_s)),
        stages=tuple(
            StageTime(stage=stage, **{name: float(getattr(parts, name)[stage]) for name in parts.names()})
            for stage in range(timeline.num_stages)
        ),
    )
