"""Which designs do NSGA-II and NSGA-III try? Populations over ordinal knobs, begun with designs of the space.

NSGA-II (Deb et al., IEEE Trans. Evol. Comp. 6(2), 2002) and NSGA-III (Deb and Jain, IEEE Trans. Evol. Comp. 18(4), 2014)
by pymoo. Each generation is one batch for the simulator; the archive, not the last population, is the result, and several
restarts fill one archive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, final

import numpy as np

from simulator.plan import PlanTable
from simulator.table import Floats, Integers
from studies.algorithm import Results, SearchAlgorithm
from studies.knobs import Knobs

if TYPE_CHECKING:
    from pymoo.core.algorithm import Algorithm
    from pymoo.core.population import Population

MAX_BARREN_GENERATIONS = 20
"""Generations in a row without a valid layout after which there is nothing left to suggest."""
BEYOND = 10.0
"""Constraint value of what is no design of the space, beyond its distance from one: worse than any limit broken."""
WORST_EXCESS = 5.0
"""Excess at which broken limits are cut off."""
LARGEST_VALUE = 1e300
"""Stands for an infinite objective, with which the libraries cannot calculate."""

Selection = Literal["nsga2", "nsga3"]


@final
class Evolution(SearchAlgorithm):
    """One restart: asks pymoo for designs, suggests those that are valid, and tells it what they are worth."""

    stage: ClassVar[str] = "searching with populations"

    def __init__(self, selection: Selection, knobs: Knobs, start: Integers, seed: int) -> None:
        """Prepares a first generation.

        Args:
            selection: how parents are chosen.
            knobs: decode designs.
            start: index rows `(n, k)` of the first generation; all generations have as many.
            seed: of everything random.
        """
        self._knobs = knobs
        self._algorithm = _algorithm(selection, knobs, start, seed)
        self._asked: Population | None = None
        self._excess: Floats = np.zeros(0)

    def suggest(self) -> PlanTable:
        """Returns the valid layouts of the next generation that has any."""
        for _ in range(MAX_BARREN_GENERATIONS):
            self._asked = self._algorithm.ask()
            if self._asked is None:  # every child would be a twin of a parent
                break
            indices = np.asarray(self._asked.get("X"), dtype=np.int64)
            plans = self._knobs.decode(indices)
            self._excess = self._knobs.rejection(indices, plans)
            if (self._excess == 0.0).any():
                return plans.take(self._excess == 0.0)
            self.update(Results(values=np.zeros((0, len(self._knobs.job.objectives))), excess=np.zeros(0)))
        return self._knobs.decode(np.zeros((0, len(self._knobs.largest)), dtype=np.int64))

    def update(self, results: Results) -> None:
        """Tells pymoo; an invalid layout has no objectives, only its distance from validity."""
        assert self._asked is not None, "update follows suggest"
        is_valid = self._excess == 0.0
        values = np.zeros((len(is_valid), results.values.shape[1]))
        values[is_valid] = np.nan_to_num(results.values, posinf=LARGEST_VALUE)
        constraint = BEYOND + self._excess
        constraint[is_valid] = np.minimum(results.excess, WORST_EXCESS)
        self._asked.set("F", values)
        self._asked.set("G", constraint[:, None])
        self._algorithm.tell(infills=self._asked)


def _algorithm(selection: Selection, knobs: Knobs, start: Integers, seed: int) -> Algorithm:
    from pymoo.algorithms.moo.nsga2 import NSGA2
    from pymoo.algorithms.moo.nsga3 import NSGA3
    from pymoo.core.problem import Problem
    from pymoo.operators.crossover.sbx import SBX
    from pymoo.operators.mutation.pm import PM
    from pymoo.operators.repair.rounding import RoundingRepair

    num_objectives = len(knobs.job.objectives)
    problem = Problem(
        n_var=len(knobs.largest), n_obj=num_objectives, n_ieq_constr=1, xl=0, xu=knobs.largest, vtype=int
    )
    operators = {
        "pop_size": len(start),
        "sampling": start,
        "crossover": SBX(prob=0.9, eta=3.0, vtype=float, repair=RoundingRepair()),
        "mutation": PM(prob=1.0, eta=3.0, vtype=float, repair=RoundingRepair()),
        "eliminate_duplicates": True,
    }
    if selection == "nsga2":
        algorithm = NSGA2(**operators)
    else:
        algorithm = NSGA3(ref_dirs=_directions(num_objectives, len(start)), **operators)
    algorithm.setup(problem, termination=("n_gen", 10**9), seed=seed, verbose=False)
    return algorithm


def _directions(num_objectives: int, most: int) -> Floats:
    """The finest grid of Das and Dennis (SIAM J. Optim. 8(3), 1998) with at most so many directions, `(n, k)`."""
    from pymoo.util.ref_dirs import get_reference_directions

    grid = np.eye(num_objectives)
    for num_partitions in range(1, most):
        finer = get_reference_directions("das-dennis", num_objectives, n_partitions=num_partitions)
        if len(finer) > most:
            break
        grid = np.asarray(finer)
    return grid
