"""Does every uncertain input say rightly what of a simulation it leaves as it is?"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from constraints.lattice import cross_run_knobs, enumerate_layouts
from objectives.unsure_inputs import straggler_excess_factors
from planner import load_job
from planner.uncertain.uncertain_inputs import STEP_TIME, Lever, Moved, StepRange, uncertain_inputs
from planner.uncertain.uncertainty import accuracy_of, step_range, step_time_interval
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.machine.offer_table import OfferTable
from simulator.simulate import Outcomes, simulate
from tests.simulator.builders import H100, job_of, plan_of, rented, table_of, training
from tests.support import H100_BOUGHT, job_with

EXAMPLES = Path(__file__).parents[3] / "examples"
H200 = "h200-sxm-141gb"
QUARTER = StepRange(low=0.75, high=1.25, why="a quarter either way")


def designs_of(job: Job) -> PlanTable:
    """Twenty designs over all offers."""
    designs = cross_run_knobs(job, enumerate_layouts(job))
    return designs.take(np.linspace(0, len(designs) - 1, 20).astype(np.intp))


def moved_parts(job: Job, before: Outcomes, plans: PlanTable) -> set[str]:
    """Parts of the outcomes that are others when designs are simulated from scratch."""
    after = simulate(job, plans)
    return {
        part
        for part in before.parts()
        for name, column in getattr(before, part).columns().items()
        if not np.array_equal(column, getattr(getattr(after, part), name), equal_nan=True)
    }


@pytest.mark.short(1)
@pytest.mark.parametrize("name", ["bloom-176b", "llama-3.1-405b", "llama-3.1-70b"])
def test_what_an_input_is_said_to_leave_is_the_same_when_simulated_anew(name: str) -> None:
    job = load_job(EXAMPLES / f"{name}.yaml")
    plans = designs_of(job)
    before = simulate(job, plans)
    reached: dict[Moved, set[str]] = {moved: set() for moved in Moved}
    for offer in range(len(job.offers)):
        for lever in uncertain_inputs(job, offer, QUARTER):
            for value in (lever.input.low, 1.5 * lever.input.mid, lever.input.high):
                reached[lever.moves] |= moved_parts(lever.change(job, value), before, plans)
    assert reached[Moved.WORTH] == set()
    assert not reached[Moved.RUN] & {"steps", "memory"}
    assert {"run", "energy"} <= reached[Moved.RUN]
    assert "steps" in reached[Moved.STEP]


HERE = {
    "region": "here",
    "power_usage_effectiveness": 1.2,
    "climate": {
        "mean_celsius": 20,
        "daily_amplitude_celsius": 10,
        "free_cooling_below_celsius": 20,
        "overhead_per_celsius": 0.01,
    },
    "grid_kgco2e_per_kwh": 0.3,
    "electricity_profile": {"mean": 0.1, "daily_amplitude": 0.05},
    "demand_usd_per_w_month": 0.015,
}


def lever_of(job: Job, name: str) -> Lever:
    return next(lever for lever in uncertain_inputs(job, 0, QUARTER) if lever.input.name == name)


def test_a_factor_scales_all_that_it_stands_for() -> None:
    job = job_with(H100_BOUGHT, site=HERE)
    power = lever_of(job, "accelerator power").change(job, 1.5).offers[0].accelerator
    before = job.offers[0].accelerator
    assert power.thermal_design_power_w == 1.5 * before.thermal_design_power_w
    assert power.idle_power_w == 1.5 * before.idle_power_w
    slow = lever_of(job, "storage bandwidth").change(job, 0.5).storage
    for rate in ("write", "read"):
        for whose in ("", "_per_node"):
            name = f"{rate}_bytes_per_s{whose}"
            assert getattr(slow, name) == 0.5 * getattr(job.storage, name)
    restarts = lever_of(job, "restart times").change(job, 2.0).reliability.restart
    for name, value in job.reliability.restart:
        assert getattr(restarts, name) == (2.0 if name.endswith("_s") else 1.0) * value, name
    dear = lever_of(job, "electricity, hour by hour, demand charge included").change(job, 2.0).site
    assert dear.demand_usd_per_w_month == 0.03
    assert dear.electricity_profile is not None
    assert job.site.electricity_profile is not None
    np.testing.assert_allclose(
        dear.electricity_profile.per_hour, 2.0 * np.array(job.site.electricity_profile.per_hour)
    )
    # A PUE of 1.2 and what ten degrees at noon add to it: all overhead is half as much again.
    warm = lever_of(job, "cooling, climate included").change(job, 1.5)
    overheads = [OfferTable.from_job(each).peak_power_usage_effectiveness[0] - 1.0 for each in (job, warm)]
    assert overheads == pytest.approx([0.3, 0.45], rel=1e-3)


def test_the_overhead_of_a_site_without_weather_is_unsure_and_the_rest_of_its_pue_is_not() -> None:
    job = job_with(H100_BOUGHT, site={"region": "us-iowa", "power_usage_effectiveness": 1.2})
    found, factors = lever_of(job, "site.power_usage_effectiveness").input, job.input_factors.cooling_overhead
    assert (found.low, found.mid, found.high) == pytest.approx(
        (1.0 + 0.2 * factors.low, 1.2, 1.0 + 0.2 * factors.high)
    )


def test_the_network_of_a_node_is_a_fifth_more_or_less_than_told() -> None:
    job = job_with()
    found = lever_of(job, "network bandwidth of a node").input
    told = job.offers[0].node.network_bytes_per_s
    assert (found.low, found.mid, found.high) == pytest.approx((0.8 * told, told, 1.2 * told))


def test_a_straggler_slow_down_that_is_set_is_the_expected_one_and_its_excess_has_the_range() -> None:
    job = job_with(reliability="typical")
    lever, factors = lever_of(job, "straggler slow-down"), straggler_excess_factors(job)
    excess = job.reliability.straggler_slowdown - 1.0
    assert (lever.input.low, lever.input.high) == pytest.approx(
        (1.0 + excess * factors.low, 1.0 + excess * factors.high)
    )
    for value in (lever.input.low, lever.input.high):
        assert lever.change(job, value).reliability.straggler_slowdown == pytest.approx(value)


def test_a_step_has_the_range_of_steps_of_its_kind() -> None:
    step = lever_of(job_with(), STEP_TIME).input
    assert (step.low, step.mid, step.high, step.why) == (0.75, 1.0, 1.25, QUARTER.why)


@pytest.mark.parametrize(("accelerator", "told"), [(H100, ""), (H200, ", the least accurate group")])
def test_that_range_holds_four_of_five_steps(accelerator: str, told: str) -> None:
    job, plans = job_of(training(), rented(accelerator)), table_of(plan_of(data=8))
    found = step_range(job, plans, 0)
    low_s, high_s = step_time_interval(job, plans, 0, 2.0)
    assert (found.low, found.high) == pytest.approx((low_s / 2.0, high_s / 2.0))
    assert found.low < 1.0 < found.high
    assert found.why.startswith("80 % interval of simulated steps, from their errors on ")
    assert found.why.endswith(accuracy_of(job, plans, 0).compared_with + told)


def test_what_was_never_measured_has_a_wider_range() -> None:
    plans = table_of(plan_of(data=8))
    known, unknown = (
        step_range(job_of(training(name)), plans, 0) for name in ("llama-3.1-8b", "nemotron-h-8b")
    )
    assert unknown.low < known.low
    assert unknown.high > known.high


def test_a_given_range_of_the_step_time_is_that_of_actual_over_simulated() -> None:
    job = job_with(input_factors={"step_time": {"low": 0.9, "high": 1.3}})
    step = lever_of(job, STEP_TIME).input
    assert (step.low, step.mid, step.high) == (0.9, 1.0, 1.3)


def test_shares_stay_below_one_at_the_top_of_their_range() -> None:
    shares = {"utilization_fraction": 0.95, "capital_cost_fraction_per_year": 0.9, "residual_fraction": 0.2}
    job = job_with(H100_BOUGHT, ownership=shares)
    for name in ("utilization_fraction", "capital_cost_fraction_per_year"):
        found = lever_of(job, f"ownership.{name}").input
        assert found.low < found.mid == shares[name]
        assert found.high == 1.0
    assert lever_of(job, "ownership.residual_fraction").input.mid == 0.2


def test_nodes_without_a_residual_value_have_none_that_is_unsure() -> None:
    job = job_with(H100_BOUGHT, ownership={"depreciation": "straight_line", "residual_fraction": 0.0})
    assert "ownership.residual_fraction" not in {
        lever.input.name for lever in uncertain_inputs(job, 0, QUARTER)
    }


def test_an_offer_with_a_site_of_its_own_has_its_grid() -> None:
    job = job_with({**H100_BOUGHT, "site": "norway"})
    names = {lever.input.name for lever in uncertain_inputs(job, 0, QUARTER)}
    assert "site.grid_kgco2e_per_kwh" not in names
    changed = lever_of(job, "offers[0].site.grid_kgco2e_per_kwh").change(job, 0.5)
    assert changed.offers[0].site is not None
    assert changed.offers[0].site.grid_kgco2e_per_kwh == 0.5
    assert changed.site == job.site
