"""Which designs are evaluated, and in what order? The loop between a search algorithm and the simulator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from constraints.evaluation import Evaluation
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from studies.algorithm import Results, SearchAlgorithm
from studies.designs.archive import Archive
from studies.designs.plan_keys import plan_keys
from studies.designs.reduction import Reduction
from studies.designs.seen_designs import SeenDesigns
from studies.evaluation.evaluator import Evaluator
from studies.progress import Progress, Report, Stop, ignore, never_stop
from studies.searchers.stopping import Budget, StopRules

Record = Callable[[Evaluation | Reduction, str], None]
"""Receives every evaluated batch, or what is kept of it, with the name of the stage that asked for it."""

MOST_IDLE_SUGGESTIONS = 10
"""A search ends after this many suggestions in a row that contain only designs tried before."""


@dataclass(frozen=True, kw_only=True)
class Searcher:
    """What all parts of a search share: evaluating designs, recording them and reporting progress."""

    job: Job
    archive: Archive
    """Filled by `record`; holds the front."""
    evaluator: Evaluator
    """Where evaluations come from."""
    record: Record
    """Receives every evaluated batch; must add it to the archive."""
    report: Report = ignore
    """Receives progress reports."""
    should_stop: Stop = never_stop
    """Called between batches."""
    seen: SeenDesigns = field(init=False)
    """Results of the designs of this search."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "seen", SeenDesigns(len(self.job.objectives)))

    def run(self, algorithm: SearchAlgorithm, budget: Budget) -> bool:
        """Evaluates what an algorithm suggests until it has no more to suggest or its budget is spent.

        Returns:
            Whether it ended without an interruption.
        """
        rules = StopRules(self.job, self.archive, self.evaluator, budget)
        num_idle, num_before = 0, -1
        while not rules.are_met() and num_idle < MOST_IDLE_SUGGESTIONS:
            if self.should_stop():
                return False
            num_idle = num_idle + 1 if self.archive.num_evaluated == num_before else 0
            num_before = self.archive.num_evaluated
            plans = algorithm.suggest()
            if len(plans) == 0:
                break
            results = self._tried(algorithm, plans, rules.num_left, budget)
            if len(results) < len(plans):  # the budget ran out in the middle of a batch
                break
            algorithm.update(results)
        return True

    def evaluate(self, plans: PlanTable, stage: str, num_done: int, num_total: int | None) -> Evaluation:
        """Evaluates valid layouts, records them and reports."""
        evaluation = self.evaluator.evaluate(plans, stage)
        self.take_in(evaluation, stage, num_done + len(plans), num_total)
        return evaluation

    def take_in(
        self, found: Evaluation | Reduction, stage: str, num_done: int, num_total: int | None
    ) -> None:
        """Records evaluated designs and reports progress."""
        self.record(found, stage)
        self.report(Progress(stage=stage, num_done=num_done, num_total=num_total, best=self._best()))

    def remember(self, evaluation: Evaluation) -> None:
        """Remembers the results of designs that were evaluated by a part that suggests none twice."""
        keys = plan_keys(evaluation.plans)
        rows = self.seen.new_rows(keys)
        self.seen.add(keys[rows], self._results(evaluation).take(rows))

    def _tried(self, algorithm: SearchAlgorithm, plans: PlanTable, num_left: int, budget: Budget) -> Results:
        """Results of designs; fewer rows than designs if the evaluations ran out."""
        if algorithm.suggests_once:
            return self._evaluated(algorithm, plans.take(slice(num_left)), budget)
        keys = plan_keys(plans)
        rows = self.seen.new_rows(keys)
        affordable = rows[:num_left]
        if len(affordable):
            self.seen.add(keys[affordable], self._evaluated(algorithm, plans.take(affordable), budget))
        if len(affordable) < len(rows):
            return Results(values=np.zeros((0, len(self.job.objectives))), excess=np.zeros(0))
        return self.seen.results(keys)

    def _evaluated(self, algorithm: SearchAlgorithm, plans: PlanTable, budget: Budget) -> Results:
        done = self.archive.num_evaluated
        return self._results(self.evaluate(plans, algorithm.stage, done, budget.num_evaluations))

    def _results(self, evaluation: Evaluation) -> Results:
        return Results(values=evaluation.objectives(self.job), excess=evaluation.excess.total)

    def _best(self) -> str:
        front = self.archive.front
        return "no feasible design yet" if front is None else f"{len(front)} designs on the front"
