"""Does a note say if a plan uses sharding that few frameworks support, and what the layout does without it?"""

from __future__ import annotations

import pytest

from planner import recommend
from planner.notes.doubts import doubts
from planner.one_design.simulated_design import simulate_plan
from planner.text import human
from simulator.domain.job import Job
from simulator.domain.plan import Plan
from tests.simulator.builders import changed, job_of, plan_of, training

JOB = job_of(training("llama-3.1-8b", global_batch_size=64))
FEW = "Few frameworks support ZeRO stage"
LARGE = job_of(training("llama-3.1-70b", global_batch_size=64))


def remarks(job: Job, plan: Plan) -> list[str]:
    warnings = simulate_plan(job, plan, with_sensitivities=False).warnings
    return [warning for warning in warnings if warning.startswith(FEW)]


# DeepSpeed, `PipelineEngine.__init__`: "ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism"; Megatron Core has
# stage 1 (`--use-distributed-optimizer`); Llama 3 shards gradients in pipelines (arXiv 2407.21783, section 3.3.2).
@pytest.mark.parametrize(
    ("plan", "is_told"),
    [
        (plan_of(pipeline=2, virtual=2, data=8, zero=2), True),
        (plan_of(pipeline=2, context=2, data=4, zero=2), True),
        (plan_of(pipeline=2, data=8, zero=3), True),
        (plan_of(pipeline=2, context=8, data=1, zero=3), True),
        (plan_of(pipeline=2, data=8, zero=1), False),
        (plan_of(data=8, zero=2), False),
        (plan_of(pipeline=8, data=1, zero=2), False),
    ],
)
def test_gradients_that_are_sharded_in_a_pipeline_are_remarked(plan: Plan, is_told: bool) -> None:
    assert bool(remarks(JOB, plan)) == is_told
    design = simulate_plan(JOB, plan, with_sensitivities=False).design
    doubt = f"Few frameworks can run it: ZeRO stage {plan.zero_stage} in a pipeline (Notes)."
    assert (doubt in doubts(design)) == is_told
    assert (doubt.replace("Notes", "Before you start") in doubts(design, notes="Before you start")) == is_told


def test_nothing_is_doubted_without_a_design() -> None:
    assert doubts(None) == []


def test_the_remark_has_the_time_of_stage_1_or_why_it_cannot_be() -> None:
    (fits,) = remarks(JOB, plan_of(pipeline=2, data=8, zero=2))
    whole = simulate_plan(JOB, plan_of(pipeline=2, data=8, zero=1), with_sensitivities=False).design
    assert whole is not None
    assert f"With stage 1 this layout trains in {human.days(whole.time_to_train_days)} (" in fits
    (too_large,) = remarks(LARGE, plan_of(tensor=4, pipeline=2, virtual=10, data=16, zero=2))
    whole = simulate_plan(
        LARGE, plan_of(tensor=4, pipeline=2, virtual=10, data=16, zero=1), with_sensitivities=False
    ).design
    assert whole is not None
    needed, capacity = whole.peak_memory_bytes, whole.memory_capacity_bytes
    assert needed > capacity
    assert f"does not fit ({human.memory(needed)} of {human.memory(capacity)})" in too_large


def test_what_a_job_leaves_free_of_the_memory_is_not_there_for_stage_1() -> None:
    plan = plan_of(pipeline=2, data=8, zero=2)
    whole = simulate_plan(JOB, plan_of(pipeline=2, data=8, zero=1), with_sensitivities=False).design
    assert whole is not None
    needed, capacity = whole.peak_memory_bytes, whole.memory_capacity_bytes
    assert needed < capacity
    for spare, is_told in ((0.01, False), (-0.01, True)):
        free = round(1.0 - needed / capacity - spare, 4)
        (note,) = remarks(changed(JOB, search=changed(JOB.search, memory_headroom_fraction=free)), plan)
        share = f"{human.percent(1.0 - free)} (search.memory_headroom_fraction) of {human.memory(capacity)}"
        assert (f"does not fit ({human.memory(needed)} of {share})" in note) == is_told


@pytest.mark.parametrize("zero_stages", [(2,), None])
def test_a_recommended_design_has_the_remark_and_its_way_out_ends_it(
    zero_stages: tuple[int, ...] | None,
) -> None:
    search = JOB.search.model_copy(
        update={"zero_stages": zero_stages, "pipeline_parallel": (2,), "num_refinements": 0}
    )
    offer = JOB.offers[0].model_copy(
        update={"num_gpus": JOB.offers[0].num_gpus.model_copy(update={"max": 16})}
    )
    answer = recommend(
        JOB.model_copy(update={"search": search, "offers": (offer,)}), tracking=False, with_report=False
    )
    assert answer.best is not None
    assert answer.best.plan.pipeline_parallel == 2
    told = [warning for warning in answer.warnings if warning.startswith(FEW)]
    assert bool(told) == (zero_stages == (2,))
    assert all(
        "without search.zero_stages, pipelines are searched with stage 1 alone" in each for each in told
    )


def test_a_plan_of_ones_own_has_no_way_out_by_searching() -> None:
    (told,) = remarks(JOB, plan_of(pipeline=2, data=8, zero=2))
    assert "search" not in told
