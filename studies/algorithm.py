"""What is a search algorithm? Two methods: it suggests designs, and it receives their results.

Everything else is done by the search that drives it: simulation, memory of earlier results, recording and stopping.
`studies.searchers.algorithm_contract` has the rules that every algorithm must keep, as a test class to inherit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from simulator.domain.plan import PlanTable
from simulator.table import Floats, Table


@dataclass(frozen=True, kw_only=True)
class Results(Table):
    """Results of designs, one row each."""

    values: Floats
    """Objectives of the job, all minimised, `(n, k)`; infinite where a run never ends."""
    excess: Floats
    """Total excess over the limits, `(n,)`; 0 for a feasible design."""


class SearchAlgorithm(ABC):
    """Decides which designs are tried."""

    stage: ClassVar[str]
    """What it does, as shown in progress reports."""
    suggests_once: ClassVar[bool] = False
    """Whether it never suggests a design twice, so its suggestions need not be remembered."""

    @abstractmethod
    def suggest(self) -> PlanTable:
        """Returns the designs to try next, all with valid layouts; no rows when there is nothing left to try.

        They may include designs that were tried before, which cost no evaluation.
        """

    @abstractmethod
    def update(self, results: Results) -> None:
        """Receives the results of the designs that were suggested last, in the same order."""
