"""How far may the wall time of a run be from its mean? The closed form against replays of the event kernel."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.job import Job
from simulator.plan import CheckpointScheme, Plan
from simulator.reliability import Reliability
from simulator.run_spread import LEAST_RISK, miss_probability, wall_time_quantile_s
from simulator.simulate import replicate, simulate
from simulator.stragglers import STRAGGLER_PRESETS, StragglerPreset, Stragglers
from tests.simulator.builders import job_of, plan_of, table_of, training

SCHEMES = (CheckpointScheme.SYNC_SHARDED, CheckpointScheme.ASYNC, CheckpointScheme.IN_MEMORY_PEER)


def job_with(**reliability: object) -> Job:
    job = job_of(training(num_steps=300_000))  # long enough for failures to be many
    figures = job.reliability.model_dump() | reliability
    return job.model_copy(update={"reliability": Reliability.model_validate(figures)})


def quantiles(job: Job, plan: Plan, probability: float) -> tuple[float, float]:
    """The closed form and the replays."""
    plans = table_of(plan)
    outcomes = simulate(job, plans)
    replays = replicate(job, plans, outcomes, num_replications=4000, seed=3)
    played_s = replays.wall_s[0] + outcomes.run.initialization_s[0]
    return float(wall_time_quantile_s(job, plans, outcomes.steps, outcomes.run, probability)[0]), float(
        np.quantile(played_s, probability)
    )


@pytest.mark.parametrize("probability", [0.5, 0.9, 0.95])
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("rate", [2.34, 100.0])
def test_quantiles_with_the_prior_of_stragglers_are_those_of_replays(
    probability: float, scheme: CheckpointScheme, rate: float
) -> None:
    job = job_with(failures_per_1000_node_days=rate)
    found, played = quantiles(job, plan_of(data=64, scheme=scheme), probability)
    assert found == pytest.approx(played, rel=0.02)


@pytest.mark.parametrize("probability", [0.5, 0.9, 0.95])
@pytest.mark.parametrize("preset", STRAGGLER_PRESETS)
def test_quantiles_with_causes_of_stragglers_are_those_of_replays(
    probability: float, preset: StragglerPreset
) -> None:
    job = job_with(failures_per_1000_node_days=20.0, stragglers=STRAGGLER_PRESETS[preset])
    found, played = quantiles(job, plan_of(tensor=2, pipeline=4, data=64), probability)
    assert found == pytest.approx(played, rel=0.03)


@pytest.mark.parametrize("probability", [0.5, 0.95])
def test_quantiles_without_stragglers_are_those_of_failures_alone(probability: float) -> None:
    job = job_with(failures_per_1000_node_days=50.0, straggler_log_mean=None)
    found, played = quantiles(job, plan_of(data=64), probability)
    assert found == pytest.approx(played, rel=0.02)


def test_a_run_without_progress_has_no_quantile() -> None:
    job = job_with(failures_per_1000_node_days=10_000.0)
    plans = table_of(plan_of(data=64, scheme=CheckpointScheme.NONE))
    outcomes = simulate(job, plans)
    assert not outcomes.run.makes_progress[0]
    assert np.isinf(wall_time_quantile_s(job, plans, outcomes.steps, outcomes.run, 0.95)[0])


def test_a_later_quantile_is_a_longer_run() -> None:
    job = job_with()
    plans = table_of(plan_of(data=64), plan_of(data=32))
    outcomes = simulate(job, plans)
    late = np.array(
        [
            wall_time_quantile_s(job, plans, outcomes.steps, outcomes.run, p)
            for p in (0.05, 0.5, 0.9, 0.95, 0.999)
        ]
    )
    assert (np.diff(late, axis=0) > 0).all()


@pytest.mark.parametrize("stragglers", [None, STRAGGLER_PRESETS["shared"]])
@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
def test_the_risk_of_a_quantile_is_what_lies_beyond_it(
    probability: float, stragglers: Stragglers | None
) -> None:
    job = job_with(failures_per_1000_node_days=20.0, stragglers=stragglers)
    plans = table_of(plan_of(data=64), plan_of(tensor=2, pipeline=4, data=64))
    outcomes = simulate(job, plans)
    replays = replicate(job, plans, outcomes, num_replications=4000, seed=5)
    limit_s = np.quantile(replays.wall_s, probability, axis=1) + outcomes.run.initialization_s
    risk = miss_probability(job, plans, outcomes.steps, outcomes.run, limit_s)
    assert risk == pytest.approx([1 - probability] * 2, abs=0.06)


def test_risks_fall_with_the_time_that_is_left_and_never_to_nothing() -> None:
    job, plans = job_with(), table_of(plan_of(data=64))
    outcomes = simulate(job, plans)
    mean_s = float(outcomes.run.wall_time_s[0])
    risks = [
        float(miss_probability(job, plans, outcomes.steps, outcomes.run, factor * mean_s)[0])
        for factor in (0.5, 0.95, 1.0, 1.2, 2.0, 100.0)
    ]
    assert risks == sorted(risks, reverse=True)
    assert risks[0] == pytest.approx(1.0)
    assert risks[-1] == LEAST_RISK


def test_the_risk_of_a_run_without_progress_is_certainty() -> None:
    job = job_with(failures_per_1000_node_days=10_000.0)
    plans = table_of(plan_of(data=64, scheme=CheckpointScheme.NONE))
    outcomes = simulate(job, plans)
    assert miss_probability(job, plans, outcomes.steps, outcomes.run, 1e12)[0] == 1.0
