"""Which settings of the search have no effect, because the chosen algorithm does not read them?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from planner.job.unused_rule import is_set
from simulator.domain.job import Job
from simulator.domain.search_options import Algorithm

_OF_POPULATIONS = ("stagnation_evaluations", "least_gain_fraction", "num_restarts")
_UNREAD: Mapping[Algorithm, tuple[str, ...]] = {
    Algorithm.EXHAUSTIVE: ("max_evaluations", "population_size", *_OF_POPULATIONS),
    Algorithm.RANDOM: _OF_POPULATIONS,
}
"""Settings that an algorithm never reads, whatever the job."""


def search_notes(job: Job, algorithm: Algorithm, num_designs: int) -> Iterator[str]:
    """Yields remarks on settings that differ from their defaults but have no effect, each with the way out.

    Args:
        job: the job.
        algorithm: the algorithm that searches; never `auto`.
        num_designs: size of the pruned space; if it is 0, nothing is searched and there are no remarks.
    """
    if num_designs == 0:
        return
    unread = [*_UNREAD.get(algorithm, ()), *(["max_seconds"] if _never_asks_for_time(job, algorithm) else [])]
    if given := [name for name in unread if is_set(job, f"search.{name}")]:
        yield f"{_change_nothing(given)}: {_why(job, algorithm, num_designs)}."
    if job.search.algorithm is not Algorithm.AUTO and is_set(job, "search.exhaustive_up_to"):
        yield (
            f"{_change_nothing(['exhaustive_up_to'])}: search.algorithm is {algorithm.value}; search.algorithm=auto "
            "reads it."
        )


def _never_asks_for_time(job: Job, algorithm: Algorithm) -> bool:
    """An exhaustive search runs to its end; only the refinement after it would check the time."""
    return algorithm is Algorithm.EXHAUSTIVE and job.search.num_refinements == 0


def _change_nothing(names: list[str]) -> str:
    verb = "changes" if len(names) == 1 else "change"
    return f"{', '.join(f'search.{name}' for name in names)} {verb} nothing here"


def _why(job: Job, algorithm: Algorithm, num_designs: int) -> str:
    if algorithm is not Algorithm.EXHAUSTIVE:
        return f"the search is {algorithm.value}; search.algorithm=nsga2 would read it"
    smaller = ", or search.exhaustive_up_to below that," if job.search.algorithm is Algorithm.AUTO else ""
    return (
        f"the search is exhaustive and tries all {num_designs:,} designs; search.algorithm=nsga2{smaller} "
        "makes it one that may try fewer"
    )
