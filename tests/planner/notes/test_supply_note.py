"""Does a note say how long a run takes that uses all nodes there are, if none can be had from elsewhere?"""

from __future__ import annotations

import pytest

from planner.one_design.simulated_design import simulate_plan
from planner.text import human
from simulator.domain.job import Job
from simulator.domain.offer import GpuRange
from simulator.domain.plan import Plan
from tests.simulator.builders import changed, job_of, plan_of, training

PLAN = plan_of(tensor=4, pipeline=4, context=2, data=32)
NUM_NODES = 128
REPAIR_S = 3 * 86_400.0


def job_with(most: int | None, *, queue_s: float = 7200.0, failures: float = 6.5) -> Job:
    known = job_of(changed(training("llama-3.1-70b", global_batch_size=512), tokens=2e12))
    offer = changed(known.offers[0], max_nodes=most, num_gpus=GpuRange(min=8, max=1024))
    restart = changed(known.reliability.restart, replace_from_queue_s=queue_s)
    reliability = changed(known.reliability, restart=restart, failures_per_1000_node_days=failures)
    return changed(known, offers=(offer,), reliability=reliability)


def supply_notes(job: Job, plan: Plan = PLAN) -> list[str]:
    warnings = simulate_plan(job, plan, with_sensitivities=False).warnings
    return [warning for warning in warnings if "are in use" in warning]


# 6.5 failures in 1,000 days of each of 128 nodes, half of which take a node away: one in 2.4 days. Each then takes 3 days
# instead of two hours, so that the run takes about twice as long.
def test_the_note_has_the_run_that_waits_for_repairs_alone() -> None:
    (note,) = supply_notes(job_with(NUM_NODES))
    lent, alone = (
        simulate_plan(job_with(NUM_NODES, queue_s=queue_s), PLAN, with_sensitivities=False).design
        for queue_s in (7200.0, REPAIR_S)
    )
    assert lent is not None
    assert alone is not None
    assert 1.9 < alone.time_to_train_days / lent.time_to_train_days < 2.4
    assert note.startswith("All 128 nodes of offers[0].max_nodes are in use.")
    change = human.change(alone.time_to_train_days / lent.time_to_train_days - 1.0)
    assert f"and takes {human.days(alone.time_to_train_days)} ({change})" in note
    assert "set reliability.restart.replace_from_queue_s=259200," in note


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(job_with(None), id="nobody says how many nodes there are"),
        pytest.param(job_with(NUM_NODES + 1), id="a node is left"),
        pytest.param(job_with(NUM_NODES, queue_s=REPAIR_S), id="no nodes from elsewhere are assumed"),
        pytest.param(job_with(NUM_NODES, failures=0.05), id="hardly a node fails"),
    ],
)
def test_elsewhere_there_is_none(job: Job) -> None:
    assert supply_notes(job) == []


def test_spares_that_suffice_need_no_other_nodes() -> None:
    spared = PLAN.model_copy(update={"num_spare_nodes": 6})
    assert supply_notes(job_with(NUM_NODES + 6), spared) == []
