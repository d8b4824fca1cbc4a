"""Do the nameplate product, MLCO2 and LLMCarbon match their equations for the simulated design?"""

from __future__ import annotations

import pytest

from constraints.evaluation import evaluate
from planner import load_job, simulate_plan
from planner.one_design.simpler_models import simpler_models
from tests.support import job_with, plans_with

SITE = {"region": "here", "grid_kgco2e_per_kwh": 0.4, "electricity_usd_per_kwh": 0.1}


def test_simpler_models_multiply_hours_by_the_rated_power() -> None:
    job = job_with(site={**SITE, "power_usage_effectiveness": 1.25})
    evaluation = evaluate(job, plans_with({"num_gpus": 16, "num_spare_nodes": 1}))
    nameplate, mlco2, llmcarbon = simpler_models(job, evaluation)
    hours = 16 * evaluation.scores.time_to_train_s[0] / 3600
    assert nameplate.gpu_hours == mlco2.gpu_hours == pytest.approx(hours)
    # The TDP of an H100 SXM is 700 W.
    assert nameplate.energy_kwh == pytest.approx(hours * 0.7 * 1.25)
    assert nameplate.operational_kgco2e == pytest.approx(hours * 0.7 * 1.25 * 0.4)
    assert mlco2.energy_kwh == pytest.approx(hours * 0.7)
    assert mlco2.operational_kgco2e == pytest.approx(hours * 0.7 * 0.4)
    # 6 P D of 8.03e9 parameters and 5e10 tokens at 989 TFLOP/s; LLMCarbon's regression without a pipeline, in TFLOP/s of
    # an A100's 312.
    share = (133.954735 + 1.66909e-9 * 8.03e9 - 8.8208e-20 * 8.03e9**2) / 312
    assert llmcarbon.gpu_hours == pytest.approx(6 * 8.03e9 * 5e10 / (989e12 * share) / 3600, rel=2e-3)
    assert llmcarbon.energy_kwh == pytest.approx(llmcarbon.gpu_hours * 0.7 * 1.25)


def test_a_simulated_plan_tells_what_they_say_of_it() -> None:
    found = simulate_plan(
        load_job("examples/bloom-176b.yaml"),
        {"tp": 4, "pp": 12, "dp": 8, "mbs": 2, "recompute": "full"},
        with_sensitivities=False,
    )
    assert found.design is not None
    names = [each.name.partition(":")[0] for each in found.simpler_models]
    assert names == ["nameplate", "MLCO2", "LLMCarbon"]
    hours = 384 * 24 * found.design.time_to_train_days
    assert found.simpler_models[0].gpu_hours == pytest.approx(hours)


def test_llmcarbon_is_left_out_beyond_the_runs_that_it_was_fitted_to_and_that_is_said() -> None:
    found = simulate_plan(load_job("examples/perfsim/t2.2.yaml"), {"tp": 8}, with_sensitivities=False)
    assert [each.name.partition(":")[0] for each in found.simpler_models] == ["nameplate", "MLCO2"]
    assert all(each.energy_kwh > 0.0 for each in found.simpler_models)
    (note,) = [each for each in found.warnings if "LLMCarbon" in each]
    assert note == (
        "LLMCarbon says nothing of this plan: the runs without a pipeline from which it takes the efficiency end at "
        "18.4 billion parameters, and this model has 69 billion."
    )
