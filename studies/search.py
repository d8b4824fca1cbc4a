"""Which designs are evaluated, and in what order? The search algorithms behind one function.

Exhaustive search where the space is small enough: it proves the front. Otherwise NSGA-II.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from constraints.evaluation import Evaluation, evaluate
from constraints.space import Space
from simulator.job import Algorithm, Job
from simulator.plan import PlanTable
from studies.archive import Archive
from studies.progress import Progress, Report, Stop

DESIGNS_PER_BATCH = 8_192
"""Designs between two reports of progress: about half a second of simulation."""

Record = Callable[[Evaluation, str], None]
"""Takes every evaluated batch, with the name of the stage that asked for it."""


@dataclass(frozen=True, kw_only=True)
class Searcher:
    """What all searches share: they evaluate designs, record them and tell how far they are."""

    job: Job
    archive: Archive
    record: Record
    report: Report
    should_stop: Stop

    def evaluate(self, plans: PlanTable, stage: str, num_done: int, num_total: int | None) -> Evaluation:
        """Evaluates valid layouts, records them and reports."""
        evaluation = evaluate(self.job, plans)
        self.record(evaluation, stage)
        self.report(
            Progress(stage=stage, num_done=num_done + len(plans), num_total=num_total, best=self._best())
        )
        return evaluation

    def _best(self) -> str:
        front = self.archive.front
        return "no feasible design yet" if front is None else f"{len(front)} designs on the front"


def chosen_algorithm(job: Job, space: Space) -> Algorithm:
    """Returns the algorithm that the job asks for, or that suits the size of the space."""
    if job.search.algorithm is not Algorithm.AUTO:
        return job.search.algorithm
    return Algorithm.EXHAUSTIVE if space.num_designs <= job.search.exhaustive_up_to else Algorithm.NSGA2


def search_exhaustively(searcher: Searcher, space: Space) -> bool:
    """Evaluates every design of the space; returns whether it came to the end."""
    designs = space.designs()
    for start in range(0, len(designs), DESIGNS_PER_BATCH):
        if searcher.should_stop():
            return False
        batch = designs.take(slice(start, start + DESIGNS_PER_BATCH))
        searcher.evaluate(batch, "searching exhaustively", start, len(designs))
    return True
