"""How was a job searched? The algorithm, how far it got, and what refinement added, in words."""

from __future__ import annotations

from simulator.domain.job import Job
from simulator.domain.search_options import Algorithm
from studies.study import StudyResult

ALGORITHM_NAMES = {
    Algorithm.NSGA2: "NSGA-II",
    Algorithm.NSGA3: "NSGA-III",
    Algorithm.OPTUNA_TPE: "Optuna's TPE",
    Algorithm.OPTUNA_NSGA2: "Optuna's NSGA-II",
    Algorithm.OPTUNA_GP: "Optuna's Gaussian processes",
}


def algorithm_text(job: Job, result: StudyResult) -> str:
    """Returns how the space was searched, and the result of refining the front."""
    if result.is_exact:
        text = f"exhaustive search of all {result.space.num_designs:,} designs that pass the bounds"
    elif result.algorithm is Algorithm.EXHAUSTIVE:
        text = f"exhaustive search, stopped before all {result.space.num_designs:,} designs were evaluated"
    else:
        text = f"{_heuristic_text(job, result.algorithm)} over {result.space.num_designs:,} designs"
    is_refined = result.is_refined and job.search.num_refinements and result.archive.front
    return f"{text}; {_refinement_text(job, result)}" if is_refined else text


def _refinement_text(job: Job, result: StudyResult) -> str:
    """The result of the refinement, whose designs count neither as part of the grid nor as evaluations of the search."""
    if result.num_refined:
        return f"Optuna refined the front with {result.num_refined:,} more"
    has_end = job.search.max_seconds is not None
    return (
        "no time was left to refine the front (search.max_seconds)"
        if has_end
        else "refinement found nothing to try"
    )


def _heuristic_text(job: Job, algorithm: Algorithm) -> str:
    if algorithm is Algorithm.RANDOM:
        return f"at most {job.search.max_evaluations:,} random designs"
    name = ALGORITHM_NAMES.get(algorithm, algorithm.value)
    return (
        f"{name} ({job.search.num_restarts} restarts of {job.search.generation_size} designs per generation)"
    )
