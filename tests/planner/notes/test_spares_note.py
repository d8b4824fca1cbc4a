"""Does a note say what enough spare nodes would change, where a plan waits for replacement nodes?"""

from __future__ import annotations

import pytest

from planner.one_design.simulated_design import simulate_plan
from planner.text import human
from simulator.domain.job import Job
from simulator.domain.offer import Estimate, GpuRange
from simulator.domain.plan import Plan
from tests.simulator.builders import changed, job_of, plan_of, training

JOB = job_of(changed(training("llama-3.1-70b", global_batch_size=512), tokens=2e12))
PLAN = plan_of(tensor=4, pipeline=4, context=2, data=32)


def spares_notes(job: Job, plan: Plan) -> list[str]:
    warnings = simulate_plan(job, plan, with_sensitivities=False).warnings
    return [warning for warning in warnings if "for replacement nodes" in warning]


def with_spares(num_nodes: int) -> Plan:
    return PLAN.model_copy(update={"num_spare_nodes": num_nodes})


# 6.5 failures in 1,000 days of 128 nodes, half of which take a node away for three days: 1.25 nodes are in repair on average.
# By Poisson's distribution at most 4 are in 99 of 100 cases; the next failure then still finds the fifth.
def test_the_note_has_the_run_with_the_spares_that_suffice() -> None:
    (note,) = spares_notes(JOB, PLAN)
    waiting, spared = (
        simulate_plan(JOB, plan, with_sensitivities=False).design for plan in (PLAN, with_spares(5))
    )
    assert waiting is not None
    assert spared is not None
    waited = human.days(waiting.run_seconds["replacement_wait_s"] / 86_400.0)
    change = human.change(spared.time_to_train_days / waiting.time_to_train_days - 1.0)
    assert note.startswith(
        f"The run waits {waited} for replacement nodes, with 0 spare nodes. With 5 (spares=5 in the plan)"
    )
    assert f"it would take {human.days(spared.time_to_train_days)} ({change})" in note
    dearer = human.change(spared.cost_usd / waiting.cost_usd - 1.0)
    assert note.endswith(f"and cost {human.dollars(spared.cost_usd)} ({dearer}).")


@pytest.mark.parametrize("num_nodes", [2, 5])
def test_a_plan_that_hardly_waits_has_no_note(num_nodes: int) -> None:
    assert spares_notes(JOB, with_spares(num_nodes)) == []


def test_the_note_of_hardware_that_costs_nothing_has_no_change_of_the_cost() -> None:
    free = changed(JOB.offers[0], rent_usd_per_gpu_hour=Estimate(low=0.0, mid=0.0, high=0.0))
    (note,) = spares_notes(changed(JOB, offers=(free,)), PLAN)
    assert note.endswith("and cost $0.")


def test_nodes_that_are_not_there_are_not_asked_for() -> None:
    offer = changed(JOB.offers[0], max_nodes=128, num_gpus=GpuRange(min=1, max=1024))
    assert spares_notes(JOB.model_copy(update={"offers": (offer,)}), PLAN) == []
