"""Which designs are likely to be on the front? Rounds of the most promising ones, by estimates that each round corrects.

An estimate costs at most a twentieth of a simulation, so many designs can be considered for each one that is simulated. This
is pre-screening as in model-assisted evolution (Emmerich, Giannakoglou and Naujoks, IEEE Trans. Evol. Comp. 10(4), 2006),
based on bounds that are known anyway.
"""

from __future__ import annotations

import math
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray

from constraints.lattice import cross_run_knobs
from constraints.space import Space
from simulator.domain.plan import PlanTable
from studies.algorithm import Results, SearchAlgorithm
from studies.searchers.estimates import Estimator
from studies.searchers.starts import first_designs, least_rows
from studies.searchers.tuning import Tuning

POOL_SIZE = 8_000
"""Designs that are estimated in each round: half of them the best by their bounds, half of them at random."""
MOST_SHORTFALL = 0.2
"""Screening ends when even the most promising design is estimated to be this far from the front."""


@final
class Screening(SearchAlgorithm):
    """Suggests a first generation, and then, in rounds, the designs estimated to reach the front."""

    stage: ClassVar[str] = "screening by estimates"

    def __init__(
        self, space: Space, estimator: Estimator, num_designs: int, tuning: Tuning, seed: int
    ) -> None:
        """Begins at the front of the bounds.

        Args:
            space: where designs are taken from; has at least one.
            estimator: learns from what is simulated here; knows nothing yet.
            num_designs: approximate number of suggestions in total.
            tuning: how many of them come first, and in how many rounds the rest is suggested.
            seed: seed of everything random.
        """
        self._space = space
        self._estimator = estimator
        self._random = np.random.default_rng(seed)
        self._num_left = num_designs
        num_first = max(1, round(tuning.first_share * num_designs))
        self._round_size = max(1, math.ceil((num_designs - num_first) / tuning.num_rounds))
        self._suggested = first_designs(space, num_first, 0, seed)
        self._is_begun = False

    def suggest(self) -> PlanTable:
        """Returns the first designs, then the most promising ones of a pool."""
        if self._is_begun:
            self._suggested = self._most_promising(min(self._round_size, self._num_left))
        self._is_begun = True
        self._num_left -= len(self._suggested)
        return self._suggested

    def update(self, results: Results) -> None:
        """Updates the estimates."""
        self._estimator.learn(self._suggested, results)

    def _most_promising(self, size: int) -> PlanTable:
        """The new designs of a pool that are estimated to be nearest to the front, or beyond it."""
        pool = cross_run_knobs(self._space.job, self._space.layouts.take(self._pool_rows()))
        pool = pool.take(~self._estimator.knows(pool))
        shortfalls = self._estimator.shortfalls(pool)
        order = np.argsort(shortfalls, kind="stable")
        if not self._estimator.has_front:
            return pool.take(self._half_by_chance(order, size))
        order = order[:size]
        return pool.take(order[shortfalls[order] <= MOST_SHORTFALL])

    def _half_by_chance(self, order: NDArray[np.intp], size: int) -> NDArray[np.intp]:
        """The first rows of an order, and equally many of the others at random.

        As long as no design keeps the limits, the estimates may be wrong about every difference that matters.
        """
        first, others = np.split(order, [math.ceil(size / 2)])
        drawn = self._random.choice(others, min(len(others), size // 2), replace=False)
        return np.concatenate([first, drawn])

    def _pool_rows(self) -> NDArray[np.intp]:
        """Layouts whose designs are estimated: all, or the best by their bounds and equally many at random."""
        layouts = self._space.layouts
        num_layouts = max(1, POOL_SIZE * len(layouts) // self._space.num_designs)
        if num_layouts >= len(layouts):
            return np.arange(len(layouts))
        best = least_rows(self._estimator.layout_shortfalls(), num_layouts // 2)
        drawn = self._random.choice(len(layouts), num_layouts - len(best), replace=False)
        return np.unique(np.concatenate([best, drawn]))
