"""Does an answer begin with how little is known of a step time that hardly any measurement stands behind?"""

from __future__ import annotations

import pytest

from planner.notes.doubts import doubts
from planner.one_design.simulated_design import SimulatedDesign, simulate_plan
from planner.text import human
from simulator.domain.job import Job
from tests.planner.calibrations import with_measured_steps
from tests.simulator.builders import job_of, plan_of, rented, training

DENSE = training("llama-3.1-8b", global_batch_size=64)
EXPERTS = training("deepseek-v2-lite", global_batch_size=64)


def simulated(job: Job) -> SimulatedDesign:
    return simulate_plan(job, plan_of(data=16, zero=1), with_sensitivities=False)


def step_doubts(answer: SimulatedDesign, notes: str = "Notes") -> list[str]:
    texts = doubts(answer.design, answer.spread, notes)
    return [text for text in texts if text.startswith("Its step time is uncertain")]


# docs/limits.md names the chips without kernels of their own, and says that mixtures of experts are barely validated.
@pytest.mark.parametrize(
    ("job", "cause"),
    [
        (
            job_of(DENSE, rented("mi300x")),
            "no kernel of mi300x or of its architecture was measured",
        ),
        (
            job_of(DENSE, rented("l40s-pcie-48gb")),
            "no kernel of l40s-pcie-48gb or of its architecture was measured",
        ),
        (
            job_of(EXPERTS, rented("h100-sxm5-80gb")),
            "few measured steps of its kind were compared, or none",
        ),
    ],
)
def test_a_step_that_is_hardly_known_is_told_with_its_interval(job: Job, cause: str) -> None:
    answer = simulated(job)
    assert answer.spread is not None
    low, high = answer.spread.step_time_low_s, answer.spread.step_time_high_s
    interval = f"{human.duration(low)} to {human.duration(high)}"
    assert step_doubts(answer, "Before you start") == [
        f"Its step time is uncertain, {interval} in four of five cases: {cause} (Before you start)."
    ]


@pytest.mark.parametrize("accelerator", ["h100-sxm5-80gb", "a100-sxm4-80gb", "h100-pcie-80gb"])
def test_a_step_on_an_architecture_that_was_measured_is_not_doubted(accelerator: str) -> None:
    assert not step_doubts(simulated(job_of(DENSE, rented(accelerator))))


def test_nothing_is_doubted_of_a_step_whose_error_is_not_known() -> None:
    answer = simulated(job_of(DENSE, rented("mi300x")))
    assert step_doubts(answer)
    assert not step_doubts(answer.model_copy(update={"spread": None}))


def test_steps_that_their_owner_measured_are_not_doubted() -> None:
    job = job_of(DENSE, rented("mi300x"))
    assert not step_doubts(simulated(with_measured_steps(job)))
