"""How good is a batch of designs, and is it feasible? Simulation, scores and limits in one call."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from constraints.limits import ExcessTable, check_limits
from objectives.scores import ScoreTable, score
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.simulate import LEAST_DESIGNS_PER_THREAD, Outcomes, simulate
from simulator.table import Booleans, Floats, TableGroup
from simulator.threads import num_parts, on_threads


@dataclass(frozen=True, kw_only=True)
class Evaluation(TableGroup):
    """Designs with their outcomes, scores and excesses, one row each; all of them have valid layouts."""

    plans: PlanTable
    outcomes: Outcomes
    scores: ScoreTable
    excess: ExcessTable

    @property
    def is_feasible(self) -> Booleans:
        """Whether each design keeps every limit, `(n,)`."""
        return self.excess.is_feasible

    def objectives(self, job: Job) -> Floats:
        """Returns the job's objectives, `(n, k)`."""
        return self.scores.objectives(job.objectives)


def evaluate(job: Job, plans: PlanTable) -> Evaluation:
    """Simulates and scores designs with valid layouts."""
    return judge(job, plans, simulate(job, plans))


def judge(job: Job, plans: PlanTable, outcomes: Outcomes) -> Evaluation:
    """Scores designs that were already simulated, under the prices and limits of a job.

    Large batches are shared among as many threads as Numba may use; the result does not depend on their number.
    """
    num_threads = num_parts(len(plans), LEAST_DESIGNS_PER_THREAD)
    if num_threads < 2:
        scores, excess = _judged(job, plans, outcomes)
        return Evaluation(plans=plans, outcomes=outcomes, scores=scores, excess=excess)
    edges = [part * len(plans) // num_threads for part in range(num_threads + 1)]
    parts = on_threads(
        lambda rows: _judged(job, plans.take(rows), outcomes.take(rows)),
        [slice(*ends) for ends in pairwise(edges)],
    )
    all_scores, all_excess = zip(*parts, strict=True)
    return Evaluation(
        plans=plans,
        outcomes=outcomes,
        scores=ScoreTable.concatenate(all_scores),
        excess=ExcessTable.concatenate(all_excess),
    )


def _judged(job: Job, plans: PlanTable, outcomes: Outcomes) -> tuple[ScoreTable, ExcessTable]:
    scores = score(job, plans, outcomes)
    return scores, check_limits(job, plans, outcomes, scores)
