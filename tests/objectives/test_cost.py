"""Is every part of owning and renting counted once, and does it grow as it should?"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from objectives.break_even import rent_or_own
from objectives.cost import COST_PARTS, affordable_s, cost_parts, left_usd, purchase, up_front_usd
from objectives.scores import EMBODIED_PARTS, score
from objectives.usage import Usage
from simulator.domain.hourly import HourlyProfile
from simulator.domain.job import Job
from simulator.run.wall_time import PARTS as RUN_PARTS
from simulator.simulate import simulate
from tests.support import H100_BOUGHT, H100_RENTED, job_with, plans_with

HOUR, KWH, YEAR = 3600.0, 3.6e6, 8766 * 3600.0
PLANS = plans_with({"num_gpus": 16, "num_spare_nodes": 1})
SITE = {
    "region": "here",
    "grid_kgco2e_per_kwh": 0.3,
    "electricity_usd_per_kwh": 0.1,
    "power_usage_effectiveness": 1.25,
}


def usage(hours: float = 100.0, energy_kwh: float = 1000.0, peak_power_w: float = 25e3) -> Usage:
    return Usage(
        wall_s=np.array([hours * HOUR]),
        energy_j=np.array([energy_kwh * KWH]),
        peak_power_w=np.array([peak_power_w]),
    )


def owned(ownership: dict[str, object] | None = None, site: dict[str, object] | None = None) -> Job:
    # A network that costs nothing leaves the nodes alone: three with the spare, 300,000 USD each.
    fabric = {"port_usd": 0.0}
    terms = {"capital_cost_fraction_per_year": 0.0, "utilization_fraction": 1.0, **(ownership or {})}
    return job_with(H100_BOUGHT, fabric=fabric, ownership=terms, site={**SITE, **(site or {})})


def with_ports(job: Job, usd: float) -> Job:
    """The job with a network that costs something: one tier, a port for each of 24 accelerators."""
    (offer,) = job.offers
    fabric = offer.fabric.model_copy(update={"port_usd": usd})
    return job.model_copy(update={"offers": (offer.model_copy(update={"fabric": fabric}),)})


def part(job: Job, name: str, used: Usage) -> float:
    return float(cost_parts(job, PLANS, used)[name][0])


class TestOwning:
    def test_a_sale_at_the_end_returns_its_share(self) -> None:
        year = usage(hours=8766.0)
        assert part(owned({"residual_fraction": 0.25}), "capital_usd", year) == pytest.approx(
            900e3 / 5 * 0.75
        )
        # With interest the payment of five years from now is worth less today: 1.08^-5 = 0.68058.
        dear = owned({"residual_fraction": 0.25, "capital_cost_fraction_per_year": 0.08})
        assert part(dear, "capital_usd", year) == pytest.approx(
            900e3 * 0.250456 * (1 - 0.25 * 0.68058), rel=1e-5
        )

    @pytest.mark.parametrize("residual", [0.0, 0.25])
    def test_what_is_left_to_bring_in_is_what_yearly_payments_have_not_paid_off(
        self, residual: float
    ) -> None:
        terms = {
            "capital_cost_fraction_per_year": 0.08,
            "residual_fraction": residual,
            "network_lifetime_years": 8,
        }
        job = with_ports(owned({**terms, "installation_fraction": 0.1}), 1000.0)
        price = purchase(job, PLANS, np.array([25e3]), np.array([300e3]))
        # 900,000 USD of nodes and 24,000 of ports, a tenth more for installation; annuity(8 %, 5) and (8 %, 8) of Excel's PMT.
        nodes_usd, network_usd = 1.1 * 900e3, 1.1 * 24e3
        yearly_usd = 0.2504564546 * (nodes_usd - residual * 900e3 / 1.08**5)
        for years in range(1, 6):
            nodes_usd = 1.08 * nodes_usd - yearly_usd
            network_usd = 1.08 * network_usd - 0.1740147606 * 1.1 * 24e3
            left = float(left_usd(job.ownership, price, years)[0])
            assert left == pytest.approx(nodes_usd + network_usd, rel=1e-6)
        assert nodes_usd == pytest.approx(residual * 900e3, abs=0.01)  # the sale
        assert float(left_usd(job.ownership, price, 8.0)[0]) == pytest.approx(residual * 900e3)

    def test_what_is_left_of_nodes_that_lose_their_market_price_is_that_price(self) -> None:
        job = owned({"depreciation": "economic", "economic_loss_per_year": 0.5, "age_years": 1.0})
        price = purchase(job, PLANS, np.array([25e3]), np.array([300e3]))
        assert float(left_usd(job.ownership, price, 1.0)[0]) == pytest.approx(900e3 * math.exp(-1.0))

    @pytest.mark.parametrize("age_years", [0.0, 2.0])
    def test_what_is_paid_up_front_is_what_is_used_up_and_what_is_left(self, age_years: float) -> None:
        terms = {"depreciation": "economic", "age_years": age_years, "installation_fraction": 0.1}
        job = owned({**terms, "capital_cost_fraction_per_year": 0.0, "utilization_fraction": 1.0})
        price = purchase(job, PLANS, np.array([25e3]), np.array([300e3]))
        paid = float(up_front_usd(job.ownership, price)[0])
        assert paid == pytest.approx(900e3 * (math.exp(-0.32 * age_years) + 0.1) + 1.1 * price.network[0])
        left = float(left_usd(job.ownership, price, 1.0)[0])
        assert part(job, "capital_usd", usage(hours=8766.0)) + left == pytest.approx(paid)

    def test_economic_depreciation_follows_the_market_price(self) -> None:
        # Epoch AI: 0.14 orders of magnitude a year, ln(10) 0.14 = 0.32236; after a year 10^-0.14 = 0.72444 is left.
        rate = {"depreciation": "economic", "economic_loss_per_year": 0.14 * math.log(10)}
        first = part(owned(rate), "capital_usd", usage(hours=8766.0))
        assert first == pytest.approx(900e3 * (1 - 0.72444), rel=1e-4)
        second = part(owned({**rate, "age_years": 1.0}), "capital_usd", usage(hours=8766.0))
        assert second == pytest.approx(0.72444 * first, rel=1e-4)

    @pytest.mark.parametrize("depreciation", ["straight_line", "economic"])
    def test_a_run_that_never_ends_ties_nodes_up_for_ever(self, depreciation: str) -> None:
        endless = usage(hours=math.inf)
        assert part(owned({"depreciation": depreciation}), "capital_usd", endless) == math.inf

    def test_economic_depreciation_pays_interest_on_what_is_left(self) -> None:
        terms = {
            "depreciation": "economic",
            "economic_loss_per_year": 0.5,
            "capital_cost_fraction_per_year": 0.1,
        }
        # Over its whole life a node loses its price, and interest on it is the integral of 0.1 e^-0.5t: a fifth.
        whole_life = part(owned(terms), "capital_usd", usage(hours=8766.0 * 100))
        assert whole_life == pytest.approx(900e3 * 1.2)

    def test_installation_storage_and_staff_have_parts_of_their_own(self) -> None:
        storage = {"capacity_bytes": 2e15, "usd_per_byte": 400e-12}  # two petabytes at 400 USD a terabyte
        job = owned({"installation_fraction": 0.1, "staff_usd_per_year": 5e5})
        job = job.model_copy(update={"storage": job.storage.model_copy(update=storage)})
        year = usage(hours=8766.0)
        assert part(job, "storage_usd", year) == pytest.approx(800e3 / 5)
        longer = job.model_copy(
            update={"ownership": job.ownership.model_copy(update={"storage_lifetime_years": 8.0})}
        )
        assert part(longer, "storage_usd", year) == pytest.approx(800e3 / 8)
        assert part(job, "staff_usd", year) == pytest.approx(5e5)
        assert part(job, "capital_usd", year) == pytest.approx(1.1 * 900e3 / 5)

    def test_storage_bought_for_the_run_is_paid_by_those_who_rent_the_nodes_too(self) -> None:
        storage = {"capacity_bytes": 2e15, "usd_per_byte": 400e-12}
        own = {"capital_cost_fraction_per_year": 0.0, "lifetime_years": 5, "utilization_fraction": 0.5}
        year = usage(hours=0.5 * 8766)
        for offer in (H100_RENTED, H100_BOUGHT):
            job = job_with(offer, storage=storage, ownership=own)
            assert part(job, "storage_usd", year) == pytest.approx(800e3 / 5)
        bare, stored = (job_with(H100_RENTED, ownership=own, storage=each) for each in ({}, storage))
        before, after = (rent_or_own(each, PLANS, year) for each in (bare, stored))
        assert after.rent_usd - before.rent_usd == pytest.approx(800e3 / 5)
        assert after.own_usd - before.own_usd == pytest.approx(800e3 / 5)
        assert after.break_even_months == before.break_even_months

    def test_nodes_alone_can_be_sold_again(self) -> None:
        # Installing costs 90,000 USD, a fifth of it a year; 24 ports at 1,000 USD and their installation take ten years.
        network = 24 * 1000 * 1.1 / 10
        terms = {"installation_fraction": 0.1, "network_lifetime_years": 10.0}
        sold = with_ports(owned({**terms, "residual_fraction": 0.25}), 1000.0)
        year = usage(hours=8766.0)
        assert part(sold, "capital_usd", year) == pytest.approx(900e3 / 5 * 0.75 + 90e3 / 5 + network)
        market = {"depreciation": "economic", "economic_loss_per_year": 0.14 * math.log(10)}
        aged = with_ports(owned({**terms, **market, "age_years": 1.0}), 1000.0)
        assert part(aged, "capital_usd", year) == pytest.approx(
            900e3 * 0.72444 * (1 - 0.72444) + 90e3 / 5 + network, rel=1e-4
        )

    def test_nodes_and_network_are_paid_for_at_once_with_their_installation_but_no_building(self) -> None:
        # Three nodes at 300,000 USD and 24 ports at 1,000 USD; installing costs a tenth.
        job = with_ports(owned({"installation_fraction": 0.1, "facility_usd_per_w": 10.0}), 1000.0)
        price = purchase(job, PLANS, np.array([25e3]), np.array([300e3]))
        assert up_front_usd(job.ownership, price) == pytest.approx(1.1 * (900e3 + 24e3))

    def test_the_network_has_a_life_of_its_own(self) -> None:
        job = with_ports(owned({"network_lifetime_years": 10.0}), 1000.0)
        assert part(job, "capital_usd", usage(hours=8766.0)) == pytest.approx(900e3 / 5 + 24 * 1000 / 10)

    def test_a_bound_takes_the_cheapest_hours_that_a_longer_run_would_reach(self) -> None:
        # A run of one hour pays 0.9 USD per kWh; one of two hours, 0.5 on average, and none pays less.
        hourly = HourlyProfile(per_hour=(0.9, 0.1) * 12)
        site = {name: value for name, value in SITE.items() if name != "electricity_usd_per_kwh"}
        job = job_with(H100_BOUGHT, site={**site, "electricity_profile": hourly})
        used = usage(hours=1.0, energy_kwh=100.0)
        for is_bound, usd in ((False, 90.0), (True, 50.0)):
            parts = cost_parts(job, PLANS, used, is_bound=is_bound)
            assert parts["electricity_usd"] == pytest.approx(usd)

    def test_the_demand_charge_is_paid_on_the_peak_by_the_month(self) -> None:
        job = owned(site={"demand_usd_per_w_month": 0.015})  # 15 USD per kW and month
        assert part(job, "demand_usd", usage(hours=8766.0)) == pytest.approx(12 * 15 * 25)

    def test_the_demand_charge_does_not_fall_in_idle_days(self) -> None:
        # Used for half of the time, 730.5 hours are two calendar months, each of which is charged for its peak.
        job = owned({"utilization_fraction": 0.5}, site={"demand_usd_per_w_month": 0.015})
        assert part(job, "demand_usd", usage(hours=730.5)) == pytest.approx(2 * 15 * 25)

    def test_a_building_is_paid_by_it_power_over_its_own_life(self) -> None:
        # 25 kW of the facility are 20 kW of IT, for 11 USD a watt and 15 years.
        job = owned({"facility_usd_per_w": 11.0})
        assert part(job, "facility_usd", usage(hours=8766.0)) == pytest.approx(20e3 * 11 / 15)

    def test_a_run_that_lasts_longer_draws_its_mean_power_for_longer(self) -> None:
        late = usage().lasting(np.array([250 * HOUR]))
        assert late.energy_j == pytest.approx(2500 * KWH)
        assert late.peak_power_w == usage().peak_power_w

    def test_an_hourly_tariff_meets_the_hours_of_the_run(self) -> None:
        job = owned(
            site={
                "electricity_profile": HourlyProfile(per_hour=(0.3, 0.1) * 12),
                "electricity_usd_per_kwh": 0.2,
            }
        )
        assert part(job, "electricity_usd", usage(hours=1.0, energy_kwh=100)) == pytest.approx(30)
        assert part(job, "electricity_usd", usage(hours=2.0, energy_kwh=100)) == pytest.approx(20)
        assert part(job, "electricity_usd", usage(hours=1000.0, energy_kwh=100)) == pytest.approx(20)


class TestRenting:
    def test_a_commitment_is_paid_even_where_the_run_is_shorter(self) -> None:
        job = job_with({**H100_RENTED, "commitment_days": 30})
        assert part(job, "rent_usd", usage(hours=100.0)) == pytest.approx(24 * 2.5 * 720)
        assert part(job, "rent_usd", usage(hours=1000.0)) == pytest.approx(24 * 2.5 * 1000)

    def test_nodes_that_are_taken_back_cost_time_and_so_money(self) -> None:
        calm, spot = (
            job_with({**H100_RENTED, "interruptions_per_1000_node_days": rate}) for rate in (0.0, 200.0)
        )
        before, after = (simulate(job, PLANS) for job in (calm, spot))
        # Two nodes at 200 in a thousand days: one interruption in 2.5 days beside the failures.
        run = after.run
        assert 1 / run.mtbf_s[0] - 1 / before.run.mtbf_s[0] == pytest.approx(2 * 0.2 / 86_400)
        assert score(spot, PLANS, after).cost_usd > score(calm, PLANS, before).cost_usd
        assert run.num_failures > before.run.num_failures


@given(scale=st.floats(0.1, 10.0))
def test_doubling_a_price_doubles_its_share_and_no_other(scale: float) -> None:
    for field, name in (("rent_usd_per_gpu_hour", "rent_usd"), ("purchase_usd_per_node", "capital_usd")):
        offer = H100_RENTED if name == "rent_usd" else H100_BOUGHT
        job, other = (
            job_with({**offer, field: factor * 100.0}, fabric={"port_usd": 0.0}) for factor in (1.0, scale)
        )
        before, after = (cost_parts(case, PLANS, usage()) for case in (job, other))
        changed = {name, "maintenance_usd"} if name == "capital_usd" else {name}
        for part_name in COST_PARTS:
            factor = scale if part_name in changed else 1.0
            np.testing.assert_allclose(after[part_name], factor * before[part_name], rtol=1e-9)


OWNED = {
    "purchase_usd_per_node": 300e3,
    "electricity_usd_per_kwh": 0.1,
    "demand_usd_per_w_month": 0.015,
    "staff_usd_per_year": 4e5,
    "usd_per_byte": 400e-12,
    "facility_usd_per_w": 12.0,
    "port_usd": 2100.0,
}
"""Every price that an owner pays."""
SHARES = {
    "electricity_usd_per_kwh": "electricity_usd",
    "demand_usd_per_w_month": "demand_usd",
    "staff_usd_per_year": "staff_usd",
    "usd_per_byte": "storage_usd",
    "facility_usd_per_w": "facility_usd",
}
"""Prices that have a part of the cost to themselves."""


def at_prices(**changed: float) -> Job:
    price = {**OWNED, **changed}

    def some(*names: str) -> dict[str, object]:
        return {name: price[name] for name in names}

    return job_with(
        {**H100_BOUGHT, **some("purchase_usd_per_node")},
        fabric=some("port_usd"),
        storage={"capacity_bytes": 1e15, **some("usd_per_byte")},
        ownership=some("staff_usd_per_year", "facility_usd_per_w"),
        site={**SITE, **some("electricity_usd_per_kwh", "demand_usd_per_w_month")},
    )


@pytest.mark.parametrize("price", SHARES)
def test_doubling_any_price_of_an_owner_doubles_its_part_and_no_other(price: str) -> None:
    before = cost_parts(at_prices(), PLANS, usage())
    after = cost_parts(at_prices(**{price: 2 * OWNED[price]}), PLANS, usage())
    for name in COST_PARTS:
        factor = 2.0 if name == SHARES[price] else 1.0
        np.testing.assert_allclose(after[name], factor * before[name], rtol=1e-12)
    assert before[SHARES[price]] > 0.0


def test_doubling_ports_and_nodes_doubles_capital_and_maintenance() -> None:
    # Each of them is a share of both parts; together they are all of both.
    before = cost_parts(at_prices(), PLANS, usage())
    ports, nodes = 2 * OWNED["port_usd"], 2 * OWNED["purchase_usd_per_node"]
    one = cost_parts(at_prices(port_usd=ports), PLANS, usage())
    other = cost_parts(at_prices(purchase_usd_per_node=nodes), PLANS, usage())
    for name in COST_PARTS:
        grown = (one[name] - before[name]) + (other[name] - before[name])
        is_share = name in {"capital_usd", "maintenance_usd"}
        np.testing.assert_allclose(grown, before[name] if is_share else 0.0, rtol=1e-9, atol=1e-9)
        assert bool(one[name] > before[name]) == is_share


def test_every_card_of_a_node_takes_a_port() -> None:
    job = at_prices()
    cards = {"num_network_cards": 16}
    node = job.offers[0].node.model_copy(update=cards)
    offer = job.offers[0].model_copy(update={"node": node})
    one, two = (
        purchase(each, PLANS, np.array([25e3]), np.array([300e3]))
        for each in (job, job.model_copy(update={"offers": (offer,)}))
    )
    np.testing.assert_allclose(two.network, 2.0 * one.network)
    assert one.network > 0.0
    assert (two.nodes, two.facility) == (one.nodes, one.facility)


def test_a_building_is_built_for_the_watts_inside_it_in_the_warmest_hour() -> None:
    # An overhead of 0.2, and 0.3 more on the warmest day, ten degrees above the threshold.
    climate = {
        "mean_celsius": 20,
        "yearly_amplitude_celsius": 10,
        "free_cooling_below_celsius": 20,
        "overhead_per_celsius": 0.03,
    }
    warm = owned({"facility_usd_per_w": 12.0}, {"power_usage_effectiveness": 1.2, "climate": climate})
    built = purchase(warm, PLANS, np.array([30e3]), np.array([300e3])).facility
    assert built == pytest.approx(12.0 * 30e3 / 1.5, rel=1e-4)


@pytest.mark.parametrize(
    ("budget_usd", "hours"),
    [
        (58.0 * 60, 60.0),  # longer than the commitment: 48 USD of rent and 10 USD of other cost an hour
        (48.0 * 48 + 10.0 * 24, 24.0),  # shorter: the committed hours are paid anyway, and leave 240 USD
        (48.0 * 48, 0.0),
    ],
)
@pytest.mark.parametrize("expected_hours", [30.0, 100.0])
def test_a_budget_pays_the_committed_hours_first(
    budget_usd: float, hours: float, expected_hours: float
) -> None:
    # 24 accelerators at 2 USD an hour, for two days at least.
    offer = {**H100_RENTED, "rent_usd_per_gpu_hour": 2.0, "commitment_days": 2}
    job, used = job_with(offer, limits={"budget_usd": budget_usd}), usage(hours=expected_hours)
    rent_usd = np.array([48.0 * max(expected_hours, 48.0)])
    assert part(job, "rent_usd", used) == rent_usd
    longest_s = affordable_s(job, PLANS, used, rent_usd, rent_usd + 10.0 * expected_hours)
    assert longest_s / HOUR == pytest.approx(hours)


@given(
    is_bought=st.booleans(),
    plan=st.fixed_dictionaries(
        {
            "num_gpus": st.sampled_from((8, 16, 32)),
            "tensor_parallel": st.sampled_from((1, 2, 4, 8)),
            "num_spare_nodes": st.integers(0, 3),
            "power_cap_fraction": st.sampled_from((1.0, 0.7)),
        }
    ),
    failures=st.floats(0.1, 300.0),
    capacity_bytes=st.sampled_from((0.0, 1e15)),
    demand=st.sampled_from((0.0, 0.02)),
)
def test_buckets_of_money_energy_and_carbon_sum_to_their_totals(
    is_bought: bool, plan: dict[str, object], failures: float, capacity_bytes: float, demand: float
) -> None:
    scope = dict.fromkeys(("network", "building", *(["storage"] if capacity_bytes else [])), True)
    job = job_with(
        H100_BOUGHT if is_bought else H100_RENTED,
        reliability={"failures_per_1000_node_days": failures},
        site={**SITE, "demand_usd_per_w_month": demand},
        storage={"capacity_bytes": capacity_bytes},
        carbon_scope=scope,
    )
    plans = plans_with(plan)
    outcomes = simulate(job, plans)
    found = score(job, plans, outcomes)
    energy = outcomes.energy
    money = math.fsum(float(getattr(found, name)[0]) for name in COST_PARTS)
    making = math.fsum(float(getattr(found, name)[0]) for name in EMBODIED_PARTS)
    joules = math.fsum(float(getattr(energy, name)[0]) for name in energy.names())
    assert found.cost_usd[0] == pytest.approx(money, rel=1e-9)
    assert found.embodied_kgco2e[0] == pytest.approx(making, rel=1e-9)
    assert found.carbon_kgco2e[0] == pytest.approx(making + float(found.operational_kgco2e[0]), rel=1e-9)
    assert found.energy_j[0] == pytest.approx(joules, rel=1e-9)
    seconds = math.fsum(float(getattr(outcomes.run, name)[0]) for name in RUN_PARTS)
    assert found.time_to_train_s[0] == pytest.approx(seconds, rel=1e-9)
