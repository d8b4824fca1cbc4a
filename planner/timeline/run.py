"""When is a run stopped, and what does each stop cost? The timeline of one run as a value that serialises."""

from __future__ import annotations

import numpy as np

from planner import __version__
from planner.timeline.stages import TimelineSummary
from simulator.domain.job import Job
from simulator.domain.plan import Plan
from simulator.record import Record
from simulator.run_timeline import NUM_INTERRUPTIONS, RunEventKind, RunEvents, RunTimeline
from simulator.table import Floats

STOPPED_NAMES = (
    "checkpoint_stall_s",
    "checkpoint_tax_s",
    "backpressure_wait_s",
    "lost_work_s",
    "reduced_capacity_s",
    "restart_s",
    "replacement_wait_s",
    "checkpoint_restore_s",
)
"""Columns of `simulator.run.events.RunReplications` that sum to its wall time, together with the useful work."""


class Stop(Record):
    """One interruption of a run."""

    at_s: float
    """When it happens, since the first start."""
    kind: str
    """Its kind: `process_fault`, `node_fault`, `domain_fault` or `planned_stop`."""
    lost_work_s: float
    """Work that has to be done again."""
    away_s: float
    """Time from the interruption until training resumes."""


class RunSummary(Record):
    """One run: one of the many replays from which the spread of an answer is computed."""

    replication: int
    """Number of the replay, from 0."""
    wall_time_s: float
    """From the first start to the end of the last step."""
    seconds: dict[str, float]
    """How the wall time is spent, named as in a design's `run_seconds`; sums to `wall_time_s`."""
    num_saves: int | None
    """Number of saves that were begun; null if there are too many to list."""
    num_lost_saves: int | None
    """Number of saves that an interruption cut off; null if there are too many saves to list."""
    stops: tuple[Stop, ...]
    """Every interruption of training, in order of time."""


class TimelineAnswer(Record):
    """One step and one run of a plan, with their times."""

    schema_version: int = 2
    """Version of this form; increases when a field is removed or changes its meaning."""
    capplan_version: str
    """Version of capplan that simulated the plan."""
    job: str
    """Name of the job."""
    model: str = ""
    """Name of the model, with what the job changes of a known one."""
    seed: int
    """Seed of the replays."""
    plan: Plan
    """The decisions, with defaults filled in."""
    step: TimelineSummary | None
    """One step, stage by stage; null for steps of more than 200,000 passes."""
    run: RunSummary
    """One run."""


def timeline_answer(job: Job, plan: Plan, step: TimelineSummary | None, run: RunTimeline) -> TimelineAnswer:
    """Returns what `capplan timeline --json` prints."""
    return TimelineAnswer(
        capplan_version=__version__,
        job=job.name,
        model=job.workload.model.name,
        seed=run.seed,
        plan=plan,
        step=step,
        run=_summary_of_run(run),
    )


def _summary_of_run(run: RunTimeline) -> RunSummary:
    """Returns what a reader needs to know about a run, without its saves."""
    events = run.events
    is_save = np.isin(events.kind, [RunEventKind.SAVE.code, RunEventKind.SAVE_AHEAD.code])
    return RunSummary(
        replication=run.replication,
        wall_time_s=run.wall_time_s,
        seconds=_seconds(run),
        num_saves=int(is_save.sum()) if run.has_saves else None,
        num_lost_saves=int(events.is_lost.sum()) if run.has_saves else None,
        stops=_stops(events),
    )


def _seconds(run: RunTimeline) -> dict[str, float]:
    events = run.events
    is_start = events.kind == RunEventKind.INITIALIZATION.code
    work = {"productive_s": run.steps_s, "straggler_s": run.straggler_s, "evaluation_s": run.evaluation_s}
    stopped = {name: float(getattr(run.ledger, name)[0, 0]) for name in STOPPED_NAMES}
    return {**work, **stopped, "initialization_s": float((events.end_s - events.start_s)[is_start].sum())}


def _stops(events: RunEvents) -> tuple[Stop, ...]:
    stops = events.take(events.kind < NUM_INTERRUPTIONS)
    back_s = _training_again_s(events, stops.start_s)
    columns = (stops.start_s, stops.kind, stops.value_s, back_s - stops.start_s)
    return tuple(
        Stop(at_s=at_s, kind=RunEventKind.from_code(kind).value, lost_work_s=lost_s, away_s=away_s)
        for at_s, kind, lost_s, away_s in zip(*(column.tolist() for column in columns), strict=True)
    )


def _training_again_s(events: RunEvents, stopped_s: Floats) -> Floats:
    """When training next begins; it may have been stopped again at once."""
    begins_s = events.start_s[events.kind == RunEventKind.TRAINING.code]
    position = np.searchsorted(begins_s, stopped_s, side="left")
    return np.append(begins_s, events.end_s.max())[position]
