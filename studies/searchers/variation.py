"""How does a child differ from its parents? Crossover and mutation of one index row after another, compiled.

Simulated binary crossover (Deb and Agrawal, Complex Systems 9, 1995) and polynomial mutation (Deb and Goyal, 1996), rounded
to indices of knobs. A generation takes tens of thousands of tries if most neighbours of a population are already known, so
powers are computed only for knobs that change.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simulator.compiled import compiled, inlined
from simulator.table import Floats, Integers

EXCHANGE_PROBABILITY = 0.5
"""Probability that a knob takes part in a crossover."""


class Spread(NamedTuple):
    """How far children are from their parents."""

    crossover_probability: float
    """Probability that a pair has a child between them rather than a copy of the mother."""
    crossover_eta: float
    mutation_probability: float
    """Probability of a mutation, for each knob that has more than one value."""
    mutation_eta: float


def num_draws(num_knobs: int) -> int:
    """Returns how many random numbers a child takes: one for the pair, then two for each knob."""
    return 1 + 2 * num_knobs


@compiled
def varied(
    mothers: Integers, fathers: Integers, largest: Integers, spread: Spread, draws: Floats
) -> Integers:
    """Returns one child of each pair, `(n, k)`.

    Args:
        mothers: index rows `(n, k)`.
        fathers: index rows `(n, k)`.
        largest: largest index of each knob, `(k,)`.
        spread: how far children are from their parents.
        draws: uniform in [0, 1), `(n, num_draws(k))`.
    """
    children = mothers.copy()
    for row in range(mothers.shape[0]):
        is_crossed = draws[row, 0] < spread.crossover_probability
        for knob in range(mothers.shape[1]):
            if largest[knob] == 0:
                continue
            index = float(mothers[row, knob])
            exchange, change = draws[row, 1 + 2 * knob], draws[row, 2 + 2 * knob]
            if is_crossed and exchange < EXCHANGE_PROBABILITY:
                drawn = exchange / EXCHANGE_PROBABILITY  # uniform again
                between = _crossed(index, float(fathers[row, knob]), drawn, spread.crossover_eta)
                index = min(max(between, 0.0), float(largest[knob]))
            if change < spread.mutation_probability:
                index += largest[knob] * _step(change / spread.mutation_probability, spread.mutation_eta)
            children[row, knob] = min(max(int(np.rint(index)), 0), largest[knob])
    return children


@inlined
def _crossed(mother: float, father: float, drawn: float, eta: float) -> float:
    """A point on the line through both parents, nearer to the mother."""
    odds = 2.0 * drawn if drawn <= 0.5 else 0.5 / (1.0 - drawn)
    spread: float = odds ** (1.0 / (eta + 1.0))
    return 0.5 * ((1.0 + spread) * mother + (1.0 - spread) * father)


@inlined
def _step(drawn: float, eta: float) -> float:
    """A step of at most 1 to either side; short steps are more likely."""
    power = 1.0 / (eta + 1.0)
    if drawn < 0.5:
        return float((2.0 * drawn) ** power) - 1.0
    return 1.0 - float((2.0 * (1.0 - drawn)) ** power)
