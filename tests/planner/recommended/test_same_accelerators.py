"""Are the best designs with other choices those that a search finds which allows nothing else?"""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pytest

from constraints.evaluation import Evaluation, evaluate
from constraints.layout import is_valid_layout
from constraints.scheme_rules import can_save_by
from constraints.space import pruned_space
from planner import recommend
from planner.one_design.simulated_design import simulate_plan
from planner.recommended import same_accelerators as module
from planner.recommended.comparisons import OtherChoice
from planner.recommended.recommendation import Recommendation
from planner.recommended.same_accelerators import CHOICES, ROOMY_FRACTION, same_accelerators
from simulator.domain.hardware import Precision
from simulator.domain.job import Job, Objective
from simulator.domain.limits import Limits
from simulator.domain.plan import CheckpointScheme, Plan, PlanTable, Recompute, Schedule
from simulator.units import DAY
from tests.simulator.builders import changed, job_of, plan_of, rented, training

ASYNC = CheckpointScheme.ASYNC
TIGHT = plan_of(data=16, zero=2, micro_batch=2).model_copy(update={"offer": 1})
"""Fills 89 % of the memory of 16 accelerators."""


def on_sixteen(**search: object) -> Job:
    """Llama 3.1 8B on 16 accelerators of the second offer, with all sharding in pipelines, too."""
    offer = rented("h100-sxm5-80gb")
    sixteen = changed(offer, num_gpus=changed(offer.num_gpus, min=8, max=16))
    job = job_of(training("llama-3.1-8b", global_batch_size=64), rented("a100-sxm4-80gb"), sixteen)
    allowed = {
        "num_refinements": 0,
        "checkpoint_schemes": (ASYNC,),
        "with_spares": (False,),
        "zero_stages": (1, 2, 3),
        **search,
    }
    return changed(job, search=changed(job.search, **allowed))


def searched(job: Job) -> Recommendation:
    """What a search recommends on exactly 16 accelerators of the second offer."""
    offer = job.offers[1]
    exactly = changed(offer, num_gpus=changed(offer.num_gpus, min=16))
    return recommend(changed(job, offers=(exactly,)), tracking=False, with_report=False)


def choices_of(job: Job, plan: Plan = TIGHT) -> dict[tuple[str, object], OtherChoice]:
    return {(each.name, each.value): each for each in same_accelerators(job, plan).choices()}


@pytest.mark.parametrize(
    ("name", "value", "search"),
    [
        ("tensor_parallel", 2, {"tensor_parallel": (2,)}),
        ("pipeline_parallel", 4, {"pipeline_parallel": (4,)}),
        ("context_parallel", 2, {"context_parallel": (2,)}),
        ("micro_batch_size", 4, {"micro_batch_sizes": (4,)}),
        ("recompute", "full", {"recompute": (Recompute.FULL,)}),
        ("zero_stage", 1, {"zero_stages": (1,)}),
    ],
)
def test_it_is_what_a_search_with_this_value_alone_recommends(
    name: str, value: object, search: dict[str, object]
) -> None:
    choice = choices_of(on_sixteen())[name, value]
    best = searched(on_sixteen(**search)).best
    assert best is not None
    assert not choice.violated
    assert choice.plan == best.plan.model_copy(update={"offer": 1})
    assert choice.time_to_train_days == pytest.approx(best.time_to_train_days, rel=1e-12)
    assert choice.objective_values == pytest.approx(best.objective_values, rel=1e-12)


def test_each_choice_has_every_other_value_once_those_that_keep_the_limits_and_are_better_first() -> None:
    job = on_sixteen()
    found = same_accelerators(job, TIGHT).choices()
    assert [name for name, _ in groupby(found, lambda choice: choice.name)] == [
        name for name in CHOICES if any(choice.name == name for choice in found)
    ]
    assert {choice.value for choice in found if choice.name == "micro_batch_size"} == {1, 4, 8}
    assert {choice.value for choice in found if choice.name == "zero_stage"} == {1, 3}
    for _, several in groupby(found, lambda choice: choice.name):
        costs = [(bool(each.violated), each.time_to_train_days) for each in several if not each.violated]
        assert costs == sorted(costs)


def test_a_value_that_no_design_can_have_is_told_with_the_limits_that_rule_it_out() -> None:
    days = choices_of(on_sixteen())["recompute", "full"].time_to_train_days
    assert days is not None
    tight = changed(on_sixteen(), limits=Limits(deadline_days=0.99 * days))
    choice = choices_of(tight)["recompute", "full"]
    assert choice.violated == ("deadline_days",)
    assert choice.plan.recompute is Recompute.FULL
    large = changed(on_sixteen(), workload=training("llama-3.1-70b", global_batch_size=64))
    plan = plan_of(tensor=8, data=2, zero=3, recompute=Recompute.FULL).model_copy(update={"offer": 1})
    assert choices_of(large, plan)["zero_stage", 1].violated == ("memory",)


def large_on_sixteen() -> tuple[Job, Evaluation]:
    """Llama 3.1 70B, of which few designs leave memory free, and all of its designs on 16 accelerators."""
    job = changed(on_sixteen(), workload=training("llama-3.1-70b", global_batch_size=64))
    offer = job.offers[1]
    sixteen = changed(job, offers=(changed(offer, num_gpus=changed(offer.num_gpus, min=16)),))
    return job, evaluate(sixteen, pruned_space(sixteen).designs())


def test_a_value_violates_limits_only_where_no_design_with_it_keeps_them() -> None:
    job, designs = large_on_sixteen()
    times_s = designs.scores.time_to_train_s
    deadline_days = float(np.median(times_s[designs.is_feasible])) / DAY
    kept = designs.take(designs.is_feasible & (times_s <= deadline_days * DAY)).plans
    plan = kept.plan(0).model_copy(update={"offer": 1})
    choices = same_accelerators(changed(job, limits=Limits(deadline_days=deadline_days)), plan).choices()
    assert any(each.violated for each in choices)
    for name in CHOICES:
        keeping = [plan, *(each.plan for each in choices if each.name == name and not each.violated)]
        found = getattr(PlanTable.from_plans(keeping), name)
        assert set(found.tolist()) == set(getattr(kept, name).tolist()), name


def test_the_best_with_a_value_is_the_best_by_what_the_job_prefers() -> None:
    base, designs = large_on_sixteen()
    job = changed(base, objectives=(Objective.TIME, Objective.ENERGY), preference={Objective.ENERGY: 30.0})
    kept = designs.take(designs.is_feasible)
    weights = np.array([1.0, 30.0])
    losses = np.log(kept.objectives(job)) @ weights
    found = same_accelerators(job, kept.plans.plan(0).model_copy(update={"offer": 1})).choices()
    choices = [each for each in found if not each.violated]
    assert choices
    for each in choices:
        value = getattr(PlanTable.from_plans([each.plan]), each.name)[0]
        own = np.log([each.objective_values[name] or np.nan for name in job.objectives]) @ weights
        assert own == pytest.approx(losses[getattr(kept.plans, each.name) == value].min(), rel=1e-12)


def test_the_roomy_plan_is_the_best_of_all_designs_that_leave_memory_free() -> None:
    job, designs = large_on_sixteen()
    summary = designs.outcomes.summary
    is_roomy = summary.peak_memory_bytes <= ROOMY_FRACTION * summary.memory_capacity_bytes
    roomy = designs.take(designs.is_feasible & is_roomy)
    best = int(np.argmin(np.log(roomy.objectives(job)).sum(axis=1)))
    tight = designs.plans.plan(int(np.argmax(summary.peak_memory_bytes)))
    found = same_accelerators(job, tight.model_copy(update={"offer": 1})).best_roomy()
    assert found is not None
    assert found.plans.plan(0) == roomy.plans.plan(best).model_copy(update={"offer": 1})


@pytest.mark.parametrize(
    "knobs",
    [
        pytest.param({"num_spare_nodes": 3}, id="spare nodes"),
        pytest.param({"power_cap_fraction": 0.7}, id="power cap"),
        pytest.param({"checkpoint_interval_s": 1234.0}, id="interval"),
    ],
)
def test_spares_cap_and_saves_are_those_of_the_plan(knobs: dict[str, float]) -> None:
    job = on_sixteen()
    found = choices_of(job, TIGHT.model_copy(update=knobs))
    assert found
    for choice in found.values():
        assert choice.plan.model_dump(include=set(knobs)) == knobs
        times_s = evaluate(job, PlanTable.from_plans([choice.plan])).scores.time_to_train_s
        assert choice.time_to_train_days == pytest.approx(float(times_s[0]) / DAY, rel=1e-12)


def test_other_schemes_save_the_same_design_at_their_own_best_interval() -> None:
    schemes = (CheckpointScheme.SYNC, ASYNC, CheckpointScheme.IN_MEMORY_PEER)
    job = on_sixteen(checkpoint_schemes=schemes)
    rare = TIGHT.model_copy(update={"checkpoint_interval_s": 36_000.0})
    found = {
        name: choice for (kind, name), choice in choices_of(job, rare).items() if kind == "checkpoint_scheme"
    }
    assert set(found) == {"sync", "in_memory_peer"}
    for name, choice in found.items():
        expected = {"checkpoint_scheme": CheckpointScheme(str(name)), "checkpoint_interval_s": None}
        assert choice.plan == rare.model_copy(update=expected)


def test_layouts_that_cannot_be_saved_as_the_plan_is_have_the_first_scheme_that_they_can() -> None:
    job = on_sixteen(checkpoint_schemes=(CheckpointScheme.REPLICA_FT, ASYNC), zero_stages=(0,))
    whole = plan_of(tensor=4, data=4, zero=0, scheme=CheckpointScheme.REPLICA_FT).model_copy(
        update={"offer": 1, "checkpoint_interval_s": 1234.0}
    )
    plans = [each.plan for each in choices_of(job, whole).values() if each.name != "checkpoint_scheme"]
    can_save = can_save_by(job, PlanTable.from_plans(plans), (CheckpointScheme.REPLICA_FT,))[:, 0]
    is_saved = [plan.checkpoint_scheme is CheckpointScheme.REPLICA_FT for plan in plans]
    assert is_saved == can_save.tolist()
    assert len({*is_saved}) == 2
    assert [plan.checkpoint_interval_s for plan in plans] == [1234.0 if each else None for each in is_saved]


def test_a_scheme_that_the_plan_cannot_have_is_no_other_choice() -> None:
    job = on_sixteen(checkpoint_schemes=(CheckpointScheme.REPLICA_FT, ASYNC), zero_stages=(2,))
    assert not can_save_by(job, PlanTable.from_plans([TIGHT]), (CheckpointScheme.REPLICA_FT,)).any()
    plans = [each.plan for each in same_accelerators(job, TIGHT).choices()]
    assert is_valid_layout(job, PlanTable.from_plans(plans)).all()


def test_the_roomy_plan_is_what_a_search_recommends_that_reserves_the_memory() -> None:
    eight = plan_of(data=8, zero=2, micro_batch=2).model_copy(update={"offer": 1})
    roomy = same_accelerators(on_sixteen(), eight).best_roomy()
    job = on_sixteen(memory_headroom_fraction=1.0 - ROOMY_FRACTION)
    offer = changed(job.offers[1], num_gpus=changed(job.offers[1].num_gpus, max=8))
    best = recommend(changed(job, offers=(offer,)), tracking=False, with_report=False).best
    assert best is not None
    assert roomy is not None
    assert roomy.plans.plan(0) == best.plan.model_copy(update={"offer": 1})
    nothing_else = {"zero_stages": (2,), "micro_batch_sizes": (2,), "recompute": (Recompute.NONE,)}
    whole = {f"{kind}_parallel": (1,) for kind in ("tensor", "pipeline", "context")}
    assert same_accelerators(on_sixteen(**nothing_else, **whole), eight).best_roomy() is None


def test_in_a_large_space_only_layouts_near_the_plan_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    def most_changes(choices: dict[tuple[str, object], OtherChoice]) -> int:
        return max(
            sum(int(getattr(each.plan, name) != getattr(TIGHT, name)) for name in CHOICES)
            for each in choices.values()
            if not each.violated
        )

    assert most_changes(choices_of(on_sixteen())) > 2
    monkeypatch.setattr(module, "MOST_LAYOUTS", 10)
    monkeypatch.setattr(module, "MOST_CHANGES", 2)
    assert most_changes(choices_of(on_sixteen())) == 2


LAYERS = {"tensor_parallel": (1,), "context_parallel": (1,)}
GROUPS = {"interleaved_group_sizes": (4, 8), "pipeline_parallel": (1, 4), "virtual_pipeline": (1, 2)}


def test_all_layers_recomputed_is_another_value_than_none() -> None:
    choices = choices_of(on_sixteen(**LAYERS, recompute_num_layers=(2,)))
    some, whole = (choices["recompute_num_layers", number] for number in (2, None))
    best = searched(on_sixteen(**LAYERS, recompute=(Recompute.FULL,))).best
    assert best is not None
    assert whole.plan == best.plan.model_copy(update={"offer": 1})
    assert choices["recompute", "full"].plan in (some.plan, whole.plan)
    assert not any(name == "recompute_num_layers" for name, _ in choices_of(on_sixteen(**LAYERS)))


def test_groups_of_another_size_leave_out_what_is_not_interleaved() -> None:
    job = on_sixteen(**GROUPS)
    interleaved = plan_of(pipeline=4, virtual=2, data=4, group_size=8).model_copy(update={"offer": 1})
    for plan, sizes in ((interleaved, {None}), (TIGHT, {None, 8})):  # left out: as many as there are stages
        others = [each for each in choices_of(job, plan).values() if each.name == "interleaved_group_size"]
        assert {each.value for each in others} == sizes
        assert {each.plan.virtual_pipeline for each in others} == {2}


def test_what_needs_another_choice_ends_with_that_choice_as_one_change() -> None:
    recomputed = plan_of(data=16, recompute=Recompute.FULL, recompute_num_layers=2)
    grouped = plan_of(pipeline=4, virtual=2, data=4, group_size=8)
    for plan, name, value, follows in (
        (recomputed, "recompute", "none", "recompute_num_layers"),
        (grouped, "virtual_pipeline", 1, "interleaved_group_size"),
    ):
        own = plan.model_copy(update={"offer": 1})
        job = on_sixteen(**LAYERS, **GROUPS, recompute_num_layers=(2,))
        found = simulate_plan(job, own, with_sensitivities=False).other_choices
        (choice,) = (each for each in found if (each.name, each.value) == (name, value))
        assert getattr(choice.plan, follows) is None
        differs = {field for field, told in choice.plan if told != getattr(own, field)}
        assert differs == {name, follows}


def test_one_change_is_the_plan_with_that_choice_alone_and_the_replicas_that_follow() -> None:
    plan = plan_of(tensor=2, data=8, zero=2).model_copy(update={"offer": 1})
    job = on_sixteen(checkpoint_schemes=(CheckpointScheme.SYNC, ASYNC))
    found = simulate_plan(job, plan, with_sensitivities=False).other_choices
    assert {each.name for each in found} == {
        *(
            "tensor_parallel",
            "pipeline_parallel",
            "context_parallel",
            "micro_batch_size",
            "recompute",
            "zero_stage",
        ),
        "checkpoint_scheme",
    }
    for each in found:
        changed_plan = plan.model_copy(update={each.name: getattr(each.plan, each.name)})
        replicas = 16 // (
            changed_plan.tensor_parallel * changed_plan.pipeline_parallel * changed_plan.context_parallel
        )
        assert each.plan == changed_plan.model_copy(update={"data_parallel": replicas})
        design = simulate_plan(job, each.plan, with_sensitivities=False).design
        assert design is not None
        assert each.time_to_train_days == pytest.approx(design.time_to_train_days, rel=1e-12)


def test_one_change_tells_what_makes_a_plan_fit() -> None:
    job = changed(on_sixteen(), workload=training("llama-3.1-70b", global_batch_size=64))
    plan = plan_of(tensor=8, data=2, zero=2, recompute=Recompute.FULL).model_copy(update={"offer": 1})
    found = simulate_plan(job, plan, with_sensitivities=False)
    assert [violation.constraint for violation in found.violations] == ["memory"]
    fitting = {(each.name, each.value) for each in found.other_choices if not each.violated}
    assert ("zero_stage", 3) in fitting
    assert ("zero_stage", 1) not in fitting


@pytest.mark.parametrize(
    ("plan", "search"),
    [
        (plan_of(tensor=2, context=8), {}),  # pieces of 1,024 tokens
        (plan_of(tensor=16), {}),  # two link domains
        (plan_of(tensor=4, data=4, micro_batch=16), {}),
        (plan_of(tensor=2, context=2, data=4), {"tensor_parallel": (4,), "context_parallel": (1,)}),
        (plan_of(pipeline=4, data=4, zero=3), {"zero_stages": (1, 2)}),
        (plan_of(pipeline=4, data=4, zero=2), {"zero_stages": None}),
        (plan_of(pipeline=4, data=4), {"pipeline_parallel": (1, 2)}),
        (plan_of(pipeline=4, virtual=3, data=4), {}),  # 12 chunks of 32 layers
        (plan_of(pipeline=4, virtual=2, data=4), {"virtual_pipeline": (1, 4)}),
        (plan_of(pipeline=4, data=4, schedule=Schedule.ZB_H1), {}),
        (plan_of(pipeline=4, virtual=2, data=4, group_size=8), {}),
        (plan_of(data=16, recompute=Recompute.FULL, recompute_num_layers=5), {}),
        (plan_of(data=16, shards=4), {}),  # half a node
        (plan_of(data=16, precision=Precision.FP8), {}),
    ],
)
def test_one_change_is_told_of_a_plan_that_no_search_tries(plan: Plan, search: dict[str, object]) -> None:
    own = plan.model_copy(update={"offer": 1})
    found = simulate_plan(on_sixteen(**search), own, with_sensitivities=False).other_choices
    assert {"tensor_parallel", "micro_batch_size"} <= {each.name for each in found}
    follows = {
        "recompute": {"recompute_num_layers"},
        "virtual_pipeline": {"interleaved_group_size"},
        "checkpoint_scheme": {"checkpoint_interval_s"},
    }
    for each in found:
        differs = {name for name, value in each.plan if value != getattr(own, name)}
        assert {each.name} <= differs <= {each.name, "data_parallel", *follows.get(each.name, ())}


def test_one_change_of_a_listed_pipeline_is_what_the_search_tries_of_all_others() -> None:
    own = plan_of(pipeline=4, virtual=3, data=4).model_copy(update={"offer": 1})
    job = on_sixteen(pipeline_parallel=(1, 2), virtual_pipeline=(1, 2, 8))
    found = simulate_plan(job, own, with_sensitivities=False).other_choices
    values = {name: {each.value for each in some} for name, some in groupby(found, lambda each: each.name)}
    assert values["pipeline_parallel"] == {2}  # one stage has no chunks to interleave
    assert values["virtual_pipeline"] == {1, 2, 8}


def test_one_change_shards_no_more_in_a_pipeline_than_the_search_or_the_plan_does() -> None:
    for plan, stages, pipelines in (
        (plan_of(data=16, zero=2), {1, 3}, set[int]()),
        (plan_of(pipeline=4, data=4, zero=2), {1}, {1, 2, 8, 16}),
        (plan_of(pipeline=4, data=4), set[int](), {1, 2, 8, 16}),
    ):
        own = plan.model_copy(update={"offer": 1})
        found = simulate_plan(on_sixteen(zero_stages=None), own, with_sensitivities=False).other_choices
        assert {each.value for each in found if each.name == "zero_stage"} == stages
        assert {each.value for each in found if each.name == "pipeline_parallel"} == pipelines


def test_an_answer_has_the_choices_of_its_recommended_design() -> None:
    answer = searched(on_sixteen())
    assert answer.best is not None
    job = changed(on_sixteen(), offers=on_sixteen().offers[1:])
    assert answer.other_choices
    assert answer.other_choices == same_accelerators(job, answer.best.plan).choices()
    best_s = answer.best.time_to_train_days
    assert all(
        (choice.time_to_train_days or 0.0) >= best_s for choice in answer.other_choices if not choice.violated
    )
