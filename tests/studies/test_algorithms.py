"""Does every search algorithm keep the contract, and does each find what it should?"""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from itertools import combinations

import numpy as np
import pytest

from constraints.evaluation import evaluate
from constraints.space import Space, pruned_space
from objectives.pareto import front_rows, hypervolume
from simulator.domain.job import Job, Objective
from simulator.domain.offer import GpuRange
from simulator.domain.plan import PlanTable
from simulator.domain.search_options import Algorithm
from simulator.errors import StudyError
from studies.algorithm import Results, SearchAlgorithm
from studies.designs.archive import Archive
from studies.designs.knobs import Knobs
from studies.designs.plan_keys import are_same, plan_keys
from studies.exhaustive import Exhaustive
from studies.searchers.algorithm_contract import AlgorithmContract
from studies.searchers.chance import UntilFeasible
from studies.searchers.ends import Ends
from studies.searchers.estimates import Estimator, bounds_of
from studies.searchers.neighbours import Neighbours
from studies.searchers.random_search import RandomSearch
from studies.searchers.refine import Refinement
from studies.searchers.screening import Screening
from studies.searchers.settling import Settling
from studies.searchers.starts import CORNERS, first_designs, first_rows
from studies.searchers.tuning import DEFAULT
from studies.study import restarted
from tests.studies.study_jobs import small_job, study, with_limits

SIZE = 24


FOUR = ("time_to_train", "cost", "energy", "carbon")


def three_objectives() -> Job:
    return small_job(tensor_parallel=[1, 2], context_parallel=[1], population_size=SIZE)


def objectives(*names: str) -> Job:
    return three_objectives().model_copy(update={"objectives": tuple(Objective(name) for name in names)})


def one_design() -> Job:
    job = small_job(
        tensor_parallel=[1],
        pipeline_parallel=[1],
        context_parallel=[1],
        zero_stages=[1],
        micro_batch_sizes=[1],
        recompute=["full"],
        checkpoint_schemes=["async"],
        with_spares=[False],
        population_size=8,
    )
    offer = job.offers[0].model_copy(update={"num_gpus": GpuRange(min=128, max=128)})
    return job.model_copy(update={"offers": (offer,)})


def no_feasible_design() -> Job:
    """A deadline that the bound of some layouts keeps and no simulated design does."""
    job = three_objectives()
    least = pruned_space(job).kept_bounds.deadline_days.min()
    return with_limits(job, {"deadline_days": 1.000_001 * float(least)})


JOBS = {
    "three objectives": three_objectives,
    "two objectives": lambda: objectives("time_to_train", "cost"),
    "four objectives": lambda: objectives(*FOUR),
    "one design": one_design,
    "nothing feasible": no_feasible_design,
}


@pytest.fixture(scope="module", params=JOBS)
def space(request: pytest.FixtureRequest) -> Space:
    """Every algorithm keeps the contract on every one of these."""
    return pruned_space(JOBS[request.param]())


@pytest.fixture(scope="module")
def usual_space() -> Space:
    return pruned_space(three_objectives())


def test_the_small_spaces_are_what_they_are_called() -> None:
    assert pruned_space(one_design()).num_designs == 1
    job = no_feasible_design()
    designs = pruned_space(job).designs()
    assert len(designs) > 1
    assert not evaluate(job, designs).is_feasible.any()


def begun(algorithm: Algorithm, space: Space, seed: int) -> SearchAlgorithm:
    return restarted(algorithm, space, Knobs.of(space), 0, seed)


class TestExhaustive(AlgorithmContract):
    def begin(self, space: Space, seed: int) -> SearchAlgorithm:
        del seed  # nothing is random
        return Exhaustive(space)


class TestRandom(AlgorithmContract):
    def begin(self, space: Space, seed: int) -> SearchAlgorithm:
        return RandomSearch(space, 100, SIZE, seed)

    def test_no_design_is_drawn_twice(self, space: Space) -> None:
        keys = np.concatenate([plan_keys(plans) for plans in self._suggestions(space, seed=5)])
        assert len(np.unique(keys)) == len(keys)


class TestNsga2(AlgorithmContract):
    def begin(self, space: Space, seed: int) -> SearchAlgorithm:
        return begun(Algorithm.NSGA2, space, seed)


class TestNsga3(AlgorithmContract):
    def begin(self, space: Space, seed: int) -> SearchAlgorithm:
        return begun(Algorithm.NSGA3, space, seed)


@pytest.mark.parametrize("algorithm", [Algorithm.NSGA2, Algorithm.NSGA3])
def test_populations_prefer_less_excess_however_large_it_is(algorithm: Algorithm, usual_space: Space) -> None:
    def children(scale: float) -> PlanTable:
        population = begun(algorithm, usual_space, seed=1)
        parents = population.suggest()
        excess = scale * np.random.default_rng(2).permutation(np.arange(1.0, 1.0 + len(parents)))
        population.update(Results(values=np.ones((len(parents), 3)), excess=excess))
        return population.suggest()

    near, far = children(0.01), children(100.0)
    assert len(near) == len(far) > 0
    assert are_same(near, far).all()


@pytest.mark.short(2)
class TestOptunaTpe(AlgorithmContract):
    def begin(self, space: Space, seed: int) -> SearchAlgorithm:
        return begun(Algorithm.OPTUNA_TPE, space, seed)


@pytest.mark.short(2)
class TestOptunaNsga2(AlgorithmContract):
    def begin(self, space: Space, seed: int) -> SearchAlgorithm:
        return begun(Algorithm.OPTUNA_NSGA2, space, seed)


class TestUntilFeasible(AlgorithmContract):
    def begin(self, space: Space, seed: int) -> SearchAlgorithm:
        return UntilFeasible(space, SIZE, seed)


@pytest.mark.skipif(find_spec("torch") is None, reason="optuna_gp needs PyTorch")
class TestOptunaGp(AlgorithmContract):
    def begin(self, space: Space, seed: int) -> SearchAlgorithm:
        return begun(Algorithm.OPTUNA_GP, space, seed)


class TestScreening(AlgorithmContract):
    @pytest.fixture(autouse=True)
    def few_of_the_space(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The pool is drawn from spaces that are larger than it."""
        monkeypatch.setattr("studies.searchers.screening.POOL_SIZE", 200)

    def begin(self, space: Space, seed: int) -> SearchAlgorithm:
        return screening(space, seed)


class TestNeighbours(AlgorithmContract):
    def begin(self, space: Space, seed: int) -> SearchAlgorithm:
        del seed  # nothing is random
        return Neighbours(Knobs.of(space), some_front(space))


class TestRefinement(AlgorithmContract):
    def begin(self, space: Space, seed: int) -> SearchAlgorithm:
        front = some_front(space).front
        assert front is not None
        search = space.job.search.model_copy(update={"num_refinements": 9})
        return Refinement(space.job.model_copy(update={"search": search}), front, seed)


class TestSettling(AlgorithmContract):
    def begin(self, space: Space, seed: int) -> SearchAlgorithm:
        del seed  # nothing is random
        front = some_front(space).front
        assert front is not None
        return Settling(evaluate(space.job, at_every(600.0, front.plans)))


class TestEnds(AlgorithmContract):
    def begin(self, space: Space, seed: int) -> SearchAlgorithm:
        del seed  # nothing is random
        return Ends(space.job, some_front(space))


def at_every(interval_s: float, plans: PlanTable) -> PlanTable:
    """Designs with an interval of their own."""
    return replace(plans, checkpoint_interval_s=np.full(len(plans), interval_s))


def test_designs_with_an_interval_of_their_own_are_settled_once_and_no_others(usual_space: Space) -> None:
    plans = usual_space.designs().take(slice(0, 40, 10))
    both = PlanTable.concatenate([plans.take(slice(0, 2)), at_every(600.0, plans.take(slice(2, 4)))])
    settling = Settling(evaluate(usual_space.job, both))
    assert settling.num_designs == 2
    assert are_same(settling.suggest(), plans.take(slice(2, 4))).all()
    assert len(settling.suggest()) == 0


def screening(space: Space, seed: int) -> Screening:
    return Screening(space, Estimator(space, Knobs.of(space)), 60, DEFAULT, seed)


def some_front(space: Space) -> Archive:
    """A front of designs that keep all limits, whatever the limits of the space are."""
    archive = Archive(space.job)
    archive.add(evaluate(with_limits(space.job, {}), space.designs().take(slice(0, None, 100))))
    return archive


@pytest.mark.skipif(find_spec("torch") is not None, reason="PyTorch is there")
def test_gaussian_processes_without_pytorch_are_an_error_that_says_what_to_install(
    usual_space: Space,
) -> None:
    with pytest.raises(StudyError, match=r"optuna_gp needs PyTorch: install capplan\[gp\]"):
        begun(Algorithm.OPTUNA_GP, usual_space, 0)


def test_random_search_draws_every_design_of_the_space_once_when_it_may(usual_space: Space) -> None:
    search = RandomSearch(usual_space, 10**9, 1_000, seed=4)
    parts = []
    while len(plans := search.suggest()):
        parts.append(plan_keys(plans))
    drawn = np.concatenate(parts)
    assert len(drawn) == usual_space.num_designs
    np.testing.assert_array_equal(np.sort(drawn), np.sort(plan_keys(usual_space.designs())))
    assert (drawn != plan_keys(usual_space.designs())).any()


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ["nsga3", "optuna_tpe", "optuna_nsga2", "random"])
def test_a_study_with_any_algorithm_ends_at_its_evaluations_with_a_front(algorithm: str) -> None:
    job = small_job(algorithm=algorithm, max_evaluations=60, population_size=SIZE)
    result, evaluated = study(job)
    keys = np.concatenate([plan_keys(part.plans) for part in evaluated])
    assert result.is_complete
    assert not result.is_exact
    assert len(keys) <= 60
    assert len(np.unique(keys)) == len(keys)
    assert result.archive.front is not None


def test_designs_that_need_no_spares_are_evaluated_once() -> None:
    # A run of a day on a few nodes is likely to end before one fails: with and without spares it is the same design.
    job = small_job(algorithm="nsga2", max_evaluations=150, population_size=SIZE)
    job = job.model_copy(
        update={"workload": job.workload.model_copy(update={"tokens": 1e9}), "objectives": (Objective.TIME,)}
    )
    _, evaluated = study(job)
    keys = np.concatenate([plan_keys(part.plans) for part in evaluated])
    assert (np.concatenate([part.plans.num_spare_nodes for part in evaluated]) == 0).any()
    assert len(np.unique(keys)) == len(keys)


def test_the_first_generation_begins_at_the_front_of_the_bounds_and_the_next_restart_in_the_corners(
    usual_space: Space,
) -> None:
    knobs = Knobs.of(usual_space)
    bounds = usual_space.kept_bounds
    first, second = (
        knobs.layout_rows(knobs.decode(first_rows(usual_space, knobs, SIZE, restart, seed=1)))
        for restart in (0, 1)
    )
    unbeaten = front_rows(bounds_of(usual_space.job, bounds))
    assert set(unbeaten.tolist()) <= set(first.tolist())
    for corner in CORNERS:
        assert int(np.argmin(getattr(bounds, corner))) in second, corner


def test_a_search_that_finds_nothing_feasible_spends_all_its_evaluations() -> None:
    job = small_job(
        algorithm="nsga2",
        max_evaluations=60,
        population_size=SIZE,
        tensor_parallel=[1, 2],
        context_parallel=[1],
        power_caps=[1.0],
    )
    least = evaluate(job, pruned_space(job).designs()).scores.cost_usd.min()
    # Bounds know nothing of chance: they admit what costs so much on average, and no run is as sure as that.
    limited = with_limits(job, {"budget_usd": 1.04 * float(least), "budget_probability": 0.999})
    assert pruned_space(limited).num_designs > 60
    result, evaluated = study(limited)
    assert result.archive.front is None
    assert sum(len(part) for part in evaluated) == 60


def test_chance_ends_with_the_first_feasible_design(usual_space: Space) -> None:
    search = UntilFeasible(usual_space, SIZE, seed=1)
    for excess in (0.5, 0.0):
        num_tried = len(search.suggest())
        assert num_tried == SIZE
        results = np.full(num_tried, 0.5)
        results[3] = excess
        search.update(Results(values=np.ones((num_tried, 3)), excess=results))
    assert len(search.suggest()) == 0


@pytest.mark.long
def test_nsga3_comes_as_near_to_a_front_of_four_objectives_as_its_evaluations_allow() -> None:
    four = ["time_to_train", "cost", "energy", "carbon"]
    base = small_job()
    job = base.model_copy(update={"objectives": tuple(Objective(name) for name in four)})
    exact = study(job)[0].archive.front
    assert exact is not None
    search = job.search.model_copy(update={"algorithm": Algorithm.NSGA3, "max_evaluations": 900})
    found = study(job.model_copy(update={"search": search}))[0].archive.front
    assert found is not None
    reference = 1.5 * exact.objectives(job).max(axis=0)
    share = hypervolume(found.objectives(job), reference) / hypervolume(exact.objectives(job), reference)
    assert share >= 0.99  # four seeds reached 0.9996 to 1; the rest is left for changes of the model


def test_neighbours_differ_in_one_knob_first_and_then_in_two(usual_space: Space) -> None:
    knobs = Knobs.of(usual_space)
    archive = Archive(usual_space.job)
    archive.add(evaluate(usual_space.job, usual_space.designs().take(slice(0, 1))))
    row = knobs.encode(usual_space.designs().take(slice(0, 1)))
    search = Neighbours(knobs, archive)
    found = []
    while len(plans := search.suggest()):
        found.append(np.unique(knobs.encode(plans), axis=0))
    every = np.unique(knobs.encode(usual_space.designs()), axis=0)
    distance = (every != row).sum(axis=1)
    assert len(found) == 2
    for near, rows in enumerate(found, start=1):
        np.testing.assert_array_equal(rows, every[distance <= near])


@pytest.mark.parametrize("num_at_once", [1, 2, 9])
def test_neighbours_of_as_many_designs_of_a_front_as_fit_are_suggested_together(
    usual_space: Space, num_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    knobs = Knobs.of(usual_space)
    archive = Archive(usual_space.job)
    archive.add(evaluate(usual_space.job, usual_space.designs()))
    whole = archive.front
    assert whole is not None
    archive = Archive(usual_space.job)
    archive.add(whole.take(np.arange(3)))
    assert archive.front is not None
    front = knobs.encode(archive.front.plans)
    assert len(front) == 3
    # A design has one neighbour for each other value of a knob, and for each pair of other values of two knobs.
    others = knobs.largest.tolist()
    num_pairs = sum(a * b for a, b in combinations(others, 2))
    every = np.unique(knobs.encode(usual_space.designs()), axis=0)
    distance = (every[:, None] != front).sum(axis=2)
    monkeypatch.setattr("studies.searchers.neighbours.ROWS_PER_SUGGESTION", num_at_once * sum(others))
    one_knob = knobs.encode(Neighbours(knobs, archive).suggest())
    near = distance[:, :num_at_once].min(axis=1)
    np.testing.assert_array_equal(np.unique(one_knob, axis=0), every[near <= 1])
    assert num_pairs > 3 * sum(others)  # so that the neighbours in one knob fit into one suggestion
    monkeypatch.setattr("studies.searchers.neighbours.ROWS_PER_SUGGESTION", num_at_once * num_pairs)
    search = Neighbours(knobs, archive)
    one_knob, two_knobs = (knobs.encode(search.suggest()) for _ in range(2))
    np.testing.assert_array_equal(np.unique(one_knob, axis=0), every[distance.min(axis=1) <= 1])
    np.testing.assert_array_equal(np.unique(two_knobs, axis=0), every[near <= 2])


def test_the_most_promising_neighbours_come_first(usual_space: Space) -> None:
    knobs = Knobs.of(usual_space)
    known = evaluate(usual_space.job, usual_space.designs().take(slice(0, 40)))
    archive, estimator = Archive(usual_space.job), Estimator(usual_space, knobs)
    archive.add(known)
    estimator.learn(known.plans, Results(values=known.objectives(usual_space.job), excess=known.excess.total))
    shortfalls = estimator.shortfalls(Neighbours(knobs, archive, estimator).suggest())
    assert shortfalls[0] < shortfalls[-1]
    np.testing.assert_array_equal(shortfalls, np.sort(shortfalls))


@pytest.mark.parametrize("size", [4, 11, 40])
@pytest.mark.parametrize("restart", [0, 1])
def test_a_first_generation_has_its_size_but_for_layouts_that_were_drawn_twice(
    usual_space: Space, size: int, restart: int
) -> None:
    num = len(first_designs(usual_space, size, restart, seed=1))
    assert 0.8 * size - 1.0 <= num <= size
