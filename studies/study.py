"""How is a job answered? Prune the space, search it, refine the front: a study from the question to the front."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from constraints.evaluation import Evaluation, evaluate
from constraints.lattice import cross_run_knobs
from constraints.space import Space
from simulator.domain.job import Job
from simulator.domain.search_options import Algorithm
from studies.algorithm import SearchAlgorithm
from studies.designs.archive import Archive
from studies.designs.knobs import Knobs
from studies.designs.reduction import Reduction, kept_of
from studies.evaluation.evaluator import Simulation
from studies.exhaustive import Exhaustive, Reducer, reduce_all
from studies.search import Searcher
from studies.searchers.chance import UntilFeasible
from studies.searchers.ends import Ends, ends_of
from studies.searchers.estimates import Estimator
from studies.searchers.evolution import Evolution
from studies.searchers.neighbours import Neighbours
from studies.searchers.optuna_search import OptunaSearch, SamplerName
from studies.searchers.random_search import RandomSearch
from studies.searchers.refine import Refinement
from studies.searchers.screening import Screening
from studies.searchers.seeds import seed_of_part
from studies.searchers.settling import Settling
from studies.searchers.starts import first_rows
from studies.searchers.stopping import Budget
from studies.searchers.tuning import DEFAULT, Tuning

MOST_SCREENED = 2_500
"""Most evaluations that screening may spend: an estimate takes longer than making a generation of children."""
STALE_GENERATIONS = 25
"""Generations without a better front after which a restart ends, unless the job says otherwise."""
FIRST_TRIALS = 40
"""Designs with which samplers without generations begin."""
SAMPLERS: dict[Algorithm, SamplerName] = {
    Algorithm.OPTUNA_TPE: "tpe",
    Algorithm.OPTUNA_NSGA2: "nsga2",
    Algorithm.OPTUNA_GP: "gp",
}
"""Optuna's samplers by their names in jobs."""


@dataclass(frozen=True, kw_only=True)
class StudyResult:
    """What a study found."""

    space: Space
    """The pruned space that was searched."""
    archive: Archive
    """The front and the counts."""
    algorithm: Algorithm
    """How the space was searched."""
    is_searched: bool
    """False if the search was stopped early."""
    is_refined: bool
    """False if the refinement of the front was stopped or not reached."""
    num_refined: int
    """Designs that refinement evaluated, on top of those of the search."""

    @property
    def is_complete(self) -> bool:
        """Whether nothing was stopped early."""
        return self.is_searched and self.is_refined

    @property
    def is_exact(self) -> bool:
        """Whether every design of the space was evaluated, so that the front is proven."""
        return self.is_searched and self.algorithm is Algorithm.EXHAUSTIVE


def run_study(
    searcher: Searcher,
    *,
    seed: int,
    reducer: Reducer | None = None,
    tuning: Tuning = DEFAULT,
    space: Space | None = None,
) -> StudyResult:
    """Searches the designs of a job.

    Args:
        searcher: searcher of the job; its archive holds the front afterwards.
        seed: seed of everything random.
        reducer: evaluates an exhaustive search that keeps only fronts; by default every design is kept.
        tuning: the searcher's own parameters.
        space: space of the job, if already known; by default it is listed and pruned here.

    Raises:
        StudyError: the evaluator cannot keep its journal, or the algorithm needs a package that is missing.
    """
    archive, space = searcher.archive, space or searcher.evaluator.space()
    algorithm = chosen_algorithm(searcher.job, space)
    if algorithm is Algorithm.EXHAUSTIVE and reducer is not None:
        is_searched = reduce_all(searcher, space, reducer)
    else:
        parts = _parts(searcher, space, algorithm, tuning, seed)
        is_searched = all(searcher.run(part, budget) for part, budget in parts)
    num_searched = archive.num_evaluated
    return StudyResult(
        space=space,
        archive=archive,
        algorithm=algorithm,
        is_searched=is_searched,
        is_refined=is_searched and _refine(searcher, algorithm, seed),
        num_refined=archive.num_evaluated - num_searched,
    )


def searched_front(
    job: Job, seed: int, see: Callable[[Evaluation], None] = lambda _: None
) -> Evaluation | None:
    """Returns only the front of a job, `None` if no design is feasible; raises as `run_study`.

    Args:
        job: the job.
        seed: seed of everything random.
        see: called with all designs, batch by batch.
    """
    archive = Archive(job)

    def keep(found: Evaluation | Reduction, _: str) -> None:
        archive.add(found)
        see(kept_of(found))

    run_study(Searcher(job=job, archive=archive, evaluator=Simulation(job), record=keep), seed=seed)
    return archive.front


def refined_study(searcher: Searcher, result: StudyResult, *, seed: int) -> StudyResult:
    """Refines a front that was found after the search, as `run_study` refines the front of the search.

    Args:
        searcher: a searcher of the job that has not searched yet; designs that another one tried count as new.
        result: result of the search; its archive holds the front.
        seed: seed of everything random.
    """
    num_before = result.archive.num_evaluated
    is_refined = _refine(searcher, result.algorithm, seed)
    num_refined = result.num_refined + result.archive.num_evaluated - num_before
    return replace(result, is_refined=is_refined, num_refined=num_refined)


def chosen_algorithm(job: Job, space: Space) -> Algorithm:
    """Returns the algorithm that the job asks for, or else one that suits the size of the space."""
    if space.num_designs == 0:
        return Algorithm.EXHAUSTIVE
    if job.search.algorithm is not Algorithm.AUTO:
        return job.search.algorithm
    return Algorithm.EXHAUSTIVE if space.num_designs <= job.search.exhaustive_up_to else Algorithm.NSGA2


def _parts(
    searcher: Searcher, space: Space, algorithm: Algorithm, tuning: Tuning, seed: int
) -> Iterator[tuple[SearchAlgorithm, Budget]]:
    """Yields the algorithms to run in sequence, each with the budget at which it ends."""
    search = searcher.job.search
    most = search.max_evaluations
    match algorithm:
        case Algorithm.EXHAUSTIVE:
            yield (
                Exhaustive(space, searcher.evaluator.ahead),
                Budget(num_evaluations=max(1, space.num_designs)),
            )
        case Algorithm.RANDOM:
            drawn = RandomSearch(space, most, search.generation_size, seed)
            yield drawn, Budget(num_evaluations=most, max_seconds=search.max_seconds)
        case Algorithm.NSGA2 | Algorithm.NSGA3:
            yield from _evolution_parts(searcher, space, algorithm, tuning, seed)
        case _:
            knobs = Knobs.of(space)
            for restart in range(search.num_restarts):
                budget = _budget(searcher.job, most * (restart + 1) / search.num_restarts)
                yield restarted(algorithm, space, knobs, restart, seed), budget


def _evolution_parts(
    searcher: Searcher, space: Space, algorithm: Algorithm, tuning: Tuning, seed: int
) -> Iterator[tuple[SearchAlgorithm, Budget]]:
    """Yields screening, populations, and the neighbours of the front; a random search finds the front if need be."""
    search = searcher.job.search
    most, max_seconds = search.max_evaluations, search.max_seconds
    knobs = Knobs.of(space)
    estimator = Estimator(space, knobs)
    num_screened = min(MOST_SCREENED, math.ceil(tuning.screening_share * most))
    screening = Screening(space, estimator, num_screened, tuning, seed)
    yield screening, Budget(num_evaluations=num_screened, max_seconds=max_seconds)
    before = searcher.archive.num_evaluated
    for restart in range(search.num_restarts):
        share = tuning.evolution_share * (restart + 1) / search.num_restarts
        budget = _budget(searcher.job, before + share * (most - before))
        yield restarted(algorithm, space, knobs, restart, seed, searcher.archive.front, tuning), budget
    rest = Budget(num_evaluations=most, max_seconds=max_seconds)
    yield Neighbours(knobs, searcher.archive, estimator), rest
    if searcher.archive.front is None:
        yield UntilFeasible(space, search.generation_size, seed), rest
        yield Neighbours(knobs, searcher.archive, estimator), rest


def restarted(
    algorithm: Algorithm,
    space: Space,
    knobs: Knobs,
    restart: int,
    seed: int,
    front: Evaluation | None = None,
    tuning: Tuning = DEFAULT,
) -> Evolution | OptunaSearch:
    """Returns a new search that works on knobs.

    Args:
        algorithm: one of pymoo's or Optuna's.
        space: where its first designs come from.
        knobs: knobs of the space.
        restart: number of searches of this kind before it.
        seed: seed of the study.
        front: designs that were found before, from which the first search continues.
        tuning: how children are made.
    """
    size = space.job.search.generation_size
    if algorithm in (Algorithm.OPTUNA_TPE, Algorithm.OPTUNA_GP):
        size = min(size, FIRST_TRIALS)
    own_seed = seed_of_part(seed, restart)
    start = first_rows(space, knobs, size, restart, own_seed, None if front is None else front.plans)
    if algorithm in SAMPLERS:
        return OptunaSearch(SAMPLERS[algorithm], knobs, start, own_seed)
    return Evolution("nsga3" if algorithm is Algorithm.NSGA3 else "nsga2", knobs, start, tuning, own_seed)


def _budget(job: Job, num_evaluations: float) -> Budget:
    search = job.search
    default = STALE_GENERATIONS * search.generation_size
    return Budget(
        num_evaluations=int(num_evaluations),
        max_seconds=search.max_seconds,
        num_stagnant=search.stagnation_evaluations or default,
    )


def _refine(searcher: Searcher, algorithm: Algorithm, seed: int) -> bool:
    """Tunes how the designs of the front that an algorithm found are run; returns whether it ran to the end.

    Its evaluations come on top of the search budget; the limit in seconds applies to the whole study.
    """
    front, search = searcher.archive.front, searcher.job.search
    if front is None or search.num_refinements == 0:
        return True
    refinement = Refinement(searcher.job, front, seed)
    searcher.remember(front)
    if algorithm is Algorithm.EXHAUSTIVE:
        searcher.remember(_listed_beside(searcher.job, refinement.designs))
    if not _improved(searcher, refinement) or not _improved(searcher, Settling(_front_of(searcher))):
        return False
    if algorithm is Algorithm.EXHAUSTIVE:
        searcher.remember(_listed_beside(searcher.job, ends_of(searcher.job, _front_of(searcher))))
    return _improved(searcher, Ends(searcher.job, searcher.archive))


def _front_of(searcher: Searcher) -> Evaluation:
    front = searcher.archive.front
    assert front is not None, "a front only grows"
    return front


def _improved(searcher: Searcher, algorithm: Refinement | Settling | Ends) -> bool:
    """Tries what may improve a front; returns whether it ran to the end."""
    most = searcher.archive.num_evaluated + algorithm.num_designs
    return searcher.run(algorithm, Budget(num_evaluations=most, max_seconds=searcher.job.search.max_seconds))


def _listed_beside(job: Job, designs: Evaluation) -> Evaluation:
    """Evaluations of the listed designs that differ from the given ones only in how they are run.

    Refinement and settling may return to them. An exhaustive search has evaluated them, but has not remembered their results.
    """
    caps = np.array(job.power_caps)
    rows = np.repeat(np.arange(len(designs)), len(caps))
    layouts = replace(
        designs.plans.take(rows),
        power_cap_fraction=np.tile(caps, len(designs)),
        checkpoint_interval_s=np.full(len(rows), np.nan),
    )
    return evaluate(job, cross_run_knobs(job, layouts))
