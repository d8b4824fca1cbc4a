"""What is worth keeping of everything that was evaluated? The front, the counts, and nothing else in memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from constraints.evaluation import Evaluation
from constraints.limits import ExcessTable
from objectives.pareto import front_rows, hypervolume
from simulator.job import Job
from simulator.table import Integers


class Archive:
    """The Pareto front of the feasible designs seen so far, with the numbers under which they were recorded."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.front: Evaluation | None = None
        """Feasible designs that no other one beats, by rising first objective; `None` while there is none."""
        self.ids: Integers = np.zeros(0, dtype=np.int64)
        """Numbers of the front's designs."""
        self.num_evaluated = 0
        self.num_feasible = 0
        self.num_breaking = dict.fromkeys(ExcessTable.names(), 0)
        """Designs that break each limit; one design may break several."""
        self._reference: NDArray[np.float64] | None = None

    def add(self, evaluation: Evaluation) -> Integers:
        """Takes in evaluated designs and returns the numbers that they get, `(n,)`."""
        ids = self.num_evaluated + np.arange(len(evaluation), dtype=np.int64)
        self.num_evaluated += len(evaluation)
        self.num_feasible += int(evaluation.is_feasible.sum())
        for name, excess in evaluation.excess.columns().items():
            self.num_breaking[name] += int(np.count_nonzero(excess))
        feasible = np.flatnonzero(evaluation.is_feasible)
        self._merge(evaluation.take(feasible), ids[feasible])
        return ids

    def hypervolume(self) -> float:
        """Returns the share of the box between zero and the worst values of the first front that the front dominates."""
        if self.front is None:
            return 0.0
        values = self.front.objectives(self._job)
        if self._reference is None:
            self._reference = 1.1 * values.max(axis=0)
        return hypervolume(values / self._reference, np.ones(values.shape[1]))

    def _merge(self, feasible: Evaluation, ids: Integers) -> None:
        if len(feasible) == 0:
            return
        rows = front_rows(feasible.objectives(self._job))
        front, ids = feasible.take(rows), ids[rows]
        if self.front is not None:
            front = Evaluation.concatenate([self.front, front])
            ids = np.concatenate([self.ids, ids])
            rows = front_rows(front.objectives(self._job))
            front, ids = front.take(rows), ids[rows]
        self.front, self.ids = front, ids
