"""Does a job with experts that names no framework say how much longer Megatron's products take?"""

from __future__ import annotations

import pytest

from planner import parse_job, simulate_plan
from planner.text import human
from simulator.domain.job import Job
from tests.support import H100_RENTED

PLAN = {"tp": 1, "pp": 4, "ep": 8, "dp": 16}


def job_with(model: str = "mixtral-8x7b", **workload: object) -> Job:
    asked = {
        "tokens": 1e11,
        "sequence_length": 4096,
        "global_batch_size": 256,
        "precisions": ["fp8"],
        **workload,
    }
    return parse_job(
        {"workload": {"model": model, **asked}, "offers": [dict(H100_RENTED)], "site": "us-iowa"}
    )


def expert_notes(job: Job, **plan: object) -> list[str]:
    warnings = simulate_plan(job, {**PLAN, "precision": "fp8", **plan}, with_sensitivities=False).warnings
    return [warning for warning in warnings if "names no framework" in warning]


def days(job: Job) -> float:
    found = simulate_plan(job, {**PLAN, "precision": "fp8"}, with_sensitivities=False).design
    assert found is not None
    return found.time_to_train_days


def test_the_note_has_the_run_of_a_job_that_names_megatron() -> None:
    (note,) = expert_notes(job_with())
    one, each = days(job_with()), days(job_with(framework="megatron-lm"))
    assert f"the run takes {human.days(each)} ({human.change(each / one - 1.0)})" in note


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(job_with(framework="megatron-lm"), id="Megatron is named"),
        pytest.param(job_with(framework="torchtitan"), id="other software is named"),
        pytest.param(job_with(expert_products="separate"), id="each expert has its own product"),
        pytest.param(job_with("llama-3.1-8b"), id="no experts"),
    ],
)
def test_else_there_is_none(job: Job) -> None:
    plan = {} if job.workload.model.experts else {"ep": 1}
    assert expert_notes(job, **plan) == []
