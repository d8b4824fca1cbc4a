"""Does the table of uncertain inputs have all of them, and does each change what it stands for?"""

from __future__ import annotations

import numpy as np
import pytest

from constraints.evaluation import evaluate
from objectives.input_table import INPUTS, value_at
from objectives.moved_designs import WAITING_PARTS, moved_designs
from simulator.domain.options import InputFactors
from simulator.domain.ownership import Ownership
from simulator.machine.offer_table import OfferTable
from tests.support import A100_RENTED, H100_BOUGHT, H100_RENTED, job_with, plans_with

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


def test_the_inputs_are_the_fields_of_the_input_factors_and_those_with_a_range_of_their_own() -> None:
    own = {"hardware_price", "layout_time", "network_bandwidth"}
    assert INPUTS.keys() == {*InputFactors.model_fields, *own}
    assert [name for name, known in INPUTS.items() if not known.is_drawn] == ["network_bandwidth"]


@pytest.mark.parametrize("name", INPUTS)
def test_an_input_at_its_middle_changes_no_job(name: str) -> None:
    job = job_with(
        H100_BOUGHT,
        A100_RENTED,
        site=HERE,
        ownership={"residual_fraction": 0.995, "network_lifetime_years": 7},
    )
    assert INPUTS[name].change(job, 1.0) == job


@pytest.mark.parametrize("name", [name for name, known in INPUTS.items() if known.fields])
def test_every_field_that_an_input_stands_for_is_so_many_times_as_large(name: str) -> None:
    ownership = {"network_lifetime_years": 7, "storage_lifetime_years": 6, "residual_fraction": 0.2}
    job = job_with(H100_BOUGHT, site=HERE, ownership=ownership)
    known = INPUTS[name]
    changed = known.change(job, 1.1)
    for field in known.fields:
        for place in field.places(job, (0,)):
            old, new = value_at(job, place), value_at(changed, place)
            if isinstance(old, float):
                expected = (
                    old + np.log(1.1) if field.is_logarithm else field.above + 1.1 * (old - field.above)
                )
                assert new == pytest.approx(expected), field.path


def test_profiles_climates_and_prices_follow_their_input() -> None:
    job = job_with(H100_BOUGHT, site=HERE)
    dear = INPUTS["electricity_price"].change(job, 2.0).site
    assert dear.demand_usd_per_w_month == 0.03
    assert dear.electricity_profile is not None
    assert job.site.electricity_profile is not None
    per_hour = np.array(job.site.electricity_profile.per_hour)
    np.testing.assert_allclose(dear.electricity_profile.per_hour, 2.0 * per_hour)
    # A PUE of 1.2 and what ten degrees at noon add to it: all overhead is half as much again.
    warm = INPUTS["cooling_overhead"].change(job, 1.5)
    overheads = [OfferTable.from_job(each).peak_power_usage_effectiveness[0] - 1.0 for each in (job, warm)]
    assert overheads == pytest.approx([0.3, 0.45], rel=1e-3)
    price = INPUTS["hardware_price"].change(job, 1.5).offers[0].purchase_usd_per_node
    assert price is not None
    assert price.mid == 4.5e5


def test_all_lifetimes_that_are_given_change_together_and_those_that_follow_the_nodes_stay_left_out() -> None:
    job = job_with(H100_BOUGHT, ownership={"network_lifetime_years": 10})
    own = INPUTS["lifetime"].change(job, 0.6).ownership
    assert (own.lifetime_years, own.network_lifetime_years) == pytest.approx((3.0, 6.0))
    assert own.storage_lifetime_years is None


def test_shares_end_where_they_must() -> None:
    terms = {"utilization_fraction": 0.95, "depreciation": "straight_line", "residual_fraction": 0.8}
    job = job_with(H100_BOUGHT, ownership=terms)

    def own(name: str) -> Ownership:
        return INPUTS[name].change(job, 3.0).ownership

    assert own("utilization").utilization_fraction == 1.0
    assert own("residual_value").residual_fraction == 0.99


def test_a_site_of_several_offers_changes_once() -> None:
    job = job_with(H100_RENTED, {**A100_RENTED, "site": "norway"}, A100_RENTED)
    green = INPUTS["grid"].change(job, 0.5)
    norway, own = job.offers[1].site, green.offers[1].site
    assert norway is not None
    assert own is not None
    assert green.site.grid_kgco2e_per_kwh == 0.5 * job.site.grid_kgco2e_per_kwh
    assert own.grid_kgco2e_per_kwh == 0.5 * norway.grid_kgco2e_per_kwh


def test_power_of_computing_and_waiting_scales_every_level_that_belongs_to_it() -> None:
    job, plans = job_with(), plans_with({"num_gpus": 16, "num_spare_nodes": 1})
    before = evaluate(job, plans).outcomes
    _, both = moved_designs(job, plans, before, "compute_power", 1.25)
    for name in ("peak_power_w", "hall_power_w", "cooling_power_w", "rack_power_w"):
        np.testing.assert_allclose(getattr(both.power, name), 1.25 * getattr(before.power, name))
    standing_w = before.power.power_swing_w * (1.0 / before.power.power_range_fraction - 1.0)
    computing_w = standing_w + before.power.power_swing_w
    np.testing.assert_allclose(both.power.power_swing_w, 1.25 * computing_w - standing_w)
    _, both = moved_designs(job, plans, both, "waiting_power", 1.25)
    # All of it is a quarter more: so are swings, and their share of the peak is the same.
    np.testing.assert_allclose(both.energy.total_j, 1.25 * before.energy.total_j)
    np.testing.assert_allclose(both.summary.mean_power_w, 1.25 * before.summary.mean_power_w)
    for name, ratio in (("power_swing_w", 1.25), ("power_ramp_w_per_s", 1.25), ("power_range_fraction", 1.0)):
        np.testing.assert_allclose(getattr(both.power, name), ratio * getattr(before.power, name))


def test_waiting_power_moves_the_parts_in_which_accelerators_wait() -> None:
    job, plans = job_with(reliability="harsh"), plans_with({"num_gpus": 32, "pipeline_parallel": 2})
    before = evaluate(job, plans).outcomes
    _, after = moved_designs(job, plans, before, "waiting_power", 2.0)
    for name in before.energy.names():
        ratio = 2.0 if name in WAITING_PARTS else 1.0
        np.testing.assert_allclose(getattr(after.energy, name), ratio * getattr(before.energy, name))
