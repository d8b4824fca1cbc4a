"""Does the search find what is there? NSGA-II and refinement against the exhaustive search of the same space."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

import numpy as np
import pytest

from constraints.evaluation import Evaluation
from constraints.layout import is_valid_layout
from constraints.space import pruned_space
from objectives.pareto import hypervolume
from planner.input.arguments import LARGEST_SEED
from studies.designs.knobs import OUT_OF_BOUNDS, Knobs
from studies.designs.plan_keys import are_same, plan_keys
from studies.evaluation.evaluator import Simulation
from studies.searchers.ends import Ends
from studies.searchers.refine import Refinement
from studies.searchers.settling import Settling
from studies.study import StudyResult
from tests.studies.study_jobs import small_job, study, study_by_batch, with_limits
from tests.support import job_with

FEW: Mapping[str, object] = {"tensor_parallel": [1, 2], "context_parallel": [1]}
"""Settings with which the small job has two thousand layouts."""


def all_of(parts: list[Evaluation]) -> Evaluation:
    return Evaluation.concatenate(parts)


@cache
def exhaustive_study() -> tuple[StudyResult, list[Evaluation]]:
    return study(small_job())


@cache
def refined_study() -> tuple[StudyResult, list[tuple[str, Evaluation]]]:
    job = small_job(num_refinements=12)
    return study_by_batch(job, Simulation(job))


@cache
def front_values(limits: tuple[tuple[str, float], ...]) -> np.ndarray:
    """The front of the job at full power under some limits."""
    job = with_limits(small_job(power_caps=[1.0]), dict(limits))
    front = study(job)[0].archive.front
    assert front is not None
    return front.objectives(job)


def beaten(values: np.ndarray, by: np.ndarray) -> np.ndarray:
    """Which rows are at least equalled in every objective by some row of another table."""
    return np.array([(by <= row * (1 + 1e-12)).all(axis=1).any() for row in values])


def test_exhaustive_search_evaluates_every_design_that_the_bounds_admit_once() -> None:
    result, evaluated = exhaustive_study()
    plans = all_of(evaluated).plans
    assert result.is_exact
    assert result.archive.num_evaluated == len(plans) == pruned_space(small_job()).num_designs
    rows = {
        tuple(row) for row in np.column_stack([np.nan_to_num(c) for c in plans.columns().values()]).tolist()
    }
    assert len(rows) == len(plans)


def test_the_front_is_the_set_of_feasible_designs_that_none_beats() -> None:
    job = with_limits(small_job(), {"budget_usd": 60_000.0})
    result, evaluated = study(job)
    everything = all_of(evaluated)
    values = everything.objectives(job)[everything.is_feasible]
    front = result.archive.front
    assert front is not None
    strictly_beaten = [
        any((other <= row).all() and (other < row).any() for other in values) for row in front.objectives(job)
    ]
    assert not any(strictly_beaten)
    assert beaten(values, by=front.objectives(job)).all()
    assert (front.scores.cost_usd <= 60_000.0).all()


@pytest.mark.short(1)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_nsga2_reaches_the_exhaustive_front_with_a_fraction_of_the_evaluations(seed: int) -> None:
    job = small_job(algorithm="nsga2", max_evaluations=1500, population_size=60)
    everything, (result, _) = exhaustive_study()[0].archive.front, study(job, seed)
    front = result.archive.front
    assert everything is not None
    assert front is not None
    exact = everything.objectives(job)
    assert result.archive.num_evaluated <= 1500
    reference = 1.5 * exact.max(axis=0)
    # Six other seeds reached the whole volume with 1,200 evaluations; 1 % is left for changes of the model.
    assert hypervolume(front.objectives(job), reference) >= 0.99 * hypervolume(exact, reference)


def test_the_same_seed_evaluates_the_same_designs_in_the_same_order() -> None:
    job = small_job(**FEW, algorithm="nsga2", max_evaluations=400, population_size=40, num_refinements=3)
    first, second = (all_of(study(job, seed=5)[1]) for _ in range(2))
    for name, column in first.plans.columns().items():
        np.testing.assert_array_equal(column, getattr(second.plans, name))
    np.testing.assert_array_equal(first.objectives(job), second.objectives(job))


def test_another_seed_tries_other_designs() -> None:
    job = small_job(**FEW, algorithm="nsga2", max_evaluations=80, population_size=40)
    first, second = (all_of(study(job, seed)[1]).plans for seed in (1, 2))
    assert first.num_gpus.tolist() != second.num_gpus.tolist()


@pytest.mark.parametrize(
    "algorithm", ["exhaustive", "nsga2", "nsga3", "optuna_tpe", "optuna_nsga2", "random"]
)
def test_the_largest_seed_is_one_like_any_other(algorithm: str) -> None:
    job = small_job(**FEW, algorithm=algorithm, max_evaluations=80, population_size=8, num_refinements=1)
    result, _ = study(job, LARGEST_SEED)
    assert result.is_complete
    assert result.archive.num_distinct > 1  # or refinement would need no second seed


@pytest.mark.parametrize("algorithm", ["exhaustive", "nsga2"])
def test_a_stopped_search_keeps_what_it_evaluated(algorithm: str) -> None:
    answers: Iterator[bool] = iter([False, True, True, True])
    job = small_job(algorithm=algorithm, population_size=20)
    result, evaluated = study(job, should_stop=lambda: next(answers))
    assert not result.is_complete
    assert result.archive.num_evaluated == len(all_of(evaluated)) > 0


@pytest.mark.short(1)
@pytest.mark.parametrize("limit", ["budget_usd", "deadline_days", "power_w"])
def test_removing_a_limit_never_makes_the_front_worse(limit: str) -> None:
    base = {"budget_usd": 60_000.0, "deadline_days": 20.0, "power_w": 160e3}
    tight = front_values(tuple(base.items()))
    loose = front_values(tuple((name, value) for name, value in base.items() if name != limit))
    assert beaten(tight, by=loose).all()


def test_refinement_only_adds_to_the_front_and_stays_between_its_bounds() -> None:
    refined = small_job(num_refinements=12)
    plain, (result, batches) = exhaustive_study()[0].archive.front, refined_study()
    assert plain is not None
    assert result.archive.front is not None
    assert beaten(plain.objectives(refined), by=result.archive.front.objectives(refined)).all()
    tuned, settled, walked = (
        all_of([found for stage, found in batches if stage == part.stage]).plans
        for part in (Refinement, Settling, Ends)
    )
    assert np.isfinite(tuned.checkpoint_interval_s).all()
    for later in (settled, walked):
        assert np.isnan(later.checkpoint_interval_s).all()
    for plans in (tuned, settled, walked):
        assert (plans.power_cap_fraction >= 0.6).all()
        assert (plans.power_cap_fraction <= 1.0).all()
    assert result.is_complete


@pytest.mark.short(2)
@pytest.mark.parametrize("algorithm", ["exhaustive", "random", "nsga2"])
@pytest.mark.parametrize("checkpointing", [{}, {"interval_s": 600}])
def test_refinement_evaluates_no_design_that_the_search_has_evaluated(
    algorithm: str, checkpointing: dict[str, object]
) -> None:
    # With an interval that is given, or without saves, another listed design is a refined one.
    search = {"algorithm": algorithm, "num_refinements": 10, "checkpoint_schemes": ["async", "sync", "none"]}
    few = {"tensor_parallel": [1, 2], "pipeline_parallel": [1], "context_parallel": [1], "zero_stages": [1]}
    result, evaluated = study(job_with(search={**search, **few}, checkpointing=checkpointing), seed=1)
    keys = plan_keys(all_of(evaluated).plans)
    assert result.num_refined > 0
    assert len(np.unique(keys)) == len(keys) == result.archive.num_evaluated


def test_lowering_the_power_cap_trades_time_for_energy() -> None:
    front = refined_study()[0].archive.front
    assert front is not None
    capped = front.plans.power_cap_fraction < 1.0
    assert capped.any()  # some capped design needs so much less energy that nothing beats it


def test_a_space_without_layouts_is_searched_to_the_end_at_once() -> None:
    result, evaluated = study(with_limits(small_job(), {"budget_usd": 1.0}))
    assert evaluated == []
    assert result.is_complete
    assert result.archive.front is None


def test_knobs_encode_every_design_of_the_space_without_loss() -> None:
    space = pruned_space(small_job())
    knobs, designs = Knobs.of(space), space.designs()
    indices = knobs.encode(designs)
    kept, decoded = knobs.designs(indices)
    np.testing.assert_array_equal(kept, indices)
    assert are_same(decoded, designs).all()
    np.testing.assert_array_equal(space.layouts.num_gpus[knobs.layout_rows(designs)], designs.num_gpus)
    assert len(np.unique(knobs.design_codes(indices))) == len(designs)


def test_layouts_that_the_bounds_keep_out_are_no_designs_and_nearer_than_invalid_ones() -> None:
    job = with_limits(small_job(), {"budget_usd": 60_000.0})
    space, everything = pruned_space(job), pruned_space(small_job())
    knobs = Knobs.of(space)
    rows = np.random.default_rng(2).integers(0, knobs.largest + 1, (2000, len(knobs.largest)))
    plans = knobs.decode(rows)
    rejection, known = knobs.rejection(rows, plans), set(plan_keys(space.designs()).tolist())
    is_valid = knobs.excess(plans) == 0.0
    is_design = np.array([key in known for key in plan_keys(plans).tolist()])
    np.testing.assert_array_equal(rejection == 0.0, is_design)
    np.testing.assert_array_equal(rejection[is_valid & ~is_design], OUT_OF_BOUNDS)
    assert (rejection[~is_valid] > OUT_OF_BOUNDS).all()
    assert space.num_designs < everything.num_designs


def test_a_decoded_row_is_at_no_distance_exactly_when_its_layout_is_valid() -> None:
    job = small_job()
    knobs = Knobs.of(pruned_space(job))
    rows = np.random.default_rng(1).integers(0, knobs.largest + 1, (2000, len(knobs.largest)))
    plans = knobs.decode(rows)
    split = plans.tensor_parallel * plans.pipeline_parallel * plans.context_parallel * plans.data_parallel
    expected = is_valid_layout(job, plans) & (split == plans.num_gpus)
    np.testing.assert_array_equal(knobs.excess(plans) == 0.0, expected)
    assert 0 < expected.sum() < len(rows)
