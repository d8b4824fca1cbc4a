"""Does `capplan simulate` show one plan in full, and name exactly the rules that an invalid plan violates?"""

from __future__ import annotations

from pathlib import Path

import pytest

import planner
from planner import load_job, recommend, simulate_plan
from planner.cli import commands as cli
from planner.cli.terminal.output import WIDTH
from planner.explain.violations import Violation
from planner.input.plan_input import plan_text
from planner.one_design.simulated_design import SimulatedDesign
from planner.one_design.stage_memory import stage_rows
from planner.one_design.step_operators import seconds_by_operator
from planner.text.human import duration
from simulator.domain.plan import CheckpointScheme, Plan, Recompute
from tests.planner.simulated import AS_IT_WAS_RUN, BLOOM, answer


def only(found: SimulatedDesign) -> Violation:
    (violation,) = found.violations
    return violation


def test_bloom_as_it_was_run_comes_to_what_was_logged(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, AS_IT_WAS_RUN)
    assert found.is_feasible
    assert found.violations == ()
    design = found.design
    assert design is not None
    assert (design.plan.num_gpus, design.num_nodes) == (384, 48)
    # 104.5 s an iteration over most of the run, 118 days of node occupancy; twice the simulator's mean absolute error on
    # A100 (docs/validation.md).
    assert design.iteration_time_s == pytest.approx(104.5, rel=0.09)
    assert design.time_to_train_days == pytest.approx(118.2, rel=0.09)
    assert design.peak_memory_bytes < design.memory_capacity_bytes
    # About one GPU was lost per week.
    assert design.num_failures / (design.time_to_train_days / 7) == pytest.approx(1.0, rel=0.05)


def test_memory_is_told_for_every_stage_and_the_host(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, AS_IT_WAS_RUN)
    assert found.design is not None
    assert found.host_memory is not None
    assert [stage.stage for stage in found.stage_memory] == list(range(12))
    assert max(stage.peak_bytes for stage in found.stage_memory) == pytest.approx(
        found.design.peak_memory_bytes
    )
    for stage in found.stage_memory:
        assert sum(stage.parts_bytes.values()) == pytest.approx(stage.peak_bytes)
    # 1F1B: stage r of p holds min(p - r, m) micro-batches (arXiv 2104.04473), 12 on the first and 1 on the last, each the
    # inputs of 70 / 12 layers under full recomputation; only the last one has logits.
    first, last = found.stage_memory[0].parts_bytes, found.stage_memory[-1].parts_bytes
    assert first["activations_bytes"] > 8 * last["activations_bytes"] > 0
    assert (first["logits_bytes"], last["logits_bytes"] > 0) == (0.0, True)
    assert found.host_memory.offloaded_bytes == 0.0
    assert found.host_memory.saves_bytes < found.host_memory.capacity_bytes


def test_the_text_has_a_line_for_stages_that_hold_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, AS_IT_WAS_RUN)
    alike = [
        stage.model_copy(update={"parts_bytes": {"weights_bytes": 2.0**30}}) for stage in found.stage_memory
    ]
    (line,) = stage_rows(alike)
    assert line[0] == "stages 0 to 11"
    assert line[2] == "weights 1.0 GiB"
    # Each line names what its stage holds alone: only the last one has logits.
    assert ["logits" in parts for _, _, parts in stage_rows(found.stage_memory)] == [False] * 11 + [True]


def test_every_breakdown_sums_to_its_total(capsys: pytest.CaptureFixture[str]) -> None:
    design = answer(capsys, AS_IT_WAS_RUN).design
    assert design is not None
    assert sum(design.run_seconds.values()) == pytest.approx(design.time_to_train_days * 86400, rel=1e-9)
    assert sum(design.step_seconds.values()) == pytest.approx(design.step_time_s, rel=1e-9)
    assert sum(design.memory_bytes.values()) == pytest.approx(design.peak_memory_bytes, rel=1e-9)
    assert sum(design.cost_parts_usd.values()) == pytest.approx(design.cost_usd, rel=1e-9)
    assert sum(design.carbon_parts_kgco2e.values()) == pytest.approx(design.carbon_kgco2e, rel=1e-9)


def test_the_spread_surrounds_the_expected_run(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, AS_IT_WAS_RUN)
    assert found.spread is not None
    assert found.design is not None
    days, expected_days = found.spread.time_to_train_days, found.design.time_to_train_days
    assert expected_days is not None
    low, middle, high = (day for day in (days.p5, days.p50, days.p95) if day is not None)
    assert low < middle < high
    assert low < expected_days < high
    assert days.mean == pytest.approx(expected_days, rel=0.05)
    assert found.spread.deadline_probability is not None
    assert answer(capsys, AS_IT_WAS_RUN, "--seed", "1").spread != found.spread


def test_the_command_prints_what_python_returns_from_a_mapping_a_plan_or_a_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    job = load_job(BLOOM)
    plan = Plan(
        offer=0,
        num_gpus=384,
        tensor_parallel=4,
        pipeline_parallel=12,
        data_parallel=8,
        micro_batch_size=2,
        recompute=Recompute.FULL,
        checkpoint_scheme=CheckpointScheme.SYNC_SHARDED,
    )
    printed = answer(capsys, AS_IT_WAS_RUN, "--seed", "5")
    assert printed == simulate_plan(job, plan, seed=5)
    short = {"tp": 4, "pp": 12, "dp": 8, "mbs": 2, "recompute": "full", "checkpoint_scheme": "Sync-Sharded"}
    assert printed == simulate_plan(job, short, seed=5)
    file = tmp_path / "plan.json"
    file.write_text(plan.model_dump_json(), encoding="utf-8")
    assert printed == answer(capsys, str(file), "--seed", "5")
    yaml = tmp_path / "plan.yaml"
    yaml.write_text("\n".join(f"{key}: {value}" for key, value in short.items()), encoding="utf-8")
    assert printed == answer(capsys, str(yaml), "--seed", "5")


def test_a_recommended_plan_comes_to_the_same_again() -> None:
    job = load_job(BLOOM)
    recommended = recommend(job, seed=2, tracking=False)
    assert recommended.best is not None
    assert recommended.uncertainty is not None
    found = simulate_plan(job, recommended.best.plan, seed=2)
    assert found.is_feasible
    assert found.design is not None
    assert found.spread is not None
    same_id = recommended.best.model_copy(update={"design_id": 0})
    assert found.design == same_id
    assert found.spread == recommended.uncertainty.model_copy(update={"tied_designs": ()})


# 112 heads, 57,344 wide feed-forward, 70 layers, 2,048 sequences of 2,048 tokens, nodes of 8 A100, 192 to 416 of them.
@pytest.mark.parametrize(
    ("plan", "constraint", "excess", "near"),
    [
        ("tp=4,pp=12,num_gpus=400", "degrees", 400 / 384 - 1, ()),
        ("tp=4,pp=8,vpp=10,dp=8", "layers", 1.0, (7,)),
        ("tp=8,pp=2,dp=24", "batch", 8 / 24, (16, 32)),
        ("tp=4,pp=12,dp=8,vpp=2", "interleaving", 4 / 12, (1,)),
        ("tp=4,pp=4,cp=3,dp=8", "sequence", 2 / 6, (2, 4)),
        ("tp=4,pp=12,dp=8,ep=2", "experts", 1.0, (1,)),
        ("tp=4,pp=12,dp=8,precision=fp8", "number_format", 1.0, ()),
    ],
)
def test_a_layout_that_cannot_run_is_a_result_with_its_reason(
    plan: str, constraint: str, excess: float, near: tuple[int, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    found = answer(capsys, plan)
    assert (found.is_feasible, found.design, found.spread) == (False, None, None)
    violation = only(found)
    assert (violation.constraint, violation.kind, violation.nearest) == (constraint, "layout", near)
    assert violation.excess_fraction == pytest.approx(excess)


def test_all_broken_rules_are_named_at_once_with_their_figures(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "tp=3,pp=35,dp=1")
    excess = {violation.constraint: violation.excess_fraction for violation in found.violations}
    expected = {
        "gpu_range": 192 / 105 - 1,
        "whole_nodes": 1 / 8,
        "attention_heads": 2 / 3,  # once for the heads, once for their keys and values
        "feed_forward": 2 / 3,
    }
    assert excess == pytest.approx(expected)
    assert found.violations[1].sentence == (
        "num_gpus must fill whole nodes: num_gpus = 105, gpus_per_node = 8; nearest num_gpus: 104, 112"
    )
    assert found.violations[2].figures == {"tensor_parallel": 3, "num_heads": 112, "num_kv_heads": 112}


def test_more_accelerators_than_are_on_offer_are_simulated_all_the_same(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = answer(capsys, "tp=4,pp=14,dp=8,recompute=full")
    assert not found.is_feasible
    assert found.design is not None
    assert found.design.plan.num_gpus == 448
    assert only(found).constraint == "gpu_range"
    assert only(found).excess_fraction == pytest.approx(448 / 416 - 1)


def test_limits_are_broken_by_as_much_as_the_design_says(capsys: pytest.CaptureFixture[str]) -> None:
    limits = {"budget_usd": 1e5, "deadline_days": 20, "power_w": 2e5, "num_gpus": 300, "carbon_kgco2e": 1e4}
    options = [word for name, value in limits.items() for word in ("--set", f"limits.{name}={value:g}")]
    found = answer(capsys, AS_IT_WAS_RUN, *options)
    design = found.design
    assert design is not None
    used = {
        "budget_usd": design.cost_usd,
        "deadline_days": design.time_to_train_days,
        "power_w": design.peak_power_w,
        "num_gpus": 384.0,
        "carbon_kgco2e": design.carbon_kgco2e,
    }
    excess = {violation.constraint: violation.excess_fraction for violation in found.violations}
    assert excess == pytest.approx({name: used[name] / limit - 1 for name, limit in limits.items()})
    assert {violation.kind for violation in found.violations} == {"limit"}
    assert found.violations[0].figures == {"cost_usd": design.cost_usd, "limits.budget_usd": 1e5}
    assert found.spread is not None
    assert found.spread.budget_probability == 0.0


def test_every_limit_stands_beside_what_the_plan_takes_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    limits = {"hall_power_w": 3e5, "rack_power_w": 3e4, "power_swing_w": 2e5, "power_ramp_w_per_s": 1e5}
    options = [word for name, value in limits.items() for word in ("--set", f"limits.{name}={value:g}")]
    found = answer(capsys, AS_IT_WAS_RUN, *options, "--set", "operation.power_ramp_s=4")
    design = found.design
    assert design is not None
    assert {use.limit: use.allowed for use in found.limits}.items() >= limits.items()
    used = {use.limit: use.used for use in found.limits}
    assert used["hall_power_w"] == design.power_w["hall_power_w"]
    assert used["power_ramp_w_per_s"] == design.power_ramp_w_per_s == design.power_w["power_swing_w"] / 4
    # 48 nodes of eight A100 at 400 W, of which half the peak is gone where all stand still.
    assert design.peak_power_w == pytest.approx(
        sum(design.power_w[f"{name}_power_w"] for name in ("hall", "cooling"))
    )
    assert design.power_w["hall_power_w"] > 48 * 8 * 400
    assert 0.4 < design.power_range_fraction < 0.7
    assert cli.main(["simulate", BLOOM, "--plan", AS_IT_WAS_RUN, *options]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Use of the limits" in text
    share = 100 * design.power_w["rack_power_w"] / 3e4
    assert f"{share:.1f} % of 30.0 kW" in text
    assert "g CO2e carbon intensity (CCI)" in text


def test_a_limit_that_must_be_kept_with_a_probability_is_shown_with_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = ["--set", "limits.budget_usd=2e6", "--set", "limits.deadline_probability=0.9"]
    found = answer(capsys, AS_IT_WAS_RUN, *options)
    assert {use.limit: use.probability for use in found.limits} == {"budget_usd": None, "deadline_days": 0.9}
    assert cli.main(["simulate", BLOOM, "--plan", AS_IT_WAS_RUN, "--no-sensitivities", *options]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "of 130 days in 90.0 % of all runs" in text
    assert "of $2.00 M in" not in text


def test_memory_that_does_not_suffice_is_compared_with_what_there_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # Without recomputation BLOOM does not fit (arXiv 2211.05100 recomputes all activations).
    found = answer(capsys, AS_IT_WAS_RUN.replace("full", "none"))
    design, violation = found.design, only(found)
    assert design is not None
    assert (violation.constraint, violation.kind) == ("memory", "physics")
    assert violation.excess_fraction == pytest.approx(
        design.peak_memory_bytes / design.memory_capacity_bytes - 1
    )


def test_a_run_that_never_ends_is_told_apart_from_one_that_cannot_be_laid_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # 48 nodes fail 480 times a day, and nothing is ever saved.
    failing = ["--set", "reliability.failures_per_1000_node_days=10000"]
    plan = AS_IT_WAS_RUN.replace("sync_sharded", "none")
    found = answer(capsys, plan, *failing)
    assert (found.is_feasible, found.design) == (False, None)
    assert [violation.constraint for violation in found.violations] == ["progress", "deadline_days"]
    assert found.violations[0].excess_fraction is None
    assert found.violations[0].figures["mtbf_s"] == pytest.approx(86400 / 480)
    assert cli.main(["simulate", BLOOM, "--plan", plan, *failing]) == 0
    assert capsys.readouterr().out.startswith("Never ends: TP4 PP12 DP8\n")


def test_a_run_that_fails_too_often_to_be_replayed_has_no_spread(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, AS_IT_WAS_RUN.replace("sync_sharded", "none"))
    assert found.design is not None
    assert found.spread is None
    assert "too often to be replayed" in found.warnings[-1]


def test_an_interval_shorter_than_a_step_is_raised_and_said_so(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, f"{AS_IT_WAS_RUN},checkpoint_interval_s=1")
    assert found.design is not None
    assert found.design.checkpoint_interval_s == pytest.approx(found.design.iteration_time_s)
    # As the command for the plan has it.
    as_used = found.design.plan.model_copy(
        update={"checkpoint_interval_s": found.design.checkpoint_interval_s}
    )
    used = f"{plan_text(as_used).partition('checkpoint_interval_s=')[2].partition(',')[0]} was used."
    told = f"checkpoint_interval_s = 1 is too short: the state changes only once per step; {used}"
    assert told in found.warnings


def test_an_interval_that_is_used_as_it_is_given_is_not_remarked(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, f"{AS_IT_WAS_RUN},checkpoint_interval_s=3600")
    assert found.design is not None
    assert found.design.checkpoint_interval_s == 3600.0
    assert not any("checkpoint_interval_s" in warning for warning in found.warnings)


def test_what_an_interval_loses_against_the_best_one_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    best, rare = answer(capsys, AS_IT_WAS_RUN), answer(capsys, f"{AS_IT_WAS_RUN},checkpoint_interval_s=50000")
    assert best.design is not None
    assert rare.design is not None
    lost = rare.design.time_to_train_days / best.design.time_to_train_days - 1.0
    (note,) = [warning for warning in rare.warnings if warning.startswith("Saves every")]
    assert note == (
        f"Saves every 13.9 h of training make the run {100 * lost:.1f} % longer than saves every "
        f"{duration(best.design.checkpoint_interval_s or 0.0)}, which lose least."
    )
    near = answer(capsys, f"{AS_IT_WAS_RUN},checkpoint_interval_s={best.design.checkpoint_interval_s}")
    assert not any("lose least" in warning for warning in (*best.warnings, *near.warnings))


def test_an_interval_of_a_plan_that_never_saves_is_told_to_be_ignored(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plan = f"{AS_IT_WAS_RUN},checkpoint_interval_s=3600".replace("sync_sharded", "none")
    assert (
        "checkpoint_interval_s = 3600 is ignored: scheme none never saves." in answer(capsys, plan).warnings
    )


@pytest.mark.parametrize("given", ["interval_s=60", "interval_steps=3"])
def test_an_interval_that_is_to_be_chosen_is_none_of_the_job(
    given: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--interval", "auto", "--no-sensitivities")
    free, chosen, fixed = (
        answer(capsys, AS_IT_WAS_RUN, *more).design
        for more in (
            options,
            (*options, "--set", f"checkpointing.{given}"),
            ("--set", f"checkpointing.{given}"),
        )
    )
    assert free is not None
    assert chosen is not None
    assert fixed is not None
    assert chosen.checkpoint_interval_s == free.checkpoint_interval_s
    assert chosen.time_to_train_days == free.time_to_train_days < fixed.time_to_train_days


def test_people_read_the_verdict_what_is_broken_and_where_everything_goes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["simulate", BLOOM, "--plan", AS_IT_WAS_RUN, "--set", "limits.budget_usd=1e5"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Violates the constraints listed below: 384 x a100-sxm4-80gb for ")
    assert "cost above budget_usd = 100,000: cost_usd = " in out
    for heading in (
        "Configuration",
        "Memory of the fullest GPU",
        "One step",
        "The run",
        "Cost",
        "Energy",
        "Carbon",
    ):
        assert f"\n{heading}" in out
    assert max(len(line) for line in out.splitlines()) <= WIDTH


def test_the_names_for_programs_are_imported_at_their_first_use() -> None:
    assert planner.simulate_plan is simulate_plan
    assert planner.SimulatedDesign is SimulatedDesign


def test_a_job_without_limits_is_not_said_to_meet_them(capsys: pytest.CaptureFixture[str]) -> None:
    free = [f"limits.{name}=null" for name in load_job(BLOOM).limits.model_dump(exclude_none=True)]
    sets = [word for each in free for word in ("--set", each)]
    for options, verdict in (
        (sets, "Can be run (the job sets no limits): 384 x "),
        ([], "Meets all limits: 384 x "),
    ):
        assert cli.main(["simulate", BLOOM, "--plan", AS_IT_WAS_RUN, "--no-sensitivities", *options]) == 0
        assert capsys.readouterr().out.startswith(verdict)


def test_operators_split_what_a_step_computes(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, AS_IT_WAS_RUN, "--no-sensitivities")
    assert found.design
    seconds = seconds_by_operator(found.operators)
    assert sum(seconds.values()) == pytest.approx(found.design.step_seconds["compute_s"], rel=1e-9)
    assert seconds["recomputation"] > 0.0
    assert cli.main(["simulate", BLOOM, "--plan", AS_IT_WAS_RUN, "--no-sensitivities"]) == 0
    told = capsys.readouterr().out
    assert "Compute in one step: " in told
    assert "recomputation" in told.partition("Compute in one step: ")[2].partition("The run: ")[0]
