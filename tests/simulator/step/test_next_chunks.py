"""What do interleaved stages compute beside the traffic of another chunk, and how long does it take there?"""

from __future__ import annotations

import numpy as np
import pytest

from simulator.domain.job import Job
from simulator.domain.plan import Plan, PlanTable, Schedule
from simulator.layout.chunks import split_layers
from simulator.layout.trained_weights import StepWeights
from simulator.machine.rank import Rank
from simulator.step.gradient_buckets import Buckets
from simulator.step.model_parts import ModelParts
from simulator.step.next_chunks import PassesBeside, among_passes_s
from tests.simulator.builders import changed, job_of, plan_of, training


def met_s(stream_s: float, pass_s: float, own_s: float, num_passes: int) -> float:
    """How long a stream takes, half a microsecond at a time.

    Both have half of a link while a pass is on it, in the last part of its time alone.
    """
    step_s, left_s, now_s = 5e-7, stream_s, 0.0
    while left_s > 0.0:
        is_met = now_s < num_passes * pass_s and (now_s % pass_s) >= pass_s - 2.0 * own_s
        left_s -= step_s * (0.5 if is_met else 1.0)
        now_s += step_s
    return now_s


@pytest.mark.parametrize(
    ("stream_s", "num_passes"),
    [(0.9e-3, 3), (1.8e-3, 3), (2.7e-3, 3), (9e-3, 3), (4.5e-3, 5)],
)
def test_traffic_meets_the_collectives_of_passes_for_as_long_as_it_lasts(
    stream_s: float, num_passes: int
) -> None:
    # Collectives of 0.1 ms in passes of 1 ms have half of the link, 0.2 ms long, and leave 0.9 ms of every pass to the stream.
    found_s = among_passes_s(*(np.array([[each]]) for each in (stream_s, 1e-3, 1e-4, num_passes)))
    assert found_s[0, 0] == pytest.approx(met_s(stream_s, 1e-3, 1e-4, num_passes), rel=1e-3)


def test_traffic_with_no_passes_or_no_collectives_beside_it_takes_as_long_as_alone() -> None:
    stream_s, pass_s = np.array([[0.4, 0.0]]), np.ones((1, 2))
    assert (among_passes_s(stream_s, pass_s, 0.5 * pass_s, np.array([[0, 4]])) == stream_s).all()
    assert (among_passes_s(stream_s, pass_s, 0.0 * pass_s, np.array([[4, 4]])) == stream_s).all()


def test_collectives_that_fill_their_passes_hold_traffic_up_for_no_longer_than_these_last() -> None:
    stream_s, pass_s = np.array([[0.4, 9.0]]), np.ones((1, 2))
    assert among_passes_s(stream_s, pass_s, 3.0 * pass_s, np.array([[4, 4]])) == pytest.approx(
        np.array([[4.4, 13.0]])
    )


def beside_of(plan: Plan, *, batch: int = 192, job: Job | None = None) -> PassesBeside:
    """The passes beside the traffic of a plan."""
    job = job or job_of(training("llama-3.1-70b", global_batch_size=batch))
    plans = PlanTable.from_plans([plan])
    rank, chunks = Rank.of(job, plans), split_layers(job.workload.model, plans)
    weights = StepWeights.of(job.workload, plans, chunks)
    return PassesBeside.of(rank, Buckets.of(rank, ModelParts.of(rank, chunks), weights))


def test_all_but_the_first_chunks_of_interleaved_stages_have_a_group_of_passes_beside_them() -> None:
    # 192 sequences in 16 replicas are 12 micro-batches, in groups of as many as there are stages.
    beside = beside_of(plan_of(tensor=4, pipeline=4, virtual=5, data=16))
    assert beside.gathers.tolist() == [[0] * 4 + [4] * 16]
    assert beside.reductions.tolist() == [[0] * 4 + [4] * 16]


def test_weights_come_beside_the_first_group_and_gradients_beside_the_last() -> None:
    # 11 micro-batches in groups of 6 and 5.
    beside = beside_of(plan_of(tensor=4, pipeline=4, virtual=5, data=16, group_size=6), batch=176)
    assert beside.gathers.max() == 6
    assert beside.reductions.max() == 5


@pytest.mark.parametrize(
    "plan",
    [
        plan_of(tensor=4, pipeline=4, data=16),
        plan_of(tensor=4, pipeline=4, virtual=2, data=16, schedule=Schedule.ZB_V),
        plan_of(tensor=4, pipeline=4, virtual=2, data=16, schedule=Schedule.DUAL_PIPE_V),
    ],
)
def test_stages_of_other_schedules_have_none(plan: Plan) -> None:
    beside = beside_of(plan)
    assert not beside.gathers.any()
    assert not beside.reductions.any()


def test_weights_that_come_part_by_part_have_passes_of_their_own_beside_them() -> None:
    beside = beside_of(plan_of(tensor=4, pipeline=4, virtual=5, data=16, zero=2))
    assert not beside.gathers.any()
    assert not beside.reductions.any()


def test_traffic_that_is_not_overlapped_has_none() -> None:
    workload, plan = (
        training("llama-3.1-70b", global_batch_size=192),
        plan_of(tensor=4, pipeline=4, virtual=5, data=16),
    )
    beside = beside_of(plan, job=job_of(changed(workload, overlaps_gradient_sync=False)))
    assert not beside.gathers.any()
    assert not beside.reductions.any()
    beside = beside_of(plan, job=job_of(changed(workload, overlaps_parameter_gather=False)))
    assert not beside.gathers.any()
    assert beside.reductions.any()
