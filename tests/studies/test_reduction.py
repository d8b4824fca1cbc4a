"""Does a batch that is not kept as a whole still give the front and the counts of all designs, however it is cut?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict

import numpy as np
import pytest

from constraints import lattice
from constraints.evaluation import Evaluation, evaluate
from constraints.lattice import num_run_knobs
from constraints.space import Space, pruned_space
from simulator.domain.job import Job
from studies import exhaustive
from studies.designs import blocks
from studies.designs.archive import Archive
from studies.designs.blocks import BlockPart, BlockWorker, block_parts
from studies.designs.payload import PLANS, from_bytes, to_bytes
from studies.designs.reduction import TALLY, Reduction, is_reduction, kept_of, read_reduction
from studies.evaluation.evaluator import Simulation
from studies.exhaustive import reduce_all
from studies.search import Searcher
from tests.studies.study_jobs import small_job, with_limits


@pytest.fixture(scope="module")
def space() -> Space:
    """About a thousand designs, under a budget whose bound prunes half of the layouts."""
    free = pruned_space(small_job(tensor_parallel=[1], context_parallel=[1], pipeline_parallel=[1, 2]))
    return free.under({"budget_usd": float(np.median(free.bounds.budget_usd))})


@pytest.fixture(scope="module")
def job(space: Space) -> Job:
    """Their job with a deadline that half of the layouts cannot meet."""
    return with_limits(space.job, {"deadline_days": float(np.median(space.bounds.deadline_days))})


@pytest.fixture(scope="module")
def evaluation(space: Space, job: Job) -> Evaluation:
    """All of them."""
    return evaluate(job, space.designs())


@pytest.fixture(scope="module")
def reduction(job: Job, evaluation: Evaluation) -> Reduction:
    return Reduction.of(job, evaluation)


def assert_same(found: Reduction, expected: Reduction) -> None:
    for name, told in asdict(expected.tally).items():
        np.testing.assert_array_equal(asdict(found.tally)[name], told, err_msg=name)
    np.testing.assert_array_equal(found.rows, expected.rows)
    for part in ("plans", "scores", "excess"):
        for name, column in getattr(expected.front, part).columns().items():
            np.testing.assert_array_equal(getattr(getattr(found.front, part), name), column, err_msg=name)


def test_no_feasible_design_of_the_batch_beats_one_of_the_front(
    job: Job, evaluation: Evaluation, reduction: Reduction
) -> None:
    values = evaluation.objectives(job)
    feasible, front = values[evaluation.is_feasible], values[reduction.rows]
    assert evaluation.is_feasible[reduction.rows].all()
    assert (np.diff(front[:, 0]) > 0).all()
    no_worse = (feasible[:, None] <= front).all(axis=2)
    assert not (no_worse & (feasible[:, None] < front).any(axis=2)).any()
    # Every other feasible design is beaten by one of them, or equals it.
    assert (front[:, None] <= feasible).all(axis=2).any(axis=0).all()
    np.testing.assert_array_equal(reduction.front.objectives(job), front)


def test_all_designs_are_counted_and_those_that_break_a_limit_under_it(
    evaluation: Evaluation, reduction: Reduction
) -> None:
    late = evaluation.excess.deadline_days > 0
    assert 0 < late.sum() < len(evaluation)
    assert reduction.num_evaluated == len(evaluation)
    tally = reduction.tally
    assert tally.num_feasible.sum() == evaluation.is_feasible.sum()
    assert tally.breaking_of(range(len(tally.num_designs))) == {"deadline_days": late.sum()}


def test_reductions_of_parts_are_that_of_the_whole_even_where_a_part_has_nothing_feasible(
    job: Job, evaluation: Evaluation, reduction: Reduction
) -> None:
    first_late = int(np.flatnonzero(evaluation.excess.deadline_days)[0])
    cuts = np.split(np.arange(len(evaluation)), [first_late, first_late + 1, len(evaluation) // 2])
    parts = [Reduction.of(job, evaluation.take(rows)) for rows in cuts]
    assert len(parts[1].front) == 0
    assert_same(Reduction.concatenate(job, parts), reduction)


def test_a_reduction_comes_back_from_its_bytes(
    job: Job, evaluation: Evaluation, reduction: Reduction
) -> None:
    parts = from_bytes(reduction.to_bytes())
    assert is_reduction(parts)
    assert not is_reduction(from_bytes(to_bytes({PLANS: evaluation.plans})))
    assert_same(read_reduction(job, parts), reduction)


def test_counts_of_limits_that_this_version_does_not_know_are_refused(job: Job, reduction: Reduction) -> None:
    parts = from_bytes(reduction.to_bytes())
    told = json.loads(parts.facts[TALLY])
    told["breaking"]["noise_db"] = [0]
    other = from_bytes(to_bytes({PLANS: reduction.front.plans}, {TALLY: json.dumps(told)}))
    with pytest.raises(ValueError, match=r"reduced under other limits than this version knows: .*noise_db"):
        read_reduction(job, other)


def test_what_was_kept_is_everything_or_the_front(evaluation: Evaluation, reduction: Reduction) -> None:
    assert kept_of(evaluation) is evaluation
    assert kept_of(reduction) is reduction.front


class TestBlocks:
    def test_parts_hold_each_design_once_in_whatever_order_they_are_reduced(
        self, space: Space, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(lattice, "ROWS_PER_BLOCK", 1)  # each division of the model is a block
        monkeypatch.setattr(blocks, "DESIGNS_AT_ONCE", 30)
        cut = pruned_space(space.job)
        parts = list(block_parts(cut, 40))
        assert len(parts) > len({part.number for part in parts}) > 2
        worker = BlockWorker(cut.job)
        backwards = [worker.reduce(part) for part in reversed(parts)]
        assert max(part.num_evaluated for part in backwards) <= 40
        found = Reduction.concatenate(cut.job, backwards[::-1])
        assert_same(found, Reduction.of(cut.job, evaluate(cut.job, cut.designs())))

    def test_a_part_has_about_as_many_designs_as_asked_for_but_at_least_a_layout(self, space: Space) -> None:
        (num_each,) = np.unique(num_run_knobs(space.job, space.layouts))
        for num_designs, expected in ((10 * num_each, 10), (10 * num_each + 1, 10), (1, 1)):
            *parts, last = block_parts(space, int(num_designs))
            assert {part.last - part.first for part in parts} == {expected}
            assert last.last == space.num_kept

    @pytest.mark.parametrize(
        ("least", "most", "expected"),
        [(0, 3, 1), (2, 3, 2), (0, 0.5, 0.5)],
        ids=["a share of the space", "the fewest", "the most"],
    )
    def test_parts_grow_with_the_space_between_the_fewest_and_the_most_designs(
        self, space: Space, monkeypatch: pytest.MonkeyPatch, least: float, most: float, expected: float
    ) -> None:
        share = space.num_designs // 20
        monkeypatch.setattr(exhaustive, "NUM_PARTS", 20)
        monkeypatch.setattr(exhaustive, "LEAST_PER_PART", int(least * share))
        monkeypatch.setattr(exhaustive, "MOST_PER_PART", int(most * share))
        handed_out: list[BlockPart] = []

        def reducer(parts: Iterator[BlockPart], _: str) -> Iterator[Reduction]:
            handed_out.extend(parts)
            return iter(())

        searcher = Searcher(
            job=space.job,
            archive=Archive(space.job),
            evaluator=Simulation(space.job),
            record=lambda *_: None,
        )
        assert reduce_all(searcher, space, reducer)
        assert handed_out == list(block_parts(space, int(expected * share)))

    def test_a_worker_prunes_a_block_as_one_process_does(self, space: Space) -> None:
        pruned = BlockWorker(space.job).prune(0)
        assert (pruned.num_kept, pruned.num_pruned) == (space.num_kept, space.num_pruned)
        np.testing.assert_array_equal(pruned.kept_bits, space.kept_bits[0])
