"""Do draws have the percentiles that were asked for, and do shared inputs leave orderings alone?"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from constraints.evaluation import evaluate
from objectives.drawn_runs import UnsureDesigns
from objectives.drawn_scores import drawn_figures, drawn_objectives
from objectives.input_table import INPUTS
from objectives.input_uncertainty import DrawnObjectives, draw_objectives, objectives_at_ends
from objectives.metrics import metrics
from objectives.unsure_inputs import UnsureInput, estimate_factors, unsure_inputs
from simulator.domain.job import Job
from simulator.domain.offer import Estimate
from simulator.domain.options import Factors, InputFactors
from simulator.table import Floats
from tests.objectives.unsure_jobs import FIXED, PLACE, SURE, only, runs_at, two_offers
from tests.support import A100_RENTED, H100_BOUGHT, H100_RENTED, job_with, plans_with

PLANS = plans_with({"num_gpus": 16}, {"num_gpus": 32}, {"num_gpus": 32, "offer": 1})


def drawn(job: Job, seed: int = 1) -> DrawnObjectives:
    result = evaluate(job, PLANS)
    return draw_objectives(UnsureDesigns.of(job, PLANS, result.outcomes, result.scores), seed=seed)


def unsure(factors: Factors) -> UnsureInput:
    return UnsureInput(
        name="rent", draws=("rent",), log_low=np.log([factors.low]), log_high=np.log([factors.high])
    )


def test_one_draw_in_twenty_lies_below_low_and_one_above_high() -> None:
    normal = np.random.default_rng(7).standard_normal(200_000)
    factors = unsure(Factors(low=0.5, high=3.0)).factors(lambda _name: normal)
    np.testing.assert_allclose(np.quantile(factors, (0.05, 0.5, 0.95)), [0.5, 1.0, 3.0], rtol=0.02)
    prices = unsure(estimate_factors(Estimate(low=2.0, mid=2.5, high=4.0))).factors(lambda _name: normal)
    np.testing.assert_allclose(np.quantile(prices, (0.05, 0.95)), [0.8, 1.6], rtol=0.02)


@pytest.mark.parametrize("deviation", [0.5, 1.0, 3.0])
def test_what_stragglers_add_is_lognormal_with_the_mean_that_is_expected(deviation: float) -> None:
    job = two_offers(reliability={"preset": "mature", "straggler_log_deviation": deviation})
    excess = unsure_inputs(job, PLANS)["straggler_excess"]
    normal = np.array([-1.644854, 0.0, 1.644854, deviation / 2.0, 2.5])
    factors = excess.factors(lambda _name: normal)[:, 0]
    # exp(s z) over its mean exp(s^2 / 2): 1 at z = s/2
    np.testing.assert_allclose(np.log(factors), deviation * normal - deviation**2 / 2.0, atol=1e-5)


def test_the_middle_of_the_ends_is_the_expected_run_and_half_of_the_draws_have_less_stragglers() -> None:
    sure = {name: value for name, value in SURE.items() if name != "straggler_excess"}
    job = two_offers(objectives=["time_to_train"], input_factors=sure)
    result = evaluate(job, PLANS)
    designs = UnsureDesigns.of(job, PLANS, result.outcomes, result.scores)
    expected_s = result.scores.time_to_train_s
    np.testing.assert_allclose(objectives_at_ends(designs).middle[:, 0], expected_s, rtol=1e-12)
    drawn_s = draw_objectives(designs, seed=1, num_draws=20_000).values[:, 0, 0]
    # P(exp(z - 1/2) < 1) = P(z < 1/2)
    assert np.mean(drawn_s < expected_s[0]) == pytest.approx(0.6915, abs=0.01)
    # No draw is faster than equal accelerators, and those between two simulated ends lie on a chord, both a little above.
    assert drawn_s.mean() == pytest.approx(expected_s[0], rel=0.015)


def test_the_spread_of_rent_is_that_of_its_price() -> None:
    job = two_offers(objectives=["cost"], input_factors=SURE)
    low, high = np.quantile(drawn(job).values[:, 0, 0], (0.05, 0.95), method="inverted_cdf")
    middle = evaluate(job, PLANS).scores.cost_usd[0]
    assert (low / middle, high / middle) == (
        pytest.approx(2.0 / 2.5, rel=0.05),
        pytest.approx(4.0 / 2.5, rel=0.1),
    )


def test_what_is_free_costs_nothing_in_any_draw_and_in_late_runs_too() -> None:
    free = {**H100_RENTED, "rent_usd_per_gpu_hour": 0.0}
    job = job_with(free, objectives=["cost", "cost_p95"], limits={"budget_usd": 1.0})
    result = evaluate(job, PLANS.take(slice(0, 2)))
    designs = UnsureDesigns.of(job, PLANS.take(slice(0, 2)), result.outcomes, result.scores)
    assert not draw_objectives(designs, seed=1).values.any()


def test_a_shared_price_changes_no_order_and_different_ones_do() -> None:
    job = two_offers(objectives=["cost", "time_to_train"], input_factors=SURE)
    result = drawn(job)
    costs = evaluate(job, PLANS).scores.cost_usd
    cheaper = float(costs[0] < costs[1])
    assert result.better_fraction(0, 1)[0] == cheaper  # the same accelerators
    assert 0.02 < result.better_fraction(1, 2)[0] < 0.98  # others
    assert result.better_fraction(1, 0)[1] == 1.0  # nobody draws the time


def test_certain_inputs_draw_what_was_computed() -> None:
    objectives = ["time_to_train", "cost", "energy", "carbon", "cost_p95", "time_to_train_p95"]
    job = job_with(FIXED, {**FIXED}, input_factors=SURE, objectives=objectives)
    values = evaluate(job, PLANS).objectives(job)
    for draw in drawn(job).values[:3]:
        np.testing.assert_allclose(draw, values, rtol=1e-9)


def test_every_field_of_the_input_factors_moves_something_when_everything_is_at_stake() -> None:
    # All that can be priced or counted is: bought nodes, own storage, demand charge, a sale in the end, all of the making.
    everything = {
        "ownership": {"residual_fraction": 0.2, "staff_usd_per_year": 1e5},
        "storage": {"capacity_bytes": 1e15},
        "carbon_scope": dict.fromkeys(("network", "storage", "building"), True),
    }
    objectives = ["time_to_train", "cost", "energy", "carbon"]
    straight = job_with(H100_BOUGHT, input_factors={}, objectives=objectives, **everything)
    economic = job_with(
        H100_BOUGHT, objectives=objectives, **{**everything, "ownership": {"depreciation": "economic"}}
    )
    spot = job_with({**H100_RENTED, "interruptions_per_1000_node_days": 100}, objectives=objectives)
    plans = plans_with({"num_gpus": 16, "power_cap_fraction": 0.8})
    moved: set[str] = set()
    for job in (straight, economic, spot):
        result = evaluate(job, plans)
        ends = objectives_at_ends(UnsureDesigns.of(job, plans, result.outcomes, result.scores))
        does_move = (ends.low != ends.middle).any(axis=(1, 2))
        moved |= {
            name.partition(" of ")[0] for name, moves in zip(ends.names, does_move, strict=True) if moves
        }
    assert moved == {"hardware_price", *InputFactors.model_fields}


def test_the_lifetime_of_nodes_means_nothing_to_what_loses_its_value_on_the_market() -> None:
    unsure = {"input_factors": only("lifetime", 0.5, 2.0), "objectives": ["cost"]}
    free = {**FIXED, "fabric": {"kind": "infiniband-ndr", "port_usd": 0}}
    economic = job_with(free, {**free}, ownership={"depreciation": "economic"}, **unsure)
    straight = job_with(free, {**free}, **unsure)
    assert np.ptp(drawn(economic).values[:, 0]) <= 1e-9 * drawn(economic).values[0, 0]
    assert drawn(straight).values[:, 0].max() > 1.2 * drawn(straight).values[:, 0].min()


def test_no_cluster_is_used_more_than_always_and_no_sale_returns_the_whole_price() -> None:
    terms = {"utilization_fraction": 0.8, "depreciation": "straight_line", "residual_fraction": 0.5}
    factors = {**SURE, **{name: {"low": 0.5, "high": 3.0} for name in ("utilization", "residual_value")}}
    job = job_with(FIXED, ownership=terms, objectives=["cost", "carbon"], input_factors=factors)
    plans = plans_with({"num_gpus": 16})
    result = evaluate(job, plans)

    def at(**amounts: float) -> Floats:
        runs = runs_at(job, result, amounts)
        return np.asarray(drawn_objectives(runs, drawn_figures(runs))[0, 0])

    np.testing.assert_allclose(at(utilization=2.0), at(utilization=1.25), rtol=1e-9)
    np.testing.assert_allclose(at(residual_value=2.5), at(residual_value=1.98), rtol=1e-9)


def test_cost_of_capital_acts_through_the_annuity() -> None:
    bare = {"facility_usd_per_w": 0, "maintenance_fraction_per_year": 0, "lifetime_years": 5}
    free = {**FIXED, "fabric": {"kind": "infiniband-ndr", "port_usd": 0}}
    job = job_with(
        free,
        ownership={**bare, "capital_cost_fraction_per_year": 0.08},
        site={"region": "us-iowa", "electricity_usd_per_kwh": 0.0},
        objectives=["cost"],
        input_factors=only("capital_cost", 0.5, 1.5),
    )
    plans = plans_with({"num_gpus": 16})
    result = evaluate(job, plans)
    ends = objectives_at_ends(UnsureDesigns.of(job, plans, result.outcomes, result.scores))
    place = ends.names.index("capital_cost")

    def annuity(rate: float) -> float:
        return rate / (1.0 - 1.0 / (1.0 + rate) ** 5)

    assert ends.low[place, 0, 0] / ends.middle[0, 0] == pytest.approx(annuity(0.04) / annuity(0.08))
    assert ends.high[place, 0, 0] / ends.middle[0, 0] == pytest.approx(annuity(0.12) / annuity(0.08))


def test_the_price_of_storage_is_unsure_for_those_who_rent_the_nodes_too() -> None:
    factors = only("storage_price", 0.5, 2.0)
    job = job_with(H100_RENTED, objectives=["cost"], storage={"capacity_bytes": 1e15}, input_factors=factors)
    plans = plans_with({"num_gpus": 16})
    result = evaluate(job, plans)
    ends = objectives_at_ends(UnsureDesigns.of(job, plans, result.outcomes, result.scores))
    place = [name.startswith("storage_price") for name in ends.names].index(True)
    storage = result.scores.storage_usd[0]
    assert ends.middle[0, 0] == pytest.approx(result.scores.cost_usd[0], rel=1e-12)
    assert ends.high[place, 0, 0] - ends.middle[0, 0] == pytest.approx(storage, rel=1e-9)


def test_the_power_of_storage_is_unsure_unless_it_is_given() -> None:
    site = {**PLACE, "power_usage_effectiveness": 1.25}
    plans = plans_with({"num_gpus": 16, "num_spare_nodes": 1})
    for power, grown_w in ({}, 0.4 * 3500.0), ({"capacity_power_w": 3500.0}, 0.0):  # 3.5 W/TB on 1 PB
        fields = {"site": site, "objectives": ["energy"], "input_factors": only("storage_power", 0.6, 1.4)}
        job = job_with(storage={"capacity_bytes": 1e15, **power}, **fields)
        result = evaluate(job, plans)
        ends = objectives_at_ends(UnsureDesigns.of(job, plans, result.outcomes, result.scores))
        place = [name.startswith("storage_power") for name in ends.names].index(True)
        grown_j = 1.25 * grown_w * result.scores.time_to_train_s[0]
        assert ends.high[place, 0, 0] - ends.middle[0, 0] == pytest.approx(grown_j, rel=1e-9, abs=1.0)
        at_peak_w = runs_at(job, result, {"storage_power": 1.4} if grown_w else {}).peak_power_w
        assert at_peak_w - result.outcomes.power.peak_power_w == pytest.approx(1.25 * grown_w, abs=1e-3)


@pytest.mark.parametrize(("onsite", "offsite"), [(1.0, None), (0.5, 3.0), (None, 3.0)])
def test_more_cooling_takes_water_of_power_stations_and_none_by_it_energy(
    onsite: float | None, offsite: float | None
) -> None:
    water = {"water_onsite_l_per_kwh": onsite, "water_offsite_l_per_kwh": offsite}
    job, more = (
        job_with(site={**PLACE, **water, "cooling_fixed_fraction": 0.3, "power_usage_effectiveness": pue})
        for pue in (1.4, 1.5)
    )
    plans = plans_with({"num_gpus": 16, "num_spare_nodes": 1})
    truth = evaluate(more, plans).scores.water_l
    found = drawn_figures(runs_at(job, evaluate(job, plans), {"cooling_overhead": 1.25}))["water"]
    np.testing.assert_allclose(found[0], truth, rtol=1e-9)


def test_a_draw_scores_as_a_job_with_the_drawn_figures() -> None:
    amounts = {
        "hardware_price": 1.15,
        "cooling_overhead": 1.2,
        "grid": 1.1,
        "electricity_price": 1.25,
        "embodied_accelerator": 1.3,
        "embodied_host": 0.9,
        "embodied_network": 1.2,
        "embodied_storage": 1.4,
        "replaced_accelerators": 0.7,
        "lifetime": 0.8,
        "facility_lifetime": 0.9,
        "utilization": 1.05,
        "residual_value": 1.2,
        "capital_cost": 1.2,
        "maintenance": 1.3,
        "facility_price": 1.1,
        "network_price": 1.2,
        "storage_price": 0.7,
    }
    document = {
        "ownership": {"residual_fraction": 0.2},
        "storage": {"capacity_bytes": 1e15},
        "carbon_scope": {"network": True, "storage": True},
        "reliability": "harsh",
        "objectives": ["cost", "energy", "carbon"],
        "site": {"region": "us-iowa", "demand_usd_per_w_month": 0.02},
    }
    job = job_with(H100_BOUGHT, **document)
    plans = plans_with({"num_gpus": 64, "num_spare_nodes": 1}, {"num_gpus": 16})
    truth = evaluate(_changed(job, amounts), plans).objectives(job)
    runs = runs_at(job, evaluate(job, plans), amounts)
    np.testing.assert_allclose(drawn_objectives(runs, drawn_figures(runs))[0], truth, rtol=1e-9)


def test_spares_wait_whatever_computing_takes() -> None:
    rarely = {"failures_per_1000_node_days": 1e-9}
    job = job_with(H100_RENTED, objectives=["energy"], reliability=rarely)
    result = evaluate(job, plans_with({"num_gpus": 64}, {"num_gpus": 64, "num_spare_nodes": 4}))
    middle, more = (
        drawn_objectives(runs, drawn_figures(runs))[0][:, 0]
        for runs in (runs_at(job, result, {"compute_power": factor}) for factor in (1.0, 1.2))
    )
    assert middle[1] > 1.02 * middle[0]
    np.testing.assert_allclose(more[1] - more[0], middle[1] - middle[0], rtol=1e-9)
    assert more[0] > 1.1 * middle[0]


def _changed(job: Job, by: dict[str, float]) -> Job:
    """The job with figures that are so many times as large, field by field."""
    (offer,), own, site = job.offers, job.ownership, job.site
    price = offer.purchase_usd_per_node
    assert price is not None
    terms = {
        "lifetime_years": own.lifetime_years * by["lifetime"],
        "facility_lifetime_years": own.facility_lifetime_years * by["facility_lifetime"],
        "utilization_fraction": own.utilization_fraction * by["utilization"],
        "residual_fraction": own.residual_fraction * by["residual_value"],
        "capital_cost_fraction_per_year": own.capital_cost_fraction_per_year * by["capital_cost"],
        "maintenance_fraction_per_year": own.maintenance_fraction_per_year * by["maintenance"],
        "facility_usd_per_w": own.facility_usd_per_w * by["facility_price"],
        "replaced_gpus_per_node_failure": own.replaced_gpus_per_node_failure * by["replaced_accelerators"],
    }
    made = offer.accelerator.embodied_kgco2e * by["embodied_accelerator"]
    fabric = {
        "port_usd": offer.fabric.port_usd * by["network_price"],
        "embodied_switch_kgco2e": offer.fabric.embodied_switch_kgco2e * by["embodied_network"],
    }
    host = offer.node.embodied_host_kgco2e * by["embodied_host"]
    hardware = {
        "accelerator": offer.accelerator.model_copy(update={"embodied_kgco2e": made}),
        "node": offer.node.model_copy(update={"embodied_host_kgco2e": host}),
        "fabric": offer.fabric.model_copy(update=fabric),
        "purchase_usd_per_node": price.model_copy(update={"mid": price.mid * by["hardware_price"]}),
    }
    place = {
        "power_usage_effectiveness": 1.0 + (site.power_usage_effectiveness - 1.0) * by["cooling_overhead"],
        "grid_kgco2e_per_kwh": site.grid_kgco2e_per_kwh * by["grid"],
        "electricity_usd_per_kwh": site.electricity_usd_per_kwh * by["electricity_price"],
        "demand_usd_per_w_month": site.demand_usd_per_w_month * by["electricity_price"],
    }
    stored = {
        "usd_per_byte": job.storage.usd_per_byte * by["storage_price"],
        "embodied_kgco2e_per_byte": job.storage.embodied_kgco2e_per_byte * by["embodied_storage"],
    }
    return job.model_copy(
        update={
            "ownership": own.model_copy(update=terms),
            "offers": (offer.model_copy(update=hardware),),
            "site": site.model_copy(update=place),
            "storage": job.storage.model_copy(update=stored),
        }
    )


def test_another_offer_leaves_the_draws_of_the_others_as_they_are() -> None:
    plans = plans_with({"num_gpus": 16})

    def values(job: Job) -> Floats:
        result = evaluate(job, plans)
        designs = UnsureDesigns.of(job, plans, result.outcomes, result.scores)
        return draw_objectives(designs, seed=1).values

    np.testing.assert_array_equal(values(job_with(H100_RENTED)), values(two_offers()))


def test_a_seed_gives_the_same_draws() -> None:
    job = two_offers()
    np.testing.assert_array_equal(drawn(job, 3).values, drawn(job, 3).values)
    assert (drawn(job, 3).values != drawn(job, 4).values).any()


def test_a_design_that_is_beaten_in_every_draw_is_never_on_the_front() -> None:
    values = np.array([[[1.0, 1.0], [2.0, 2.0], [3.0, 0.5]], [[1.0, 1.0], [2.0, 2.0], [3.0, 1.5]]])
    np.testing.assert_array_equal(
        DrawnObjectives(values=values, figures={}).on_front_fraction, [1.0, 0.0, 0.5]
    )
    # One that is as good in one objective and worse in another is beaten, one that is alike in all is not.
    alike = np.array([[[1.0, 1.0], [1.0, 2.0], [1.0, 1.0]]])
    np.testing.assert_array_equal(
        DrawnObjectives(values=alike, figures={}).on_front_fraction, [1.0, 0.0, 1.0]
    )


def test_shares_of_the_draws_in_which_a_design_is_least_or_chosen_add_up_to_all() -> None:
    values = np.array([[[1.0, 4.0], [2.0, 1.0]], [[1.0, 1.0], [2.0, 2.0]], [[3.0, 1.0], [2.0, 4.0]]])
    result = DrawnObjectives(values=values, figures={})
    np.testing.assert_allclose(result.least_fraction(), [[2 / 3, 2 / 3], [1 / 3, 1 / 3]])
    # Products 4 and 2, 1 and 4, 3 and 8: the second design wins once.
    np.testing.assert_allclose(result.chosen_fraction(np.array([1.0, 1.0])), [2 / 3, 1 / 3])


def test_designs_that_come_to_the_same_share_a_draw_whichever_stands_first() -> None:
    values = np.array([[[1.0, 3.0], [1.0, 3.0], [2.0, 2.0]], [[5.0, 1.0], [4.0, 2.0], [4.0, 9.0]]])
    result = DrawnObjectives(values=values, figures={})
    np.testing.assert_allclose(result.least_fraction(), [[1 / 4, 1 / 2], [1 / 2, 0.0], [1 / 4, 1 / 2]])
    # Products 3, 3 and 4, then 5, 8 and 36.
    np.testing.assert_allclose(result.chosen_fraction(np.ones(2)), [3 / 4, 1 / 4, 0.0])
    backwards = DrawnObjectives(values=values[:, ::-1], figures={})
    np.testing.assert_array_equal(backwards.least_fraction(), result.least_fraction()[::-1])
    np.testing.assert_array_equal(
        backwards.chosen_fraction(np.ones(2)), result.chosen_fraction(np.ones(2))[::-1]
    )


@given(arrays(np.float64, (6, 4, 2), elements=st.floats(0.5, 2.0)), st.floats(0.1, 10.0))
def test_a_design_that_is_better_in_every_draw_is_never_ranked_worse(values: Floats, weight: float) -> None:
    worse = values[:, :1] * 1.01  # than the first design, in every draw and objective
    result = DrawnObjectives(values=np.concatenate([worse, values], axis=1), figures={})
    percentiles = np.quantile(result.values, (0.05, 0.5, 0.95), axis=0, method="inverted_cdf")
    assert (percentiles[:, 1] < percentiles[:, 0]).all()
    assert (result.values.mean(axis=0)[1] < result.values.mean(axis=0)[0]).all()
    assert result.better_fraction(1, 0).tolist() == [1.0, 1.0]
    assert result.on_front_fraction[0] == 0.0
    assert (result.least_fraction()[0] == 0.0).all()
    assert result.chosen_fraction(np.array([1.0, weight]))[0] == 0.0


@pytest.mark.short(1)
@pytest.mark.parametrize("rows", [[2], [2, 0], [1, 1, 0]])
def test_a_design_meets_the_same_draws_alone_and_among_any_others(rows: list[int]) -> None:
    job = two_offers(
        objectives=["time_to_train_p95", "cost_p95", "carbon", "deadline_risk"],
        limits={"deadline_days": 30.0},
    )
    result, some = evaluate(job, PLANS), np.array(rows)
    designs = UnsureDesigns.of(job, PLANS.take(some), result.outcomes.take(some), result.scores.take(some))
    np.testing.assert_allclose(
        draw_objectives(designs, seed=1).values, drawn(job).values[:, rows], rtol=1e-12, atol=1e-300
    )


def test_metrics_are_the_scores_per_unit_of_work() -> None:
    job = job_with(H100_RENTED)
    plans = plans_with({"num_gpus": 16})
    result = evaluate(job, plans)
    found = metrics(job, plans, result.outcomes, result.scores)
    tokens, scores = job.workload.tokens, result.scores
    assert found.usd_per_million_tokens * tokens / 1e6 == pytest.approx(scores.cost_usd)
    assert found.kwh_per_million_tokens * tokens / 1e6 == pytest.approx(scores.energy_j / 3.6e6)
    # A PFLOP/s of model arithmetic for an hour costs what the GPUs that achieve it together cost in an hour.
    flop_per_token = job.workload.model.model_flop_per_token(8192)
    in_steps = job.workload.tokens_per_step * flop_per_token / 16 / result.outcomes.steps.step_time_s
    rate = in_steps * result.outcomes.run.goodput_fraction
    assert found.usd_per_effective_pflop_hour == pytest.approx(2.5 * 1e15 / rate, rel=1e-9)
    exaflop = tokens * flop_per_token / 1e18
    assert found.gco2e_per_exaflop * exaflop == pytest.approx(1000 * scores.carbon_kgco2e)
    assert found.carbon_delay_kgco2e_s == scores.carbon_kgco2e * scores.time_to_train_s
    assert found.rent_usd == pytest.approx(scores.cost_usd)


def test_how_often_nodes_are_taken_back_is_drawn_where_a_landlord_does() -> None:
    spot = {**H100_RENTED, "interruptions_per_1000_node_days": 200.0}
    asked = only("interruption_rate", 0.5, 2.0)
    plans = plans_with({"num_gpus": 32}, {"num_gpus": 32, "offer": 1})
    job = job_with(spot, A100_RENTED, objectives=["time_to_train"], input_factors=asked)
    result = evaluate(job, plans)
    unsure = UnsureDesigns.of(job, plans, result.outcomes, result.scores)
    ends = objectives_at_ends(unsure)
    place = ends.names.index("interruption_rate of h100-sxm5-80gb")
    certain = job_with(H100_RENTED, A100_RENTED, objectives=["time_to_train"], input_factors=asked)
    assert unsure_inputs(certain, plans)["interruption_rate"].is_certain
    for factor, found in ((0.5, ends.low), (2.0, ends.high)):
        often = {**spot, "interruptions_per_1000_node_days": 200.0 * factor}
        again = evaluate(job_with(often, A100_RENTED, objectives=["time_to_train"]), plans)
        assert found[place, 0, 0] == pytest.approx(float(again.scores.time_to_train_s[0]), rel=1e-6)
        # The second design is not on such terms.
        assert found[place, 1, 0] == pytest.approx(float(result.scores.time_to_train_s[1]))


def test_the_failure_rate_is_that_of_nodes_and_of_their_domains() -> None:
    given = {"failures_per_1000_node_days": 3.0, "domain_failures_per_1000_domain_days": 5.0}
    changed = INPUTS["failure_rate"].change(job_with(reliability=given), 2.0).reliability
    assert changed.failures_per_1000_node_days == 6.0
    assert changed.domain_failures_per_1000_domain_days == 10.0
