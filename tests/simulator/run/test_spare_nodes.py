"""How long does a run wait for another node where no spare is left? That follows from what its offer has left."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.domain.job import Job
from simulator.domain.plan import CheckpointScheme, Plan, PlanTable
from simulator.run.spare_nodes import USUAL_QUEUE_S, max_loans, queue_wait_s, sufficient_spare_nodes
from simulator.simulate import replicate, simulate
from tests.support import H100_RENTED, job_with

REPAIR_DAYS = 2
MUCH_LATER_S = 1e9
"""A wait for other nodes that is longer than any repair."""
NUM_NODES = 32
PLAN = Plan(offer=0, num_gpus=8 * NUM_NODES, data_parallel=8 * NUM_NODES)
NODES_LEFT = range(12)


def job_of(left: int | None = None, **restart: float) -> Job:
    """The job on an offer that has so many nodes beside those of the plan."""
    most = {} if left is None else {"max_nodes": NUM_NODES + left}
    return job_with(
        {**H100_RENTED, "num_gpus": {"min": 8, "max": 8 * NUM_NODES}, **most},
        workload={"tokens": 1e12, "global_batch_size": 256},
        reliability={"preset": "harsh", "repair_days": REPAIR_DAYS, "restart": restart},
    )


def plans_of(*spares: int, **fields: object) -> PlanTable:
    return PlanTable.from_plans([PLAN.model_copy(update={"num_spare_nodes": n, **fields}) for n in spares])


def enough_spares() -> int:
    return int(sufficient_spare_nodes(job_of(), plans_of(0))[0])


def test_nodes_that_are_no_spares_can_be_borrowed() -> None:
    assert max_loans(job_of(5), plans_of(0, 2, 5)).tolist() == [5.0, 3.0, 0.0]
    assert max_loans(job_of(), plans_of(0, 2)).tolist() == [np.inf, np.inf]
    assert queue_wait_s(job_of(5).reliability) == USUAL_QUEUE_S


def test_more_nodes_that_are_left_never_lengthen_a_run_and_the_last_of_them_hardly_matter() -> None:
    walls = np.array([simulate(job_of(left), plans_of(0)).run.wall_time_s[0] for left in NODES_LEFT])
    endless_s = simulate(job_of(), plans_of(0)).run.wall_time_s[0]
    assert (np.diff(walls) < 0.0).all()
    assert walls[0] > 1.05 * endless_s
    assert endless_s < walls[-1] < 1.0001 * endless_s


def test_a_run_is_the_same_in_any_company() -> None:
    job = job_with(
        {**H100_RENTED, "num_gpus": {"min": 8, "max": 8 * NUM_NODES}, "max_nodes": NUM_NODES + 8},
        workload={"tokens": 1e12, "global_batch_size": 256},
        reliability={"preset": "harsh", "repair_days": REPAIR_DAYS},
    )
    half = PLAN.model_copy(update={"num_gpus": PLAN.num_gpus // 2, "data_parallel": PLAN.data_parallel // 2})
    plans = PlanTable.from_plans([half, *(PLAN.model_copy(update={"num_spare_nodes": n}) for n in (0, 3, 8))])
    together = simulate(job, plans).run.columns()
    for row in range(len(plans)):
        alone = simulate(job, plans.take(slice(row, row + 1))).run.columns()
        for name, column in together.items():
            assert alone[name][0] == column[row], name


def test_every_further_spare_shortens_the_run_on_nodes_that_are_few() -> None:
    few = enough_spares() - 1
    walls = simulate(job_of(few), plans_of(*range(few + 1))).run.wall_time_s
    assert (np.diff(walls) < 0.0).all()


@pytest.mark.parametrize("scheme", [CheckpointScheme.ASYNC, CheckpointScheme.REPLICA_FT])
@pytest.mark.parametrize("fails_during_restart", [False, True])
@pytest.mark.parametrize("left", [0, 1])
def test_few_nodes_are_like_others_that_come_after_all_repairs(
    scheme: CheckpointScheme, left: int, *, fails_during_restart: bool
) -> None:
    """A run whose nodes also fail while it waits gets no node after a repair that was needed for another one."""
    plans = plans_of(left, checkpoint_scheme=scheme, zero_stage=0)
    jobs = (
        job_of(left),
        job_of(left, replace_from_queue_s=MUCH_LATER_S),
        job_of(left, replace_from_queue_s=USUAL_QUEUE_S),
    )
    fleets = (
        job.reliability.model_copy(update={"fails_during_restart": fails_during_restart}) for job in jobs
    )
    few, told, usual = (
        job.model_copy(update={"reliability": fleet}) for job, fleet in zip(jobs, fleets, strict=True)
    )
    ends, as_told, shorter = (simulate(job, plans) for job in (few, told, usual))
    assert ends.run.wall_time_s.tolist() == as_told.run.wall_time_s.tolist()
    assert np.isfinite(ends.run.wall_time_s).all()
    assert (ends.run.wall_time_s > shorter.run.wall_time_s).all()
    played, played_as_told = (
        replicate(job, plans, found, num_replications=50, seed=1)
        for job, found in ((few, ends), (told, as_told))
    )
    assert played.wall_s.tolist() == played_as_told.wall_s.tolist()


def test_what_the_job_says_of_the_queue_holds() -> None:
    job = job_of(0, replace_from_queue_s=600.0)
    assert queue_wait_s(job.reliability) == 600.0
    assert max_loans(job, plans_of(0, 0)).tolist() == [np.inf, np.inf]
