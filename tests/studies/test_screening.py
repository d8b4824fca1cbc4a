"""Do estimates say what simulations then show, and do children and screened designs come from the space, each once?"""

from __future__ import annotations

import numpy as np
import pytest

from constraints.bounds import WHOLE, bound, least_needs
from constraints.evaluation import evaluate
from constraints.feasibility import least_value
from constraints.limits import set_limits
from constraints.space import Space, pruned_space
from objectives.pareto import front_rows
from simulator.domain.job import Objective
from simulator.domain.plan import PlanTable
from simulator.table import Floats
from simulator.units import DAY
from studies.algorithm import Results
from studies.designs.knobs import Knobs
from studies.designs.plan_keys import plan_keys
from studies.searchers import screening
from studies.searchers.estimates import MOST_LEARNED, Estimator, bounds_of
from studies.searchers.evolution import Evolution, Selection
from studies.searchers.ratio_model import LENGTH_SCALE, NUGGET, NUM_CHOICES, RatioModel
from studies.searchers.screening import Screening
from studies.searchers.starts import CORNERS, first_designs, first_rows, near_fronts
from studies.searchers.tuning import DEFAULT
from tests.studies.study_jobs import small_job, with_limits

NUM_LEARNED = 200


@pytest.fixture(scope="module")
def space() -> Space:
    job = small_job(tensor_parallel=[1, 2], context_parallel=[1], population_size=24)
    return pruned_space(with_limits(job, {"budget_usd": 60_000.0}))


def results(space: Space, rows: slice) -> Results:
    evaluation = evaluate(space.job, space.designs().take(rows))
    return Results(values=evaluation.objectives(space.job), excess=evaluation.excess.total)


@pytest.mark.parametrize("corner", CORNERS)
def test_a_later_restart_begins_in_the_corners_that_cp_sat_finds(space: Space, corner: str) -> None:
    limits = WHOLE | set_limits(space.job)
    needs = least_needs(space.bounds, set_limits(space.job))
    proven = least_value(getattr(space.bounds, corner), needs, limits)
    begun = bound(space.job, first_designs(space, 24, 1, 0))
    assert getattr(begun, corner).min() == proven


def test_a_gaussian_process_gives_the_textbook_answer() -> None:
    # Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, equation 2.25, by NumPy's solver.
    random = np.random.default_rng(0)
    known, asked = (
        np.column_stack(
            [random.random((n, 9)), random.integers(0, 2, n), random.integers(0, 3, (n, NUM_CHOICES))]
        )
        for n in (30, 7)
    )
    ratios = random.random((30, 2))

    spares, offer, zero_stage, scheme = 9, 10, 16, 17  # places of features: ten numbers, then eight choices

    def covariance(first: Floats, second: Floats) -> Floats:
        squares = (first[:, None, :] - second[None, :, :]) ** 2
        unlike = first[:, None, :] != second[None, :, :]
        layout = squares[:, :, :spares].sum(axis=2) + 2.0 * unlike[:, :, offer:zero_stage].sum(axis=2)
        layout += 36.0 * unlike[:, :, zero_stage]
        run = squares[:, :, 0] + 2.0 * unlike[:, :, offer]
        run += 18.0 * (unlike[:, :, scheme].astype(int) + unlike[:, :, spares])
        likeness: Floats = 0.5 * sum(np.exp(-part / (2.0 * LENGTH_SCALE**2)) for part in (layout, run))
        return likeness

    mean = ratios.mean(axis=0)
    weights = np.linalg.solve(covariance(known, known) + NUGGET * np.eye(30), ratios - mean)
    expected = mean + covariance(asked, known) @ weights
    deviation = np.sqrt(((ratios - mean) * weights).mean(axis=0)) * [1.0, 0.0]  # likelihood, equation 5.8
    expected -= 0.5 * deviation * np.sqrt(1.0 - covariance(asked, known).max(axis=1, keepdims=True) ** 2)
    np.testing.assert_allclose(RatioModel(known, ratios).ratios(asked), expected, rtol=1e-9)


def test_bounds_stand_in_the_units_of_the_objectives_and_no_simulation_beats_them(space: Space) -> None:
    bounds = bounds_of(space.job, space.kept_bounds)
    np.testing.assert_array_equal(bounds[:, 0], space.kept_bounds.deadline_days * DAY)
    designs = space.designs()
    rows = Knobs.of(space).layout_rows(designs)
    assert (evaluate(space.job, designs).objectives(space.job) >= bounds[rows]).all()


def test_energy_is_bounded_from_below(space: Space) -> None:
    designs = space.designs()
    energy_j = evaluate(space.job, designs).scores.energy_j
    assert (energy_j >= space.kept_bounds.energy_j[Knobs.of(space).layout_rows(designs)]).all()


@pytest.mark.parametrize(("excess", "expected"), [(0.01, 0.0), (0.1, np.log(1.1))])
def test_what_breaks_limits_that_no_objective_measures_counts_from_two_per_cent(
    excess: float, expected: float
) -> None:
    free = pruned_space(small_job(tensor_parallel=[1], pipeline_parallel=[1], context_parallel=[1]))
    designs = free.designs()
    estimator = Estimator(free, Knobs.of(free))
    known = Results(
        values=evaluate(free.job, designs).objectives(free.job), excess=np.full(len(designs), excess)
    )
    estimator.learn(designs, known)
    np.testing.assert_allclose(estimator.shortfalls(designs), expected, atol=1e-6)


def test_power_has_no_ratio_to_its_bound_though_runs_take_longer_than_theirs() -> None:
    one_stage = {"tensor_parallel": [1], "pipeline_parallel": [1], "context_parallel": [1]}
    free = pruned_space(small_job(**one_stage, power_caps=[1.0]))  # not others where power is limited
    limited = pruned_space(with_limits(free.job, {"power_w": float(free.kept_bounds.power_w.max())}))
    designs = limited.designs().take(slice(0, None, 2))  # so few that all of them are learned from
    assert len(designs) < MOST_LEARNED
    found = evaluate(limited.job, designs)
    estimators = [Estimator(space, Knobs.of(space)) for space in (free, limited)]
    for estimator in estimators:
        estimator.learn(designs, Results(values=found.objectives(limited.job), excess=found.excess.total))
    without, under = (estimator.shortfalls(designs) for estimator in estimators)
    np.testing.assert_allclose(np.maximum(under, 0.0), np.maximum(without, 0.0), atol=1e-5)


def test_a_front_that_was_found_before_fills_half_of_the_first_generation(space: Space) -> None:
    knobs = Knobs.of(space)
    begun = plan_keys(first_designs(space, 8, 0, seed=1))
    others = space.designs()
    front = others.take(~np.isin(plan_keys(others), begun)).take(slice(0, 20))
    rows = knobs.decode(first_rows(space, knobs, 8, 0, seed=1, front=front))
    assert np.isin(plan_keys(rows), plan_keys(front)).tolist() == [True] * 4 + [False] * 4


def test_designs_near_the_front_are_told_from_others(space: Space) -> None:
    designs, knobs = space.designs(), Knobs.of(space)
    rows = np.random.default_rng(3).permutation(len(designs))
    known, others = designs.take(rows[:NUM_LEARNED]), designs.take(rows[NUM_LEARNED:])
    evaluation = evaluate(space.job, known)
    estimator = Estimator(space, knobs)
    estimator.learn(known, Results(values=evaluation.objectives(space.job), excess=evaluation.excess.total))
    assert estimator.knows(known).all()
    assert not estimator.knows(others).any()
    front = np.log(evaluation.objectives(space.job)[evaluation.is_feasible])
    truth = evaluate(space.job, others)
    values = np.log(truth.objectives(space.job))
    beaten_by = np.max([(values - point).min(axis=1) for point in front], axis=0)
    shortfall = np.maximum(beaten_by, np.log(truth.scores.cost_usd / 60_000.0))
    estimated = estimator.shortfalls(others)
    # A twentieth of the designs taken at random would hold a twentieth of the best hundred.
    promising = np.argsort(estimated)[: len(others) // 20]
    assert np.isin(np.argsort(shortfall)[:100], promising).mean() > 0.5


def test_a_limit_that_no_objective_measures_is_learned_from_what_breaks_it(space: Space) -> None:
    designs = space.designs().take(slice(0, None, 13))
    is_broken = designs.tensor_parallel == 2
    values = bounds_of(space.job, space.kept_bounds)[Knobs.of(space).layout_rows(designs)]
    estimator = Estimator(space, Knobs.of(space))
    estimator.learn(designs, Results(values=values, excess=np.where(is_broken, 0.5, 0.0)))
    shortfalls = estimator.shortfalls(designs)
    assert is_broken.any()
    assert shortfalls[is_broken].min() > 0.35  # the half that is exceeded is ln 1.5 = 0.405
    assert shortfalls[~is_broken].min() <= 0.0


def test_a_budget_that_cost_measures_counts_once_however_much_is_exceeded_in_all(space: Space) -> None:
    designs = space.designs().take(slice(0, 60))
    bounds = bounds_of(space.job, space.kept_bounds)[Knobs.of(space).layout_rows(designs)]
    cost = space.job.objectives.index(Objective.COST)
    values = bounds * 66_000.0 / bounds[:, cost].min()  # each is above the budget of 60,000 dollars
    estimator = Estimator(space, Knobs.of(space))
    estimator.learn(designs, Results(values=values, excess=np.full(60, 9.0)))
    expected = np.log(values[:, cost] / 60_000.0)
    assert expected.min() < 0.1 < np.log1p(9.0)
    np.testing.assert_allclose(estimator.shortfalls(designs), expected, atol=1e-6)


def test_designs_that_never_end_are_estimated_to_be_bad(space: Space) -> None:
    designs = space.designs().take(slice(0, 60))
    never = np.arange(60) % 2 == 0
    values = np.where(never[:, None], np.inf, evaluate(space.job, designs).objectives(space.job))
    estimator = Estimator(space, Knobs.of(space))
    estimator.learn(designs, Results(values=values, excess=np.where(never, np.inf, 0.0)))
    assert np.isfinite(estimator.shortfalls(designs)).all()


def test_designs_that_never_end_are_as_bad_in_whatever_unit_the_others_are_measured(space: Space) -> None:
    # Logarithms of what is above 1 and of what is below, as risks are, differ by the same constant everywhere.
    designs = space.designs().take(slice(0, 60))
    values = evaluate(space.job, designs).objectives(space.job)
    values[::2, 0] = np.inf
    estimated = []
    for largest in (1e3, 1e-3):
        scaled = values / [values[1::2, 0].max() / largest, 1.0, 1.0]
        estimator = Estimator(space, Knobs.of(space))
        estimator.learn(designs, Results(values=scaled, excess=np.zeros(60)))
        estimated.append(estimator.shortfalls(space.designs()))
    # Both are rounded to six decimals.
    np.testing.assert_allclose(estimated[0], estimated[1], rtol=0, atol=2e-6)


def test_screening_never_suggests_a_design_twice_and_ends(space: Space) -> None:
    search = Screening(space, Estimator(space, Knobs.of(space)), 90, DEFAULT, seed=2)
    known, keys = set(plan_keys(space.designs()).tolist()), []
    while len(plans := search.suggest()):
        keys += plan_keys(plans).tolist()
        evaluation = evaluate(space.job, plans)
        search.update(Results(values=evaluation.objectives(space.job), excess=evaluation.excess.total))
    assert len(keys) == len(set(keys)) <= 90
    assert set(keys) <= known


def test_half_of_what_is_screened_is_drawn_while_nothing_is_feasible(space: Space) -> None:
    # With results that break every limit by as much, estimates alone would suggest the same whatever the seed.
    suggested = []
    for seed in (1, 2):
        search = Screening(space, Estimator(space, Knobs.of(space)), 100, DEFAULT, seed)
        first = search.suggest()
        evaluation = evaluate(space.job, first)
        broken = Results(values=evaluation.objectives(space.job), excess=np.full(len(first), 0.5))
        search.update(broken)
        suggested.append(plan_keys(search.suggest()))
    assert len(suggested[0]) == len(np.unique(suggested[0])) == 10  # (100 - 20) / 8 rounds
    assert len(np.intersect1d(suggested[0], suggested[1])) < 10


def begun(space: Space, seed: int, num_designs: int = 100) -> Screening:
    """Screening that knows its first designs, all of which keep the limits."""
    search = Screening(space, Estimator(space, Knobs.of(space)), num_designs, DEFAULT, seed)
    evaluation = evaluate(space.job, first := search.suggest())
    search.update(Results(values=evaluation.objectives(space.job), excess=np.zeros(len(first))))
    return search


@pytest.mark.parametrize(("shortfall", "num_suggested"), [(0.19, 10), (0.21, 0)])
def test_screening_ends_where_the_most_promising_design_is_far_from_the_front(
    space: Space, monkeypatch: pytest.MonkeyPatch, shortfall: float, num_suggested: int
) -> None:
    monkeypatch.setattr(Estimator, "shortfalls", lambda _, plans: np.full(len(plans), shortfall))
    assert len(begun(space, 1).suggest()) == num_suggested


def test_of_many_layouts_half_are_estimated_for_their_bounds_and_half_by_chance(
    space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    layouts = space.layouts
    monkeypatch.setattr(screening, "POOL_SIZE", space.num_designs * 8 // len(layouts))
    estimated: list[PlanTable] = []

    def shortfalls(_: Estimator, plans: PlanTable) -> Floats:
        estimated.append(plans)
        return np.zeros(len(plans))

    monkeypatch.setattr(Estimator, "shortfalls", shortfalls)
    monkeypatch.setattr(Estimator, "layout_shortfalls", lambda _: np.arange(float(len(layouts))))
    for seed in (1, 2):
        begun(space, seed).suggest()
    rows = [set(np.unique(Knobs.of(space).layout_rows(plans)).tolist()) for plans in estimated]
    best = set(range(4))  # of eight layouts
    assert all(best <= pool and 4 < len(pool) <= 8 for pool in rows)
    assert rows[0] != rows[1]


@pytest.mark.parametrize("selection", ["nsga2", "nsga3"])
def test_children_are_new_designs_of_the_space(space: Space, selection: Selection) -> None:
    knobs = Knobs.of(space)
    search = Evolution(selection, knobs, first_rows(space, knobs, 24, 0, 1), DEFAULT, seed=1)
    known, keys = set(plan_keys(space.designs()).tolist()), []
    for _ in range(6):
        plans = search.suggest()
        assert len(plans) == 24
        keys += np.unique(plan_keys(plans)).tolist()
        evaluation = evaluate(space.job, plans)
        search.update(Results(values=evaluation.objectives(space.job), excess=evaluation.excess.total))
    assert set(keys) <= known


@pytest.mark.parametrize("selection", ["nsga2", "nsga3"])
@pytest.mark.parametrize("is_limit", [True, False])
def test_generations_come_to_have_less_of_what_counts(
    space: Space, selection: Selection, *, is_limit: bool
) -> None:
    knobs = Knobs.of(space)
    search = Evolution(selection, knobs, first_rows(space, knobs, 24, 0, 1), DEFAULT, seed=1)
    means = []
    for _ in range(5):
        plans = search.suggest()
        amount = plans.num_gpus / 100.0
        means.append(amount.mean())
        values = np.tile((np.ones_like(amount) if is_limit else amount)[:, None], len(space.job.objectives))
        search.update(Results(values=values, excess=amount if is_limit else np.zeros_like(amount)))
    assert means[-1] < 0.6 * means[0]


def first_fronts(values: Floats, rows: np.ndarray, most: int) -> list[list[int]]:
    """The fronts one behind another among some rows, until they have so many."""
    fronts: list[list[int]] = []
    while sum(map(len, fronts)) < most and len(rows):
        front = front_rows(values[rows])
        fronts.append(rows[front].tolist())
        rows = np.delete(rows, front) if len(front) else rows[:0]
    return fronts


@pytest.mark.parametrize("num_decimals", [1, 2, 9])  # with few decimals there are many twins
@pytest.mark.parametrize("num_objectives", [2, 3, 4])
def test_no_layout_of_the_first_fronts_is_left_out(num_objectives: int, num_decimals: int) -> None:
    random = np.random.default_rng(num_objectives)
    for most in (1, 7, 30, 100):
        values = random.random((2_000, num_objectives)).round(num_decimals)
        values[random.random(2_000) < 0.1] = np.inf
        near = near_fronts(values, most)
        assert first_fronts(values, near, most) == first_fronts(values, np.arange(2_000), most)
        assert len(near) < 2_000 or most == 100
