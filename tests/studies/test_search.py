"""When does a search end, and what does it count? Stop rules and the memory of a search."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from constraints.evaluation import Evaluation, evaluate
from constraints.space import pruned_space
from objectives.pareto import hypervolume
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from studies.algorithm import Results
from studies.designs.archive import Archive
from studies.designs.plan_keys import plan_keys
from studies.designs.reduction import Reduction
from studies.designs.seen_designs import SeenDesigns
from studies.evaluation.evaluator import Clock, Evaluator, JournaledSimulation, Simulation
from studies.files.journal import Journal
from studies.files.known_designs import KnownDesigns
from studies.progress import Progress, Stop, never_stop
from studies.search import Searcher
from studies.searchers.ends import MOST_DESIGNS, Ends
from studies.searchers.evolution import Evolution
from studies.searchers.random_search import RandomSearch
from studies.searchers.refine import Refinement, enough_spares
from studies.searchers.settling import Settling
from studies.searchers.stopping import Budget, StopRules, gained_fraction
from studies.study import StudyResult, run_study, searched_front
from tests.studies.study_jobs import small_job, study, study_by_batch

JOB = small_job(tensor_parallel=[1, 2], context_parallel=[1])


def test_designs_that_were_seen_are_known_by_what_they_are_worth() -> None:
    keys = plan_keys(pruned_space(JOB).designs())
    seen = SeenDesigns(2)
    for start in (40, 0, 20):
        part = keys[start : start + 20]
        worth = np.arange(start, start + 20, dtype=np.float64)
        assert seen.new_rows(part).tolist() == list(range(20))
        seen.add(part, Results(values=np.column_stack([worth, -worth]), excess=worth))
    rows = np.array([59, 0, 0, 31])
    assert seen.results(keys[rows]).excess.tolist() == [59.0, 0.0, 0.0, 31.0]
    assert seen.results(keys[rows]).values[:, 1].tolist() == [-59.0, 0.0, 0.0, -31.0]
    assert len(seen.new_rows(keys[:60])) == 0
    assert seen.new_rows(keys[58:62]).tolist() == [2, 3]


def test_of_equal_designs_in_a_batch_only_the_first_is_new() -> None:
    designs = pruned_space(JOB).designs().take(slice(0, 3))
    twice = PlanTable.concatenate([designs, designs])
    assert SeenDesigns(1).new_rows(plan_keys(twice)).tolist() == [0, 1, 2]


def test_what_a_front_gains_is_the_growth_of_its_volume() -> None:
    # Up to (2.2, 2.2), which is 1.1 x the worst values: the point (2, 2) has 0.04, with (1, 2) and (2, 1) it is 0.44.
    before, now = np.array([[2.0, 2.0]]), np.array([[1.0, 2.0], [2.0, 1.0]])
    assert gained_fraction(before, now) == pytest.approx((2 * 1.2 * 0.2 - 0.04) / 0.04 - 1.0)
    assert gained_fraction(now, now) == 0.0
    assert gained_fraction(np.zeros((0, 2)), now) == np.inf
    assert gained_fraction(np.zeros((0, 2)), np.zeros((0, 2))) == 0.0


def test_a_front_that_becomes_longer_gains_within_the_worst_of_both() -> None:
    before, now = np.array([[1.0, 1.0]]), np.array([[1.0, 1.0], [0.5, 4.0]])
    # Up to (1.1, 4.4): 0.1 x 3.4 at first, and then the 0.5 x 0.4 beside it that the longer front adds.
    assert gained_fraction(before, now) == pytest.approx(0.5 * 0.4 / (0.1 * 3.4))
    # One that becomes shorter, too: 0.6 x 3.9 where the longer one had what it has here.
    short = np.array([[0.5, 0.5]])
    assert gained_fraction(now, short) == pytest.approx(0.6 * 3.9 / (0.1 * 3.4 + 0.5 * 0.4) - 1.0)


def test_what_costs_nothing_does_not_hide_what_the_rest_of_a_front_gains() -> None:
    before, now = np.array([[2.0, 2.0]]), np.array([[1.0, 2.0], [2.0, 1.0]])
    free = [np.insert(front, 1, 0.0, axis=1) for front in (before, now)]
    assert gained_fraction(*free) == gained_fraction(before, now)
    assert gained_fraction(np.zeros((1, 1)), np.zeros((1, 1))) == 0.0
    assert hypervolume(now, np.array([2.2, 2.2])) == pytest.approx(2 * 1.2 * 0.2 - 0.04)


def test_no_design_of_a_refined_front_would_be_better_at_the_best_expected_interval() -> None:
    job = small_job(algorithm="random", max_evaluations=100, population_size=10, num_refinements=12)
    result, batches = study_by_batch(job, Simulation(job))
    settled = [found for stage, found in batches if stage == Settling.stage]
    assert sum(map(len, settled)) > 0
    front = result.archive.front
    assert front is not None
    rows = np.flatnonzero(np.isfinite(front.plans.checkpoint_interval_s))
    plans = front.plans.take(rows)
    best = evaluate(job, replace(plans, checkpoint_interval_s=np.full(len(rows), np.nan)))
    own, at_best = front.take(rows).objectives(job), best.objectives(job)
    is_beaten = (at_best <= own).all(axis=1) & (at_best < own).any(axis=1) & best.is_feasible
    assert not is_beaten.any()


@pytest.mark.parametrize(
    ("algorithm", "seed"), [("exhaustive", 0), ("random", 0), ("random", 1), ("random", 2)]
)
def test_no_end_of_a_refined_front_has_a_lower_design_beside_it(algorithm: str, seed: int) -> None:
    job = small_job(
        algorithm=algorithm,
        max_evaluations=60,
        population_size=10,
        num_refinements=2,
        checkpoint_schemes=["sync_sharded", "async", "in_memory_peer"],
        tensor_parallel=[1, 2],
        pipeline_parallel=[1],
        context_parallel=[1],
    )
    result, batches = study_by_batch(job, Simulation(job), seed)
    walked = [found for stage, found in batches if stage == Ends.stage]
    assert 0 < sum(map(len, walked)) < MOST_DESIGNS
    front = result.archive.front
    assert front is not None
    values = front.objectives(job)
    for column, row in enumerate(np.argmin(values, axis=0)):
        end = front.plans.take(np.array([row]))
        spares, cap = int(end.num_spare_nodes[0]), float(end.power_cap_fraction[0])
        beside = [
            *(end.saving_by(scheme) for scheme in job.search.checkpoint_schemes),
            *(
                replace(end, num_spare_nodes=np.array([number]))
                for number in (spares - 1, spares + 1)
                if 0 <= number <= enough_spares(job, front)[row]
            ),
            *(
                replace(end, power_cap_fraction=np.array([round(other, 2)]))
                for other in (cap - 0.05, cap + 0.05)
                if 0.6 <= round(other, 2) <= 1.0
            ),
        ]
        plans = replace(PlanTable.concatenate(beside), checkpoint_interval_s=np.full(len(beside), np.nan))
        found = evaluate(job, plans)
        assert not (found.objectives(job)[found.is_feasible, column] < values[row, column]).any()


def test_evaluations_are_not_exceeded_by_one() -> None:
    job = small_job(algorithm="nsga2", max_evaluations=137, population_size=50)
    assert study(job)[0].archive.num_evaluated == 137


def test_progress_counts_the_designs_of_a_study_towards_the_end_of_each_stage() -> None:
    job = small_job(algorithm="random", max_evaluations=20, population_size=10, num_refinements=2)
    front = searched_front(small_job(algorithm="random", max_evaluations=20, population_size=10), seed=0)
    archive, reports = Archive(job), list[Progress]()

    def record(found: Evaluation | Reduction, _: str) -> None:
        archive.add(found)

    searcher = Searcher(
        job=job, archive=archive, evaluator=Simulation(job), record=record, report=reports.append
    )
    run_study(searcher, seed=0)
    searched = [(each.num_done, each.num_total) for each in reports if each.stage == RandomSearch.stage]
    assert searched == [(10, 20), (20, 20)]
    assert front is not None
    refined = [each for each in reports if each.stage == Refinement.stage]
    assert refined[-1].num_total == 20 + 2 * len(front)  # two changes of each of its designs
    assert refined[-1].num_done > 20
    assert reports[-1].stage == Ends.stage
    assert reports[-1].num_done == archive.num_evaluated


def test_seconds_end_a_search_but_not_an_exhaustive_one() -> None:
    ticks = iter(range(10_000))
    job = small_job(algorithm="nsga2", max_evaluations=10_000, population_size=20, max_seconds=5)
    result, batches = study_by_batch(job, Simulation(job, clock=lambda: float(next(ticks))))
    assert result.is_searched
    assert len(batches) == 5  # a clock that moves by a second a batch
    exact = small_job(
        algorithm="exhaustive",
        max_seconds=1e-9,
        tensor_parallel=[1],
        pipeline_parallel=[1],
        context_parallel=[1],
    )
    assert study(exact)[0].is_exact


REFINED = {"algorithm": "random", "max_evaluations": 30, "population_size": 10, "num_refinements": 1_000}
"""Three batches of the search, and a thousand of the refinement if nothing ends it."""


def stages_within(
    max_seconds: float, evaluator: Callable[[Job], Evaluator], should_stop: Stop = never_stop
) -> tuple[StudyResult, list[tuple[str, int]]]:
    """A study with the stages and sizes of its batches."""
    job = small_job(**REFINED, max_seconds=max_seconds)
    result, batches = study_by_batch(job, evaluator(job), should_stop=should_stop)
    return result, [(stage, len(evaluation)) for stage, evaluation in batches]


def clock_of_batches() -> Clock:
    """A clock that moves by a second a batch."""
    ticks = itertools.count()
    return lambda: float(next(ticks))


def test_seconds_end_the_refinement_which_comes_on_top_of_the_evaluations_of_the_search() -> None:
    result, batches = stages_within(8, lambda job: Simulation(job, clock=clock_of_batches()))
    assert [stage for stage, _ in batches] == [RandomSearch.stage] * 3 + [Refinement.stage] * 5
    assert result.is_complete
    assert result.num_refined == sum(size for _, size in batches[3:]) > 0
    assert result.archive.num_evaluated == 30 + result.num_refined
    result, batches = stages_within(3, lambda job: Simulation(job, clock=clock_of_batches()))
    assert (len(batches), result.num_refined, result.is_complete) == (3, 0, True)


def test_a_study_that_is_stopped_before_its_front_is_refined_is_not_complete() -> None:
    left = iter([False] * 3)
    result, batches = stages_within(1e9, Simulation, lambda: next(left, True))
    assert [stage for stage, _ in batches] == [RandomSearch.stage] * 3
    assert (result.is_searched, result.is_refined) == (True, False)


def test_seconds_of_a_refinement_count_over_all_starts_of_a_study(tmp_path: Path) -> None:
    def go_on(num_batches: int) -> tuple[StudyResult, list[tuple[str, int]]]:
        """Goes on with the study until so many batches are there."""
        left = iter([False] * num_batches)
        with Journal.open(path) as journal, ExitStack() as evaluators:
            return stages_within(
                8,
                lambda job: evaluators.enter_context(
                    JournaledSimulation(job, journal, KnownDesigns([]), clock=clock_of_batches())
                ),
                lambda: next(left, True),
            )

    path = tmp_path / "some.study"
    Journal.create(path, {}).close()
    whole, expected = stages_within(8, lambda job: Simulation(job, clock=clock_of_batches()))
    stopped, written = go_on(5)
    assert not stopped.is_refined
    assert written == expected[:5]
    for _ in range(2):  # to its end, and once more from what is written
        again, batches = go_on(1_000)
        assert batches == expected
        assert again.num_refined == whole.num_refined
        assert again.is_complete


def num_in_populations(stagnation_evaluations: int) -> int:
    """Evaluations of one restart that may stagnate for so long."""
    job = small_job(
        algorithm="nsga2",
        max_evaluations=1_000,
        population_size=20,
        num_restarts=1,
        stagnation_evaluations=stagnation_evaluations,
    )
    _, batches = study_by_batch(job, Simulation(job))
    return sum(len(evaluation) for stage, evaluation in batches if stage == Evolution.stage)


@pytest.mark.long
def test_a_front_that_gains_nothing_ends_a_restart() -> None:
    # Screening has 70 % of the evaluations, populations 40 % of the other 300: several times as many as may stagnate.
    assert num_in_populations(400) == 120
    assert 40 <= num_in_populations(40) < 80


def test_rules_look_at_the_front_only_after_the_evaluations_that_they_allow() -> None:
    archive = Archive(JOB)
    evaluator = Simulation(JOB)
    rules = StopRules(JOB, archive, evaluator, Budget(num_evaluations=1_000, num_stagnant=50))
    designs = pruned_space(JOB).designs()
    assert not rules.are_met()
    archive.add(evaluator.evaluate(designs.take(slice(0, 49)), "test"))
    assert not rules.are_met()
    archive.add(evaluator.evaluate(designs.take(slice(0, 1)), "test"))
    assert not rules.are_met()  # from no front to one is a gain
    archive.add(evaluator.evaluate(designs.take(slice(0, 50)), "test"))
    assert rules.are_met()  # the same designs again are none


def test_a_search_that_finds_nothing_new_ends() -> None:
    job = small_job(
        algorithm="nsga2",
        max_evaluations=10_000,
        population_size=20,
        tensor_parallel=[1],
        pipeline_parallel=[1],
        context_parallel=[1],
    )
    found = study(job)[0]
    assert found.is_complete
    assert found.archive.num_evaluated < 1_000
