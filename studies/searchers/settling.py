"""Which intervals were only tried by chance? Designs of a front with an interval of their own, at the best expected one.

Refinement draws intervals, and often finds a better design by another knob, with an interval that is merely not bad. Such a
design is suggested again with the interval that the simulator expects to lose least. The front then keeps what is better.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, final

import numpy as np

from constraints.evaluation import Evaluation
from simulator.domain.plan import PlanTable
from studies.algorithm import Results, SearchAlgorithm


@final
class Settling(SearchAlgorithm):
    """Suggests every design of a front that has an interval of its own once, without it."""

    stage: ClassVar[str] = "settling checkpoint intervals"

    def __init__(self, front: Evaluation) -> None:
        """Begins with the designs of a front."""
        own = front.plans.take(np.flatnonzero(np.isfinite(front.plans.checkpoint_interval_s)))
        self._plans = replace(own, checkpoint_interval_s=np.full(len(own), np.nan))

    @property
    def num_designs(self) -> int:
        """Number of designs that will be suggested."""
        return len(self._plans)

    def suggest(self) -> PlanTable:
        """Returns all of them, then none."""
        plans, self._plans = self._plans, self._plans.take(slice(0))
        return plans

    def update(self, results: Results) -> None:
        """Results change nothing about what comes next."""
        del results
