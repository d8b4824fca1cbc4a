"""Does MLflow show what a job asks for, without what it leaves at the default, and the figures of the answer?"""

from __future__ import annotations

import pytest

from planner.tracking.content import asked_params, result_metrics
from tests.planner.hand_made import infeasible, recommended
from tests.support import H100_RENTED, job_with

PUE = "site_power_usage_effectiveness"


def test_the_figures_of_a_study_are_those_of_the_recommended_design() -> None:
    figures = result_metrics(recommended())
    assert figures["recommended_num_gpus"] == 1024.0
    assert figures["recommended_cost_usd"] == 1.85e6
    assert result_metrics(infeasible()) == {}


def test_parameters_are_what_a_job_sets() -> None:
    job = job_with(H100_RENTED, limits={"budget_usd": 2e6}, reliability="harsh")
    params = asked_params(job, 7)
    assert (params["seed"], params["reliability"], params["limit_budget_usd"]) == ("7", "harsh", "2e+06")
    assert "limit_deadline_days" not in params
    # Tokens and sequences have parameters of their own.
    assert "workload_tokens" not in params
    # What is as by default is not told.
    assert not [name for name in params if name.startswith("checkpointing_")]
    own = job.reliability.model_copy(update={"failures_per_1000_node_days": 1.234})
    assert asked_params(job.model_copy(update={"reliability": own}), 7)["reliability"] == "own"


@pytest.mark.parametrize(
    ("changed", "name", "value"),
    [
        ({"preference": {"cost": 2}}, "preference", "cost 2"),
        ({"site": {"region": "us-iowa", "power_usage_effectiveness": 1.1}}, PUE, "1.1"),
        (
            {"input_factors": {"grid": {"low": 0.5, "high": 2}}},
            "input_factors_grid",
            '{"low": 0.5, "high": 2.0}',
        ),
    ],
)
def test_what_decides_the_choice_or_its_figures_is_a_parameter(
    changed: dict[str, object], name: str, value: str
) -> None:
    assert asked_params(job_with(H100_RENTED), 0).get(name) != value
    assert asked_params(job_with(H100_RENTED, **changed), 0)[name] == value


def test_terms_of_an_offer_are_parameters_where_they_are_set() -> None:
    assert not {"offer_0_max_nodes", "offer_0_interruptions_per_1000_node_days"} & set(
        asked_params(job_with(H100_RENTED), 0)
    )
    site = {"region": "sweden", "grid_kgco2e_per_kwh": 0.05}
    terms = {"max_nodes": 9, "interruptions_per_1000_node_days": 20, "site": site}
    params = asked_params(job_with({**H100_RENTED, **terms}), 0)
    assert params["offer_0_max_nodes"] == "9"
    assert params["offer_0_interruptions_per_1000_node_days"] == "20"
    assert (params["offer_0_site"], params["offer_0_site_grid_kgco2e_per_kwh"]) == ("sweden", "0.05")


def test_parameters_are_no_longer_than_mlflow_takes() -> None:
    job = job_with().model_copy(update={"name": "x" * 7_000})
    # MLflow's documentation: parameter values have at most 6,000 characters.
    assert asked_params(job, 0)["job"] == "x" * 6_000
