"""What is kept in memory of everything that was evaluated? Only the front and a tally."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from constraints.evaluation import Evaluation
from constraints.limits import ExcessTable
from objectives.pareto import distinct_rows, dominated_share, front_rows
from simulator.domain.job import Job
from simulator.table import Integers
from studies.designs.offer_tally import OfferTally
from studies.designs.reduction import Reduction

SAME_WITHIN_FRACTION = 0.001
"""A non-dominated design that gains less than this over another one in every objective is not shown with it. The share is
far below what the model can resolve."""
BEYOND_WORST = 1.1
"""Hypervolumes are measured up to this multiple of the worst values of a front."""


class Archive:
    """The feasible non-dominated designs seen so far, with the numbers under which they were recorded."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.front: Evaluation | None = None
        """Feasible non-dominated designs, including near-equals, by ascending first objective; `None` while there are
        none."""
        self.ids: Integers = np.zeros(0, dtype=np.int64)
        """Numbers of these designs."""
        self.tally = OfferTally.none(job)
        """What all designs reached, by offer."""
        self._reference: NDArray[np.float64] | None = None
        self._distinct: NDArray[np.intp] | None = None

    def add(self, found: Evaluation | Reduction) -> Integers:
        """Adds evaluated designs, or a reduction of them.

        Returns:
            The numbers that the added designs get, `(n,)`; designs of a reduction keep their positions among all designs of
            their batch.
        """
        reduction = found if isinstance(found, Reduction) else Reduction.of(self._job, found)
        first = self.num_evaluated
        self.tally += reduction.tally
        self._merge(reduction.front, first + reduction.rows)
        if isinstance(found, Reduction):
            return first + reduction.rows
        return first + np.arange(len(found), dtype=np.int64)

    @property
    def num_evaluated(self) -> int:
        """Number of designs that were added."""
        return int(self.tally.num_designs.sum())

    @property
    def num_feasible(self) -> int:
        """Those that keep all limits."""
        return int(self.tally.num_feasible.sum())

    @property
    def num_breaking(self) -> dict[str, int]:
        """Designs that break each limit; one design may break several."""
        return dict(zip(ExcessTable.names(), self.tally.num_breaking.sum(axis=0).tolist(), strict=True))

    def hypervolume(self) -> float:
        """Returns the share of a box that the front dominates.

        The box reaches from zero to `BEYOND_WORST` times the worst values of the first front.
        """
        if self.front is None:
            return 0.0
        values = self.front.objectives(self._job)
        assert self._reference is not None, "the first front sets it"
        return dominated_share(values, self._reference)

    def distinct_front(self) -> tuple[Evaluation | None, Integers]:
        """Returns the front as it is shown, without designs that hardly differ from another one, and its numbers.

        A design is left out if it gains less than `SAME_WITHIN_FRACTION` in every objective over one that stays, however
        much it loses.
        """
        rows = self._distinct_rows()
        return None if self.front is None else self.front.take(rows), self.ids[rows]

    @property
    def num_distinct(self) -> int:
        """Number of designs of that front."""
        return len(self._distinct_rows())

    def _distinct_rows(self) -> NDArray[np.intp]:
        if self._distinct is None:
            values = np.zeros((0, 1)) if self.front is None else self.front.objectives(self._job)
            self._distinct = distinct_rows(values, SAME_WITHIN_FRACTION)
        return self._distinct

    def _merge(self, front: Evaluation, ids: Integers) -> None:
        if len(front) == 0:
            return
        if self.front is not None:
            values = [known.objectives(self._job) for known in (self.front, front)]
            rows = front_rows(np.concatenate(values))
            if (rows < len(self.front)).all():  # the usual case: nothing new, so no new table
                return
            front = Evaluation.concatenate([self.front, front]).take(rows)
            ids = np.concatenate([self.ids, ids])[rows]
        if self._reference is None:
            self._reference = BEYOND_WORST * front.objectives(self._job).max(axis=0)
        self.front, self.ids, self._distinct = front, ids, None
