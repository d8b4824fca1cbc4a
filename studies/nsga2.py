"""Which designs does NSGA-II try? Populations over ordinal knobs, seeded from the lattice of valid layouts.

NSGA-II (Deb et al., IEEE Trans. Evol. Comp. 6(2), 2002) by pymoo. Each generation is one batch for the simulator; the
archive, not the last population, is the result, and several restarts fill one archive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from constraints.evaluation import Evaluation
from constraints.space import Space
from simulator.table import Floats, Integers
from studies.knobs import Knobs
from studies.neighbours import search_neighbours
from studies.search import Searcher

if TYPE_CHECKING:
    from pymoo.algorithms.moo.nsga2 import NSGA2

STAGE = "searching with NSGA-II"
EVOLUTION_SHARE = 0.6
"""Share of the evaluations that populations may spend; the rest is for the neighbours of the front."""
STALE_GENERATIONS = 25
"""Generations without a change of the front after which a restart ends."""
BEYOND = 10.0
"""Constraint value of a layout that is invalid, beyond its distance from validity: worse than any limit broken."""
WORST_EXCESS = 5.0
"""Excess at which broken limits are cut off."""

_Known = dict[bytes, tuple[Floats, float]]
"""Objectives and broken limits of every index row that was evaluated, by its bytes."""


def search_nsga2(searcher: Searcher, space: Space, seed: int) -> bool:
    """Evaluates populations until the job's evaluations are spent or nothing new turns up, then the front's neighbours.

    Returns:
        Whether it was not interrupted.
    """
    search = searcher.job.search
    knobs = Knobs.of(space)
    known: _Known = {}
    for restart in range(search.num_restarts):
        population = _Population(searcher, knobs, space, seed + restart, known)
        share = EVOLUTION_SHARE * search.max_evaluations * (restart + 1) / search.num_restarts
        while len(known) < share and not population.is_exhausted:
            if searcher.should_stop():
                return False
            population.advance()
    return search_neighbours(searcher, knobs, set(known), search.max_evaluations - len(known))


class _Population:
    """One restart: asks pymoo for designs, evaluates those that are valid and new, and tells it what they are worth."""

    def __init__(self, searcher: Searcher, knobs: Knobs, space: Space, seed: int, known: _Known) -> None:
        self._searcher = searcher
        self._knobs = knobs
        self._known = known
        self._stale_generations = 0
        self._best_ids: bytes = b""
        self._algorithm = _algorithm(knobs, space, searcher.job.search.population_size, seed)

    @property
    def is_exhausted(self) -> bool:
        """Whether many generations in a row left the front as it was."""
        return self._stale_generations >= STALE_GENERATIONS

    def advance(self) -> None:
        """Runs one generation."""
        population = self._algorithm.ask()
        if population is None:  # every child would be a twin of a parent
            self._stale_generations = STALE_GENERATIONS
            return
        indices = np.asarray(population.get("X"), dtype=np.int64)
        plans = self._knobs.decode(indices)
        excess = self._knobs.excess(plans)
        keys = [row.tobytes() for row in indices]
        is_new = np.array([key not in self._known for key in keys]) & (excess == 0.0)
        if is_new.any():
            total = self._searcher.job.search.max_evaluations
            rows = np.flatnonzero(is_new)[: max(1, total - len(self._known))]
            evaluation = self._searcher.evaluate(plans.take(rows), STAGE, len(self._known), total)
            self._remember([keys[row] for row in rows], evaluation)
        values, constraint = self._results(keys, excess)
        population.set("F", values)
        population.set("G", constraint[:, None])
        self._algorithm.tell(infills=population)
        ids = self._searcher.archive.ids.tobytes()
        self._stale_generations = self._stale_generations + 1 if ids == self._best_ids else 0
        self._best_ids = ids

    def _remember(self, keys: list[bytes], evaluation: Evaluation) -> None:
        values = evaluation.objectives(self._searcher.job)
        broken = np.minimum(evaluation.excess.total, WORST_EXCESS)
        for key, value, excess in zip(keys, values, broken, strict=True):
            self._known[key] = (value, float(excess))

    def _results(self, keys: list[bytes], layout_excess: Floats) -> tuple[Floats, Floats]:
        """Objectives `(n, k)` and the constraint `(n,)`; an invalid layout has no objectives, only its distance."""
        num_objectives = len(self._searcher.job.objectives)
        values = np.zeros((len(keys), num_objectives))
        constraint = BEYOND + layout_excess
        for row, key in enumerate(keys):
            if key in self._known:
                values[row], constraint[row] = self._known[key]
        return np.nan_to_num(values, posinf=1e300), constraint


def _algorithm(knobs: Knobs, space: Space, population_size: int, seed: int) -> NSGA2:
    from pymoo.algorithms.moo.nsga2 import NSGA2
    from pymoo.core.problem import Problem
    from pymoo.operators.crossover.sbx import SBX
    from pymoo.operators.mutation.pm import PM
    from pymoo.operators.repair.rounding import RoundingRepair

    largest = knobs.largest
    problem = Problem(
        n_var=len(largest), n_obj=len(space.job.objectives), n_ieq_constr=1, xl=0, xu=largest, vtype=int
    )
    algorithm = NSGA2(
        pop_size=population_size,
        sampling=_lattice_sample(knobs, space, population_size, seed),
        crossover=SBX(prob=0.9, eta=3.0, vtype=float, repair=RoundingRepair()),
        mutation=PM(prob=1.0, eta=3.0, vtype=float, repair=RoundingRepair()),
        eliminate_duplicates=True,
    )
    algorithm.setup(problem, termination=("n_gen", 10**9), seed=seed, verbose=False)
    return algorithm


def _lattice_sample(knobs: Knobs, space: Space, size: int, seed: int) -> Integers:
    """Rows of the space drawn without repetition where it has enough."""
    random = np.random.default_rng(seed)
    layouts = space.layouts
    rows = random.choice(len(layouts), size=size, replace=len(layouts) < size)
    return knobs.encode(layouts.take(rows), random)
