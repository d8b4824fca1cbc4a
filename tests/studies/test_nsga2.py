"""Who lives on in NSGA-II, and who has children? The selection on columns against pymoo's, and the yield of the mating."""

from __future__ import annotations

import numpy as np
import pytest
from pymoo.core.population import Population
from pymoo.core.problem import Problem
from pymoo.operators.survival.rank_and_crowding import RankAndCrowding

from constraints.space import pruned_space
from studies.knobs import LAYOUT_KNOBS, Knobs
from studies.mating import Mating
from studies.nsga2 import rows_by_merit
from studies.plan_keys import plan_keys
from studies.starts import first_rows
from studies.tuning import DEFAULT
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


def test_the_nearest_layout_of_a_row_is_in_the_space_and_that_of_a_design_is_its_own() -> None:
    space = pruned_space(small_job())
    knobs = Knobs.of(space)
    random = np.random.default_rng(2)
    rows = random.integers(0, knobs.largest + 1, (500, len(knobs.largest)))
    nearest = knobs.nearest(rows)
    layouts = set(map(tuple, knobs.encode(space.designs())[:, : len(LAYOUT_KNOBS)].tolist()))
    assert {tuple(row) for row in nearest[:, : len(LAYOUT_KNOBS)].tolist()} <= layouts
    np.testing.assert_array_equal(nearest[:, len(LAYOUT_KNOBS) :], rows[:, len(LAYOUT_KNOBS) :])
    designs = knobs.encode(space.designs())
    np.testing.assert_array_equal(knobs.nearest(designs), designs)


@pytest.mark.parametrize("tried", [[False], [False, True]])
def test_decoded_designs_are_those_that_the_space_lists(tried: list[bool]) -> None:
    space = pruned_space(small_job(hybrid_sharding=tried))
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
