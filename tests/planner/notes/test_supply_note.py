"""Does a note say that a run waits for repairs where too few nodes are left, and how long it is if others can be had?"""

from __future__ import annotations

import pytest

from planner.one_design.simulated_design import simulate_plan
from planner.recommended.recommendation import Design
from planner.text import human
from simulator.domain.job import Job
from simulator.domain.offer import GpuRange
from simulator.domain.plan import Plan
from tests.simulator.builders import changed, job_of, plan_of, training

PLAN = plan_of(tensor=4, pipeline=4, context=2, data=32)
NUM_NODES, ENOUGH = 128, 6
QUEUE_S = 7200.0


def job_with(most: int | None, *, queue_s: float | None = None, failures: float = 6.5) -> Job:
    known = job_of(changed(training("llama-3.1-70b", global_batch_size=512), tokens=2e12))
    offer = changed(known.offers[0], max_nodes=most, num_gpus=GpuRange(min=8, max=1024))
    restart = changed(known.reliability.restart, replace_from_queue_s=queue_s)
    reliability = changed(known.reliability, restart=restart, failures_per_1000_node_days=failures)
    return changed(known, offers=(offer,), reliability=reliability)


def told(job: Job, plan: Plan = PLAN) -> tuple[Design, list[str]]:
    found = simulate_plan(job, plan, with_sensitivities=False)
    assert found.design is not None
    return found.design, [warning for warning in found.warnings if "waits for repairs" in warning]


# 6.5 failures in 1,000 days of each of 128 nodes, half of which take a node away: one in 2.4 days. Each then takes 3 days
# instead of two hours, so that the run takes about twice as long.
def test_the_note_has_the_run_that_gets_nodes_from_elsewhere() -> None:
    alone, (note,) = told(job_with(NUM_NODES))
    lent, none = told(job_with(NUM_NODES, queue_s=QUEUE_S))
    assert none == []
    assert 1.9 < alone.time_to_train_days / lent.time_to_train_days < 2.4
    assert (
        "Once all 128 nodes of offers[0].max_nodes train or are in repair, the run waits for repairs of 3.00 days"
        in note
    )
    change = human.change(lent.time_to_train_days / alone.time_to_train_days - 1.0)
    assert f"it takes {human.days(lent.time_to_train_days)} ({change})" in note
    assert note.endswith("set reliability.restart.replace_from_queue_s=7200.")
    again, _ = told(job_with(NUM_NODES, queue_s=float(note.removesuffix(".").rpartition("=")[2])))
    assert again == lent


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(job_with(None), id="nobody says how many nodes there are"),
        pytest.param(job_with(NUM_NODES, failures=1e-6), id="no node fails"),
    ],
)
def test_other_runs_get_other_nodes(job: Job) -> None:
    design, notes = told(job)
    lent = job.reliability.restart.model_copy(update={"replace_from_queue_s": QUEUE_S})
    same = changed(job, reliability=changed(job.reliability, restart=lent))
    assert notes == []
    assert design.time_to_train_days == pytest.approx(told(same)[0].time_to_train_days, rel=1e-6)


def test_as_many_nodes_as_enough_spares_need_no_note() -> None:
    design, notes = told(job_with(NUM_NODES + ENOUGH))
    assert notes == []
    assert design.time_to_train_days == pytest.approx(told(job_with(None))[0].time_to_train_days, rel=0.01)


def test_a_delay_of_less_than_a_fiftieth_is_not_told() -> None:
    alone, notes = told(job_with(NUM_NODES, failures=0.01))
    lent, _ = told(job_with(NUM_NODES, failures=0.01, queue_s=QUEUE_S))
    assert notes == []
    assert 1.0 < alone.time_to_train_days / lent.time_to_train_days < 1.02


def test_the_more_nodes_are_left_the_less_a_run_waits_for_repairs() -> None:
    left = (0, 1, 2, 4, 8, 16)
    days = [told(job_with(NUM_NODES + more))[0].time_to_train_days for more in left]
    assert days == sorted(days, reverse=True)
    assert days[-1] == pytest.approx(told(job_with(None))[0].time_to_train_days, rel=1e-4)


def test_spares_that_suffice_need_no_other_nodes() -> None:
    spared = PLAN.model_copy(update={"num_spare_nodes": ENOUGH})
    assert told(job_with(NUM_NODES + ENOUGH), spared)[1] == []
