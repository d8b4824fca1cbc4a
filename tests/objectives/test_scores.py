from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from constraints.evaluation import evaluate
from objectives.carbon import embodied_parts, least_kgco2e, operational_kgco2e
from objectives.cost import COST_PARTS, PriceLevel, annuity_fraction, cost_parts
from objectives.scores import EMBODIED_PARTS, ScoreTable, score
from objectives.usage import Usage, num_held_gpus
from simulator.catalog import accelerator, node
from simulator.domain.job import Objective
from simulator.simulate import simulate
from simulator.units import DAY
from tests.support import A100_RENTED, H100_BOUGHT, H100_RENTED, job_with, plans_with

HOUR = 3600.0
JULIAN_YEAR = 8766.0 * HOUR
KWH = 3.6e6


def usage(hours: float = 0.0, energy_kwh: float = 0.0, peak_power_w: float = 0.0) -> Usage:
    return Usage(
        wall_s=np.array([hours * HOUR]),
        energy_j=np.array([energy_kwh * KWH]),
        peak_power_w=np.array([peak_power_w]),
    )


def only(parts: dict[str, np.ndarray]) -> dict[str, float]:
    return {name: float(values[0]) for name, values in parts.items()}


def test_rent_is_accelerators_times_hours_times_price_and_nothing_else() -> None:
    job = job_with(H100_RENTED)
    plans = plans_with({"num_gpus": 16, "num_spare_nodes": 1})
    parts = only(cost_parts(job, plans, usage(hours=100.0, energy_kwh=1e6, peak_power_w=1e5)))
    assert parts.pop("rent_usd") == pytest.approx(24 * 100 * 2.5)  # spares are rented, too
    assert set(parts.values()) == {0.0}  # electricity, maintenance and building are in the rent


@pytest.mark.parametrize(("level", "usd"), [("low", 2.0), ("mid", 2.5), ("high", 4.0)])
def test_the_price_level_chooses_the_rent(level: PriceLevel, usd: float) -> None:
    job, plans = job_with(H100_RENTED), plans_with({"num_gpus": 8})
    parts = cost_parts(job, plans, usage(hours=1.0), level)
    assert parts["rent_usd"] == pytest.approx(8 * usd)


def test_owning_costs_annuity_maintenance_building_and_electricity() -> None:
    job = job_with(
        H100_BOUGHT,
        site={
            "region": "here",
            "grid_kgco2e_per_kwh": 0.1,
            "electricity_usd_per_kwh": 0.0826,
            "power_usage_effectiveness": 1.25,
        },
    )
    plans = plans_with({"num_gpus": 16})
    # A year of use at 85 % utilisation uses up a year of ownership: 0.85 x 8,766 hours.
    parts = only(cost_parts(job, plans, usage(hours=0.85 * 8766, energy_kwh=1e5, peak_power_w=25e3)))
    purchase = 2 * 300_000 + 16 * 2_100  # two nodes, and a port of a single-tier fabric for each accelerator
    assert parts == pytest.approx(
        {
            **dict.fromkeys(("rent_usd", "storage_usd", "staff_usd", "demand_usd"), 0.0),
            # Capital recovery factors of the tables: 8 % over 5 years 0.25046, over 15 years 0.11683.
            "capital_usd": purchase * 0.25046,
            "maintenance_usd": purchase * 0.05,
            "facility_usd": 12.0 * 20e3 * 0.11683,  # 25 kW of the facility are 20 kW of IT at this PUE
            "electricity_usd": 8_260.0,
        },
        rel=5e-5,  # the tables have five digits
    )


def test_a_single_link_domain_needs_no_fabric() -> None:
    offer = {**H100_BOUGHT, "num_gpus": 8}
    parts = cost_parts(job_with(offer), plans_with({"num_gpus": 8}), usage(hours=0.85 * 8766))
    assert parts["maintenance_usd"] == pytest.approx(0.05 * 300_000)


def test_nodes_that_are_a_gift_still_need_a_building_and_electricity() -> None:
    job = job_with({**H100_BOUGHT, "num_gpus": 8, "purchase_usd_per_node": 0.0})
    parts = only(cost_parts(job, plans_with({}), usage(hours=1.0, energy_kwh=10.0, peak_power_w=1e4)))
    assert parts["capital_usd"] == parts["maintenance_usd"] == parts["rent_usd"] == 0.0
    assert parts["facility_usd"] > 0.0
    assert parts["electricity_usd"] == pytest.approx(10.0 * job.site.electricity_usd_per_kwh)


def test_electricity_has_a_price_for_owners_only() -> None:
    cheap, dear = (
        job_with(
            H100_RENTED,
            H100_BOUGHT,
            site={
                "region": "here",
                "grid_kgco2e_per_kwh": 0.1,
                "electricity_usd_per_kwh": usd,
                "power_usage_effectiveness": 1.2,
            },
        )
        for usd in (0.05, 0.5)
    )
    plans = plans_with({"num_gpus": 16, "offer": 0}, {"num_gpus": 16, "offer": 1})
    outcomes = simulate(cheap, plans)
    rented, bought = score(dear, plans, outcomes).cost_usd / score(cheap, plans, outcomes).cost_usd
    assert rented == 1.0
    assert bought > 1.0


def test_a_bought_cluster_pays_for_whole_nodes_and_spares() -> None:
    plans = plans_with({"num_gpus": 12, "num_spare_nodes": 2}, {"num_gpus": 16})
    np.testing.assert_array_equal(num_held_gpus(job_with(), plans), [32.0, 16.0])


@pytest.mark.parametrize(
    ("rate", "years", "fraction"),
    [
        (0.08, 5.0, 0.250456),  # capital recovery factors as printed in tables of engineering economics
        (0.08, 15.0, 0.116830),
        (0.03, 5.0, 0.218355),
        (0.10, 10.0, 0.162745),
        (0.0, 5.0, 0.2),
    ],
)
def test_the_annuity_is_the_capital_recovery_factor_of_the_tables(
    rate: float, years: float, fraction: float
) -> None:
    assert annuity_fraction(rate, years) == pytest.approx(fraction, abs=5e-7)


@given(rate=st.floats(1e-12, 1.0), years=st.integers(1, 40))
def test_the_payments_of_an_annuity_are_worth_the_price_today(rate: float, years: int) -> None:
    payments = (annuity_fraction(rate, float(years)) / (1.0 + rate) ** year for year in range(1, years + 1))
    assert math.fsum(payments) == pytest.approx(1.0, rel=1e-9)


def test_operational_carbon_of_bloom_is_the_published_one() -> None:
    # Luccioni et al. (arXiv 2211.02001): 433,196 kWh at 0.057 kg/kWh are 24.69 t.
    job = job_with(
        {**A100_RENTED, "num_gpus": 384},
        site={
            "region": "idris",
            "grid_kgco2e_per_kwh": 0.057,
            "electricity_usd_per_kwh": 0.1,
            "power_usage_effectiveness": 1.2,
        },
    )
    emitted = operational_kgco2e(job, plans_with({"num_gpus": 384}), usage(hours=1.0, energy_kwh=433_196.0))
    assert emitted == pytest.approx(24_690.0, rel=2e-4)


def test_embodied_carbon_of_bloom_is_the_published_one() -> None:
    # The same paper: 2,500 kg for a server and 150 kg for each of its GPUs, used 85 % of six years; 1,082,990 GPU-hours
    # are 11.2 t. It counts 8,760 hours in a year.
    chip = accelerator("a100-sxm4-80gb").model_copy(update={"embodied_kgco2e": 150.0})
    server = node("bloom-node").model_copy(update={"embodied_host_kgco2e": 2500.0})
    job = job_with(
        {**A100_RENTED, "accelerator": chip, "node": server, "num_gpus": 384},
        ownership={"lifetime_years": 6.0, "utilization_fraction": 0.85},
    )
    parts = embodied_parts(job, plans_with({"num_gpus": 384}), usage(hours=1_082_990 / 384))
    assert sum(parts.values()) == pytest.approx(11_200.0, rel=5e-3)


def test_a_cluster_that_is_used_for_its_whole_life_has_its_whole_making_on_its_account() -> None:
    job = job_with(H100_RENTED)
    plans = plans_with({"num_gpus": 16, "num_spare_nodes": 1})
    life = Usage(wall_s=np.array([5.0 * 0.85 * JULIAN_YEAR]), energy_j=np.zeros(1), peak_power_w=np.zeros(1))
    chip, host = job.offers[0].accelerator.embodied_kgco2e, job.offers[0].node.embodied_host_kgco2e
    assert sum(embodied_parts(job, plans, life).values()) == pytest.approx(24 * chip + 3 * host)


@given(
    hours=st.floats(1.0, 1e5),
    more=st.floats(1.0, 3.0),
    spares=st.integers(0, 10),
    energy_kwh=st.floats(0.0, 1e8),
)
def test_more_time_energy_power_or_spares_never_cost_less(
    hours: float, more: float, spares: int, energy_kwh: float
) -> None:
    little, much = usage(hours, energy_kwh, 1e5), usage(hours * more, energy_kwh * more, 1e5 * more)
    for offer in (H100_RENTED, H100_BOUGHT):
        job = job_with(offer)
        few = plans_with({"num_gpus": 16})
        many = replace(few, num_spare_nodes=np.array([spares]))
        for parts in (cost_parts, embodied_parts):
            before, after = only(parts(job, few, little)), only(parts(job, many, much))
            assert all(after[name] >= value for name, value in before.items())
        assert operational_kgco2e(job, many, much) >= operational_kgco2e(job, few, little)
        assert least_kgco2e(job, many, much) >= least_kgco2e(job, few, little)


def simulated_scores() -> ScoreTable:
    job = job_with(H100_RENTED, {**H100_BOUGHT, "num_gpus": 32})
    return evaluate(
        job, plans_with({"num_gpus": 16, "num_spare_nodes": 1}, {"offer": 1, "num_gpus": 32})
    ).scores


def test_totals_are_the_sums_of_their_parts() -> None:
    scores = simulated_scores()
    np.testing.assert_allclose(scores.cost_usd, sum(getattr(scores, part) for part in COST_PARTS), rtol=1e-9)
    made = sum(getattr(scores, part) for part in EMBODIED_PARTS)
    np.testing.assert_allclose(scores.embodied_kgco2e, made, rtol=1e-9)
    np.testing.assert_allclose(
        scores.carbon_kgco2e, scores.operational_kgco2e + scores.embodied_kgco2e, rtol=1e-9
    )
    assert (scores.cost_low_usd < scores.cost_usd).all()
    assert (scores.cost_usd < scores.cost_high_usd).all()


def test_a_rented_run_costs_its_wall_time_and_emits_its_energy() -> None:
    job = job_with(H100_RENTED)
    plans = plans_with({"num_gpus": 16, "num_spare_nodes": 1})
    result = evaluate(job, plans)
    wall_s, energy_j = result.outcomes.run.wall_time_s, result.outcomes.energy.total_j
    np.testing.assert_allclose(result.scores.cost_usd, 24 * 2.5 * wall_s / 3600.0)
    np.testing.assert_allclose(
        result.scores.operational_kgco2e, energy_j / 3.6e6 * job.site.grid_kgco2e_per_kwh
    )
    np.testing.assert_array_equal(result.scores.time_to_train_s, wall_s)


def test_a_run_without_progress_costs_infinitely_much_of_everything_it_pays_for() -> None:
    job = job_with(H100_RENTED, H100_BOUGHT)
    plans = plans_with({"num_gpus": 16, "offer": 0}, {"num_gpus": 16, "offer": 1})
    outcomes = simulate(job, plans)
    never = replace(outcomes.run, wall_time_s=np.full(2, np.inf), makes_progress=np.zeros(2, dtype=bool))
    endless = replace(outcomes, run=never)
    scores = score(job, plans, endless)
    risks = {Objective.DEADLINE_RISK, Objective.BUDGET_RISK}  # this job has neither limit
    for objective in Objective:
        column = scores.objective(objective)
        assert np.isnan(column).all() if objective in risks else np.isposinf(column).all()
    np.testing.assert_array_equal(scores.electricity_usd, [0.0, np.inf])


def test_risks_are_those_of_the_limits() -> None:
    plans = plans_with({"num_gpus": 16}, {"num_gpus": 32})
    free = job_with(H100_RENTED)
    outcomes = simulate(free, plans)
    usual = score(free, plans, outcomes)
    late, early = float(usual.time_to_train_p95_s[0]), float(usual.time_to_train_s[0])
    job = job_with(
        H100_RENTED, limits={"deadline_days": late / DAY, "budget_usd": float(usual.cost_p95_usd[0])}
    )
    scores = score(job, plans, outcomes)
    assert scores.deadline_risk[0] == pytest.approx(0.05, abs=0.01)
    assert scores.budget_risk[0] == pytest.approx(0.05, abs=0.01)
    assert scores.deadline_risk[1] < scores.deadline_risk[0]
    tight = score(job_with(H100_RENTED, limits={"deadline_days": 0.9 * early / DAY}), plans, outcomes)
    assert tight.deadline_risk[0] > 0.5


def test_a_run_within_committed_days_exceeds_a_budget_above_their_rent_only_beyond_them() -> None:
    plans = plans_with({"num_gpus": 64})
    free = job_with(H100_RENTED)
    outcomes = simulate(free, plans)
    days = float(outcomes.run.wall_time_s[0]) / DAY
    committed = {**H100_RENTED, "commitment_days": math.ceil(20 * days)}
    rent_usd = 64 * 2.5 * 24 * math.ceil(20 * days)
    for budget_usd, risk in ((1.01 * rent_usd, 1e-4), (0.99 * rent_usd, 1.0)):
        job = job_with(committed, limits={"budget_usd": budget_usd})
        assert score(job, plans, outcomes).budget_risk == pytest.approx(risk, abs=2e-4)
    # With storage that wears by the hour the cost grows within those days, too, by less.
    storage = {"capacity_bytes": 1e16}
    stored = job_with(committed, storage=storage)
    costs = score(stored, plans, outcomes)
    for share in (1.0, 1.1, 1.3):
        budget_usd = float(costs.rent_usd[0] + share * costs.storage_usd[0])
        job = job_with(committed, storage=storage, limits={"budget_usd": budget_usd})
        same = score(job_with(H100_RENTED, limits={"deadline_days": share * days}), plans, outcomes)
        assert score(job, plans, outcomes).budget_risk == pytest.approx(same.deadline_risk)


def test_objectives_are_columns_in_the_order_of_the_job() -> None:
    scores = simulated_scores()
    chosen = scores.objectives((Objective.CARBON, Objective.TIME, Objective.ENERGY, Objective.COST))
    columns = (scores.carbon_kgco2e, scores.time_to_train_s, scores.energy_j, scores.cost_usd)
    np.testing.assert_array_equal(chosen, np.transpose(columns))
