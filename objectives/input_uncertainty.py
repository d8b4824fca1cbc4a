"""How do uncertain inputs change the front? Draws of times, prices, grids, power and embodied emissions for all designs.

The low and high values of an input are its 5th and 95th percentiles, with a lognormal distribution on each side of the
middle. Designs that share an input get the same draw of it: an uncertain price cannot reorder two designs on the same
accelerators, but it can reorder two on different ones. A draw depends only on the seed and on its name, so adding an offer
to the list leaves the draws of all others unchanged.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from objectives.drawn_runs import DrawnRuns, UnsureDesigns
from objectives.drawn_scores import drawn_figures, drawn_objectives
from objectives.input_table import LAYOUT_TIME
from objectives.pareto import logarithms
from objectives.unsure_inputs import Z_95
from simulator.table import Floats, total

NUM_DRAWS = 1000


@dataclass(frozen=True, kw_only=True)
class DrawnObjectives:
    """The objectives of n designs under r draws of the inputs."""

    values: Floats
    """`(r, n, k)`, in the order of the job's objectives."""
    figures: Mapping[str, Floats]
    """Wall time (s), cost (USD), energy (J), carbon (kg CO2e) and, where it is known, water (l) by name, `(r, n)` each."""

    @property
    def on_front_fraction(self) -> Floats:
        """Share of the draws in which no other design is better in every objective, `(n,)`."""
        is_dominated = np.zeros(self.values.shape[:2], dtype=np.bool_)
        for rival in range(self.values.shape[1]):
            other = self.values[:, rival : rival + 1]
            is_worse = (other <= self.values).all(axis=2) & (other < self.values).any(axis=2)
            is_dominated |= is_worse
        return np.asarray(1.0 - is_dominated.mean(axis=0))

    def better_fraction(self, row: int, rival: int) -> Floats:
        """Returns the share of draws in which one design has less of each objective than another, `(k,)`."""
        return np.asarray((self.values[:, row] < self.values[:, rival]).mean(axis=0))

    def least_fraction(self) -> Floats:
        """Returns the share of draws in which each design has the least of each objective, `(n, k)`; ties share a draw."""
        return _won_fraction(self.values)

    def chosen_fraction(self, weights: Floats) -> Floats:
        """Returns the share of draws in which each design is the best compromise at weights `(k,)`, `(n,)`.

        Ties share a draw, so the order of the designs does not matter.
        """
        return _won_fraction(total(np.moveaxis(logarithms(self.values) * (weights / weights.sum()), 2, 0)))


def _won_fraction(values: Floats) -> Floats:
    """Share of the draws that each design wins, `(n, ...)`; the least of the values `(r, n, ...)` wins."""
    is_least = values == values.min(axis=1, keepdims=True)
    return np.asarray((is_least / is_least.sum(axis=1, keepdims=True)).mean(axis=0))


@dataclass(frozen=True, kw_only=True)
class Ends:
    """The k figures of n designs with each of m inputs at its low and high end, all others at the middle."""

    columns: tuple[str, ...]
    """The k figures: the objectives of the job in their order, then the other drawn figures."""
    names: tuple[str, ...]
    """The m inputs, such as `hardware_price of a100-sxm4-80gb`."""
    middle: Floats
    """`(n, k)` with every input at the middle."""
    low: Floats
    """`(m, n, k)` at the low end of one input,"""
    high: Floats
    """and at its high end."""


def draw_objectives(designs: UnsureDesigns, *, seed: int, num_draws: int = NUM_DRAWS) -> DrawnObjectives:
    """Returns the objectives of some designs under draws of the uncertain inputs.

    Args:
        designs: n designs with their uncertain inputs.
        seed: seed of the draws.
        num_draws: number of draws, r.
    """

    def normal(name: str) -> Floats:
        named = np.random.SeedSequence([seed, zlib.crc32(name.encode())])
        return np.random.Generator(np.random.PCG64(named)).standard_normal(num_draws)

    runs = DrawnRuns.of(designs, normal)
    figures = drawn_figures(runs)
    return DrawnObjectives(values=drawn_objectives(runs, figures), figures=figures)


def objectives_at_ends(designs: UnsureDesigns) -> Ends:
    """Returns the objectives and other figures of some designs with each uncertain input at its ends, one at a time.

    The error of each layout's own step time is left out, because there are as many of these as designs.
    """
    inputs = [
        unsure for name, unsure in designs.inputs.items() if name != LAYOUT_TIME and not unsure.is_certain
    ]
    expected = {name: unsure.expected_normal for unsure in inputs for name in unsure.draws}
    names = tuple(expected)

    def normal(name: str) -> Floats:
        at = np.full(2 * len(names) + 1, expected.get(name, 0.0))
        if name in names:
            place = 2 * names.index(name)
            at[place : place + 2] = -Z_95, Z_95
        return at

    runs = DrawnRuns.of(designs, normal)
    figures, objectives = drawn_figures(runs), tuple(each.value for each in designs.job.objectives)
    others = tuple(name for name in figures if name not in objectives)
    values = np.concatenate(
        [drawn_objectives(runs, figures), *(figures[name][:, :, None] for name in others)], axis=2
    )
    return Ends(
        columns=(*objectives, *others), names=names, middle=values[-1], low=values[:-1:2], high=values[1:-1:2]
    )
