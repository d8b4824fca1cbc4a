"""Is a reader told how unequal chunks are cut, and what balanced ones would gain?"""

from __future__ import annotations

import pytest

from planner.notes.cut_note import balance_notes, cut_notes
from planner.one_design.simulated_design import simulate_plan
from planner.text import human
from simulator.domain.job import Job
from simulator.domain.limits import Limits
from simulator.domain.plan import Plan, Schedule
from tests.simulator.builders import changed, job_of, plan_of, training

JOB = job_of(training("llama-2-13b"))  # 40 layers
UNEVEN = plan_of(tensor=2, pipeline=4, virtual=3, data=8)


def test_chunks_that_differ_are_told_in_words_and_for_megatron_core() -> None:
    (note,) = cut_notes(JOB, UNEVEN)
    layout = "Et*3|(t*3|)*6(t*4|)*4t*3L"
    assert note == (
        "40 layers on 12 chunks are cut as 7 x 3, 4 x 4, 3 (Megatron Core: "
        f'--pipeline-model-parallel-layout "{layout}").'
    )
    assert note in simulate_plan(JOB, UNEVEN, with_sensitivities=False).warnings


def test_the_order_of_a_v_is_not_that_of_megatron_core() -> None:
    (note,) = cut_notes(JOB, plan_of(tensor=2, pipeline=8, virtual=2, data=8, schedule=Schedule.ZB_V))
    assert note == "40 layers on 16 chunks are cut as 7 x 2, 8 x 3, 2."


def test_nothing_is_told_of_equal_chunks_or_of_those_that_the_job_lists() -> None:
    assert not cut_notes(JOB, plan_of(tensor=2, pipeline=4, virtual=5, data=8))
    assert not cut_notes(JOB, plan_of(data=8))
    listed = changed(JOB, workload=changed(JOB.workload, stage_layers=(5, 15, 15, 5)))
    assert not cut_notes(listed, plan_of(tensor=2, pipeline=4, data=8))


INTERLEAVED = plan_of(tensor=4, pipeline=4, virtual=10, context=2, data=8)
LARGE = job_of(training("llama-3.1-70b", global_batch_size=64, sequence_length=8192))


def test_what_balanced_stages_gain_is_that_of_the_plan_with_such_a_cut() -> None:
    (note,) = balance_notes(LARGE, INTERLEAVED)
    balanced = changed(LARGE, workload=changed(LARGE.workload, stage_layers="balanced"))
    present, other = (
        simulate_plan(job, INTERLEAVED, with_sensitivities=False).design for job in (LARGE, balanced)
    )
    assert present is not None
    assert other is not None
    change = human.change(other.time_to_train_days / present.time_to_train_days - 1.0)
    assert f"would train in {human.days(other.time_to_train_days)} ({change})" in note
    assert f"for {human.dollars(other.cost_usd)}: workload.stage_layers=balanced" in note
    # 80 layers and two more for embedding and output layer, on 40 chunks
    assert "cut as 1, 36 x 2, 2 x 3, 1, the" in note


@pytest.mark.parametrize(
    ("job", "plan"),
    [
        pytest.param(
            changed(LARGE, workload=changed(LARGE.workload, stage_layers="balanced")),
            INTERLEAVED,
            id="the job asks for it",
        ),
        pytest.param(LARGE, plan_of(tensor=8, data=8), id="one stage has no cut"),
        pytest.param(changed(LARGE, limits=Limits(power_w=1.0)), INTERLEAVED, id="the layout breaks a limit"),
        pytest.param(LARGE, plan_of(tensor=8, pipeline=8, data=4), id="inner stages have more layers then"),
    ],
)
def test_there_is_no_note_on_balance_that_would_mislead(job: Job, plan: Plan) -> None:
    assert not balance_notes(job, plan)
