"""Which designs survive and have children if there are many objectives? NSGA-III by pymoo.

Deb and Jain, IEEE Trans. Evol. Comp. 18(4), 2014: of the last front with room, designs survive that lie along directions
that no other design covers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import numpy as np
from numpy.typing import NDArray

from simulator.table import Floats, Integers
from studies.searchers.mating import Mating

if TYPE_CHECKING:
    from pymoo.core.population import Population


@final
class Nsga3:
    """A population that pymoo keeps."""

    def __init__(self, mating: Mating, start: Integers, num_objectives: int, seed: int) -> None:
        """Prepares a first generation.

        Args:
            mating: makes children.
            start: index rows `(n, k)` of the first generation; all generations have at most as many.
            num_objectives: number of objectives of the job.
            seed: seed of everything random.
        """
        from pymoo.algorithms.moo.nsga3 import NSGA3
        from pymoo.core.problem import Problem

        self._algorithm = NSGA3(
            ref_dirs=_directions(num_objectives, len(start)),
            pop_size=len(start),
            sampling=start,
            mating=_PymooMating(mating),
            eliminate_duplicates=False,
        )
        problem = Problem(n_var=start.shape[1], n_obj=num_objectives, n_ieq_constr=1, vtype=int)
        self._algorithm.setup(problem, termination=("n_gen", 10**9), seed=seed, verbose=False)
        self._none = start[:0]
        self._asked: Population | None = None

    def ask(self) -> Integers:
        """Returns the index rows of the next generation, `(n, k)`."""
        self._asked = self._algorithm.ask()
        return self._none if self._asked is None else np.asarray(self._asked.get("X"), dtype=np.int64)

    def tell(self, values: Floats, broken: Floats) -> None:
        """Passes to pymoo the finite objectives `(n, k)` of the generation, and its total excess over limits, `(n,)`."""
        assert self._asked is not None, "tell follows ask"
        self._asked.set("F", values)
        self._asked.set("G", broken[:, None])
        self._algorithm.tell(infills=self._asked)


class _PymooMating:
    """Makes children when pymoo asks for them."""

    def __init__(self, mating: Mating) -> None:
        self._mating = mating

    def do(
        self,
        problem: object,
        parents: Population,
        num_children: int,
        *,
        random_state: np.random.Generator,
        **others: object,
    ) -> Population:
        """Returns new designs, fewer than wanted if they are hard to find."""
        from pymoo.core.population import Population

        del problem, others
        rows = np.asarray(parents.get("X"), dtype=np.int64)[_by_merit(parents)]
        return Population.new("X", self._mating.children(rows, num_children, random_state))


def _by_merit(parents: Population) -> NDArray[np.intp]:
    """Rows with less excess over limits first, then those on better fronts, as recorded by survival."""
    broken = np.asarray(parents.get("CV"), dtype=np.float64)[:, 0]
    ranks = np.array([0 if rank is None else rank for rank in parents.get("rank", to_numpy=False)])
    return np.lexsort((ranks, broken))


def _directions(num_objectives: int, most: int) -> Floats:
    """The finest grid of Das and Dennis (SIAM J. Optim. 8(3), 1998) with at most `most` directions, `(n, k)`.

    If even the coarsest grid, with one direction per objective, has too many, only its first directions.
    """
    from pymoo.util.ref_dirs import get_reference_directions

    grid = np.eye(num_objectives)[:most]
    for num_partitions in range(1, most):
        finer = get_reference_directions("das-dennis", num_objectives, n_partitions=num_partitions)
        if len(finer) > most:
            break
        grid = np.asarray(finer)
    return grid
