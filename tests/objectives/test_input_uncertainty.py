"""Do draws have the percentiles that were asked for, and do shared inputs leave orderings alone?"""

from __future__ import annotations

import numpy as np
import pytest

from constraints.evaluation import evaluate
from objectives.input_uncertainty import DrawnObjectives, draw_objectives, estimate_draws, factor_draws
from objectives.metrics import metrics
from simulator.job import Estimate, Job
from simulator.options import Factors
from tests.support import A100_RENTED, H100_BOUGHT, H100_RENTED, job_with, plans_with

PLANS = plans_with({"num_gpus": 16}, {"num_gpus": 32}, {"num_gpus": 32, "offer": 1})
CERTAIN = {"low": 1.0, "high": 1.0}


def drawn(job: Job, seed: int = 1) -> DrawnObjectives:
    result = evaluate(job, PLANS)
    return draw_objectives(job, PLANS, result.scores, seed=seed)


def two_offers(**fields: object) -> Job:
    wide = {**A100_RENTED, "rent_usd_per_gpu_hour": {"low": 0.5, "mid": 1.3, "high": 4.0}}
    return job_with(H100_RENTED, wide, **fields)


def test_one_draw_in_twenty_lies_below_low_and_one_above_high() -> None:
    normal = np.random.default_rng(7).standard_normal(200_000)
    factors = factor_draws(Factors(low=0.5, high=3.0), normal)
    np.testing.assert_allclose(np.quantile(factors, (0.05, 0.5, 0.95)), [0.5, 1.0, 3.0], rtol=0.02)
    prices = estimate_draws(Estimate(low=2.0, mid=2.5, high=4.0), normal)
    np.testing.assert_allclose(np.quantile(prices, (0.05, 0.95)), [0.8, 1.6], rtol=0.02)


def test_the_spread_of_rent_is_that_of_its_price() -> None:
    low, high = drawn(two_offers(objectives=["cost"])).quantiles((0.05, 0.95))[:, 0, 0]
    middle = evaluate(two_offers(), PLANS).scores.cost_usd[0]
    assert (low / middle, high / middle) == (
        pytest.approx(2.0 / 2.5, rel=0.05),
        pytest.approx(4.0 / 2.5, rel=0.1),
    )


def test_a_shared_price_changes_no_order_and_different_ones_do() -> None:
    result = drawn(two_offers(objectives=["cost", "time_to_train"]))
    costs = evaluate(two_offers(), PLANS).scores.cost_usd
    cheaper = float(costs[0] < costs[1])
    assert result.better_fraction(0, 1)[0] == cheaper  # the same accelerators
    assert 0.02 < result.better_fraction(1, 2)[0] < 0.98  # others
    assert result.better_fraction(1, 0)[1] == 1.0  # nobody draws the time


def test_certain_inputs_draw_what_was_computed() -> None:
    sure = dict.fromkeys(
        (
            "compute_power",
            "cooling_overhead",
            "grid",
            "electricity_price",
            "embodied_accelerator",
            "embodied_host",
            "lifetime",
        ),
        CERTAIN,
    )
    offer = {**H100_BOUGHT, "purchase_usd_per_node": 3e5}
    objectives = ["time_to_train", "cost", "energy", "carbon", "cost_p95", "time_to_train_p95"]
    job = job_with(offer, {**offer}, input_factors=sure, objectives=objectives)
    values = evaluate(job, PLANS).objectives(job)
    for draw in drawn(job).values[:3]:
        np.testing.assert_allclose(draw, values, rtol=1e-9)


def test_a_seed_gives_the_same_draws() -> None:
    job = two_offers()
    np.testing.assert_array_equal(drawn(job, 3).values, drawn(job, 3).values)
    assert (drawn(job, 3).values != drawn(job, 4).values).any()


def test_a_design_that_is_beaten_in_every_draw_is_never_on_the_front() -> None:
    values = np.array([[[1.0, 1.0], [2.0, 2.0], [3.0, 0.5]], [[1.0, 1.0], [2.0, 2.0], [3.0, 1.5]]])
    np.testing.assert_array_equal(DrawnObjectives(values=values).on_front_fraction, [1.0, 0.0, 0.5])


def test_metrics_are_the_scores_per_unit_of_work() -> None:
    job = job_with(H100_RENTED)
    plans = plans_with({"num_gpus": 16})
    result = evaluate(job, plans)
    found = metrics(job, plans, result.outcomes, result.scores)
    tokens, scores = job.workload.tokens, result.scores
    assert found.usd_per_million_tokens * tokens / 1e6 == pytest.approx(scores.cost_usd)
    assert found.kwh_per_million_tokens * tokens / 1e6 == pytest.approx(scores.energy_j / 3.6e6)
    # A PFLOP/s of model arithmetic for an hour costs what the GPUs that achieve it together cost in an hour.
    rate = result.outcomes.summary.model_flop_per_s_per_gpu * result.outcomes.run.goodput_fraction
    assert found.usd_per_effective_pflop_hour == pytest.approx(2.5 * 1e15 / rate, rel=1e-9)
    exaflop = tokens * job.workload.model.model_flop_per_token(8192) / 1e18
    assert found.gco2e_per_exaflop * exaflop == pytest.approx(1000 * scores.carbon_kgco2e)
    assert found.carbon_delay_kgco2e_s == scores.carbon_kgco2e * scores.time_to_train_s
    assert found.rent_usd == pytest.approx(scores.cost_usd)
