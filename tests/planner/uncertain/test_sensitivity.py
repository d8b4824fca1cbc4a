"""Do sensitivities say what a change of each input does, and nothing about inputs that cannot matter?"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from constraints.evaluation import evaluate
from objectives.drawn_runs import UnsureDesigns
from objectives.drawn_scores import drawn_figures
from objectives.input_table import INPUTS, Moved
from planner import load_job, simulate_plan
from planner.cli import commands as cli
from planner.input.plan_input import plan_of, read_plan
from planner.uncertain.sensitivity import (
    RESULTS,
    ResultSensitivity,
    Sensitivities,
    Swing,
    front_tornado,
    sensitivities,
)
from planner.uncertain.uncertain_inputs import UncertainInput, levers
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from tests.objectives.unsure_jobs import runs_at
from tests.support import H100_BOUGHT, H100_RENTED, job_with, plans_with

EXAMPLES = Path(__file__).parents[3] / "examples"
BOUGHT = EXAMPLES / "bloom-176b.yaml"
BOUGHT_PLAN = "tp=4,pp=12,dp=8,mbs=2,recompute=full,checkpoint_scheme=sync_sharded,num_spare_nodes=1"
RENTED = EXAMPLES / "llama-3.1-70b.yaml"
RENTED_PLAN = "offer=1,tp=2,pp=4,cp=2,dp=32,vpp=10,zero_stage=2,num_spare_nodes=2"
QUARTER = "input_factors.step_time={low: 0.8, high: 1.3333333333333333}"
"""Simulated a quarter too slow or too fast."""


def found_of(job: Job, plan: str) -> Sensitivities:
    return sensitivities(job, plan_of(job, read_plan(plan))[0])


@pytest.fixture(scope="module")
def bought() -> Sensitivities:
    return found_of(load_job(BOUGHT), BOUGHT_PLAN)


@pytest.fixture(scope="module")
def rented() -> Sensitivities:
    return found_of(load_job(RENTED), RENTED_PLAN)


def result_of(found: Sensitivities, name: str) -> ResultSensitivity:
    return next(result for result in found.results if result.result == name)


def swing_of(found: Sensitivities, result: str, name: str) -> Swing:
    """The swing of an input, by its name or that of its range."""
    names = {name, *(described.name for described in found.inputs if described.factor == name)}
    return next(swing for swing in result_of(found, result).swings if swing.input in names)


def range_of(found: Sensitivities, name: str) -> UncertainInput:
    return next(described for described in found.inputs if described.factor == name)


def moved(found: Sensitivities, name: str) -> set[str]:
    """Results that an input moves at all."""
    return {result.result for result in found.results if swing_of(found, result.result, name).swing_fraction}


@pytest.mark.parametrize("field", ["rent_usd_per_gpu_hour", "purchase_usd_per_node"])
def test_doubling_the_price_of_the_hardware_doubles_what_is_paid_for_it(field: str) -> None:
    file, plan, place = (RENTED, RENTED_PLAN, 1) if field.startswith("rent") else (BOUGHT, BOUGHT_PLAN, 0)
    price = f"offers[{place}].{field}={{low: 3.0, mid: 3.0, high: 6.0}}"
    # Nothing but the nodes costs anything.
    free = [
        "ownership.facility_usd_per_w=0",
        "site.electricity_usd_per_kwh=0",
        f"offers[{place}].fabric={{kind: omni-path, port_usd: 0}}",
    ]
    swing = swing_of(found_of(load_job(file, [price, *free]), plan), "cost_usd", f"offers[{place}].{field}")
    assert swing.at_low is not None
    assert swing.at_high == pytest.approx(2.0 * swing.at_low, rel=1e-12)
    assert swing.swing_fraction == pytest.approx(1.0, rel=1e-12)


@pytest.mark.short(1)
@pytest.mark.parametrize("end", ["low", "high"])
@pytest.mark.parametrize("whose", ["bought", "rented"])
def test_an_input_moves_the_results_as_if_it_were_set_in_the_job(
    end: str, whose: str, request: pytest.FixtureRequest
) -> None:
    found: Sensitivities = request.getfixturevalue(whose)
    file, plan = (BOUGHT, BOUGHT_PLAN) if whose == "bought" else (RENTED, RENTED_PLAN)
    fields = [described for described in found.inputs if "." in described.name]
    assert len(fields) >= 5
    for described in fields:
        value = getattr(described, end)
        is_price = "_usd_per_node" in described.name or "_usd_per_gpu" in described.name
        written = f"{{low: {value!r}, mid: {value!r}, high: {value!r}}}" if is_price else repr(value)
        job = load_job(file, [f"{described.name}={written}"])
        design = simulate_plan(job, read_plan(plan), with_sensitivities=False).design
        assert design is not None
        for result in RESULTS:
            moved_to = getattr(swing_of(found, result, described.name), f"at_{end}")
            assert moved_to == pytest.approx(getattr(design, result), rel=1e-9), described.name


EVERYTHING: dict[str, object] = {
    "storage": {"capacity_bytes": 1e15},
    "carbon_scope": {"network": True, "storage": True, "building": True},
    "reliability": {"preset": "young", "domain_failures_per_1000_domain_days": 50},
    "site": {
        "region": "here",
        "power_usage_effectiveness": 1.3,
        "cooling_fixed_fraction": 0.2,
        "climate": {"mean_celsius": 20, "free_cooling_below_celsius": 15, "overhead_per_celsius": 0.01},
        "grid_kgco2e_per_kwh": 0.4,
        "electricity_usd_per_kwh": 0.1,
        "electricity_profile": {"mean": 0.1, "daily_amplitude": 0.05},
        "demand_usd_per_w_month": 0.015,
    },
}
STRAIGHT = {"residual_fraction": 0.8, "network_lifetime_years": 7, "utilization_fraction": 0.95}
OF_ALL = {
    "bought": job_with(H100_BOUGHT, ownership=STRAIGHT, **EVERYTHING),
    "bought, economic": job_with(H100_BOUGHT, ownership={"depreciation": "economic"}, **EVERYTHING),
    "taken back": job_with({**H100_RENTED, "interruptions_per_1000_node_days": 100}, **EVERYTHING),
}
"""Together they have every input that moves a result, all of them with the same plan."""
CAPPED = plans_with({"num_gpus": 64, "pipeline_parallel": 2, "num_spare_nodes": 1, "power_cap_fraction": 0.7})


@pytest.mark.parametrize("name", OF_ALL)
def test_an_input_moves_the_results_as_the_same_draw_of_it_does(name: str) -> None:
    job = OF_ALL[name]
    part = evaluate(job, CAPPED)
    every, found = {lever.name: lever for lever in levers(job, CAPPED)}, sensitivities(job, CAPPED.plan(0))
    drawn = [described.factor for described in found.inputs if INPUTS[described.factor].is_drawn]
    assert len(drawn) > 20
    columns = {"time_to_train": (0, 86_400.0), "cost": (1, 1.0), "energy": (2, 3.6e6), "carbon": (3, 1.0)}
    for factor in drawn:
        # Draws interpolate runs under a cap, count spoilt nodes by the hours of the run, and share out cooling that is fixed.
        is_near = INPUTS[factor].moves is Moved.RUN or factor == "storage_power"
        tolerance = 3e-3 if is_near else 1e-9
        for end in ("low", "high"):
            figures = drawn_figures(runs_at(job, part, {factor: getattr(every[factor], end)}))
            for column, (place, unit) in columns.items():
                swing = swing_of(found, RESULTS[place], factor)
                assert figures[column][0, 0] / unit == pytest.approx(
                    getattr(swing, f"at_{end}"), rel=tolerance
                ), (factor, end, column)


def test_every_input_moves_a_result_where_everything_is_at_stake() -> None:
    factors = {
        described.factor for job in OF_ALL.values() for described in sensitivities(job, CAPPED.plan(0)).inputs
    }
    assert factors == INPUTS.keys() - {"water"}  # which moves none of these results


def test_swings_are_those_that_a_recommendation_tells() -> None:
    job = OF_ALL["taken back"]
    part, found = evaluate(job, CAPPED), sensitivities(job, CAPPED.plan(0))
    designs = UnsureDesigns.of(job, part.plans, part.outcomes, part.scores)
    bars = [bar for bar in front_tornado(designs, np.array([0])) if bar.objective == "time_to_train"]
    assert len(bars) >= 6
    for bar in bars:
        swing = swing_of(found, "time_to_train_days", bar.input.partition(" of ")[0])
        assert abs(bar.at_high - bar.at_low) / bar.middle == pytest.approx(swing.swing_fraction, rel=0.02)


def test_an_error_of_the_step_time_is_that_of_the_measured_step() -> None:
    found = found_of(load_job(RENTED, [QUARTER]), RENTED_PLAN)
    step = range_of(found, "step_time")
    # Simulated 25 % too slow or too fast: measured over simulated is 1 / 1.25 or 1 / 0.75.
    assert (step.low, step.mid, step.high) == pytest.approx((0.8, 1.0, 4 / 3))
    swing = swing_of(found, "time_to_train_days", "step_time")
    # As many steps more take as long as longer ones, but for the least interval between saves, which is a step.
    longer = load_job(RENTED, ["workload.tokens=2.6666666666666666e12"])
    design = simulate_plan(longer, read_plan(RENTED_PLAN), with_sensitivities=False).design
    assert design is not None
    assert swing.at_high == pytest.approx(design.time_to_train_days, rel=1e-4)


def test_prices_move_nothing_but_the_cost_and_the_grid_nothing_but_the_carbon(
    bought: Sensitivities, rented: Sensitivities
) -> None:
    assert moved(bought, "offers[0].purchase_usd_per_node") == {"cost_usd"}
    assert moved(bought, "site.electricity_usd_per_kwh") == {"cost_usd"}
    assert moved(rented, "offers[1].rent_usd_per_gpu_hour") == {"cost_usd"}
    assert moved(rented, "site.grid_kgco2e_per_kwh") == {"carbon_kgco2e"}
    assert moved(rented, "compute_power") == {"energy_kwh", "carbon_kgco2e"}
    assert moved(rented, "straggler_excess") == set(RESULTS)


def test_what_cannot_matter_to_a_plan_is_left_out(rented: Sensitivities) -> None:
    factors = {described.factor for described in rented.inputs}
    owning = {
        "electricity_price",
        "maintenance",
        "capital_cost",
        "facility_price",
        "network_price",
        "storage_price",
    }
    assert not factors & {*owning, "interruption_rate", "cap_slowdown", "embodied_building", "water"}
    assert all(any(moved(rented, factor)) for factor in factors)


def test_the_middle_is_the_simulated_design_and_lies_between_the_ends(bought: Sensitivities) -> None:
    design = simulate_plan(load_job(BOUGHT), read_plan(BOUGHT_PLAN), with_sensitivities=False).design
    for result in bought.results:
        assert result.mid == pytest.approx(getattr(design, result.result), rel=1e-12)
    for described in bought.inputs:
        assert described.low <= described.mid <= described.high, described.name
        assert described.why


def test_the_largest_swings_come_first_and_every_result_has_every_input(bought: Sensitivities) -> None:
    for result in bought.results:
        sizes = [swing.swing_fraction for swing in result.swings]
        assert sizes == sorted(sizes, key=lambda size: -(size or 0.0))
        assert {swing.input for swing in result.swings} == {described.name for described in bought.inputs}


def test_a_fleet_without_stragglers_has_no_range_of_them() -> None:
    job = load_job(RENTED)
    still = job.model_copy(
        update={"reliability": job.reliability.model_copy(update={"straggler_log_mean": None})}
    )
    assert "straggler_excess" not in {described.factor for described in found_of(still, RENTED_PLAN).inputs}


@pytest.mark.parametrize("log_mean", [-20.0, 2.0])
def test_the_stragglers_of_a_job_may_be_at_the_ends_of_what_it_may_say(log_mean: float) -> None:
    job = load_job(RENTED, [f"reliability={{preset: typical, straggler_log_mean: {log_mean}}}"])
    swings = result_of(found_of(job, RENTED_PLAN), "time_to_train_days").swings
    found = [swing for swing in swings if swing.input == "straggler slow-down"]
    # Two parts in a thousand million are no drivers.
    assert bool(found) == (log_mean > 0.0)
    for swing in found:
        assert swing.at_low is not None
        assert swing.at_high is not None
        assert swing.at_low < swing.at_high
    part = evaluate(job, PlanTable.from_plans([plan_of(job, read_plan(RENTED_PLAN))[0]]))
    designs = UnsureDesigns.of(job, part.plans, part.outcomes, part.scores)
    assert front_tornado(designs, np.array([0]))


def test_an_input_under_which_a_run_never_ends_comes_first_and_has_no_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # Without saves a run of 954 steps has to come through between two failures of 48 nodes, three to thirteen an hour.
    changes = [
        "reliability.failures_per_1000_node_days=400",
        "limits.deadline_days=null",
        "workload.tokens=4e9",
    ]
    plan = BOUGHT_PLAN.replace("sync_sharded", "none")
    found = found_of(load_job(BOUGHT, changes), plan)
    for result in found.results:
        first = result.swings[0]
        assert first.input == "reliability.failures_per_1000_node_days"
        if result.result == "goodput_fraction":
            assert first.at_high == 0.0
        else:
            assert (first.at_high, first.swing_fraction) == (None, None)
    options = [word for change in changes for word in ("--set", change)]
    assert cli.main(["simulate", str(BOUGHT), "--plan", plan, *options]) == 0
    assert " to no end" in capsys.readouterr().out


def test_the_view_shows_five_inputs_a_result_and_leaves_out_what_does_not_matter(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["simulate", str(RENTED), "--plan", RENTED_PLAN]) == 0
    out = capsys.readouterr().out
    section = out.partition("What drives the cost of ")[2].partition("\n\n")[0].splitlines()[1:]
    assert len(section) == 5
    assert section[0].split()[:5] == ["rent", "2.4", "to", "4.5", "USD/GPU-hour"]
    moving = out.partition("What drives")[2]
    assert "electricity price" not in moving
    assert "building" not in moving


def test_bars_reach_from_where_a_result_falls_to_where_it_rises(capsys: pytest.CaptureFixture[str]) -> None:
    price = "offers[1].rent_usd_per_gpu_hour={low: 2.0, mid: 4.0, high: 5.0}"
    assert cli.main(["simulate", str(RENTED), "--plan", RENTED_PLAN, "--set", price]) == 0
    out = capsys.readouterr().out
    section = out.partition("What drives the cost of ")[2].partition("\n\n")[0].splitlines()[1:]
    left, _, right = section[0].translate({ord("│"): "|", ord("█"): "#"}).partition("|")
    # Half as much to the left, a quarter more to the right: the longer half has ten characters.
    assert (left.count("#"), right.count("#")) == (10, 5)


def test_they_can_be_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["simulate", str(RENTED), "--plan", RENTED_PLAN, "--no-sensitivities"]) == 0
    assert "What drives" not in capsys.readouterr().out
    answer = simulate_plan(load_job(RENTED), read_plan(RENTED_PLAN), with_sensitivities=False)
    assert answer.sensitivities is None


def test_cooling_is_as_unsure_where_the_weather_is_part_of_it_as_where_it_is_not() -> None:
    steady = load_job(RENTED, ["site.power_usage_effectiveness=1.6"])
    climate = "{mean_celsius: 20, free_cooling_below_celsius: 10, overhead_per_celsius: 0.05}"
    warm = load_job(RENTED, ["site.power_usage_effectiveness=1.1", f"site.climate={climate}"])
    swings = [
        swing_of(found_of(job, RENTED_PLAN), "energy_kwh", "cooling_overhead") for job in (steady, warm)
    ]
    for end in ("at_low", "at_high"):
        values = [getattr(swing, end) for swing in swings]
        assert values[0] == pytest.approx(values[1], rel=1e-9)
    assert swings[1].swing_fraction is not None
    assert swings[1].swing_fraction > 0.05


def test_the_site_that_matters_is_that_of_the_offer() -> None:
    job = load_job(RENTED, ["offers[1].site=norway"])
    found = simulate_plan(job, read_plan(RENTED_PLAN))
    assert found.design is not None
    assert found.design.region == "norway"
    assert found.sensitivities is not None
    names = {name for name in found.sensitivities.model_dump_json().split('"') if "grid_kgco2e" in name}
    assert names == {"offers[1].site.grid_kgco2e_per_kwh"}


@pytest.mark.long
@pytest.mark.parametrize("demand", [0.0, 0.02])
def test_grids_and_tariffs_by_the_hour_are_as_unsure_as_flat_ones(demand: float) -> None:
    steady = [f"site.demand_usd_per_w_month={demand}", "site.electricity_usd_per_kwh=0.08"]
    hourly = ["site.grid_profile={mean: 0.4}", "site.electricity_profile={mean: 0.08}"]
    flat = found_of(load_job(BOUGHT, [*steady, "site.grid_kgco2e_per_kwh=0.4"]), BOUGHT_PLAN)
    by_hour = found_of(load_job(BOUGHT, [*steady[:1], *hourly]), BOUGHT_PLAN)
    for result, name in (("carbon_kgco2e", "grid"), ("cost_usd", "electricity_price")):
        one, other = swing_of(flat, result, name), swing_of(by_hour, result, name)
        assert (one.at_low, one.at_high) == pytest.approx((other.at_low, other.at_high), rel=1e-9)
        assert one.swing_fraction is not None
        assert one.swing_fraction > 0.0


def test_a_demand_charge_is_as_unsure_as_the_electricity() -> None:
    job = load_job(BOUGHT, ["site.demand_usd_per_w_month=0.02"])
    found = simulate_plan(job, read_plan(BOUGHT_PLAN))
    assert found.design is not None
    assert found.sensitivities is not None
    parts = found.design.cost_parts_usd
    swing = swing_of(found.sensitivities, "cost_usd", "electricity_price")
    assert swing.swing_fraction is not None
    # From 0.7 to 1.5 of the price.
    paid = parts["electricity_usd"] + parts["demand_usd"]
    assert swing.swing_fraction * found.design.cost_usd == pytest.approx(0.8 * paid, rel=1e-9)


@pytest.mark.short(1)
@pytest.mark.parametrize(
    ("terms", "field", "ends"),
    [
        (["ownership.depreciation=economic"], "economic_loss_per_year", (0.7 * 0.32, 1.4 * 0.32)),
        (["ownership.residual_fraction=0.2"], "residual_fraction", (0.1, 0.3)),
    ],
)
def test_what_nodes_lose_in_value_is_moved_where_it_is_not_by_their_life_alone(
    terms: list[str], field: str, ends: tuple[float, float]
) -> None:
    swing = swing_of(found_of(load_job(BOUGHT, terms), BOUGHT_PLAN), "cost_usd", f"ownership.{field}")
    for value, end in zip(ends, (swing.at_low, swing.at_high), strict=True):
        design = simulate_plan(
            load_job(BOUGHT, [*terms, f"ownership.{field}={value}"]), read_plan(BOUGHT_PLAN)
        ).design
        assert design is not None
        assert end == pytest.approx(design.cost_usd, rel=1e-9)
    assert swing.swing_fraction is not None
    assert swing.swing_fraction > 0.05
