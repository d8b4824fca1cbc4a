"""What does a batch of designs come to? Simulation, scores and limits in one call."""

from __future__ import annotations

from dataclasses import dataclass

from constraints.limits import ExcessTable, check_limits
from objectives.scores import ScoreTable, score
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.simulate import Outcomes, simulate
from simulator.table import Booleans, Floats, TableGroup


@dataclass(frozen=True, kw_only=True)
class Evaluation(TableGroup):
    """Designs with what became of them, one row each; all of them have valid layouts."""

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
    """Returns what becomes of designs with valid layouts."""
    return judge(job, plans, simulate(job, plans))


def judge(job: Job, plans: PlanTable, outcomes: Outcomes) -> Evaluation:
    """Returns what simulated designs are worth under the prices and limits of a job; no design is simulated."""
    scores = score(job, plans, outcomes)
    return Evaluation(
        plans=plans, outcomes=outcomes, scores=scores, excess=check_limits(job, plans, outcomes, scores)
    )
