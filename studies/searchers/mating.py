"""How are children made? Tournaments, crossover and mutation of whole populations at once, without duplicates.

The operators are those of NSGA-II: binary tournaments (Deb et al., IEEE Trans. Evol. Comp. 6(2), 2002), simulated binary
crossover (Deb and Agrawal, Complex Systems 9, 1995) and polynomial mutation (Deb and Goyal, 1996), rounded to indices of
knobs. Only new designs of the space become children, so no evaluation and no place in a generation is wasted. If there are
too few, further children are moved to the nearest layouts of the space.
"""

from __future__ import annotations

from typing import final

import numpy as np
from numpy.typing import NDArray

from simulator.table import Integers
from studies.designs.admission import admitted
from studies.designs.key_index import KeyIndex
from studies.designs.knobs import Knobs
from studies.designs.plan_keys import Keys
from studies.searchers.tuning import Tuning
from studies.searchers.variation import Spread, num_draws, varied

MOST_TRIES = 10
"""Most times that pairs are drawn to fill a generation, each time with more mutations."""
CHILDREN_PER_PLACE = 2
"""Children made for each free place of a generation; many are duplicates or not designs of the space."""
FIRST_REPAIRED = 2
"""The try from which on children are moved to the nearest layout of the space; before, enough of them may be designs."""
FEWEST_PAIRS = 30
"""Fewest pairs drawn for the last places of a generation, because most of their children exist already."""


@final
class Mating:
    """Makes children and remembers all of them."""

    def __init__(self, knobs: Knobs, start: Integers, tuning: Tuning) -> None:
        """Prepares.

        Args:
            knobs: tell which rows are designs.
            start: index rows `(n, k)` of the first generation.
            tuning: how far children are from their parents.
        """
        self._knobs = knobs
        self._tuning = tuning
        self._known = KeyIndex()
        self._known.add(np.unique(self._keys(start)))

    def children(self, parents: Integers, num_children: int, random: np.random.Generator) -> Integers:
        """Returns new designs `(n, k)`, fewer than wanted where they are hard to find.

        Args:
            parents: index rows `(m, k)`, the best first.
            num_children: how many are wanted.
            random: draws parents, crossovers and mutations.
        """
        parts = [parents[:0]]
        for number in range(1, MOST_TRIES + 1):
            missing = num_children - sum(map(len, parts))
            if missing == 0:
                break
            num_pairs = max(FEWEST_PAIRS, CHILDREN_PER_PLACE * missing)
            mothers, fathers = (_winners(len(parents), num_pairs, random) for _ in range(2))
            children = self._varied(parents[mothers], parents[fathers], number, random)
            parts.append(self._admitted(children, missing, is_repaired=number >= FIRST_REPAIRED))
        return np.concatenate(parts)

    def _varied(
        self, mothers: Integers, fathers: Integers, num_mutations: int, random: np.random.Generator
    ) -> Integers:
        """Children `(n, k)` of n pairs, with a given average number of mutations each."""
        largest, tuning = self._knobs.largest, self._tuning
        spread = Spread(
            crossover_probability=tuning.crossover_probability,
            crossover_eta=tuning.crossover_eta,
            mutation_probability=min(1.0, num_mutations / max(1, int((largest > 0).sum()))),
            mutation_eta=tuning.mutation_eta,
        )
        draws = random.random((len(mothers), num_draws(len(largest))))
        return varied(mothers, fathers, largest, spread, draws)

    def _admitted(self, children: Integers, most: int, *, is_repaired: bool) -> Integers:
        """The first `most` children that are new designs of the space; they are remembered."""
        designs, known = self._knobs.design_digits, self._known.table()
        new = admitted(children, known, designs, most, is_repaired=is_repaired)
        self._known.add(self._keys(new))
        return new

    def _keys(self, rows: Integers) -> Keys:
        return self._knobs.design_codes(rows).astype(np.uint64)


def _winners(num_parents: int, size: int, random: np.random.Generator) -> NDArray[np.intp]:
    """Positions `(size,)` of parents that won a tournament against a random other one; position 0 is the best parent."""
    return np.asarray(random.integers(0, num_parents, (2, size)).min(axis=0), dtype=np.intp)
