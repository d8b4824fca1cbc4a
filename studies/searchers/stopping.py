"""When should a search stop? Rules by evaluations, by seconds, and by how little the front still improves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from objectives.pareto import dominated_share
from simulator.domain.job import Job
from simulator.table import Floats
from studies.designs.archive import BEYOND_WORST, Archive
from studies.evaluation.evaluator import Evaluator


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How much a part of a search may spend."""

    num_evaluations: int
    """Number of evaluations of the study at which the part ends."""
    max_seconds: float | None = None
    """Running time of the study, in seconds, at which the part ends; `None`: unlimited."""
    num_stagnant: int | None = None
    """Evaluations without a better front after which the part ends; `None`: never."""


@final
class StopRules:
    """Decides after every batch whether a part of a search ends; any rule suffices."""

    def __init__(self, job: Job, archive: Archive, evaluator: Evaluator, budget: Budget) -> None:
        self._job = job
        self._archive = archive
        self._evaluator = evaluator
        self._budget = budget
        self._front_before = _front(archive, job)
        self._checked_at = archive.num_evaluated

    @property
    def num_left(self) -> int:
        """Evaluations that are left."""
        return max(0, self._budget.num_evaluations - self._archive.num_evaluated)

    def are_met(self) -> bool:
        """Whether the part should end now."""
        max_seconds = self._budget.max_seconds
        is_late = max_seconds is not None and self._evaluator.elapsed_s() >= max_seconds
        return self.num_left == 0 or is_late or self._stagnates()

    def _stagnates(self) -> bool:
        """Whether the front has gained too little over the number of evaluations that the rule allows."""
        allowed = self._budget.num_stagnant
        if allowed is None or self._archive.num_evaluated - self._checked_at < allowed:
            return False
        before, now = self._front_before, _front(self._archive, self._job)
        self._front_before, self._checked_at = now, self._archive.num_evaluated
        return gained_fraction(before, now) < self._job.search.least_gain_fraction


def gained_fraction(before: Floats, now: Floats) -> float:
    """Returns the relative growth of the hypervolume of a front; infinite if it was 0.

    Args:
        before: objectives of the front, `(m, k)`.
        now: objectives of the later front, `(n, k)`.
    """
    if len(before) == 0:
        return float("inf") if len(now) else 0.0
    reference = BEYOND_WORST * np.concatenate([before, now]).max(axis=0)
    return dominated_share(now, reference) / dominated_share(before, reference) - 1.0


def _front(archive: Archive, job: Job) -> Floats:
    return np.zeros((0, len(job.objectives))) if archive.front is None else archive.front.objectives(job)
