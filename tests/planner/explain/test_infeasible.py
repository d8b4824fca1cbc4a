"""Are limits that no design meets named, with the smallest relaxation of each?"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from itertools import combinations, count

import numpy as np
import pytest

from constraints.evaluation import Evaluation
from constraints.limits import LIMIT_NAMES, with_limits
from constraints.space import pruned_space
from planner.answer.recommend import recommend
from planner.explain.infeasible import explain
from planner.recommended.recommendation import Infeasibility
from planner.text import human
from simulator.domain.limits import Limits
from simulator.domain.search_options import Search
from simulator.table import Booleans
from tests.planner.explained import JOB, every_design, explained, fits, least
from tests.support import H100_RENTED, job_with


def assert_relaxations_work_and_are_the_least(limits: Mapping[str, float], answer: Infeasibility) -> None:
    assert answer.relaxations
    for relaxation in answer.relaxations:
        assert all(value > limits[name] for name, value in relaxation.limits.items())
        assert fits({**limits, **relaxation.limits})
        if len(relaxation.limits) == 1:
            ((name, value),) = relaxation.limits.items()
            lower = (
                value - 1.0 if name == "num_gpus" else value * (1.0 - 1.1e-3)
            )  # beyond the next of four digits
            assert not fits({**limits, name: lower})


@pytest.mark.short(2)
@pytest.mark.parametrize("name", ["budget_usd", "deadline_days", "power_w", "carbon_kgco2e"])
def test_one_limit_that_no_design_keeps_is_named_with_the_least_that_works(name: str) -> None:
    limits = {name: least(name) * 0.5}
    answer = explained(limits)
    assert answer.conflict == (name,)
    assert [set(relaxation.limits) for relaxation in answer.relaxations] == [{name}]
    assert answer.relaxations[0].limits[name] == pytest.approx(least(name), rel=1e-3)  # four digits
    assert answer.reasons[0].startswith(f"{name} = ")
    assert_relaxations_work_and_are_the_least(limits, answer)


def test_other_limits_that_are_kept_do_not_count_as_conflict() -> None:
    limits = {"budget_usd": least("budget_usd") * 0.5, "deadline_days": 1000.0, "num_gpus": 64.0}
    answer = explained(limits)
    assert answer.conflict == ("budget_usd",)
    assert "removing the other limits does not lower it" in answer.reasons[0]
    assert "CP-SAT" in answer.proof
    assert_relaxations_work_and_are_the_least(limits, answer)


def test_limits_that_must_be_kept_with_a_probability_are_named_with_it() -> None:
    days = {"deadline_days": 1.001 * least("deadline_days")}
    assert fits(days)
    limits = Limits.model_validate({**days, "deadline_probability": 0.95})
    surely = JOB.model_copy(update={"limits": limits})
    answer = explained(days, surely)
    assert answer.reasons[0].startswith(
        f"deadline_days = {human.figure(days['deadline_days'])} in 95.0 % of all runs cannot be met"
    )


def test_a_limit_that_the_bounds_admit_but_no_simulated_design_keeps_is_named_alone() -> None:
    limits = {"budget_usd": least("budget_usd") * 0.9999, "deadline_days": 1000.0, "num_gpus": 64.0}
    answer = explained(limits)
    assert answer.conflict == ("budget_usd",)
    assert "exhaustion" in answer.proof
    assert fits({**limits, **answer.relaxations[0].limits})


def two_that_clash() -> dict[str, float]:
    """A deadline for many accelerators, and power for few of them; each alone is easily kept."""
    return {"deadline_days": least("deadline_days") * 1.2, "power_w": least("power_w") * 1.2}


def test_two_limits_that_clash_are_named_together_and_each_can_give_way() -> None:
    limits = two_that_clash()
    assert fits({"power_w": limits["power_w"]})
    assert fits({"deadline_days": limits["deadline_days"]})
    answer = explained({**limits, "budget_usd": 1e9})
    assert answer.conflict == ("deadline_days", "power_w")
    assert sorted(name for relaxation in answer.relaxations for name in relaxation.limits) == sorted(limits)
    for name in limits:
        others = {other: limit for other, limit in limits.items() if other != name}
        (value,) = (r.limits[name] for r in answer.relaxations if name in r.limits)
        assert value == pytest.approx(least(name, others), rel=1e-3)  # four digits
    assert all("without the other limits it is" in reason for reason in answer.reasons)
    assert_relaxations_work_and_are_the_least(limits, answer)


def test_the_smallest_change_comes_first() -> None:
    limits = two_that_clash()
    changes = [
        value / limits[name] for r in explained(limits).relaxations for name, value in r.limits.items()
    ]
    assert changes == sorted(changes)


def test_one_limit_between_two_partners_is_the_only_one_that_can_give_way() -> None:
    # Few accelerators alone can be cheap and draw little; but not by the deadline, which clashes with both.
    limits = {**two_that_clash(), "num_gpus": 16.0}
    answer = explained(limits)
    assert "deadline_days" in answer.conflict
    assert len(answer.conflict) == 2
    assert [set(relaxation.limits) for relaxation in answer.relaxations] == [{"deadline_days"}]
    assert_relaxations_work_and_are_the_least(limits, answer)


def test_independent_conflicts_are_all_named_and_changed_together() -> None:
    limits = {
        "budget_usd": least("budget_usd") * 0.5,
        "deadline_days": 1000.0,
        "power_w": least("power_w") * 0.7,
    }
    answer = explained(limits)
    assert answer.conflict == ("budget_usd", "power_w")
    assert answer.conflicts == (("budget_usd",), ("power_w",))
    for name, resolution in zip(answer.conflict, answer.resolutions, strict=True):
        assert resolution == {name: pytest.approx(least(name), rel=1e-3)}  # four digits
    assert [set(relaxation.limits) for relaxation in answer.relaxations] == [{"budget_usd", "power_w"}]
    assert [reason.partition(" = ")[0] for reason in answer.reasons[:2]] == ["budget_usd", "power_w"]
    assert "the nearest design reaches" in answer.reasons[-1]
    assert "meets budget_usd, and none power_w, even at bounds" in answer.proof
    assert "exhaustion" not in answer.proof
    assert_relaxations_work_and_are_the_least(limits, answer)


def test_what_bounds_do_not_prove_is_proven_by_simulation_beside_what_they_do() -> None:
    limits = {"budget_usd": least("budget_usd") * 0.9999, "power_w": least("power_w") * 0.7}
    answer = explained(limits)
    assert answer.conflicts == (("budget_usd",), ("power_w",))
    bounds = pruned_space(JOB).bounds
    num_admitted = int((bounds.fits_memory & (bounds.budget_usd <= limits["budget_usd"])).sum())
    assert f"none of {len(bounds):,} layouts meets power_w, even at bounds" in answer.proof
    assert f"all {num_admitted:,} whose bounds meet budget_usd were simulated" in answer.proof


def test_a_clash_beside_an_impossible_limit_is_named_with_it() -> None:
    limits = {**two_that_clash(), "carbon_kgco2e": least("carbon_kgco2e") * 0.5}
    answer = explained(limits)
    assert set(answer.conflict) == set(limits)
    assert any("deadline_days" in reason and "together" in reason for reason in answer.reasons)
    assert_relaxations_work_and_are_the_least(limits, answer)


def kept_by(limits: Mapping[str, float], names: Collection[str]) -> Booleans:
    """Which designs keep some of the limits, by trying all of them."""
    _, values, possible = every_design()
    kept = possible.copy()
    for name in names:
        kept &= values[name] <= limits[name]
    return kept


def assert_conflicts_are_minimal(limits: Mapping[str, float], answer: Infeasibility) -> None:
    """Compares the conflicts with all subsets of the limits, and what ends each with all designs."""
    minimal = {
        frozenset(names)
        for size in range(1, len(limits) + 1)
        for names in combinations(limits, size)
        if not kept_by(limits, names).any()
        and all(kept_by(limits, fewer).any() for fewer in combinations(names, size - 1))
    }
    named = set(map(frozenset, answer.conflicts))
    is_joint = any(len(relaxation.limits) > 1 for relaxation in answer.relaxations)
    assert named == minimal if is_joint else len(named & minimal) == len(named) == 1
    assert set(answer.conflict) == {name for conflict in named for name in conflict}
    for conflict, resolution in zip(answer.conflicts, answer.resolutions, strict=True):
        assert tuple(resolution) == conflict
        for name, value in resolution.items():
            kept = kept_by(limits, set(conflict) - {name})
            assert value == pytest.approx(every_design()[1][name][kept].min(), rel=1e-3)  # four digits


@pytest.mark.short(4)
@pytest.mark.parametrize("seed", range(12))
def test_the_conflict_is_one_and_leaving_a_limit_of_it_out_resolves_it(seed: int) -> None:
    _, values, possible = every_design()
    random = np.random.default_rng(seed)
    names = [str(name) for name in random.choice(LIMIT_NAMES, size=random.integers(2, 6), replace=False)]
    shares = random.uniform(0.0, 0.25, len(names))
    limits = {
        name: float(np.quantile(values[name][possible], share)) * 1.001
        for name, share in zip(names, shares, strict=True)
    }
    if "num_gpus" in limits:
        limits["num_gpus"] = float(np.ceil(limits["num_gpus"]))

    def can_keep(chosen: tuple[str, ...]) -> bool:
        kept = possible.copy()
        for name in chosen:
            kept = kept & (values[name] <= limits[name])
        return bool(kept.any())

    limited = with_limits(JOB, limits)
    answer = explain(limited, pruned_space(limited))
    if can_keep(tuple(limits)):
        assert isinstance(answer, Evaluation)
        assert answer.is_feasible.all()
        return
    assert isinstance(answer, Infeasibility)
    assert not can_keep(answer.conflict)
    assert_conflicts_are_minimal(limits, answer)
    helpful = {name for name in limits if can_keep(tuple(other for other in limits if other != name))}
    if helpful:
        assert {name for relaxation in answer.relaxations for name in relaxation.limits} == helpful
        assert helpful <= set(answer.conflict)
        for name in answer.conflict:
            assert can_keep(tuple(other for other in answer.conflict if other != name))
    assert_relaxations_work_and_are_the_least(limits, answer)


def test_a_power_limit_is_relaxed_to_what_capped_accelerators_draw() -> None:
    # Under a power limit designs may cap their accelerators; the proposal must count on that as the next run will.
    job = job_with(limits={"power_w": 1000.0}, search={"micro_batch_sizes": [1]})
    answer = explain(job, pruned_space(job))
    assert isinstance(answer, Infeasibility)
    (relaxation,) = answer.relaxations
    assert relaxation.example.plan.power_cap_fraction == 0.6
    assert fits(relaxation.limits, job)


def test_where_the_search_missed_a_design_it_is_returned() -> None:
    limited = with_limits(JOB, {"budget_usd": least("budget_usd") * 1.01, "deadline_days": 1000.0})
    found = explain(limited, pruned_space(limited))
    assert isinstance(found, Evaluation)
    assert len(found) > 0
    assert found.is_feasible.all()


def test_a_missed_design_that_is_the_least_for_several_limits_is_returned_once() -> None:
    job = job_with(search={"micro_batch_sizes": [1], "zero_stages": [1], "recompute": ["full"]})
    limited = with_limits(job, {"budget_usd": 1e9, "deadline_days": 1e3, "carbon_kgco2e": 1e9})
    found = explain(limited, pruned_space(limited))
    assert isinstance(found, Evaluation)
    # The fewest accelerators wait least for each other: they cost least and emit least. The most are the fastest.
    assert found.plans.num_gpus.tolist() == [16, 64]
    assert found.scores.cost_usd[0] < found.scores.cost_usd[1]
    assert found.scores.carbon_kgco2e[0] < found.scores.carbon_kgco2e[1]


def test_a_design_that_only_the_proof_finds_is_refined_like_any_other() -> None:
    search = {**JOB.search.model_dump(), "algorithm": "random", "max_evaluations": 1, "num_refinements": 3}
    job = with_limits(JOB, {"budget_usd": least("budget_usd") * 1.01, "deadline_days": 1000.0})
    job = job.model_copy(update={"search": Search.model_validate(search)})
    answer = recommend(job, tracking=False, seed=1)  # whose one design breaks the budget
    assert answer.recommendation is not None
    # One by chance, one for each limit by the proof, three changes of each that is on the front.
    assert answer.num_evaluated >= 1 + 1 + 3
    told = re.fullmatch(r"at most 1 random .*; Optuna refined the front with (\d+) more", answer.algorithm)
    assert told is not None
    assert 3 <= int(told[1]) <= answer.num_evaluated - 2


def test_an_answer_says_that_no_time_was_left_to_refine_its_front() -> None:
    search = {**JOB.search.model_dump(), "algorithm": "random", "max_seconds": 1e-9, "num_refinements": 3}
    job = JOB.model_copy(update={"search": Search.model_validate(search)})
    answer = recommend(job, tracking=False, with_report=False)
    assert answer.algorithm.endswith("; no time was left to refine the front (search.max_seconds)")


def test_a_job_without_limits_has_a_design() -> None:
    found = explain(with_limits(JOB, {}), pruned_space(JOB))
    assert isinstance(found, Evaluation)
    assert found.is_feasible.all()


@pytest.mark.parametrize("num_rounds", [0, 1, 2, 3])
def test_an_explanation_that_is_stopped_claims_nothing(num_rounds: int) -> None:
    limited = with_limits(JOB, {"budget_usd": least("budget_usd") * 0.5, "power_w": least("power_w") * 0.7})
    rounds = count()
    answer = explain(limited, pruned_space(limited), should_stop=lambda: next(rounds) >= num_rounds)
    assert isinstance(answer, Evaluation)
    assert len(answer) == 0


def test_a_batch_that_nothing_divides_has_no_layout() -> None:
    job = job_with(
        workload={"global_batch_size": 7}, search={"tensor_parallel": [1], "pipeline_parallel": [1]}
    )
    answer = explain(job, pruned_space(job))
    assert isinstance(answer, Infeasibility)
    assert answer.conflict == ("whole_nodes", "batch")  # 1 or 7 replicas of up to 4 ranks fill no whole nodes
    assert "batch of 7 sequences" in answer.reasons[0]
    assert "h100-sxm5-80gb 16..64" in answer.reasons[0]
    assert answer.relaxations == ()


@pytest.mark.parametrize(
    ("search", "conflict", "way_out"),
    [
        ({"pipeline_schedules": ["zb_v"], "virtual_pipeline": [1]}, ("schedule",), "change pipeline_schedule"),
        ({"pipeline_schedules": ["zb_h1"], "zero_stages": [3]}, ("weight_gradients",), "change pipeline_schedule"),
        # What is not sharded at all is not sharded in groups.
        ({"hybrid_sharding": [True], "zero_stages": [0]}, ("shard_groups",), "change shard_ranks"),
    ],
)  # fmt: skip
def test_choices_that_no_layout_can_have_are_at_fault_where_degrees_are_not(
    search: dict[str, object], conflict: tuple[str, ...], way_out: str
) -> None:
    job = job_with(search=search)
    answer = explain(job, pruned_space(job))
    assert isinstance(answer, Infeasibility)
    assert answer.conflict == conflict
    assert f"no layout that the job allows meets {conflict[0]}; {way_out}" in answer.reasons[0]


def test_schemes_that_no_layout_can_have_are_at_fault_where_degrees_are_not() -> None:
    job = job_with(search={"checkpoint_schemes": ["replica_ft"], "zero_stages": [1]})
    answer = explain(job, pruned_space(job))
    assert isinstance(answer, Infeasibility)
    assert answer.conflict == ("live_replica",)
    assert answer.reasons[0].startswith("no layout supports replica_ft; allow other")


@pytest.mark.parametrize(("scheme", "is_told"), [("async", True), ("replica_ft", False)])
def test_the_nearest_cluster_is_told_where_it_has_a_layout(scheme: str, is_told: bool) -> None:
    """With ZeRO no second replica has the same states, so no cluster has a layout that live replicas could save."""
    search = {"tensor_parallel": [8], "pipeline_parallel": [4], "checkpoint_schemes": [scheme]}
    job = job_with({**H100_RENTED, "num_gpus": 8}, search=search)
    answer = explain(job, pruned_space(job))
    assert isinstance(answer, Infeasibility)
    assert answer.conflict == ("gpu_range",)
    assert ("the nearest number of accelerators that has a layout is 32" in answer.reasons) == is_told
