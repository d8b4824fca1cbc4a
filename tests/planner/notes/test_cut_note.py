"""Is a reader told how unequal chunks are cut, and nothing where a framework cuts them so by itself?"""

from __future__ import annotations

from planner.notes.cut_note import cut_notes
from planner.one_design.simulated_design import simulate_plan
from simulator.domain.plan import Schedule
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
