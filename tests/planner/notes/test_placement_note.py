"""Does a note say which nodes to use if groups do not fill a link domain?"""

from __future__ import annotations

import pytest

from planner.notes.placement_note import placement_notes
from planner.one_design.simulated_design import simulate_plan
from simulator.domain.job import Job
from simulator.domain.plan import Plan
from tests.simulator.builders import job_of, plan_of, rented, training


def job_on(accelerator: str) -> Job:
    workload = training("deepseek-v3", sequence_length=4096, global_batch_size=8192)
    return job_of(workload, rented(accelerator))


RACKS = job_on("gb200")


def test_groups_of_64_in_racks_of_72_need_16_of_18_nodes_of_64_racks() -> None:
    plan = plan_of(expert=64, data=2048, pipeline=2)
    (note,) = placement_notes(RACKS, plan)
    # 4,096 accelerators, 64 of each rack; whole racks are 64 x 18 nodes where 1,024 are counted.
    assert "take 16 of the 18 nodes of each of 64 domains (Slurm: --segment=16)" in note
    assert "Whole domains would take 1,152 nodes, 12.5 % more" in note
    assert note in simulate_plan(RACKS, plan, with_sensitivities=False).warnings


def test_whole_nodes_are_taken_where_groups_do_not_fill_them() -> None:
    (note,) = placement_notes(RACKS, plan_of(tensor=10, data=64))
    # Groups of 10 and nodes of 4: 60 accelerators of a rack, for 640 of them 11 racks.
    assert "of which each holds 6: take 15 of the 18 nodes of each of 11 domains" in note


def test_the_largest_groups_are_kept_together_where_not_all_of_them_fill_whole_nodes() -> None:
    # 96 accelerators are groups of 12 and of 32, and more than a rack has; 32 are whole nodes.
    (note,) = placement_notes(RACKS, plan_of(tensor=12, expert=32, data=64))
    assert note.startswith(
        "Groups of 32 accelerators are simulated inside link domains of 72, of which each holds 2:"
    )


def test_a_last_rack_with_few_accelerators_is_no_rack_to_fill_last() -> None:
    # 512 = 7 x 72 + 8: eight racks of 64.
    (note,) = placement_notes(RACKS, plan_of(tensor=8, data=64))
    assert "over 8 link domains of 72: take 16 of the 18 nodes of each" in note
    assert "which would hold only 8 accelerators" in note
    # 3,904 = 54 x 72 + 16: 55 racks of 70.98, 17.7 nodes.
    (note,) = placement_notes(RACKS, plan_of(tensor=8, data=488))
    assert "take 17 or 18 of the 18 nodes of each" in note
    assert not placement_notes(RACKS, plan_of(tensor=8, pipeline=64))  # no replicas


@pytest.mark.parametrize(
    ("job", "plan"),
    [
        (RACKS, plan_of(tensor=8, expert=8, data=512)),  # 72 = 9 x 8
        (RACKS, plan_of(expert=128, data=2048, pipeline=2)),  # crosses racks as it is simulated
        (RACKS, plan_of(expert=64, data=64)),  # one rack
        (RACKS, plan_of(tensor=10, data=7).model_copy(update={"num_gpus": 72})),  # all of it
        (job_on("h100-sxm5-80gb"), plan_of(expert=8, data=4096)),
    ],
)
def test_groups_that_fill_domains_or_cross_them_anyway_are_no_reason_for_a_remark(
    job: Job, plan: Plan
) -> None:
    assert not placement_notes(job, plan)
