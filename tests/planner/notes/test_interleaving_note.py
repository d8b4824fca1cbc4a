"""Does a note say if interleaving lengthens the step of a pipeline, and why?"""

from __future__ import annotations

from planner.notes.interleaving_note import interleaving_notes
from planner.one_design.simulated_design import simulate_plan
from planner.text import human
from simulator.domain.plan import Plan
from tests.simulator.builders import changed, job_of, plan_of, training

JOB = job_of(training("llama-3.1-70b", sequence_length=2048, global_batch_size=64))
SHORT_BATCH = plan_of(tensor=4, pipeline=2, virtual=2, data=4, zero=2)


def plain(plan: Plan) -> Plan:
    return plan.model_copy(update={"virtual_pipeline": 1})


def test_reductions_after_every_group_of_micro_batches_are_named_with_both_times() -> None:
    (note,) = interleaving_notes(JOB, SHORT_BATCH)
    chunked, one = (
        simulate_plan(JOB, plan, with_sensitivities=False) for plan in (SHORT_BATCH, plain(SHORT_BATCH))
    )
    assert chunked.design is not None
    assert one.design is not None
    assert f"({chunked.design.step_time_s:.4g} s instead of {one.design.step_time_s:.4g} s)" in note
    slower = human.percent(chunked.design.step_time_s / one.design.step_time_s - 1.0)
    assert f"takes {slower} longer than with 1" in note
    added_s = chunked.design.step_seconds["shard_comm_s"] - one.design.step_seconds["shard_comm_s"]
    assert f"because it adds {added_s:.3g} s of shard traffic" in note
    assert "reduced after every group of micro-batches of a chunk" in note
    assert note in chunked.warnings
    assert not interleaving_notes(JOB, plain(SHORT_BATCH))


def test_chunks_that_the_job_lists_are_not_called_into_question() -> None:
    workload = changed(JOB.workload, stage_layers=(20, 20, 20, 20))
    assert not interleaving_notes(JOB.model_copy(update={"workload": workload}), SHORT_BATCH)


def test_interleaving_that_pays_is_no_reason_for_a_remark() -> None:
    # Few micro-batches on many stages, gradients reduced once a step: what interleaving is for.
    plan = plan_of(tensor=8, pipeline=8, virtual=2, data=2, zero=1)
    job = job_of(training("llama-3.1-70b", sequence_length=4096, global_batch_size=32))
    assert not interleaving_notes(job, plan)
