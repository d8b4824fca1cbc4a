"""Does carbon follow grids, scope and failures, and does moving a job change what it should and nothing else?"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from constraints.evaluation import evaluate
from objectives.carbon import (
    embodied_parts,
    least_kgco2e,
    market_kgco2e,
    operational_kgco2e,
    replacement_kgco2e,
    water_l,
)
from objectives.cost import COST_PARTS
from objectives.scores import ScoreTable
from objectives.usage import Usage
from planner.input.magnitude import LEAST
from simulator.domain.hourly import HourlyProfile
from simulator.domain.job import Job
from simulator.domain.options import CarbonScope
from simulator.simulate import simulate
from simulator.table import Floats
from tests.support import H100_BOUGHT, H100_RENTED, job_with, plans_with

HOUR, KWH, LIFE_S = 3600.0, 3.6e6, 5 * 0.85 * 8766 * 3600.0
PLANS = plans_with({"num_gpus": 16, "num_spare_nodes": 1})
SITE_PUE = 1.25
SITE = {
    "region": "here",
    "grid_kgco2e_per_kwh": 0.3,
    "electricity_usd_per_kwh": 0.1,
    "power_usage_effectiveness": SITE_PUE,
}


def usage(hours: float = 100.0, energy_kwh: float = 1000.0) -> Usage:
    return Usage(
        wall_s=np.array([hours * HOUR]), energy_j=np.array([energy_kwh * KWH]), peak_power_w=np.array([25e3])
    )


def at_site(**fields: object) -> Job:
    return job_with({**H100_RENTED}, site={**SITE, **fields})


def with_scope(**counted: bool) -> Job:
    none = dict.fromkeys(CarbonScope.model_fields, False)
    return job_with(H100_RENTED, site=SITE, carbon_scope={**none, **counted})


class TestOperation:
    def test_hours_of_the_run_meet_hours_of_the_grid(self) -> None:
        job = at_site(grid_profile=HourlyProfile(per_hour=(0.1, 0.5) * 12))
        assert operational_kgco2e(job, PLANS, usage(hours=1.0)) == pytest.approx(100)
        assert operational_kgco2e(job, PLANS, usage(hours=2.0)) == pytest.approx(300)

    def test_water_at_the_racks_leaves_out_cooling_that_warm_days_raise(self) -> None:
        # An overhead of 0.2, and 0.3 more on the warmest day, ten degrees above the threshold; all of it is fixed.
        climate = {
            "mean_celsius": 20,
            "yearly_amplitude_celsius": 10,
            "free_cooling_below_celsius": 20,
            "overhead_per_celsius": 0.03,
        }
        cooled = {"power_usage_effectiveness": 1.2, "cooling_fixed_fraction": 1.0, "climate": climate}
        job = at_site(water_onsite_l_per_kwh=0.5, water_offsite_l_per_kwh=0.0, **cooled)
        assert job.site.climate is not None
        # 25 kW at a PUE of 1.5 are 16.7 kW inside, whose mean overhead is drawn for all of the hundred hours.
        cooling_kwh = (0.2 + job.site.climate.mean_overhead) * 25 / 1.5 * 100
        assert water_l(job, PLANS, usage(energy_kwh=2400.0)) == pytest.approx(
            0.5 * (2400 - cooling_kwh), rel=1e-3
        )

    def test_hours_of_a_grid_are_those_of_the_offers_that_stand_there(self) -> None:
        hourly = {**SITE, "grid_profile": HourlyProfile(per_hour=(0.1, 0.5) * 12)}
        flat = {**SITE, "grid_kgco2e_per_kwh": 0.3}
        job = job_with({**H100_RENTED, "site": hourly}, {**H100_RENTED, "site": flat})
        plans = plans_with(*({"num_gpus": 16, "offer": offer} for offer in (0, 1)))
        used = usage(hours=1.0).take(np.zeros(2, dtype=np.int64))
        assert operational_kgco2e(job, plans, used) == pytest.approx([100, 300])

    def test_a_bound_counts_the_least_mean_that_a_longer_run_could_reach(self) -> None:
        job = at_site(grid_profile=HourlyProfile(per_hour=(0.5, 0.1) * 12))
        used = usage(hours=1.0)
        hour, bound = (operational_kgco2e(job, PLANS, used, is_bound=is_bound) for is_bound in (False, True))
        assert hour == pytest.approx(500)
        assert bound == pytest.approx(300)  # of the first two hours
        made = sum(embodied_parts(job, PLANS, used).values())
        assert least_kgco2e(job, PLANS, used) == pytest.approx(300 + made)

    def test_the_market_counts_what_the_operator_buys_and_is_unknown_otherwise(self) -> None:
        # Google's fleet: 345 g by location, 94 g by contracts.
        job = at_site(grid_kgco2e_per_kwh=0.345, market_kgco2e_per_kwh=0.094)
        assert market_kgco2e(job, PLANS, usage()) == pytest.approx(94)
        assert operational_kgco2e(job, PLANS, usage()) == pytest.approx(345)
        assert np.isnan(market_kgco2e(at_site(), PLANS, usage()))

    def test_zero_intensity_leaves_only_what_was_made(self) -> None:
        scores = evaluate(at_site(grid_kgco2e_per_kwh=0.0), PLANS).scores
        assert scores.operational_kgco2e == 0
        assert scores.carbon_kgco2e == scores.embodied_kgco2e > 0

    def test_water_is_counted_at_the_racks_and_at_the_power_station(self) -> None:
        # 1,000 kWh of the facility are 800 kWh of IT at a PUE of 1.25.
        job = at_site(water_onsite_l_per_kwh=0.5, water_offsite_l_per_kwh=3.1)
        assert water_l(job, PLANS, usage()) == pytest.approx(800 * 0.5 + 1000 * 3.1)
        # What is not known of one of the two is left out, and of both it is told as unknown.
        assert water_l(at_site(water_onsite_l_per_kwh=0.5), PLANS, usage()) == pytest.approx(400)
        assert water_l(at_site(water_offsite_l_per_kwh=3.1), PLANS, usage()) == pytest.approx(3100)
        assert np.isnan(water_l(at_site(), PLANS, usage())).all()
        # A run without progress evaporates without end, whichever of the two is known.
        for known in ("water_onsite_l_per_kwh", "water_offsite_l_per_kwh"):
            assert np.isposinf(water_l(at_site(**{known: 1.0}), PLANS, usage(energy_kwh=np.inf))).all()
        # Where all of the overhead goes on at every load, 25 kW of peak have 5 kW of it: 500 kWh in 100 hours.
        fixed = at_site(water_onsite_l_per_kwh=1.0, cooling_fixed_fraction=1.0)
        assert water_l(fixed, PLANS, usage()) == pytest.approx(500)


class TestMaking:
    def test_each_part_of_the_scope_is_a_switch(self) -> None:
        fields = dict.fromkeys(CarbonScope.model_fields, True)
        job = job_with(H100_RENTED, site=SITE, carbon_scope=fields, storage={"capacity_bytes": 1e12})
        every = embodied_parts(job, PLANS, usage())
        for name in ("accelerators", "hosts", "network", "building"):
            alone = embodied_parts(with_scope(**{name: True}), PLANS, usage())
            counted = {part for part, values in alone.items() if values[0] > 0}
            assert counted == {f"embodied_{name}_kgco2e"}
            assert alone[f"embodied_{name}_kgco2e"] == every[f"embodied_{name}_kgco2e"]

    def test_accelerators_and_hosts_are_used_up_over_the_life_of_the_nodes(self) -> None:
        job = with_scope(accelerators=True, hosts=True)
        parts = embodied_parts(job, PLANS, usage(hours=LIFE_S / HOUR))
        chip, node = job.offers[0].accelerator, job.offers[0].node
        assert parts["embodied_accelerators_kgco2e"] == pytest.approx(24 * chip.embodied_kgco2e)
        assert parts["embodied_hosts_kgco2e"] == pytest.approx(3 * node.embodied_host_kgco2e)

    def test_a_switch_is_shared_by_its_ports(self) -> None:
        # One tier: a port each of 64-port switches of 600 kg, for 24 accelerators with the spare, over a whole life.
        parts = embodied_parts(with_scope(network=True), PLANS, usage(hours=LIFE_S / HOUR))
        assert parts["embodied_network_kgco2e"] == pytest.approx(24 * 600 / 64)

    def test_a_building_is_109_kg_for_each_accelerator(self) -> None:
        # A building stands for 15 years, three times as long as what it holds.
        parts = embodied_parts(with_scope(building=True), PLANS, usage(hours=3 * LIFE_S / HOUR))
        assert parts["embodied_building_kgco2e"] == pytest.approx(24 * 109)

    def test_network_and_storage_have_lives_of_their_own(self) -> None:
        job = job_with(
            H100_RENTED,
            site=SITE,
            carbon_scope={
                **dict.fromkeys(CarbonScope.model_fields, False),
                "network": True,
                "storage": True,
            },
            storage={"capacity_bytes": 1e12},
        )
        lives = {"network_lifetime_years": 10.0, "storage_lifetime_years": 2.5}
        longer = job.model_copy(update={"ownership": job.ownership.model_copy(update=lives)})
        parts = embodied_parts(longer, PLANS, usage(hours=LIFE_S / HOUR))
        assert parts["embodied_network_kgco2e"] == pytest.approx(24 * 600 / 64 / 2)
        assert parts["embodied_storage_kgco2e"] == pytest.approx(2 * 160)  # a terabyte of flash at 0.16 kg/GB

    def test_failures_of_nodes_destroy_accelerators(self) -> None:
        job = with_scope(replacements=True)
        run = simulate(job, PLANS).run
        of_nodes = run.num_failures * (1 - job.reliability.process_fault_fraction)
        assert replacement_kgco2e(job, PLANS, run) == pytest.approx(of_nodes * 0.5 * 164)
        assert replacement_kgco2e(with_scope(), PLANS, run) == 0

    def test_the_scope_says_what_it_leaves_out(self) -> None:
        assert CarbonScope().counted == ("accelerators", "hosts", "replacements")
        assert CarbonScope().left_out == ("network", "storage", "building")


def up_to(most: float) -> st.SearchStrategy[float]:
    """Figures of a site that a job file takes."""
    return st.just(0.0) | st.floats(LEAST, most)


LITRES = st.none() | up_to(5.0)
WHEREVER = st.fixed_dictionaries(
    {
        "grid_kgco2e_per_kwh": up_to(2.0),
        "power_usage_effectiveness": st.floats(1.0, 2.0),
        "electricity_usd_per_kwh": up_to(1.0),
        "demand_usd_per_w_month": up_to(0.05),
        "market_kgco2e_per_kwh": st.none() | up_to(2.0),
        "water_onsite_l_per_kwh": LITRES,
        "water_offsite_l_per_kwh": LITRES,
    }
)
MOVED = {
    *("energy_j", "water_l", "operational_kgco2e", "market_kgco2e", "carbon_kgco2e"),
    *("electricity_usd", "demand_usd", "cost_usd", "cost_low_usd", "cost_high_usd", "cost_p95_usd"),
}
"""What another grid, tariff and cooling may change; what is rented keeps its cost, too."""


@given(fields=WHEREVER, offer=st.sampled_from([H100_RENTED, H100_BOUGHT]))
def test_moving_a_job_changes_energy_money_and_carbon_of_operation_alone(
    fields: dict[str, float | None], offer: dict[str, object]
) -> None:
    there = {"region": "there", **fields}
    before, after = (evaluate(job_with(offer, site=site), PLANS) for site in (SITE, there))
    for part in ("steps", "memory", "checkpoints", "run"):
        for name, column in getattr(before.outcomes, part).columns().items():
            np.testing.assert_array_equal(column, getattr(after.outcomes, part).columns()[name])
    was, now = before.scores, after.scores
    is_bought = offer is H100_BOUGHT
    moved = MOVED if is_bought else {name for name in MOVED if not name.endswith("_usd")}
    for name in set(ScoreTable.names()) - moved:
        np.testing.assert_allclose(getattr(now, name), getattr(was, name), rtol=1e-12, err_msg=name)
    pue = fields["power_usage_effectiveness"] or 1.0
    cooled = pue / SITE_PUE
    kwh = was.energy_j * cooled / KWH
    np.testing.assert_allclose(now.energy_j / KWH, kwh, rtol=1e-12)
    # A month is a twelfth of a year of 8,766 h; 85 % of the calendar is used, and idle months have their peaks, too.
    months = was.time_to_train_s / (8766 / 12 * HOUR) / 0.85
    peak_w = before.outcomes.power.peak_power_w * cooled
    expected = {
        "operational_kgco2e": times(fields["grid_kgco2e_per_kwh"], kwh),
        "market_kgco2e": times(fields["market_kgco2e_per_kwh"], kwh),
        "electricity_usd": times(fields["electricity_usd_per_kwh"], kwh * is_bought),
        "demand_usd": times(fields["demand_usd_per_w_month"], peak_w * months * is_bought),
        "water_l": litres(fields, kwh, kwh / pue),
    }
    for name, values in expected.items():
        np.testing.assert_allclose(getattr(now, name), values, rtol=1e-9, atol=1e-300, err_msg=name)
    bill = [getattr(now, name) for name in COST_PARTS]
    np.testing.assert_allclose(now.cost_usd, np.sum(bill, axis=0), rtol=1e-12)
    # What is bought by contract stands beside the sum, never in it.
    np.testing.assert_allclose(now.carbon_kgco2e, now.operational_kgco2e + was.embodied_kgco2e, rtol=1e-12)


def times(factor: float | None, values: Floats) -> Floats:
    """Products; unknown where the factor is."""
    return np.full(len(values), np.nan) if factor is None else factor * values


def litres(fields: dict[str, float | None], facility_kwh: Floats, it_kwh: Floats) -> Floats:
    """Water of racks and power stations as far as either is known."""
    onsite, offsite = fields["water_onsite_l_per_kwh"], fields["water_offsite_l_per_kwh"]
    if onsite is None and offsite is None:
        return np.full(len(it_kwh), np.nan)
    return (onsite or 0.0) * it_kwh + (offsite or 0.0) * facility_kwh


def test_offers_at_several_sites_are_charged_and_cooled_where_they_stand() -> None:
    north = {**SITE, "grid_kgco2e_per_kwh": 0.02, "power_usage_effectiveness": 1.1}
    job = job_with(H100_RENTED, {**H100_RENTED, "site": north}, site=SITE)
    both = plans_with({"num_gpus": 16, "offer": 0}, {"num_gpus": 16, "offer": 1})
    scores = evaluate(job, both).scores
    assert scores.energy_j[1] / scores.energy_j[0] == pytest.approx(1.1 / 1.25)
    ratio = scores.operational_kgco2e[1] / scores.operational_kgco2e[0]
    assert ratio == pytest.approx(1.1 / 1.25 * 0.02 / 0.3)
