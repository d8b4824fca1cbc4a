"""Which designs do NSGA-II and NSGA-III try? Populations over ordinal knobs, starting from designs of the space.

Each generation is one batch for the simulator. The result is the archive, not the last population; several restarts share
one archive.
"""

from __future__ import annotations

from typing import ClassVar, Literal, final

import numpy as np

from simulator.domain.plan import PlanTable
from simulator.table import Integers
from studies.algorithm import Results, SearchAlgorithm
from studies.designs.knobs import Knobs
from studies.searchers.mating import Mating
from studies.searchers.nsga2 import Nsga2
from studies.searchers.nsga3 import Nsga3
from studies.searchers.tuning import Tuning

LARGEST_VALUE = 1e300
"""Replaces infinite objectives, which the libraries cannot handle."""

Selection = Literal["nsga2", "nsga3"]


@final
class Evolution(SearchAlgorithm):
    """One restart: suggests the children of a population and passes on their results."""

    stage: ClassVar[str] = "searching with populations"

    def __init__(
        self, selection: Selection, knobs: Knobs, start: Integers, tuning: Tuning, seed: int
    ) -> None:
        """Prepares a first generation.

        Args:
            selection: how parents are chosen.
            knobs: decode designs.
            start: index rows `(n, k)` of the first generation, all of them designs; all generations have this size.
            tuning: how children are made.
            seed: seed of everything random.
        """
        self._knobs = knobs
        self._population = _population(selection, knobs, start, tuning, seed)

    def suggest(self) -> PlanTable:
        """Returns the next generation; no rows if no new children were found."""
        return self._knobs.designs(self._population.ask())[1]

    def update(self, results: Results) -> None:
        """Passes the results to the population."""
        if len(results):
            values = np.nan_to_num(results.values, posinf=LARGEST_VALUE)
            # The libraries need finite numbers; an arc tangent keeps the order of all excesses, endless ones last.
            self._population.tell(values, np.arctan(results.excess))


def _population(
    selection: Selection, knobs: Knobs, start: Integers, tuning: Tuning, seed: int
) -> Nsga2 | Nsga3:
    mating = Mating(knobs, start, tuning)
    match selection:
        case "nsga2":
            return Nsga2(mating, start, seed)
        case "nsga3":
            return Nsga3(mating, start, len(knobs.job.objectives), seed)
