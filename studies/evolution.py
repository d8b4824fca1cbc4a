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
from studies.mating import Mating
from studies.tuning import Tuning

if TYPE_CHECKING:
    from pymoo.core.algorithm import Algorithm
    from pymoo.core.population import Population

WORST_EXCESS = 5.0
"""Excess at which broken limits are cut off."""
LARGEST_VALUE = 1e300
"""Stands for an infinite objective, with which the libraries cannot calculate."""

Selection = Literal["nsga2", "nsga3"]


@final
class Evolution(SearchAlgorithm):
    """One restart: asks pymoo for designs, suggests those that are valid, and tells it what they are worth."""

    stage: ClassVar[str] = "searching with populations"

    def __init__(
        self, selection: Selection, knobs: Knobs, start: Integers, tuning: Tuning, seed: int
    ) -> None:
        """Prepares a first generation.

        Args:
            selection: how parents are chosen.
            knobs: decode designs.
            start: index rows `(n, k)` of the first generation, all of them designs; all generations have as many.
            tuning: how children are made.
            seed: of everything random.
        """
        self._knobs = knobs
        self._mating = Mating(knobs, start, tuning)
        self._algorithm = _algorithm(selection, self._mating, len(knobs.job.objectives), seed)
        self._asked: Population | None = None

    def suggest(self) -> PlanTable:
        """Returns the next generation."""
        self._asked = self._algorithm.ask()
        return self._knobs.decode(self._mating.children)

    def update(self, results: Results) -> None:
        """Tells pymoo."""
        if self._asked is None:  # there were no new children
            return
        self._asked.set("F", np.nan_to_num(results.values, posinf=LARGEST_VALUE))
        self._asked.set("G", np.minimum(results.excess, WORST_EXCESS)[:, None])
        self._algorithm.tell(infills=self._asked)


def _algorithm(selection: Selection, mating: Mating, num_objectives: int, seed: int) -> Algorithm:
    from pymoo.algorithms.moo.nsga2 import NSGA2
    from pymoo.algorithms.moo.nsga3 import NSGA3
    from pymoo.core.problem import Problem

    start = mating.children
    problem = Problem(n_var=start.shape[1], n_obj=num_objectives, n_ieq_constr=1, vtype=int)
    common = {"pop_size": len(start), "sampling": start, "mating": mating, "eliminate_duplicates": False}
    match selection:
        case "nsga2":
            algorithm = NSGA2(**common)
        case "nsga3":
            algorithm = NSGA3(ref_dirs=_directions(num_objectives, len(start)), **common)
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
