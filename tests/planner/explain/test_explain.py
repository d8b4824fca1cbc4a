"""What does each constraint remove? Tests of explanations of constraints, of one plan and of whole spaces."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from constraints.answers import stepped_caps
from constraints.evaluation import evaluate
from constraints.lattice import candidate_blocks, cross_run_knobs, enumerate_layouts
from constraints.limits import set_limits, with_limits
from constraints.registry import CONSTRAINTS
from docs.explain_page import CONSTRAINTS_PAGE, PURCHASE_PAGE
from docs.generate import constraints_reference, purchase_reference
from planner.cli import commands as cli
from planner.explain.answer import constraint_texts, explain_plan, explain_space
from planner.explain.explanation import Check, PlanExplanation, SpaceExplanation
from planner.explain.view import WAYS_OUT, show_plan, show_space
from planner.one_design.simulated_design import simulate_plan
from planner.recommended.comparisons import OtherChoice
from simulator.domain.job import Job
from simulator.domain.plan import Recompute
from simulator.units import GIB
from tests.support import A100_RENTED, job_with

BLOOM = str(Path(__file__).parents[3] / "examples" / "bloom-176b.yaml")
PLAN = {"tp": 2, "pp": 2, "dp": 8}
JOB = job_with(search={"micro_batch_sizes": [1], "zero_stages": [1], "recompute": ["none", "full"]})


def check_of(explained: PlanExplanation, name: str) -> Check:
    (found,) = (check for check in explained.checks if check.constraint == name)
    return found


def test_every_constraint_of_a_job_is_checked_for_a_plan() -> None:
    checked = [check.constraint for check in explain_plan(JOB, PLAN).checks]
    assert checked == [name for name, one in CONSTRAINTS.items() if one.kind != "purchase"]


def test_a_plan_breaks_what_its_simulation_says_that_it_breaks() -> None:
    job = with_limits(JOB, {"budget_usd": 100.0, "deadline_days": 400.0, "power_w": 1e3})
    for plan in (PLAN, {"tp": 3, "dp": 5}, {"tp": 1, "dp": 16, "checkpoint_scheme": "just_in_time"}):
        broken = [check.constraint for check in explain_plan(job, plan).checks if check.state == "broken"]
        assert broken == [violation.constraint for violation in simulate_plan(job, plan).violations]


def test_what_is_left_of_a_limit_is_its_share_above_the_value() -> None:
    design = simulate_plan(JOB, PLAN, with_sensitivities=False).design
    assert design is not None
    job = with_limits(
        JOB, {"budget_usd": 4 * design.cost_usd, "deadline_days": design.time_to_train_days / 2}
    )
    explained = explain_plan(job, PLAN)
    budget, deadline = check_of(explained, "budget_usd"), check_of(explained, "deadline_days")
    assert (budget.state, deadline.state) == ("kept", "broken")
    assert (budget.value, budget.limit) == pytest.approx((design.cost_usd, 4 * design.cost_usd))
    assert budget.slack_fraction == pytest.approx(0.75)
    assert deadline.slack_fraction == pytest.approx(-1.0)
    assert "exceeded by 100 %; remedy: limits.deadline_days" in deadline.sentence
    memory = check_of(explained, "memory")
    assert (memory.value, memory.limit) == (design.peak_memory_bytes, design.memory_capacity_bytes)


@pytest.mark.parametrize(("headroom", "state"), [(0.25, "kept"), (0.9, "broken")])
def test_memory_that_stays_free_is_no_part_of_what_a_plan_may_fill(headroom: float, state: str) -> None:
    job = job_with(search={"memory_headroom_fraction": headroom})
    memory = check_of(explain_plan(job, PLAN), "memory")
    usable_bytes = (1.0 - headroom) * 80 * GIB
    assert memory.state == state
    assert memory.limit == pytest.approx(usable_bytes)
    assert memory.value is not None
    assert memory.slack_fraction == pytest.approx(1.0 - memory.value / usable_bytes)
    assert f"search.memory_headroom_fraction = {headroom}" in memory.sentence


def test_a_limit_that_is_not_set_still_shows_what_the_plan_comes_to() -> None:
    check = check_of(explain_plan(JOB, PLAN), "num_gpus")
    assert (check.state, check.value, check.limit) == ("not_set", 32.0, None)


def test_nothing_is_known_of_a_plan_that_cannot_run_but_the_rules_that_it_breaks() -> None:
    explained = explain_plan(JOB, {"tp": 3, "dp": 8})
    assert check_of(explained, "attention_heads").state == "broken"
    assert {check_of(explained, name).state for name in ("memory", "progress", "carbon_kgco2e")} == {
        "not_known"
    }


def test_a_probability_is_the_share_of_runs_that_keep_the_limit() -> None:
    days = simulate_plan(JOB, PLAN, with_sensitivities=False).design
    assert days is not None
    tight = {"deadline_days": days.time_to_train_days * 1.001, "deadline_probability": 0.99}
    check = check_of(explain_plan(job_with(limits=tight), PLAN), "deadline_probability")
    assert check.state == "broken"
    assert check.value is not None
    assert 0.3 < check.value < 0.99  # the mean is near the median of a run that fails now and then


def test_ways_out_change_one_choice_and_meet_every_constraint() -> None:
    job = job_with(search={"micro_batch_sizes": [1, 2], "zero_stages": [1, 2, 3]}, limits={"budget_usd": 1e9})
    plan = {"tp": 2, "dp": 16, "mbs": 2, "recompute": "none", "zero_stage": 1}
    whole = simulate_plan(job, plan, with_sensitivities=False).design
    assert whole is not None
    tight = with_limits(job, {"budget_usd": 0.999 * whole.cost_usd})
    explained = explain_plan(tight, plan)
    assert explained.ways_out
    assert {choice.plan for choice in explained.ways_out} == {
        choice.plan
        for choice in simulate_plan(tight, plan, with_sensitivities=False).other_choices
        if explain_plan(tight, choice.plan).is_feasible
    }
    assert not explain_plan(job, plan).ways_out


def test_a_plan_that_cannot_run_has_ways_out_too() -> None:
    schedules = {"pipeline_schedules": ["1f1b", "zb_h1"], "zero_stages": [1, 2]}
    plan = {"tp": 2, "pp": 2, "dp": 8, "zero_stage": 2, "pipeline_schedule": "zb_h1"}
    explained = explain_plan(job_with(search=schedules), plan)
    assert [check.constraint for check in explained.checks if check.state == "broken"] == ["weight_gradients"]
    assert {(choice.name, choice.value) for choice in explained.ways_out} == {
        ("pipeline_schedule", "1f1b"),
        ("zero_stage", 1),
    }


def test_accelerators_that_are_not_on_offer_have_no_way_out() -> None:
    explained = explain_plan(JOB, {"tp": 2, "dp": 1024})
    assert not explained.is_feasible
    assert not explained.ways_out


# Counts of a space, against trying all designs one by one.


def limited_job(**search: object) -> Job:
    wide = {
        "micro_batch_sizes": [1],
        "zero_stages": [1],
        "tensor_parallel": [2, 3, 4],
        "with_spares": [False],
    }
    job = job_with(A100_RENTED, search={**wide, **search})
    layouts = enumerate_layouts(job)
    scores = evaluate(job, cross_run_knobs(job, layouts)).scores
    limits = {
        "budget_usd": float(np.quantile(scores.cost_usd, 0.4)),
        "deadline_days": float(np.quantile(scores.time_to_train_s, 0.4)) / 86_400,
    }
    return with_limits(job, limits)


def test_designs_are_counted_as_if_each_had_been_tried_alone() -> None:
    job = limited_job(checkpoint_schemes=["async", "in_memory_peer"])
    explained = explain_space(job)
    tried = sum(len(block) for block in candidate_blocks(job)) * 2
    designs = cross_run_knobs(job, enumerate_layouts(job))
    result = evaluate(job, designs)
    assert explained.num_tried == tried
    assert explained.num_valid == len(designs) < tried
    assert explained.num_feasible == int(result.is_feasible.sum()) > 0
    heads = [row for row in explained.removed if row.constraint == "attention_heads"]
    # Three does not divide 32 heads, and neither 14,336 columns: what breaks one of the rules breaks the other.
    assert [(row.stage, row.num_only) for row in heads] == [("rules", 0)]
    tensor = np.concatenate([block.tensor_parallel for block in candidate_blocks(job)])
    assert heads[0].num_designs == 2 * int((tensor == 3).sum())
    by_simulation = {
        row.constraint: row.num_designs for row in explained.removed if row.stage == "simulation"
    }
    by_bounds = {row.constraint: row.num_designs for row in explained.removed if row.stage == "bounds"}
    for name in ("budget_usd", "deadline_days"):
        broken = int((getattr(result.excess, name) > 0.0).sum())
        # Bounds remove some of these before the simulation; what they removed for another reason is not simulated.
        assert by_bounds[name] <= broken
        assert by_simulation.get(name, 0) <= broken


def test_a_space_may_be_counted_without_simulating_it() -> None:
    explained = explain_space(limited_job(), simulate_up_to=0)
    assert explained.num_feasible is None
    assert {row.stage for row in explained.removed} == {"rules", "bounds"}


def test_a_limit_binds_where_a_better_design_breaks_it_alone() -> None:
    job = limited_job()
    explained = explain_space(job)
    result = evaluate(job, cross_run_knobs(job, enumerate_layouts(job)))
    kept = result.excess.is_possible
    cost = result.scores.cost_usd
    in_time = result.excess.deadline_days == 0.0
    found = {(one.constraint, one.quantity): one for one in explained.binding}
    assert ("deadline_days", "budget_usd") in found
    binding = found["deadline_days", "budget_usd"]
    assert binding.least == pytest.approx(cost[kept & in_time].min())
    assert binding.least_without == pytest.approx(cost[kept].min())
    loose = with_limits(job, {name: 1e3 * limit for name, limit in set_limits(job).items()})
    assert explain_space(loose).binding == ()


def test_the_least_carbon_is_that_of_every_cap_that_refinement_tries() -> None:
    """No limit is easier to keep under a lower cap, but less is emitted. The interval is given, so that none other is tried."""
    listed = limited_job()
    search = listed.search.model_copy(update={"power_caps": None, "num_refinements": 1})
    given = listed.checkpointing.model_copy(update={"interval_s": 3600.0})
    job = listed.model_copy(update={"search": search, "checkpointing": given})
    designs = cross_run_knobs(job, enumerate_layouts(job))
    carbon = dict.fromkeys(("all", "without deadline_days", "uncapped"), np.inf)
    for cap in stepped_caps(job):
        result = evaluate(job, replace(designs, power_cap_fraction=np.full(len(designs), cap)))
        kept = result.excess.is_possible & (result.excess.budget_usd == 0.0)
        in_time = kept & (result.excess.deadline_days == 0.0)
        chosen = {"all": in_time, "without deadline_days": kept} | (
            {"uncapped": in_time} if cap == 1.0 else {}
        )
        for name, rows in chosen.items():
            carbon[name] = min(carbon[name], float(result.scores.carbon_kgco2e[rows].min()))
    found = {(one.constraint, one.quantity): one for one in explain_space(job, simulate_up_to=0).binding}
    binding = found["deadline_days", "carbon_kgco2e"]
    assert binding.least == pytest.approx(carbon["all"])
    assert binding.least_without == pytest.approx(carbon["without deadline_days"])
    assert carbon["without deadline_days"] < carbon["all"] < carbon["uncapped"]


def test_the_smallest_cluster_is_the_least_of_all_feasible_designs() -> None:
    job = limited_job()
    fewest = explain_space(job, with_fewest=True).fewest
    result = evaluate(job, cross_run_knobs(job, enumerate_layouts(job)))
    assert fewest is not None
    assert fewest.num_gpus == result.plans.num_gpus[result.is_feasible].min()
    assert fewest.bound <= fewest.num_gpus == fewest.design.plan.num_gpus


def test_a_space_without_designs_says_why() -> None:
    explained = explain_space(with_limits(JOB, {"deadline_days": 0.01}), with_fewest=True)
    assert explained.infeasibility is not None
    assert explained.infeasibility.conflict == ("deadline_days",)
    assert (explained.binding, explained.fewest, explained.num_feasible) == ((), None, 0)


def test_the_pages_are_those_of_the_registry_and_the_types() -> None:
    fresh = {CONSTRAINTS_PAGE: constraints_reference(), PURCHASE_PAGE: purchase_reference()}
    for page, text in fresh.items():
        assert page.read_text(encoding="utf-8") == text, "run: python -m docs.generate"


# The command.


def test_all_constraints_are_listed_with_their_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain"]) == 0
    shown = capsys.readouterr().out
    for text in constraint_texts():
        assert f"  {text.name} " in shown
        assert text.sentence[:40] in shown


def test_one_constraint_is_shown_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "feed_forward", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    (text,) = answer["constraints"]
    assert (text["formula"], text["kind"]) == ("t | ffn_hidden_size, and that of vision", "layout")
    assert cli.main(["explain", "feed_forward"]) == 0
    assert "arXiv 1909.08053" in capsys.readouterr().out


def test_a_misspelt_constraint_is_answered_with_the_nearest_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "bugdet_usd"]) == 2
    assert "nearest: budget_usd" in capsys.readouterr().err


def test_a_plan_of_a_job_is_explained_in_words_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["explain", BLOOM, "--plan", "tp=4,pp=12,dp=8,mbs=2", "--set", "limits.num_gpus=320"]
    assert cli.main([*command, "--json"]) == 0
    explained = PlanExplanation.model_validate_json(capsys.readouterr().out)
    broken = [check.constraint for check in explained.checks if check.state == "broken"]
    assert broken == ["memory", "num_gpus"]  # BLOOM recomputed all activations (arXiv 2211.05100)
    assert cli.main(command) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Job bloom-176b: the plan violates 2 constraints\n")
    assert "num_gpus = 384, limits.num_gpus = 320; exceeded by 20.0 %" in " ".join(shown.split())
    assert "meets every constraint None, of the values that the search tries; " in " ".join(shown.split())
    assert cli.main(command[:-2]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Single changes with which it meets every constraint recomputation full (109 days) Met" in shown


def test_ways_out_are_told_of_a_plan_that_violates_some_and_all_layers_as_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    explained = explain_plan(JOB, {"tp": 2, "dp": 1024})
    way_out = OtherChoice(
        name="recompute_num_layers",
        value=None,
        plan=explained.plan.model_copy(update={"recompute": Recompute.FULL}),
        violated=(),
        time_to_train_days=12.0,
        objective_values={},
    )
    show_plan(explained.model_copy(update={"ways_out": (way_out,)}), Console(width=100))
    assert f"{WAYS_OUT} recomputed layers all (12.0 days)" in " ".join(capsys.readouterr().out.split())
    show_plan(explain_plan(JOB, PLAN), Console(width=100))
    assert WAYS_OUT not in capsys.readouterr().out


@pytest.mark.short(2)
@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (
            ["--fewest-gpus"],
            0,
            ("The smallest cluster", "384 x a100-sxm4-80gb", "deadline_days: the lowest cost"),
        ),
        (["--simulate-up-to", "0"], 0, ("were not simulated",)),
        (
            ["--set", "limits.deadline_days=40"],
            3,
            ("deadline_days = 40 cannot be met", "A design exists with"),
        ),
    ],
)
def test_a_job_is_explained_in_words(
    options: list[str], code: int, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["explain", BLOOM, *options]) == code
    shown = " ".join(capsys.readouterr().out.split())
    assert [word for word in words if word not in shown] == []
    assert cli.main(["explain", BLOOM, *options, "--json"]) == code
    SpaceExplanation.model_validate_json(capsys.readouterr().out)


def test_a_job_without_limits_has_none_that_bind(capsys: pytest.CaptureFixture[str]) -> None:
    for limits, told in (({}, "the job sets no limits."), ({"num_gpus": 10**6}, "removing any one of them")):
        explained = explain_space(with_limits(JOB, limits))
        assert explained.has_limits == bool(limits)
        show_space(explained, Console(width=100))
        assert f"Which limits bind None: {told}" in " ".join(capsys.readouterr().out.split())


def test_a_job_may_come_through_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    """As `<(cat job.yaml)` does."""
    ours, its = os.pipe()
    os.write(its, Path(BLOOM).read_bytes())
    os.close(its)
    assert cli.main(["explain", f"/dev/fd/{ours}", "--plan", "tp=4,pp=12,dp=8,mbs=2", "--json"]) == 0
    os.close(ours)
    assert PlanExplanation.model_validate_json(capsys.readouterr().out).checks


@pytest.mark.parametrize("path", ["/dev/null", "/no/such", "jobs"])
def test_what_is_a_path_is_read_as_a_job(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("jobs").mkdir()
    Path("memory").mkdir()
    assert cli.main(["explain", path, "--plan", "tp=4,pp=12,dp=8,mbs=2"]) == 2
    assert capsys.readouterr().err.startswith(f"Error: {path}: ")
    assert cli.main(["explain", "memory"]) == 0


def test_a_name_too_long_for_a_file_is_that_of_no_constraint(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", 1_000 * "x"]) == 2
    assert "is no constraint" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["memory", "--plan", "tp=1"], "need JOB.yaml"),
        (["--fewest-gpus"], "need JOB.yaml"),
        ([BLOOM, "--plan", "tp=1", "--fewest-gpus"], "leave --plan out"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["explain", *words]) == 2
    assert message in capsys.readouterr().err
