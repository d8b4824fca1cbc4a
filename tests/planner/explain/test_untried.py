from __future__ import annotations

import pytest

from constraints.lattice import cross_run_knobs, enumerate_layouts
from planner.explain.answer import explain_plan
from planner.explain.untried import untried
from simulator.domain.job import Job
from simulator.domain.plan import Plan, PlanTable
from tests.support import H100_RENTED, job_with

SEARCH = {
    "num_refinements": 0,
    "micro_batch_sizes": [1, 2],
    "pipeline_schedules": ["1f1b", "zb_v"],
    "hybrid_sharding": [True, False],
    "interleaved_group_sizes": [4, 8],
    "recompute_num_layers": [2],
    "with_spares": [True],
}
JOB = job_with({**H100_RENTED, "num_gpus": {"min": 32, "max": 32}}, search=SEARCH)
PLAN = {"tp": 2, "pp": 2, "dp": 8, "num_spare_nodes": 2}


def searched(job: Job) -> PlanTable:
    return cross_run_knobs(job, enumerate_layouts(job))


def choices(job: Job, **changes: object) -> dict[str, tuple[str, tuple[str, ...], str]]:
    found = explain_plan(job, {**PLAN, **changes}).untried
    return {one.choice: (one.value, one.tried, one.field) for one in found}


def test_every_design_of_a_space_is_tried() -> None:
    designs = searched(JOB)
    assert len(designs) > 1_000
    for row in range(0, len(designs), 17):
        assert untried(JOB, designs.plan(row)) == (), designs.plan(row)


def test_a_design_of_a_wider_space_of_which_nothing_is_untried_is_in_the_space() -> None:
    few = {**SEARCH, "tensor_parallel": [2], "checkpoint_schemes": ["async"]}
    more = {
        **few,
        "micro_batch_sizes": [1, 2, 4],
        "zero_stages": [1, 2, 3],
        "interleaved_group_sizes": [2, 4, 8, 16],
        "recompute_num_layers": [2, 3],
        "pipeline_schedules": ["1f1b", "zb_v", "zb_h1"],
        "checkpoint_schemes": ["async", "in_memory_peer"],
    }
    offer = {**H100_RENTED, "num_gpus": {"min": 32, "max": 32}}
    job = job_with(offer, search=few)
    wider = plans_of(job_with(offer, search=more))
    inside = plans_of(job)
    assert len(wider) > 5 * len(inside) > 500
    assert {as_text(plan) for plan in wider if not untried(job, plan)} == {as_text(plan) for plan in inside}


def plans_of(job: Job) -> list[Plan]:
    designs = searched(job)
    return [designs.plan(row) for row in range(len(designs))]


def as_text(plan: Plan) -> str:
    return plan.model_dump_json()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"precision": "fp8"}, ("fp8", ("bf16",), "workload.precisions")),
        ({"mbs": 4, "dp": 8}, ("4", ("1", "2"), "search.micro_batch_sizes")),
        ({"pipeline_schedule": "zb_h1"}, ("zb_h1", ("1f1b", "zb_v"), "search.pipeline_schedules")),
        ({"zero_stage": 2}, ("2", ("1",), "search.zero_stages")),
        ({"shard_ranks": 2}, ("2", ("4", "all"), "search.hybrid_sharding")),
        ({"dp": 4, "shard_ranks": 2}, ("2", ("all",), "search.hybrid_sharding")),
        ({"recompute": "selective"}, ("selective", ("none", "full"), "search.recompute")),
        (
            {"vpp": 4, "interleaved_group_size": 16},
            ("16", ("4", "8"), "search.interleaved_group_sizes"),
        ),
        (
            {"recompute": "full", "recompute_num_layers": 3},
            ("3", ("all", "2"), "search.recompute_num_layers"),
        ),
        (
            {"checkpoint_scheme": "gockpt"},
            ("gradient_assisted", ("sync_sharded", "async", "in_memory_peer"), "search.checkpoint_schemes"),
        ),
        ({"num_spare_nodes": 0}, ("0", ("2",), "search.with_spares")),
        ({"num_spare_nodes": 1}, ("1", ("2",), "search.with_spares")),
        ({"power_cap_fraction": 0.9}, ("0.9", ("1",), "search.power_caps")),
    ],
)
def test_a_choice_beside_the_space_is_told_with_what_is_tried(
    change: dict[str, object], told: tuple[str, tuple[str, ...], str]
) -> None:
    (found,) = choices(JOB, **change).values()
    assert found == told


def test_recomputation_of_scores_is_tried_where_kernels_keep_them() -> None:
    job = job_with(workload={"attention": "unfused"})
    assert "recompute" not in choices(job, recompute="selective")


def test_degrees_of_expert_parallelism_leave_dense_models_alone() -> None:
    assert not choices(job_with(search={"expert_parallel": [2, 4]}))
    experts = job_with(workload={"model": "mixtral-8x7b"}, search={"expert_parallel": [2, 4]})
    assert choices(experts)["expert_parallel"] == ("1", ("2", "4"), "search.expert_parallel")


def test_the_ranks_of_a_node_may_be_all_there_are() -> None:
    job = job_with({**H100_RENTED, "num_gpus": {"min": 16, "max": 16}}, search={"hybrid_sharding": [True]})
    for plan in plans_of(job)[::17]:
        assert untried(job, plan) == (), plan


def test_degrees_beyond_the_defaults_are_told() -> None:
    found = choices(job_with(), tp=2, pp=3, dp=4)
    assert found["pipeline_parallel"][0] == "3"
    assert found["pipeline_parallel"][2] == "search.pipeline_parallel"
    assert "virtual_pipeline" not in found


@pytest.mark.parametrize(
    ("search", "tried"),
    [
        ({"with_spares": [False]}, [0]),
        ({"with_spares": [True, False]}, [0, 2]),
        ({"with_spares": [False, True], "num_refinements": 20}, [0, 1, 2]),
    ],
)
def test_numbers_of_spares_are_none_enough_or_where_refined_between(
    search: dict[str, object], tried: list[int]
) -> None:
    job = job_with(search=search)
    found = {spares: choices(job, num_spare_nodes=spares).get("num_spare_nodes") for spares in range(4)}
    assert [spares for spares, one in found.items() if one is None] == tried
    assert found[3] == ("3", tuple(map(str, tried)), "search.with_spares")


def test_refinement_tries_caps_between_the_lowest_and_the_highest() -> None:
    job = job_with(search={"num_refinements": 20})
    assert "power_cap_fraction" not in choices(job, power_cap_fraction=0.77)
    assert choices(job, power_cap_fraction=0.5)["power_cap_fraction"][0] == "0.5"
