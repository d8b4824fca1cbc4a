"""What does an archive say of its front? Nothing without one, else how much of the space of objectives it dominates."""

from __future__ import annotations

import numpy as np
import pytest

from constraints.evaluation import evaluate
from constraints.space import pruned_space
from studies.designs.archive import Archive
from studies.designs.reduction import Reduction
from tests.studies.study_jobs import small_job

JOB = small_job(tensor_parallel=[1], context_parallel=[1])


def test_without_a_feasible_design_there_is_no_front() -> None:
    archive = Archive(JOB)
    front, ids = archive.distinct_front()
    assert front is None
    assert len(ids) == len(archive.ids) == archive.num_distinct == 0
    assert archive.hypervolume() == 0.0


def test_one_design_dominates_an_eleventh_in_every_objective_of_what_lies_below_1_1_times_its_values() -> (
    None
):
    archive = Archive(JOB)
    archive.add(evaluate(JOB, pruned_space(JOB).designs().take(slice(0, 1))))
    assert len(JOB.objectives) == 3
    assert archive.hypervolume() == pytest.approx((1.0 - 1.0 / 1.1) ** 3)
    np.testing.assert_array_equal(archive.distinct_front()[1], [0])


def test_a_front_is_that_of_all_designs_however_they_came_and_keeps_their_numbers() -> None:
    random, designs = np.random.default_rng(1), pruned_space(JOB).designs()
    designs = designs.take(random.permutation(len(designs))[:200])
    found = evaluate(JOB, designs)
    kept = np.flatnonzero(found.is_feasible)
    values = found.objectives(JOB)[kept]
    is_beaten = np.array([((values <= one).all(axis=1) & (values < one).any(axis=1)).any() for one in values])
    shown = set[frozenset[int]]()
    for _ in range(8):
        archive = Archive(JOB)
        cuts = np.sort(random.choice(np.arange(1, 200), 5, replace=False))
        for part in np.split(np.arange(200), cuts):
            archive.add(found.take(part))
            front, ids = archive.distinct_front()
        assert front is not None
        np.testing.assert_array_equal(front.objectives(JOB), found.objectives(JOB)[ids])
        shown.add(frozenset(ids.tolist()))
        assert set(archive.ids.tolist()) == set(kept[~is_beaten].tolist())
        assert archive.front is not None
        for name, column in archive.front.plans.columns().items():
            np.testing.assert_array_equal(column, getattr(designs.take(archive.ids), name))
        assert (archive.num_evaluated, archive.num_feasible) == (200, len(kept))
    assert len(shown) == 1


def test_a_design_of_the_front_that_comes_alone_leaves_it_as_it_is() -> None:
    found = evaluate(JOB, pruned_space(JOB).designs().take(slice(0, None, 40)))
    at_once = Archive(JOB)
    at_once.add(found)
    assert at_once.front is not None
    for alone in at_once.ids.tolist():
        order = np.r_[alone, np.delete(np.arange(len(found)), alone)]
        archive = Archive(JOB)
        for part in (order[:1], order[1:]):
            archive.add(found.take(part))
        np.testing.assert_array_equal(order[archive.ids], at_once.ids)


def test_what_offers_reached_is_known_also_where_only_fronts_of_batches_are_kept() -> None:
    found = evaluate(JOB, pruned_space(JOB).designs().take(slice(0, None, 20)))
    parts = np.array_split(np.arange(len(found)), 3)
    archive = Archive(JOB)
    for rows in parts[:2]:
        archive.add(found.take(rows))
    reduction = Reduction.of(JOB, found.take(parts[2]))
    np.testing.assert_array_equal(archive.add(reduction), len(parts[0]) + len(parts[1]) + reduction.rows)
    tally = archive.tally
    assert (archive.num_evaluated, archive.num_feasible) == (len(found), found.is_feasible.sum())
    for offer in range(len(JOB.offers)):
        of_offer = found.take(np.flatnonzero(found.plans.offer == offer))
        assert tally.num_designs[offer] == len(of_offer)
        assert tally.num_feasible[offer] == of_offer.is_feasible.sum()
        broken = {name: np.count_nonzero(column) for name, column in of_offer.excess.columns().items()}
        assert tally.breaking_of([offer]) == {name: number for name, number in broken.items() if number}
        values = of_offer.objectives(JOB)[of_offer.is_feasible]
        np.testing.assert_array_equal(tally.least[offer], values.min(axis=0, initial=np.inf))
