"""What is a search algorithm? Two methods: it suggests designs, and it takes in what they are worth.

Everything else is done by the search that drives it: simulating, remembering what was simulated before, writing down,
stopping. `studies.searchers.algorithm_contract` holds what every algorithm must keep, as a test to be inherited.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from simulator.domain.plan import PlanTable
from simulator.table import Floats, Table


@dataclass(frozen=True, kw_only=True)
class Results(Table):
    """What designs are worth, one row each."""

    values: Floats
    """Objectives of the job, all to be made small, `(n, k)`; infinite where a run never ends."""
    excess: Floats
    """By how much limits are exceeded in sum, `(n,)`; 0 for a feasible design."""


class SearchAlgorithm(ABC):
    """Decides which designs are tried."""

    stage: ClassVar[str]
    """What it does, as reports of progress say it."""
    suggests_once: ClassVar[bool] = False
    """Whether it never suggests a design again, so that nobody needs to remember what it has suggested."""

    @abstractmethod
    def suggest(self) -> PlanTable:
        """Returns the designs to try next, all with valid layouts; no rows when there is nothing left to try.

        Designs that were tried before may be among them: they cost no evaluation.
        """

    @abstractmethod
    def update(self, results: Results) -> None:
        """Takes in what the designs that were suggested last are worth, in their order."""
