"""What does a batch of designs come to? Simulation, scores and limits in one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from constraints.limits import ExcessTable, check_limits
from objectives.scores import ScoreTable, score
from simulator.job import Job
from simulator.plan import PlanTable
from simulator.simulate import Outcomes, simulate
from simulator.table import Booleans, Floats


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Designs with what became of them, one row each; all of them have valid layouts."""

    plans: PlanTable
    outcomes: Outcomes
    scores: ScoreTable
    excess: ExcessTable

    def __len__(self) -> int:
        return len(self.plans)

    @property
    def is_feasible(self) -> Booleans:
        """Whether each design keeps every limit, `(n,)`."""
        return self.excess.is_feasible

    def objectives(self, job: Job) -> Floats:
        """Returns the job's objectives, `(n, k)`."""
        return self.scores.objectives(job.objectives)

    def take(self, rows: NDArray[np.intp] | NDArray[np.bool_] | slice) -> Self:
        """Returns the chosen rows."""
        return type(self)(
            plans=self.plans.take(rows),
            outcomes=self.outcomes.take(rows),
            scores=self.scores.take(rows),
            excess=self.excess.take(rows),
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """Returns the rows of all parts one after another; raises `ValueError` for none at all."""
        return cls(
            plans=PlanTable.concatenate([part.plans for part in parts]),
            outcomes=Outcomes.concatenate([part.outcomes for part in parts]),
            scores=ScoreTable.concatenate([part.scores for part in parts]),
            excess=ExcessTable.concatenate([part.excess for part in parts]),
        )


def evaluate(job: Job, plans: PlanTable) -> Evaluation:
    """Returns what becomes of designs with valid layouts."""
    return judge(job, plans, simulate(job, plans))


def judge(job: Job, plans: PlanTable, outcomes: Outcomes) -> Evaluation:
    """Returns what simulated designs are worth under the prices and limits of a job; no design is simulated."""
    scores = score(job, plans, outcomes)
    return Evaluation(
        plans=plans, outcomes=outcomes, scores=scores, excess=check_limits(job, plans, outcomes, scores)
    )
