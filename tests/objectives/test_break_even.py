"""Does buying pay when rent saved has paid for it with interest, and never after the end of the nodes' life?"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from constraints.evaluation import evaluate
from objectives.break_even import outlay_usd, payback_months, rent_or_own
from objectives.cost import cost_parts
from objectives.metrics import metrics
from objectives.usage import Usage
from simulator.domain.job import Job
from simulator.domain.ownership import Ownership
from simulator.table import total
from tests.objectives.test_cost import PLANS, SITE, usage
from tests.support import H100_BOUGHT, H100_RENTED, job_with, plans_with

FREE_OF_INTEREST = {
    "facility_usd_per_w": 0.0,
    "maintenance_fraction_per_year": 0.0,
    "utilization_fraction": 1.0,
    "capital_cost_fraction_per_year": 0.0,
}


def offered(ownership: Mapping[str, object], node_usd: float = 300e3, **fields: object) -> Job:
    """H100 for rent at 2.5 USD, compared with nodes at a price; a network that costs nothing."""
    offer = {**H100_RENTED, "other_purchase_usd_per_node": node_usd}
    return job_with(
        offer,
        **{
            "site": SITE,
            "ownership": {**FREE_OF_INTEREST, **ownership},
            "fabric": {"port_usd": 0.0},
            **fields,
        },
    )


def months_of(job: Job) -> float:
    return float(rent_or_own(job, PLANS, usage(hours=100, energy_kwh=1000)).break_even_months[0])


# 24 accelerators at 2.5 USD for 730.5 hours are 43,830 USD a month; they draw 10 kW at 0.1 USD: 730.5 USD.
SAVED_PER_MONTH = 43_830 - 730.5


class TestBothWays:
    def test_both_ways_are_what_two_offers_would_cost(self) -> None:
        both = {**H100_RENTED, "other_purchase_usd_per_node": 300e3}
        rented = total(cost_parts(job_with(both, site=SITE), PLANS, usage()).values())
        bought = total(cost_parts(job_with(H100_BOUGHT, site=SITE), PLANS, usage()).values())
        compared = rent_or_own(job_with(both, site=SITE), PLANS, usage())
        assert (compared.rent_usd, compared.own_usd) == (rented, bought)

    def test_what_has_one_price_only_is_not_compared(self) -> None:
        job = job_with(H100_RENTED, site=SITE)
        node = job.offers[0].node.model_copy(update={"purchase_usd": None})
        job = job.model_copy(update={"offers": (job.offers[0].model_copy(update={"node": node}),)})
        compared = rent_or_own(job, PLANS, usage())
        assert np.isnan(compared.own_usd)
        assert np.isnan(compared.break_even_months)
        assert compared.rent_usd > 0

    def test_a_run_that_never_ends_has_no_break_even(self) -> None:
        endless = Usage(wall_s=np.array([np.inf]), energy_j=np.array([np.inf]), peak_power_w=np.array([25e3]))
        compared = rent_or_own(offered({}), PLANS, endless)
        assert np.isnan(compared.break_even_months)
        assert compared.rent_usd == compared.own_usd == np.inf


class TestPayback:
    def test_without_interest_it_is_the_outlay_over_what_a_month_saves(self) -> None:
        assert months_of(offered({})) == pytest.approx(900e3 / SAVED_PER_MONTH)

    def test_interest_makes_it_longer(self) -> None:
        # Savings of s a year are worth s (1 - 1.08^-t)/0.08 after t years.
        saved = 12 * SAVED_PER_MONTH
        years = -np.log(1 - 0.08 * 900e3 / saved) / np.log(1.08)
        found = months_of(offered({"capital_cost_fraction_per_year": 0.08}))
        assert found == pytest.approx(12 * years)
        assert found > 900e3 / SAVED_PER_MONTH

    def test_months_are_those_of_the_calendar(self) -> None:
        # Used half of the time, half of the rent is saved in a month, and half of the electricity paid.
        assert months_of(offered({"utilization_fraction": 0.5})) == pytest.approx(2 * 900e3 / SAVED_PER_MONTH)

    def test_the_demand_charge_of_idle_days_is_paid_too(self) -> None:
        # 25 kW at 15 USD a month, whether the month is used or not.
        site = {**SITE, "demand_usd_per_w_month": 0.015}
        job = offered({"utilization_fraction": 0.5}, site=site)
        assert months_of(job) == pytest.approx(900e3 / (SAVED_PER_MONTH / 2 - 375))

    def test_a_sale_at_the_end_shortens_it(self) -> None:
        assert months_of(offered({"residual_fraction": 0.4})) == pytest.approx(0.6 * 900e3 / SAVED_PER_MONTH)
        # Sold five years from now for 360,000 USD, worth 360,000 / 1.08^5 today.
        terms = {"residual_fraction": 0.4, "capital_cost_fraction_per_year": 0.08}
        outlay = 900e3 - 360e3 / 1.08**5
        years = -np.log(1 - 0.08 * outlay / (12 * SAVED_PER_MONTH)) / np.log(1.08)
        assert months_of(offered(terms)) == pytest.approx(12 * years)

    def test_the_market_price_at_the_end_counts_under_economic_depreciation(self) -> None:
        # Half of the value is lost every year: 1/2 is left of used nodes at the start, and 1/64 of their price at the end.
        terms = {"depreciation": "economic", "economic_loss_per_year": np.log(2), "age_years": 1.0}
        outlay = 900e3 * (1 / 2 - 1 / 64)
        assert months_of(offered(terms)) == pytest.approx(outlay / SAVED_PER_MONTH)

    def test_it_ends_with_the_life_of_the_nodes(self) -> None:
        # In 60 months 2.586 M USD are saved, in 20 months a third of it.
        assert months_of(offered({}, node_usd=860e3)) == pytest.approx(2.58e6 / SAVED_PER_MONTH)
        assert months_of(offered({}, node_usd=863e3)) == np.inf
        assert months_of(offered({"lifetime_years": 20 / 12}, node_usd=300e3)) == np.inf

    def test_of_what_lives_longer_only_the_share_within_that_life_is_paid_back(self) -> None:
        # 20 kW of IT power at 12 USD for 15 years, of which five count.
        job = offered({"facility_usd_per_w": 12.0})
        assert months_of(job) == pytest.approx((900e3 + 20e3 * 12 / 3) / SAVED_PER_MONTH)

    def test_of_what_lives_longer_the_instalments_within_that_life_are_paid_back_with_interest(self) -> None:
        # A network of 24 ports at 1,000 USD, paid off in ten yearly instalments at 8 %, beside nodes that last for five.
        job = offered(
            {"capital_cost_fraction_per_year": 0.08, "lifetime_years": 5.0, "network_lifetime_years": 10.0},
            fabric={"port_usd": 1000.0},
        )
        instalment = 24e3 / sum(1.08**-year for year in range(1, 11))
        paid = 900e3 + sum(instalment * 1.08**-year for year in range(1, 6))
        found = outlay_usd(job, PLANS, usage(), np.array([300e3]))
        assert found == pytest.approx(paid, rel=1e-9)

    def test_a_purchase_never_pays_where_rent_is_a_gift(self) -> None:
        offer = {**H100_RENTED, "rent_usd_per_gpu_hour": 0.0, "other_purchase_usd_per_node": 100e3}
        assert months_of(job_with(offer, site=SITE)) == np.inf

    def test_savings_below_the_interest_never_pay(self) -> None:
        own = Ownership(capital_cost_fraction_per_year=0.08, lifetime_years=100.0)
        months = payback_months(own, np.array([100.0, 100.0]), np.array([7.9, 8.1]))
        assert months[0] == np.inf
        assert 12 * 30 < months[1] < 12 * 100  # -ln(1 - 0.98765) / ln(1.08) = 57.1 years


@given(
    rent=st.floats(0.3, 4.0),
    interest=st.sampled_from((0.0, 0.04, 0.15)),
    residual=st.just(0.0) | st.floats(0.001, 0.9),
    utilization=st.floats(0.2, 1.0),
    network_years=st.sampled_from((2.0, 5.0, 9.0)),
)
def test_buying_pays_exactly_where_owning_costs_less_than_renting(
    rent: float, interest: float, residual: float, utilization: float, network_years: float
) -> None:
    offer = {**H100_RENTED, "rent_usd_per_gpu_hour": rent, "other_purchase_usd_per_node": 300e3}
    terms = {
        "capital_cost_fraction_per_year": interest,
        "residual_fraction": residual,
        "utilization_fraction": utilization,
        "network_lifetime_years": network_years,
        "installation_fraction": 0.1,
        "staff_usd_per_year": 1e5,
    }
    site = {**SITE, "demand_usd_per_w_month": 0.01}
    compared = rent_or_own(job_with(offer, site=site, ownership=terms), PLANS, usage())
    difference = (compared.rent_usd - compared.own_usd)[0]
    if abs(difference) > 1e-6 * compared.rent_usd[0]:
        assert np.isfinite(compared.break_even_months[0]) == (difference > 0)


@pytest.mark.parametrize(("rent", "does_pay"), [(0.5, False), (1.5, True)])
def test_nodes_that_are_bought_are_not_taken_back_as_spot_ones_are(rent: float, *, does_pay: bool) -> None:
    spot = {**H100_RENTED, "rent_usd_per_gpu_hour": rent, "interruptions_per_1000_node_days": 600.0}
    plans = plans_with({"num_gpus": 64})
    asked, bought = (
        job_with(offer, workload={"tokens": 1e12})
        for offer in (
            {**spot, "other_purchase_usd_per_node": 270e3},
            {**H100_BOUGHT, "purchase_usd_per_node": 270e3},
        )
    )
    result, owned = evaluate(asked, plans), evaluate(bought, plans)
    found = metrics(asked, plans, result.outcomes, result.scores)
    assert result.scores.time_to_train_s[0] > 1.1 * owned.scores.time_to_train_s[0]
    assert found.rent_usd[0] == pytest.approx(result.scores.cost_usd[0], rel=1e-12)
    assert found.own_usd[0] == pytest.approx(owned.scores.cost_usd[0], rel=1e-12)
    # It pays where owning costs less than renting, though the rented run is longer.
    assert (found.own_usd[0] < found.rent_usd[0]) == does_pay
    assert np.isfinite(found.break_even_months[0]) == does_pay
