"""Do the events of a step fit together, and come to the same step as the columns that the search reads?"""

from __future__ import annotations

import numpy as np
import pytest

from simulator.domain.job import Job
from simulator.domain.plan import SPLIT_BACKWARD, TO_AND_FRO, Plan, PlanTable, Recompute, Schedule
from simulator.errors import InputError
from simulator.layout.chunks import split_layers
from simulator.machine.rank import Rank
from simulator.pipeline.schedule import PipelineTimes, play_pipelines
from simulator.simulate import simulate
from simulator.step.step import StepTable, step_parts
from simulator.step.step_events import ALL, EventKind, StageSeconds, StepEvents
from simulator.step.timeline import StepTimeline, step_timeline
from simulator.step.waits import StageWork, waits_of
from tests.simulator.builders import gpt, job_of, plan_of, rented, training

ROUNDING = 1e-9
"""Sums of thousands of durations, relative to the step."""

WITH_OVERLAP = job_of(training(num_steps=100))
WITHOUT_OVERLAP = WITH_OVERLAP.model_copy(
    update={"workload": WITH_OVERLAP.workload.model_copy(update={"overlaps_gradient_sync": False})}
)
TIED = job_of(training(gpt(has_tied_embeddings=True), num_steps=100))
ROUTED = job_of(training("mixtral-8x7b", num_steps=100))
HIDDEN = ROUTED.model_copy(
    update={"workload": ROUTED.workload.model_copy(update={"overlaps_expert_exchange": True})}
)
SLOW = job_of(training(num_steps=100), rented("a100-sxm4-80gb"))
OFFLOADED = job_of(
    training(num_steps=100).model_copy(update={"activation_offload_fraction": 1.0}),
    rented().model_copy(update={"node": rented().node.model_copy(update={"host_copy_bytes_per_s": 1e9})}),
)
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
    "in pairs": (WITH_OVERLAP, plan_of(pipeline=4, virtual=2, data=32, schedule=Schedule.DUAL_PIPE_V)),
    "in pairs, without overlap": (
        WITHOUT_OVERLAP,
        plan_of(tensor=2, pipeline=4, virtual=2, data=16, schedule=Schedule.DUAL_PIPE_V),
    ),
    "routed experts in pairs that hide their traffic": (
        HIDDEN,
        plan_of(pipeline=2, virtual=2, data=32, expert=8, zero=1, schedule=Schedule.DUAL_PIPE_V),
    ),
    "tied embeddings, to and fro": (
        TIED,
        plan_of(pipeline=4, virtual=2, data=16, micro_batch=2, schedule=Schedule.ZB_V),
    ),
    "routed experts": (ROUTED, plan_of(pipeline=2, data=32, expert=8, zero=1)),
    "shards gathered in every micro-batch of a pipeline": (SLOW, plan_of(pipeline=2, data=64, zero=3)),
    "shards reduced in every micro-batch": (SLOW, plan_of(pipeline=4, virtual=2, data=32, zero=2)),
    "parameters that come piece by piece": (SLOW, plan_of(pipeline=4, data=64)),
    "activations on their way to hosts": (OFFLOADED, plan_of(pipeline=4, data=32)),
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


def test_the_mean_stage_is_the_breakdown_bucket_by_bucket(case: tuple[Job, Plan]) -> None:
    stages, step = timeline_of(case).stages, step_of(case)
    means_s = {name: getattr(stages, name).mean() for name in stages.names()}
    reported_s = {name: getattr(step, name)[0] for name in stages.names()}
    assert means_s == pytest.approx(reported_s, abs=ROUNDING * step.step_time_s[0])


def test_the_breakdown_has_no_other_buckets() -> None:
    assert (*StageSeconds.names(), "step_time_s") == (*StepTable.names()[1:], StepTable.names()[0])


def test_the_cases_fill_every_bucket() -> None:
    steps = [step_of(case) for case in CASES.values()]
    for bucket in StageSeconds.names():
        assert max(getattr(step, bucket)[0] for step in steps) > 0.0


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("one stage")])
def test_a_single_stage_never_waits_for_another_one(name: str) -> None:
    stages, step = timeline_of(CASES[name]).stages, step_of(CASES[name])
    exposed_s = step.step_time_s - step.compute_s - step.optimizer_s
    assert stages.pipeline_bubble_s[0] == 0.0
    communication_s = (
        stages.tensor_comm_s[0]
        + stages.shard_comm_s[0]
        + stages.pipeline_send_s[0]
        + stages.gradient_sync_s[0]
    )
    # A difference of large numbers.
    assert communication_s == pytest.approx(exposed_s[0], rel=1e-6)


def test_a_stage_does_one_thing_at_a_time_and_every_moment_has_a_name(case: tuple[Job, Plan]) -> None:
    timeline = timeline_of(case)
    rounding_s = ROUNDING * timeline.step_time_s
    for stage in range(timeline.num_stages):
        events = timeline.events
        own = events.take((events.stage == stage) & ~events.is_background)
        assert own.start_s[0] == 0.0
        assert own.start_s[1:] == pytest.approx(own.end_s[:-1], abs=rounding_s)
        assert own.end_s[-1] == pytest.approx(timeline.step_time_s, abs=rounding_s)


def test_every_micro_batch_passes_every_chunk_once_each_way(case: tuple[Job, Plan]) -> None:
    timeline = timeline_of(case)
    num_chunks = timeline.num_stages * timeline.num_chunks_per_stage
    schedule = case[1].pipeline_schedule
    chunk = np.arange(num_chunks)
    there, back = chunk % timeline.num_stages, num_chunks - 1 - chunk
    stages = np.where(chunk < timeline.num_stages, there, back) if schedule in TO_AND_FRO else there
    kinds = [EventKind.FORWARD, EventKind.BACKWARD]
    if schedule in SPLIT_BACKWARD:
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


def test_reductions_follow_what_completes_a_piece_and_each_other(case: tuple[Job, Plan]) -> None:
    events = timeline_of(case).events
    reduced = of_kind(events, EventKind.GRADIENT_SYNC, background=True)
    backward = of_kind(events, EventKind.BACKWARD)
    for chunk in np.unique(reduced.chunk):
        first_s = reduced.start_s[reduced.chunk == chunk].min()
        assert np.any((backward.chunk == chunk) & (backward.start_s < first_s))
    for stage in np.unique(reduced.stage):
        start_s, end_s = (
            np.sort(times[reduced.stage == stage]) for times in (reduced.start_s, reduced.end_s)
        )
        assert np.all(start_s[1:] >= end_s[:-1] - ROUNDING)


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


def test_every_stage_waits_for_the_gradient_of_a_tied_embedding() -> None:
    tied, untied = (timeline_of(case) for case in (CASES["tied embeddings"], CASES["one after another"]))
    for timeline in (tied, untied):
        syncs = of_kind(timeline.events, EventKind.GRADIENT_SYNC)
        optimizer_start_s = of_kind(timeline.events, EventKind.OPTIMIZER).start_s.min()
        last = syncs.take(np.isclose(syncs.end_s, optimizer_start_s, rtol=ROUNDING) & (syncs.chunk == ALL))
        # The reduction over the replicas, what cores lent to it cost, and behind them that of the embedding.
        assert sorted(set(last.stage.tolist())) == [0, 1, 2, 3]
    num_syncs = [len(of_kind(timeline.events, EventKind.GRADIENT_SYNC)) for timeline in (tied, untied)]
    assert num_syncs == [12, 8]


def test_waits_for_parameters_are_what_the_step_is_longer_for_them() -> None:
    """Two stages, one micro-batch, every pass takes a second; nothing begins before the parameters are there."""
    for gather_s in (0.5, 3.0):
        waits = [
            waits_of(0, work([gather_s, gather_s + 3.0], 1.0, gather_s), gather_s + 4.0, gather_s),
            waits_of(1, work([gather_s + 1.0, gather_s + 2.0], 1.0, gather_s), gather_s + 4.0, gather_s),
        ]
        for events in waits:
            assert seconds_of(events, EventKind.PARAMETER_GATHER) == pytest.approx(gather_s)
            # Each stage waits for the two passes of the other one.
            assert seconds_of(events, EventKind.BUBBLE) == pytest.approx(2.0)


def test_a_delay_that_a_later_bubble_makes_up_for_is_a_bubble() -> None:
    # The first operation begins 2 s late; the second would have begun at 5 s anyway, and begins at 5.5 s.
    late = StageWork(
        start_s=np.array([2.0, 5.5]),
        end_s=np.array([3.0, 6.5]),
        free_s=np.array([3.0, 6.5]),
        delay_s=np.array([2.0, 0.5]),
    )
    events = waits_of(0, late, 7.5, 1.5)
    spans = sorted(zip(events.start_s.tolist(), events.end_s.tolist(), events.kind.tolist(), strict=True))
    gather, bubble = EventKind.PARAMETER_GATHER.code, EventKind.BUBBLE.code
    # Half a second lasts from the beginning, and another one comes in behind the last operation.
    assert spans == [
        (0.0, 0.5, gather),
        (0.5, 2.0, bubble),
        (3.0, 5.5, bubble),
        (6.5, 7.5, gather),
    ]


def work(start_s: list[float], duration_s: float, delay_s: float) -> StageWork:
    starts_s = np.array(start_s)
    ends_s = starts_s + duration_s
    return StageWork(start_s=starts_s, end_s=ends_s, free_s=ends_s, delay_s=np.full(len(start_s), delay_s))


def seconds_of(events: StepEvents, kind: EventKind) -> float:
    own = events.take(events.kind == kind.code)
    return float((own.end_s - own.start_s).sum())


def test_a_step_of_too_many_operations_is_refused() -> None:
    job = job_of(training(global_batch_size=100_001, num_steps=1))
    with pytest.raises(InputError, match="makes 200,002 forwards and backwards in a step; at most 200,000"):
        step_timeline(job, plan_of(tensor=8))
