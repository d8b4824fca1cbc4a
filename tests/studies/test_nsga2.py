"""Who lives on in NSGA-II, and who has children? The selection on columns against pymoo's, and the yield of the mating."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from moocore import pareto_rank
from pymoo.core.population import Population
from pymoo.core.problem import Problem
from pymoo.operators.survival.rank_and_crowding import RankAndCrowding
from pymoo.operators.survival.rank_and_crowding.metrics import get_crowding_function

from constraints.space import Space, pruned_space
from studies.designs.knobs import Knobs
from studies.designs.plan_keys import plan_keys
from studies.searchers.mating import Mating
from studies.searchers.nsga2 import crowding_distances, rows_by_merit
from studies.searchers.nsga3 import Nsga3
from studies.searchers.starts import first_rows
from studies.searchers.tuning import DEFAULT
from studies.searchers.variation import Spread, num_draws, varied
from tests.studies.study_jobs import small_job

NUM_DESIGNS, NUM_SURVIVORS = 200, 90
"""So many that no front ends between designs of equal merit, among which pymoo draws."""


def survivors_by_pymoo(values: np.ndarray, broken: np.ndarray) -> list[list[float]]:
    population = Population.new("X", np.arange(len(values))[:, None], "F", values, "G", broken[:, None])
    problem = Problem(n_var=1, n_obj=values.shape[1], n_ieq_constr=1)
    random = np.random.default_rng(0)
    survival = RankAndCrowding()
    alive = survival.do(problem, population, n_survive=NUM_SURVIVORS, random_state=random)
    return sorted(alive.get("F").tolist())


@pytest.mark.parametrize("num_objectives", [2, 3, 4])
@pytest.mark.parametrize("share_broken", [0.0, 0.3, 0.9, 1.0])
def test_the_same_designs_live_on_as_in_pymoo(num_objectives: int, share_broken: float) -> None:
    random = np.random.default_rng(num_objectives)
    values = random.random((NUM_DESIGNS, num_objectives))
    broken = np.where(random.random(NUM_DESIGNS) < share_broken, random.random(NUM_DESIGNS), 0.0)
    alive = rows_by_merit(values, broken)[:NUM_SURVIVORS]
    assert sorted(values[alive].tolist()) == survivors_by_pymoo(values, broken)


@pytest.mark.parametrize("num_objectives", [2, 3, 4])
@pytest.mark.parametrize("num_designs", [1, 2, 3, 300])
@pytest.mark.parametrize(
    "num_decimals", [0, 1, 9]
)  # with few decimals there are twins, and fronts of one value
def test_designs_of_all_fronts_are_as_far_from_their_neighbours_as_in_pymoo(
    num_objectives: int, num_designs: int, num_decimals: int
) -> None:
    values = np.random.default_rng(1).random((num_designs, num_objectives)).round(num_decimals)
    ranks = np.asarray(pareto_rank(values))
    by_pymoo, measure = np.zeros(num_designs), get_crowding_function("cd")
    for rank in range(ranks.max() + 1):
        with np.errstate(invalid="ignore"):  # pymoo divides infinity by nothing
            by_pymoo[ranks == rank] = measure.do(values[ranks == rank])
    np.testing.assert_array_equal(crowding_distances(values, ranks), by_pymoo)


def test_the_crowding_of_a_design_is_the_mean_side_of_the_box_between_its_neighbours() -> None:
    values = np.array([[0.0, 4.0], [1.0, 2.0], [3.0, 1.0], [4.0, 0.0]])
    inner = [
        (3 / 4 + 3 / 4) / 2,
        (3 / 4 + 2 / 4) / 2,
    ]  # by hand: distances along both axes, of a front 4 wide and high
    assert crowding_distances(values, np.zeros(4, dtype=np.intp)).tolist() == [np.inf, *inner, np.inf]
    # Of three designs, both ends are the neighbours of the middle one, which is as crowded as the front is wide.
    assert crowding_distances(values[[0, 1, 3]], np.zeros(3, dtype=np.intp)).tolist() == [np.inf, 1.0, np.inf]


def test_designs_that_break_no_limit_come_before_all_others_and_these_by_how_much_they_break() -> None:
    values = np.array([[1.0, 1.0], [9.0, 9.0], [5.0, 5.0], [0.0, 0.0]])
    assert rows_by_merit(values, np.array([0.2, 0.0, 0.0, 0.1])).tolist() == [2, 1, 3, 0]


def test_children_are_new_designs_of_the_space_each_once() -> None:
    space = pruned_space(small_job())
    knobs = Knobs.of(space)
    start = first_rows(space, knobs, 20, 0, seed=1)
    mating, random = Mating(knobs, start, DEFAULT), np.random.default_rng(1)
    generations = [start, *(mating.children(start, 20, random) for _ in range(5))]
    rows = np.concatenate(generations)
    kept, plans = knobs.designs(rows)
    assert len(kept) == len(rows)
    assert len(np.unique(rows, axis=0)) == len(rows)
    assert np.isin(plan_keys(plans), plan_keys(space.designs())).all()


def test_the_better_of_two_parents_has_three_of_four_children_which_differ_from_it_in_few_knobs() -> None:
    space = pruned_space(small_job())
    knobs = Knobs.of(space)
    rows = knobs.encode(space.designs())
    one, other = rows[0], rows[np.argmax((rows != rows[0]).sum(axis=1))]
    assert (one != other).sum() >= 6
    tuning, odds, num_changed = replace(DEFAULT, crossover_probability=0.0), [], list[int]()
    for pair in (np.array([one, other]), np.array([other, one])):
        # One child each time, so that the first try, with one mutation a child, has it.
        children = [
            Mating(knobs, pair, tuning).children(pair, 1, np.random.default_rng(seed)) for seed in range(300)
        ]
        changed = np.array([(np.concatenate(children) != parent).sum(axis=1) for parent in pair])
        odds.append((changed[0] < changed[1]).sum() / (changed[0] > changed[1]).sum())
        num_changed += changed.min(axis=0).tolist()
    # Two drawn from two: the worse one wins only against itself. Children of one are more often designs than those of the
    # other, by a factor that cancels out in the product of the odds, 3 x 3; 2 x 300 draws know it to a quarter.
    assert np.prod(odds) == pytest.approx(9.0, rel=0.5)
    # One mutation on average, given that there is one: 1 / (1 - 1/e) = 1.6, of which rounding takes some.
    assert 1.0 <= np.mean(num_changed) < 1.8


def test_nsga3_mates_those_first_that_break_limits_least_and_of_the_others_those_on_better_fronts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    space = pruned_space(small_job())
    knobs = Knobs.of(space)
    start = first_rows(space, knobs, 20, 0, seed=1)
    mated = list[np.ndarray]()

    def children(_: Mating, parents: np.ndarray, *__: object) -> np.ndarray:
        mated.append(parents)
        return parents[:0]

    monkeypatch.setattr(Mating, "children", children)
    population = Nsga3(Mating(knobs, start, DEFAULT), start, 2, seed=1)
    population.ask()
    # Every design that keeps the limits is a front of its own, and those that break them would be on the best fronts.
    merit = np.random.default_rng(1).permutation(len(start))
    broken = np.where(merit < 10, 0.0, 0.01 * merit)
    population.tell(np.column_stack([merit, merit]) - 100.0 * (broken > 0.0)[:, None], broken)
    population.ask()
    assert mated[0].tolist() == start[np.argsort(merit)].tolist()


COPIES = Spread(crossover_probability=0.0, crossover_eta=3.0, mutation_probability=0.0, mutation_eta=3.0)
NUM_PAIRS = 40_000


def children_of(mother: int, father: int, spread: Spread) -> np.ndarray:
    """Children of one pair of a knob with 1,001 values, beside a knob with one."""
    mothers, fathers = (np.tile([[place, 0]], (NUM_PAIRS, 1)) for place in (mother, father))
    draws = np.random.default_rng(3).random((NUM_PAIRS, num_draws(2)))
    children = varied(mothers, fathers, np.array([1_000, 0]), spread, draws)
    assert (children[:, 1] == 0).all()
    return children[:, 0]


def test_children_without_crossover_and_mutation_are_their_mothers() -> None:
    assert (children_of(300, 700, COPIES) == 300).all()


def test_half_of_the_knobs_are_crossed_and_their_children_lie_around_both_parents() -> None:
    children = children_of(300, 700, COPIES._replace(crossover_probability=1.0))
    crossed = children[children != 300]
    # A spread of exactly 1 is the mother, and rounding takes a few more to her.
    assert len(crossed) / NUM_PAIRS == pytest.approx(0.5, abs=0.02)
    # Deb and Agrawal: half of the children lie between the parents. The half on her side lies about the mother.
    assert np.mean((crossed > 300) & (crossed <= 700)) == pytest.approx(0.5, abs=0.02)
    # P(spread <= b) = b^(eta + 1) / 2 between the parents; 0.5 (1 + b) 300 + 0.5 (1 - b) 700 = 400 at b = 0.5.
    assert np.mean((crossed > 400) & (crossed <= 700)) == pytest.approx(0.5 * 0.5**4, abs=0.005)


def test_mutations_are_as_likely_as_asked_and_as_long_as_their_distribution_says() -> None:
    children = children_of(500, 500, COPIES._replace(mutation_probability=0.25))
    mutated = children[children != 500]
    assert len(mutated) / NUM_PAIRS == pytest.approx(0.25, abs=0.02)
    # Deb and Goyal: P(|step| > s) = (1 - s)^(eta + 1); steps are shares of 1,000 values.
    longer = np.mean(np.abs(mutated - 500) > 200)
    assert longer == pytest.approx(0.8**4, abs=0.02)
    assert children.min() >= 0
    assert children.max() <= 1_000


@pytest.mark.parametrize("tried", [[False], [False, True]])
def test_decoded_designs_are_those_that_the_space_lists(tried: list[bool]) -> None:
    assert_designs_are_decoded(pruned_space(small_job(hybrid_sharding=tried)))


def test_interleaved_groups_of_several_sizes_are_a_knob() -> None:
    space = pruned_space(
        small_job(interleaved_group_sizes=[4, 8], pipeline_parallel=[2, 4], virtual_pipeline=[1, 2])
    )
    assert Knobs.of(space).values["interleaved_group_size"].tolist() == [0, 4, 8]
    assert_designs_are_decoded(space)


def assert_designs_are_decoded(space: Space) -> None:
    knobs, designs = Knobs.of(space), space.designs()
    rows, decoded = knobs.designs(knobs.encode(designs))
    assert len(rows) == len(designs)
    np.testing.assert_array_equal(plan_keys(decoded), plan_keys(designs))


def test_a_decision_that_is_the_same_everywhere_is_no_knob() -> None:
    knobs, more = (
        Knobs.of(pruned_space(small_job(hybrid_sharding=tried))) for tried in ([False], [False, True])
    )
    assert set(more.values) - set(knobs.values) == {"shard_ranks"}
    assert knobs.fixed["shard_ranks"] == 0
