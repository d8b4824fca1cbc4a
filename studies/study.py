"""How is a job answered? Prune the space, search it, refine the front: a study from the question to the front."""

from __future__ import annotations

from dataclasses import dataclass

from constraints.space import Space, pruned_space
from simulator.job import Algorithm, Job
from studies.archive import Archive
from studies.nsga2 import search_nsga2
from studies.progress import Report, Stop, ignore, never_stop
from studies.refine import refine
from studies.search import Record, Searcher, chosen_algorithm, search_exhaustively


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
    """False where the search was stopped early."""
    is_refined: bool
    """False where the refinement of the front was stopped, or not reached."""

    @property
    def is_complete(self) -> bool:
        """Whether nothing was stopped early."""
        return self.is_searched and self.is_refined

    @property
    def is_exact(self) -> bool:
        """Whether every design of the space was evaluated, so that the front is proven."""
        return self.is_searched and self.algorithm is Algorithm.EXHAUSTIVE


def run_study(
    job: Job,
    archive: Archive,
    record: Record,
    *,
    seed: int,
    report: Report = ignore,
    should_stop: Stop = never_stop,
) -> StudyResult:
    """Searches the designs of a job.

    Args:
        job: the job.
        archive: filled by `record`; holds the front afterwards.
        record: takes every evaluated batch; must add it to the archive.
        seed: of NSGA-II and of the refinement.
        report: told about progress.
        should_stop: asked between batches.
    """
    space = pruned_space(job)
    searcher = Searcher(job=job, archive=archive, record=record, report=report, should_stop=should_stop)
    algorithm = chosen_algorithm(job, space)
    if algorithm is Algorithm.EXHAUSTIVE or len(space.layouts) == 0:
        is_searched = search_exhaustively(searcher, space)
    else:
        is_searched = search_nsga2(searcher, space, seed)
    is_refined = is_searched and refine(searcher, seed)
    return StudyResult(
        space=space, archive=archive, algorithm=algorithm, is_searched=is_searched, is_refined=is_refined
    )
