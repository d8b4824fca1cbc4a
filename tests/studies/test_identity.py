"""When do two studies count as the same, and when may they share simulations?"""

from __future__ import annotations

import numpy as np
import pytest

from constraints.space import pruned_space
from simulator.domain.job import Job, Objective
from simulator.domain.limits import Limits
from simulator.domain.offer import Estimate
from simulator.domain.ownership import Ownership
from simulator.simulate import simulate
from studies.files.identity import Identity
from tests.studies.study_jobs import small_job

JOB = small_job(tensor_parallel=[1, 2], pipeline_parallel=[1], context_parallel=[1])


def changed(job: Job, **fields: object) -> Job:
    return job.model_copy(update=fields)


def dearer(job: Job) -> Job:
    price = Estimate(low=8.0, mid=9.0, high=10.0)
    return changed(
        job, offers=tuple(o.model_copy(update={"rent_usd_per_gpu_hour": price}) for o in job.offers)
    )


WORTH_ONLY = {
    "prices": dearer(JOB),
    "limits": changed(JOB, limits=Limits(deadline_days=3.0, deadline_probability=0.9)),
    "objectives": changed(JOB, objectives=(Objective.COST,)),
    "ownership": changed(JOB, ownership=Ownership(lifetime_years=2.0)),
    "search": changed(JOB, search=JOB.search.model_copy(update={"population_size": 17})),
    "name": changed(JOB, name="another name"),
}
"""Changes that only change what designs are worth or which are tried."""


@pytest.mark.parametrize("change", WORTH_ONLY)
def test_what_designs_are_worth_changes_the_study_but_not_its_simulations(change: str) -> None:
    plans = pruned_space(JOB).designs().take(slice(0, None, 40))
    before, after = Identity.of(JOB, 0), Identity.of(WORTH_ONLY[change], 0)
    assert before.study != after.study
    assert before.simulation == after.simulation
    expected = simulate(JOB, plans).columns()
    for name, column in simulate(WORTH_ONLY[change], plans).columns().items():
        np.testing.assert_array_equal(column, expected[name], err_msg=name)


def test_what_designs_come_to_changes_the_simulations() -> None:
    longer = changed(JOB, workload=JOB.workload.model_copy(update={"tokens": 3e11}))
    calmer = changed(JOB, reliability=JOB.reliability.model_copy(update={"failures_per_1000_node_days": 0.5}))
    colder = changed(JOB, site=JOB.site.model_copy(update={"power_usage_effectiveness": 1.01}))
    swapped = changed(JOB, offers=JOB.offers[::-1])
    fewer = changed(JOB, offers=(JOB.offers[0].model_copy(update={"max_nodes": 8}), *JOB.offers[1:]))
    hashes = {Identity.of(job, 0).simulation for job in (JOB, longer, calmer, colder, swapped, fewer)}
    assert len(hashes) == 6


def test_a_job_that_was_written_and_read_is_the_same_study() -> None:
    again = Job.model_validate_json(JOB.model_dump_json())
    assert Identity.of(again, 3) == Identity.of(JOB, 3)
    assert Identity.of(again, 4).study != Identity.of(JOB, 3).study


def test_a_study_that_keeps_fronts_is_another_one_of_the_same_simulations() -> None:
    every, fronts = Identity.of(JOB, 3), Identity.of(JOB, 3, "front")
    assert every.study != fronts.study
    assert (every.simulation, every.job, every.code) == (fronts.simulation, fronts.job, fronts.code)
