"""Do the events of a step fit together, and come to the same step as the columns that the search reads?"""

from __future__ import annotations

import numpy as np
import pytest

from simulator.chunks import split_layers
from simulator.errors import InputError
from simulator.job import Job
from simulator.pipeline import PipelineTimes, play_pipelines
from simulator.pipeline_timeline import ALL, EventKind, StepEvents, StepTimeline, step_timeline
from simulator.plan import Plan, PlanTable, Recompute, Schedule
from simulator.rank import Rank
from simulator.simulate import simulate
from simulator.step import StepTable, step_parts
from tests.simulator.builders import gpt, job_of, plan_of, training

ROUNDING = 1e-9
"""Sums of thousands of durations, relative to the step."""

WITH_OVERLAP = job_of(training(num_steps=100))
WITHOUT_OVERLAP = WITH_OVERLAP.model_copy(
    update={"workload": WITH_OVERLAP.workload.model_copy(update={"overlaps_gradient_sync": False})}
)
TIED = job_of(training(gpt(has_tied_embeddings=True), num_steps=100))
CASES = {
    "one stage": (WITH_OVERLAP, plan_of(tensor=2, data=64)),
    "one stage that gathers and reduces in every micro-batch": (WITH_OVERLAP, plan_of(data=128, zero=3)),
    "one after another": (WITH_OVERLAP, plan_of(tensor=2, pipeline=4, data=16)),
    "fewer micro-batches than stages": (WITH_OVERLAP, plan_of(pipeline=8, data=128, micro_batch=2)),
    "uneven stages": (WITH_OVERLAP, plan_of(pipeline=5, data=32, zero=0)),
    "interleaved": (
        WITH_OVERLAP,
        plan_of(tensor=2, pipeline=4, virtual=4, data=16, recompute=Recompute.FULL),
    ),
    "interleaved, without overlap": (WITHOUT_OVERLAP, plan_of(pipeline=4, virtual=2, data=32)),
    "without overlap": (WITHOUT_OVERLAP, plan_of(pipeline=4, data=32)),
    "all forwards first": (WITH_OVERLAP, plan_of(pipeline=4, data=32, schedule=Schedule.GPIPE)),
    "late weight gradients": (WITH_OVERLAP, plan_of(pipeline=4, data=32, schedule=Schedule.ZB_H1)),
    "to and fro": (WITH_OVERLAP, plan_of(pipeline=4, virtual=2, data=32, schedule=Schedule.ZB_V)),
    "to and fro, without overlap": (
        WITHOUT_OVERLAP,
        plan_of(tensor=2, pipeline=4, virtual=2, data=16, schedule=Schedule.ZB_V),
    ),
    "tied embeddings, to and fro": (
        TIED,
        plan_of(pipeline=4, virtual=2, data=16, micro_batch=2, schedule=Schedule.ZB_V),
    ),
    "tied embeddings": (TIED, plan_of(pipeline=4, data=16, micro_batch=2)),
}


@pytest.fixture(params=CASES, scope="module")
def case(request: pytest.FixtureRequest) -> tuple[Job, Plan]:
    return CASES[request.param]


def timeline_of(case: tuple[Job, Plan]) -> StepTimeline:
    return step_timeline(*case)


def step_of(case: tuple[Job, Plan]) -> StepTable:
    job, plan = case
    return simulate(job, PlanTable.from_plans([plan])).steps


def times_of(case: tuple[Job, Plan]) -> PipelineTimes:
    job, plan = case
    plans = PlanTable.from_plans([plan])
    return play_pipelines(**step_parts(Rank.of(job, plans), split_layers(job.workload.model, plans)).pipeline)


def of_kind(events: StepEvents, kind: EventKind, *, background: bool = False) -> StepEvents:
    return events.take((events.kind == kind.code) & (events.is_background == background))


def test_the_last_event_ends_when_the_step_does(case: tuple[Job, Plan]) -> None:
    timeline, step = timeline_of(case), step_of(case)
    assert timeline.step_time_s == pytest.approx(step.step_time_s[0], rel=ROUNDING)
    assert timeline.events.end_s.max() == pytest.approx(step.step_time_s[0], rel=ROUNDING)
    assert timeline.events.start_s.min() == 0.0


def test_every_stage_accounts_for_the_whole_step(case: tuple[Job, Plan]) -> None:
    timeline = timeline_of(case)
    parts = np.array(list(timeline.stages.columns().values()))
    assert (parts >= 0.0).all()
    assert parts.sum(axis=0) == pytest.approx(timeline.step_time_s, rel=ROUNDING)


def test_on_average_stages_work_as_long_as_the_step_table_says(case: tuple[Job, Plan]) -> None:
    stages, step = timeline_of(case).stages, step_of(case)
    assert stages.busy_s.mean() == pytest.approx(step.compute_s[0], rel=ROUNDING)
    assert stages.optimizer_s.mean() == pytest.approx(step.optimizer_s[0], rel=ROUNDING)


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("one stage")])
def test_a_single_stage_never_waits_for_another_one(name: str) -> None:
    stages, step = timeline_of(CASES[name]).stages, step_of(CASES[name])
    exposed_s = step.step_time_s - step.compute_s - step.optimizer_s
    assert stages.bubble_s[0] == pytest.approx(0.0, abs=ROUNDING)
    # A difference of large numbers.
    assert stages.exposed_communication_s[0] == pytest.approx(exposed_s[0], rel=1e-6)


def test_a_stage_does_one_thing_at_a_time(case: tuple[Job, Plan]) -> None:
    timeline = timeline_of(case)
    for stage in range(timeline.num_stages):
        events = timeline.events
        own = events.take((events.stage == stage) & ~events.is_background)
        gaps_s = own.start_s[1:] - own.end_s[:-1]
        assert gaps_s.min() >= -ROUNDING * timeline.step_time_s


def test_every_micro_batch_passes_every_chunk_once_each_way(case: tuple[Job, Plan]) -> None:
    timeline = timeline_of(case)
    num_chunks = timeline.num_stages * timeline.num_chunks_per_stage
    schedule = case[1].pipeline_schedule
    chunk = np.arange(num_chunks)
    there, back = chunk % timeline.num_stages, num_chunks - 1 - chunk
    stages = np.where(chunk < timeline.num_stages, there, back) if schedule is Schedule.ZB_V else there
    kinds = [EventKind.FORWARD, EventKind.BACKWARD]
    if schedule in (Schedule.ZB_H1, Schedule.ZB_V):
        kinds.append(EventKind.WEIGHT_GRADIENT)
    for kind in kinds:
        events = of_kind(timeline.events, kind)
        passes = set(zip(events.chunk.tolist(), events.micro_batch.tolist(), strict=True))
        assert len(events) == len(passes) == num_chunks * timeline.num_micro_batches
        assert (events.stage == stages[events.chunk]).all()


def test_activations_travel_up_and_gradients_down_before_they_are_used(case: tuple[Job, Plan]) -> None:
    timeline = timeline_of(case)
    shape = (timeline.num_stages * timeline.num_chunks_per_stage, timeline.num_micro_batches)
    spans = {}
    for kind in (EventKind.FORWARD, EventKind.BACKWARD):
        events = of_kind(timeline.events, kind)
        start_s, end_s = np.empty(shape), np.empty(shape)
        start_s[events.chunk, events.micro_batch] = events.start_s
        end_s[events.chunk, events.micro_batch] = events.end_s
        spans[kind] = start_s, end_s
    slack = ROUNDING * timeline.step_time_s
    forward_start_s, forward_end_s = spans[EventKind.FORWARD]
    backward_start_s, backward_end_s = spans[EventKind.BACKWARD]
    assert (forward_start_s[1:] - forward_end_s[:-1] >= -slack).all()
    assert (backward_start_s[:-1] - backward_end_s[1:] >= -slack).all()
    assert (backward_start_s[-1] - forward_end_s[-1] >= -slack).all()


def test_gradients_are_reduced_when_the_kernel_says(case: tuple[Job, Plan]) -> None:
    timeline, times = timeline_of(case), times_of(case)
    for stage in range(timeline.num_stages):
        ends_s = [
            own.end_s.max()
            for kind in (EventKind.BACKWARD, EventKind.GRADIENT_SYNC)
            if len(own := of_kind(timeline.events, kind, background=kind is EventKind.GRADIENT_SYNC)) > 0
            and len(own := own.take(own.stage == stage)) > 0
        ]
        assert max(ends_s) == pytest.approx(times.stage_end_s[0, stage], rel=ROUNDING)


def test_blocking_sends_take_as_long_as_the_kernel_says(case: tuple[Job, Plan]) -> None:
    timeline, times = timeline_of(case), times_of(case)
    sends = of_kind(timeline.events, EventKind.SEND)
    per_stage = np.bincount(sends.stage, sends.end_s - sends.start_s, timeline.num_stages)
    assert per_stage == pytest.approx(times.send_busy_s[0], rel=1e-6)


def test_interleaved_sends_travel_in_the_background() -> None:
    timeline = timeline_of(CASES["interleaved"])
    assert len(of_kind(timeline.events, EventKind.SEND)) == 0
    # 16 chunks: 15 hand-overs each way for each of the 512 / 16 micro-batches.
    assert len(of_kind(timeline.events, EventKind.SEND, background=True)) == 2 * 15 * 32


def test_a_tied_embedding_is_reduced_between_first_and_last_stage_only() -> None:
    timeline = timeline_of(CASES["tied embeddings"])
    syncs = of_kind(timeline.events, EventKind.GRADIENT_SYNC)
    optimizer_start_s = of_kind(timeline.events, EventKind.OPTIMIZER).start_s.min()
    last = syncs.take(np.isclose(syncs.end_s, optimizer_start_s, rtol=ROUNDING) & (syncs.chunk == ALL))
    assert sorted(set(last.stage.tolist())) == [0, 3]


def test_a_step_of_too_many_operations_is_refused() -> None:
    job = job_of(training(global_batch_size=100_001, num_steps=1))
    with pytest.raises(InputError, match="makes 200,002 forwards and backwards in a step; at most 200,000"):
        step_timeline(job, plan_of(tensor=8))
