"""Does MLflow show what a job asks for, without what it leaves at the default, and the figures of the answer?"""

from __future__ import annotations

from planner.tracking.content import asked_params, result_metrics
from tests.planner.hand_made import infeasible, recommended
from tests.support import H100_RENTED, job_with


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


def test_parameters_are_no_longer_than_mlflow_takes() -> None:
    job = job_with().model_copy(update={"name": "x" * 7_000})
    # MLflow's documentation: parameter values have at most 6,000 characters.
    assert asked_params(job, 0)["job"] == "x" * 6_000
