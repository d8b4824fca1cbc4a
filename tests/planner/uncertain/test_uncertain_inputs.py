"""Are the uncertain inputs of designs told with the ranges of the draws, and do they say rightly what they leave as it is?"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from constraints.lattice import cross_run_knobs, enumerate_layouts
from objectives.input_table import INPUTS, LAYOUT_TIME, STEP_TIME, Moved
from objectives.unsure_inputs import Z_95, step_error_of, straggler_excess_factors
from planner import load_job
from planner.uncertain.uncertain_inputs import Lever, levers
from planner.uncertain.uncertainty import accuracy_of
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.simulate import Outcomes, simulate
from tests.simulator.builders import H100, job_of, plan_of, rented, table_of, training
from tests.support import A100_RENTED, H100_BOUGHT, H100_RENTED, job_with, plans_with

EXAMPLES = Path(__file__).parents[3] / "examples"
H200 = "h200-sxm-141gb"
PLANS = plans_with({"num_gpus": 16})


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
    for known in INPUTS.values():
        for factor in (0.8, 1.5):
            reached[known.moves] |= moved_parts(known.change(job, factor), before, plans)
    assert reached[Moved.WORTH] == set()
    assert reached[Moved.POWER] <= {"energy", "power", "summary"}
    assert not reached[Moved.RUN] & {"steps", "memory"}
    assert {"run", "energy"} <= reached[Moved.RUN]
    assert "steps" in reached[Moved.STEP]


def lever_of(job: Job, name: str, plans: PlanTable = PLANS) -> Lever:
    return next(lever for lever in levers(job, plans) if lever.name == name)


def names_of(job: Job, plans: PlanTable = PLANS) -> set[str]:
    return {lever.name for lever in levers(job, plans)}


def test_the_overhead_of_a_site_without_weather_is_unsure_and_the_rest_of_its_pue_is_not() -> None:
    job = job_with(H100_BOUGHT, site={"region": "us-iowa", "power_usage_effectiveness": 1.2})
    found, factors = lever_of(job, "cooling_overhead").input, job.input_factors.cooling_overhead
    assert found.name == "site.power_usage_effectiveness"
    assert (found.low, found.mid, found.high) == pytest.approx(
        (1.0 + 0.2 * factors.low, 1.2, 1.0 + 0.2 * factors.high)
    )


def test_the_network_of_a_node_is_a_fifth_more_or_less_than_told() -> None:
    job = job_with()
    found = lever_of(job, "network_bandwidth").input
    told = job.offers[0].node.network_bytes_per_s
    assert (found.low, found.mid, found.high) == pytest.approx((0.8 * told, told, 1.2 * told))


def test_a_straggler_slow_down_that_is_set_is_the_expected_one_and_its_excess_has_the_range() -> None:
    job = job_with(reliability="typical")
    lever, factors = lever_of(job, "straggler_excess"), straggler_excess_factors(job)
    excess = job.reliability.straggler_slowdown - 1.0
    assert (lever.input.low, lever.input.high) == pytest.approx(
        (1.0 + excess * factors.low, 1.0 + excess * factors.high)
    )
    for factor in (lever.low, lever.high):
        changed = INPUTS[lever.name].change(job, factor)
        assert changed.reliability.straggler_slowdown == pytest.approx(lever.value(factor))


@pytest.mark.parametrize(("accelerator", "told"), [(H100, ""), (H200, ", the least accurate group")])
def test_a_step_has_the_shared_and_the_own_error_of_steps_of_its_kind(accelerator: str, told: str) -> None:
    job, plans = job_of(training(), rented(accelerator)), table_of(plan_of(data=8))
    error, compared = step_error_of(job, plans, 0), accuracy_of(job, plans, 0).compared_with
    for name, deviation in ((STEP_TIME, error.shared_log_deviation), (LAYOUT_TIME, error.own_log_deviation)):
        found = lever_of(job, name, plans).input
        ends = (-error.ratios.below * Z_95 * deviation, error.ratios.above * Z_95 * deviation)
        assert (math.log(found.low), found.mid, math.log(found.high)) == pytest.approx(
            (ends[0], 1.0, ends[1])
        )
        assert found.why.startswith(f"error of simulated steps on {compared}{told}: the part ")


def test_what_was_never_measured_has_a_wider_range() -> None:
    plans = table_of(plan_of(data=8))
    known, unknown = (
        lever_of(job_of(training(name)), STEP_TIME, plans) for name in ("llama-3.1-8b", "nemotron-h-8b")
    )
    assert unknown.low < known.low
    assert unknown.high > known.high


def test_a_given_range_of_the_step_time_leaves_layouts_no_error_of_their_own() -> None:
    job = job_with(input_factors={"step_time": {"low": 0.9, "high": 1.3}})
    step = lever_of(job, STEP_TIME).input
    assert (step.low, step.mid, step.high) == pytest.approx((0.9, 1.0, 1.3))
    assert step.why == "the job's range"
    assert LAYOUT_TIME not in names_of(job)


def test_shares_end_at_the_most_that_they_can_be() -> None:
    shares = {"utilization_fraction": 0.95, "residual_fraction": 0.8}
    job = job_with(H100_BOUGHT, ownership=shares)
    for name, field, most in (
        ("utilization", "utilization_fraction", 1.0),
        ("residual_value", "residual_fraction", 0.99),
    ):
        found = lever_of(job, name).input
        assert found.name == f"ownership.{field}"
        assert found.low < found.mid == shares[field]
        assert found.high == pytest.approx(most)


def test_what_is_nothing_cannot_be_unsure() -> None:
    job = job_with(
        {**H100_BOUGHT, "fabric": {"kind": "infiniband-ndr", "port_usd": 0}},
        ownership={"capital_cost_fraction_per_year": 0},
        site={"region": "here", "power_usage_effectiveness": 1, "grid_kgco2e_per_kwh": 0}
        | {"electricity_usd_per_kwh": 0.1},
    )
    idle = {"network_price", "capital_cost", "residual_value", "cooling_overhead", "grid", "water"}
    assert not names_of(job) & {*idle, "interruption_rate"}
    assert {"electricity_price", "interruption_rate", "residual_value"} <= names_of(
        job_with({**H100_RENTED, "interruptions_per_1000_node_days": 5}, ownership={"residual_fraction": 0.1})
    )


def test_the_rate_of_failures_is_a_field_unless_domains_fail_too() -> None:
    given = {"failures_per_1000_node_days": 4.0}
    alone = lever_of(job_with(reliability=given), "failure_rate").input
    assert (alone.name, alone.mid) == ("reliability.failures_per_1000_node_days", 4.0)
    domains = {**given, "domain_failures_per_1000_domain_days": 5.0}
    both = lever_of(job_with(reliability=domains), "failure_rate").input
    assert (both.name, both.unit) == ("failure rate", "x")
    assert (both.low, both.mid, both.high) == pytest.approx((0.5, 1.0, 2.0))


def test_an_offer_with_a_site_of_its_own_has_its_grid() -> None:
    job = job_with({**H100_BOUGHT, "site": "norway"})
    grid = lever_of(job, "grid")
    assert grid.input.name == "offers[0].site.grid_kgco2e_per_kwh"
    assert grid.owner == "norway"


def test_designs_that_share_an_input_have_it_once_and_every_offer_has_its_own_price() -> None:
    twice = {**A100_RENTED, "site": "norway", "rent_usd_per_gpu_hour": {"low": 1.0, "mid": 1.5, "high": 2.0}}
    job = job_with(H100_RENTED, A100_RENTED, twice)
    found = list(levers(job, plans_with(*({"num_gpus": 16, "offer": offer} for offer in range(3)))))

    def of(name: str) -> list[tuple[int, ...]]:
        return [lever.offers for lever in found if lever.name == name]

    assert of("hardware_price") == [(0,), (1,), (2,)]
    assert of("failure_rate") == of("step_time") == [(0,), (1, 2)]
    assert of("grid") == [(0, 1), (2,)]
    assert of("restart_time") == of("embodied_host") == [(0, 1, 2)]
    # Hosts of both kinds are unsure together, by a factor; the accelerators of one kind weigh the same everywhere.
    units = {lever.name: lever.input.unit for lever in found}
    assert (units["embodied_host"], units["embodied_accelerator"]) == ("x", "kgCO2e")
    prices = [lever for lever in found if lever.name == "hardware_price"]
    assert [lever.low == lever.high for lever in prices] == [False, True, False]
