"""What does Optuna change about a design of the front? Only what the job lets it, and never the layout."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np
import optuna
import pytest

from constraints.answers import INTERVAL_FACTOR
from constraints.evaluation import Evaluation, evaluate
from constraints.layout import is_valid_layout
from constraints.space import pruned_space
from simulator.domain.job import Job, Objective
from simulator.domain.plan import LAYOUT_COLUMNS, CheckpointScheme, PlanTable
from simulator.run.spare_nodes import sufficient_spare_nodes
from studies.algorithm import Results
from studies.searchers.refine import Refinement
from tests.studies.study_jobs import small_job
from tests.support import H100_RENTED, job_with

SYNC, ASYNC = CheckpointScheme.SYNC_SHARDED, CheckpointScheme.ASYNC


def some_designs(job: Job) -> Evaluation:
    return evaluate(job, pruned_space(job).designs().take(slice(0, None, 40)).take(slice(0, 12)))


def refined(job: Job, front: Evaluation) -> tuple[list[PlanTable], list[Results]]:
    """What is suggested and what it comes to, round by round."""
    search = Refinement(job, front, seed=3)
    plans, results = [], []
    while len(suggested := search.suggest()):
        found = evaluate(job, suggested)
        plans.append(suggested)
        results.append(Results(values=found.objectives(job), excess=found.excess.total))
        search.update(results[-1])
    return plans, results


@pytest.mark.long
def test_schemes_and_spares_that_the_job_allows_are_tried_and_no_others() -> None:
    job = small_job(num_refinements=30, checkpoint_schemes=[SYNC.value, ASYNC.value])
    front = some_designs(job)
    tried = PlanTable.concatenate(refined(job, front)[0])
    assert set(tried.checkpoint_scheme.tolist()) == {SYNC.code, ASYNC.code}
    assert (tried.num_spare_nodes >= 0).all()
    assert (tried.num_spare_nodes <= np.tile(sufficient_spare_nodes(job, front.plans), 30)).all()
    assert is_valid_layout(job, tried).all()


def test_a_slow_run_tries_no_more_spares_than_proofs_cover() -> None:
    """At 2 % of the peak it lasts five times as long as the run for which spares are listed, and would need more of them."""
    job = job_with(
        {**H100_RENTED, "num_gpus": {"min": 256, "max": 256}},
        workload={"model": "pythia-1.4b", "tokens": 2e11, "sequence_length": 1024, "global_batch_size": 32},
        search={"micro_batch_sizes": [1], "tensor_parallel": [8], "num_refinements": 20},
        reliability={"preset": "harsh", "failures_per_1000_node_days": 60, "repair_days": 30},
    )
    front = evaluate(job, pruned_space(job).designs().take(slice(0, 2)))
    listed = sufficient_spare_nodes(job, front.plans)
    assert (sufficient_spare_nodes(job, front.plans, front.outcomes.run.calm_s) > listed).all()
    tried = PlanTable.concatenate(refined(job, front)[0])
    assert (tried.num_spare_nodes <= np.tile(listed, 20)).all()


@pytest.mark.parametrize("with_spares", [True, False])
def test_the_number_of_spares_stays_where_the_job_leaves_no_choice(with_spares: bool) -> None:
    job = small_job(num_refinements=5, with_spares=[with_spares])
    front = some_designs(job)
    for plans in refined(job, front)[0]:
        np.testing.assert_array_equal(plans.num_spare_nodes, front.plans.num_spare_nodes)


def test_the_scheme_and_the_cap_stay_where_the_job_names_one() -> None:
    job = small_job(num_refinements=5, checkpoint_schemes=[SYNC.value], power_caps=[0.87])
    for plans in refined(job, some_designs(job))[0]:
        assert (plans.checkpoint_scheme == SYNC.code).all()
        np.testing.assert_allclose(plans.power_cap_fraction, 0.87, rtol=1e-12)


def test_layouts_stay_and_intervals_lie_around_the_best_expected_one() -> None:
    job = small_job(num_refinements=8, checkpoint_schemes=[SYNC.value])
    front = some_designs(job)
    best_s = front.outcomes.run.checkpoint_interval_s
    for plans in refined(job, front)[0]:
        factor = plans.checkpoint_interval_s / best_s
        assert ((factor >= 1 / INTERVAL_FACTOR) & (factor <= INTERVAL_FACTOR)).all()
        for name in set(LAYOUT_COLUMNS) - {"power_cap_fraction"}:
            np.testing.assert_array_equal(getattr(plans, name), getattr(front.plans, name))


def test_no_interval_is_longer_than_the_longest_that_the_job_allows() -> None:
    job = small_job(num_refinements=12, checkpoint_schemes=[SYNC.value])
    longest_s = 1.5 * float(some_designs(job).outcomes.run.checkpoint_interval_s.max())
    checkpointing = job.checkpointing.model_copy(update={"longest_interval_s": longest_s})
    job = job.model_copy(update={"checkpointing": checkpointing})
    intervals_s = PlanTable.concatenate(refined(job, some_designs(job))[0]).checkpoint_interval_s
    assert 0.9 * longest_s < intervals_s.max() <= longest_s


@pytest.mark.parametrize("interval", [{"interval_s": 1800.0}, {"interval_steps": 100}])
def test_an_interval_that_the_job_gives_stays(interval: dict[str, float]) -> None:
    job = small_job(num_refinements=6, checkpoint_schemes=[SYNC.value, ASYNC.value])
    checkpointing = job.checkpointing.model_copy(update=interval)
    job = job.model_copy(update={"checkpointing": checkpointing})
    for plans in refined(job, some_designs(job))[0]:
        assert np.isnan(plans.checkpoint_interval_s).all()


@cache
def job_that_prefers_cost() -> tuple[Job, Evaluation]:
    """The job and one of its designs."""
    base = small_job(num_refinements=1)
    job = base.model_copy(update={"preference": {Objective.COST: 2.0}})
    return job, some_designs(job).take(slice(0, 1))


@pytest.mark.parametrize(
    ("factors", "excess", "loss"),
    [
        ((1.0, 1.0, 1.0), 0.0, 0.0),
        ((2.0, 1.0, 1.0), 0.0, math.log(2) / 4),
        ((1.0, 2.0, 1.0), 0.0, math.log(2) / 2),  # cost counts twice
        ((0.5, 0.5, 0.5), 0.0, -math.log(2)),
        ((1.0, 1.0, 1.0), 0.3, 3.0),  # ten for each unit that limits are broken by
        ((math.inf, 1.0, 1.0), 0.0, math.log(1e6) / 4),
        ((math.nan, 1.0, 1.0), 0.0, 0.0),  # what costs nothing still costs nothing
    ],
)
def test_a_change_loses_the_mean_logarithm_by_which_it_is_worse_and_ten_times_what_it_breaks(
    monkeypatch: pytest.MonkeyPatch, factors: tuple[float, ...], excess: float, loss: float
) -> None:
    (job, front), told = job_that_prefers_cost(), list[float]()

    def tell(_: optuna.Study, __: optuna.Trial, value: float) -> None:
        told.append(value)

    monkeypatch.setattr(optuna.Study, "tell", tell)
    search = Refinement(job, front, seed=3)
    search.suggest()
    search.update(Results(values=front.objectives(job) * np.array(factors), excess=np.array([excess])))
    assert told == pytest.approx([0.0, loss])  # first the design as it is


def test_the_first_trial_is_the_design_as_it_is_whatever_else_the_job_would_try(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    base = small_job(num_refinements=1, checkpoint_schemes=[ASYNC.value], power_caps=[0.7])
    checkpointing = base.checkpointing.model_copy(update={"longest_interval_s": 500.0})
    job = base.model_copy(update={"checkpointing": checkpointing})
    plans = some_designs(job).plans.take(slice(0, 1))
    num_spares = sufficient_spare_nodes(job, plans) + 2
    own = {"checkpoint_interval_s": np.array([777.0]), "power_cap_fraction": np.array([0.9])}
    front = evaluate(job, replace(plans, num_spare_nodes=num_spares, **own))
    told: list[dict[str, object]] = []

    def tell(_: optuna.Study, trial: optuna.Trial, __: float) -> None:
        told.append(trial.params)

    monkeypatch.setattr(optuna.Study, "tell", tell)
    suggested = Refinement(job, front, seed=3).suggest()
    cap = 1  # of 0.7 and its own
    assert told == [
        {"scheme": "async", "interval_s of async": 777.0, "num_spare_nodes": num_spares[0], "power_cap": cap}
    ]
    assert suggested.power_cap_fraction[0] in (0.7, 0.9)


def test_the_same_seed_tries_the_same() -> None:
    job = small_job(num_refinements=6)
    front = some_designs(job)
    first, second = (PlanTable.concatenate(refined(job, front)[0]) for _ in range(2))
    np.testing.assert_array_equal(first.checkpoint_interval_s, second.checkpoint_interval_s)
    np.testing.assert_array_equal(first.num_spare_nodes, second.num_spare_nodes)


def test_a_scheme_that_loses_less_is_found() -> None:
    # Saves that training waits for cost the most; those in the background hide behind it (CheckFreq, FAST 2021).
    job = small_job(num_refinements=25, checkpoint_schemes=[SYNC.value, ASYNC.value])
    designs = some_designs(job)
    slow = designs.take(designs.plans.checkpoint_scheme == SYNC.code).take(slice(0, 1))
    plans, results = refined(job, slow)
    best = int(np.argmin([result.values[0, 0] for result in results]))
    assert plans[best].checkpoint_scheme[0] == ASYNC.code
    assert results[best].values[0, 0] < slow.objectives(job)[0, 0]
