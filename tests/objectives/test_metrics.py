"""Are the figures of merit what one works out by hand from cost, energy, carbon and the arithmetic of the model?"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from constraints.evaluation import Evaluation, evaluate
from objectives.metrics import MetricTable, metrics
from objectives.scores import ScoreTable
from simulator.domain.job import Job
from tests.support import H100_BOUGHT, H100_RENTED, job_with, plans_with

PLANS = plans_with({"num_gpus": 16})
SITE = {
    "region": "here",
    "grid_kgco2e_per_kwh": 0.3,
    "electricity_usd_per_kwh": 0.1,
    "power_usage_effectiveness": 1.25,
}
# Llama 3.1 8B has 8,030,261,248 weights, of which 128,256 x 4,096 are looked up and 65 x 4,096 belong to norms. Six
# operations for each of the rest, and half of 12 x 32 layers x 4,096 x 8,192 for causal attention.
FLOP_PER_TOKEN = (
    6.0 * (8_030_261_248 - 128_256 * 4096 - 65 * 4096) + 0.5 * 12 * 32 * 4096 * 8192
)  # 51,470,401,536
TOKENS = 5e10
HAND_MADE = {
    "cost_usd": 100e3,
    "energy_j": 20e3 * 3.6e6,
    "carbon_kgco2e": 8e3,
    "operational_kgco2e": 6e3,
    "market_kgco2e": 1.5e3,
    "embodied_kgco2e": 2e3,
    "time_to_train_s": 10 * 86_400.0,
    "water_l": 9e3,
}


@cache
def rented() -> Job:
    return job_with(H100_RENTED, site=SITE)


@cache
def simulated() -> Evaluation:
    return evaluate(rented(), PLANS)


def hand_made(**figures: float) -> ScoreTable:
    """Scores with round figures in the place of those that were simulated."""
    columns = {name: np.array([value]) for name, value in {**HAND_MADE, **figures}.items()}
    return replace(simulated().scores, **columns)


def merits(**figures: float) -> MetricTable:
    return metrics(rented(), PLANS, simulated().outcomes, hand_made(**figures))


def test_money_and_energy_are_shared_by_the_tokens() -> None:
    # 50,000 million tokens for 100,000 USD and 20,000 kWh.
    assert merits().usd_per_million_tokens == pytest.approx(2.0)
    assert merits().kwh_per_million_tokens == pytest.approx(0.4)


def test_an_effective_pflop_hour_is_arithmetic_of_the_model_and_no_recomputation() -> None:
    pflop_hours = FLOP_PER_TOKEN * TOKENS / 1e15 / 3600
    assert pflop_hours == pytest.approx(714.867, rel=1e-6)
    assert merits().usd_per_effective_pflop_hour == pytest.approx(100e3 / pflop_hours)


def test_compute_carbon_intensity_is_grams_of_everything_per_exaflop() -> None:
    # 8 t are 8 million grams over 2,573.52 exaFLOP.
    assert merits().gco2e_per_exaflop == pytest.approx(8e6 / 2573.5200768)


def test_carbon_times_delay_is_kilograms_times_seconds() -> None:
    assert merits().carbon_delay_kgco2e_s == pytest.approx(8e3 * 864_000)


def test_carbon_and_water_are_those_of_the_scores() -> None:
    found = merits()
    assert found.operational_location_kgco2e == 6e3
    assert found.operational_market_kgco2e == 1.5e3
    assert found.embodied_kgco2e == 2e3
    assert found.water_l == 9e3


def test_what_is_not_known_stays_unknown() -> None:
    unknown = merits(market_kgco2e=np.nan, water_l=np.nan)
    assert np.isnan(unknown.operational_market_kgco2e)
    assert np.isnan(unknown.water_l)
    assert np.isfinite(unknown.gco2e_per_exaflop)


def test_twice_the_tokens_halve_what_each_of_them_takes() -> None:
    twice = job_with(H100_RENTED, site=SITE, workload={"tokens": 2 * TOKENS})
    found = metrics(twice, PLANS, simulated().outcomes, hand_made())
    assert found.usd_per_million_tokens == pytest.approx(1.0)
    assert found.gco2e_per_exaflop == pytest.approx(0.5 * 8e6 / 2573.5200768)


def test_both_ways_of_paying_stand_beside_each_other() -> None:
    hours = simulated().outcomes.run.wall_time_s[0] / 3600
    assert merits().rent_usd == pytest.approx(16 * 2.5 * hours)
    bought = job_with(H100_BOUGHT, site=SITE)
    evaluation = evaluate(bought, PLANS)
    found = metrics(bought, PLANS, evaluation.outcomes, evaluation.scores)
    assert found.own_usd == pytest.approx(evaluation.scores.cost_usd)
    assert found.break_even_months > 0


def test_every_metric_has_a_row_for_every_design() -> None:
    both = plans_with({"num_gpus": 16}, {"num_gpus": 32})
    evaluation = evaluate(rented(), both)
    found = metrics(rented(), both, evaluation.outcomes, evaluation.scores)
    assert all(len(column) == 2 for column in found.columns().values())
    row = np.array([1])
    alone = metrics(rented(), both.take(row), evaluation.outcomes.take(row), evaluation.scores.take(row))
    for name in MetricTable.names():
        np.testing.assert_array_equal(getattr(found, name)[1:], getattr(alone, name))
