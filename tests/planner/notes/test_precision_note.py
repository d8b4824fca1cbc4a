"""Does a note say what 8 bits would gain where a job searches 16 bits alone?"""

from __future__ import annotations

import pytest

from planner import recommend
from planner.notes.precision_note import OF_INTEGERS, precision_notes
from planner.one_design.simulated_design import simulate_plan
from planner.text import human
from simulator import catalog
from simulator.catalog import Kind
from simulator.domain.hardware import Precision
from simulator.domain.job import Job
from simulator.domain.limits import Limits
from simulator.domain.plan import Plan
from tests.simulator.builders import changed, job_of, plan_of, rented, training

WORKLOAD = training("llama-3.1-8b", global_batch_size=64)
JOB = job_of(WORKLOAD)
PLAN = plan_of(data=16, zero=2)


def in_fp8(plan: Plan) -> Plan:
    return plan.model_copy(update={"precision": Precision.FP8})


def test_the_figures_are_those_of_the_same_layout_in_fp8() -> None:
    (note,) = precision_notes(JOB, PLAN)
    slow, fast = (simulate_plan(JOB, plan, with_sensitivities=False).design for plan in (PLAN, in_fp8(PLAN)))
    assert slow is not None
    assert fast is not None
    change = human.change(fast.time_to_train_days / slow.time_to_train_days - 1.0)
    assert f"in {human.days(fast.time_to_train_days)} with it ({change})" in note
    assert f"for {human.dollars(fast.cost_usd)}, if" in note
    assert "workload.precisions=[bf16, fp8]" in note


@pytest.mark.parametrize(
    ("job", "plan"),
    [
        pytest.param(job_of(changed(WORKLOAD, precisions=("bf16", "fp8"))), PLAN, id="fp8 was searched"),
        pytest.param(job_of(WORKLOAD, rented("a100-sxm4-80gb")), PLAN, id="the accelerator has no fp8"),
        pytest.param(
            job_of(changed(WORKLOAD, fp8_recipe="mxfp8")), PLAN, id="the accelerator lacks the recipe"
        ),
        pytest.param(changed(JOB, limits=Limits(power_w=1.0)), PLAN, id="the layout breaks a limit"),
        pytest.param(
            job_of(training("llama-3.2-1b", global_batch_size=64)),
            plan_of(tensor=4, data=4),
            id="products are too small to gain",
        ),
    ],
)
def test_there_is_no_note_that_would_mislead(job: Job, plan: Plan) -> None:
    assert not precision_notes(job, plan)


@pytest.mark.parametrize("plan", [plan_of(data=16, zero=3), in_fp8(plan_of(data=16, zero=3))])
def test_eight_bits_that_are_integers_are_told_so(plan: Plan) -> None:
    workload = changed(WORKLOAD, precisions=(plan.precision,))
    (note,) = precision_notes(job_of(workload, rented("tpu-v5p")), plan)
    assert "fp8 stands for 8-bit integers (AQT" in note
    assert (
        "integers"
        not in precision_notes(job_of(WORKLOAD, rented("b200-sxm-180gb")), plan_of(data=16, zero=3))[0]
    )


def test_a_recommended_design_has_the_note() -> None:
    offer = JOB.offers[0].model_copy(
        update={"num_gpus": JOB.offers[0].num_gpus.model_copy(update={"min": 16, "max": 16})}
    )
    search = JOB.search.model_copy(update={"zero_stages": (2,), "num_refinements": 0})
    job = JOB.model_copy(update={"search": search, "offers": (offer,)})
    answer = recommend(job, tracking=False, with_report=False)
    assert answer.best is not None
    assert set(precision_notes(job, answer.best.plan)) <= set(answer.warnings)
    assert any(note.startswith("Designs in fp8 were not searched") for note in answer.warnings)


def test_accelerators_whose_8_bits_are_integers_are_those_whose_peak_is_of_integers() -> None:
    peaks = {
        name: figure.source
        for name in catalog.names(Kind.ACCELERATORS)
        for figure in catalog.figures(Kind.ACCELERATORS, name)
        if figure.quantity == "fp8_peak"
    }
    assert {name for name, source in peaks.items() if "8-bit integers" in source} == OF_INTEGERS
