"""Which rules must every search algorithm keep? A test class to inherit, for the algorithms here and for third-party ones.

    class TestMySearch(AlgorithmContract):
        def begin(self, space, seed):
            return MySearch(space, seed)

pytest collects the tests of the class that inherits; nothing here needs pytest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import redirect_stdout
from io import StringIO

import numpy as np

from constraints.evaluation import evaluate
from constraints.layout import is_valid_layout
from constraints.space import Space
from simulator.domain.plan import PlanTable
from studies.algorithm import Results, SearchAlgorithm
from studies.designs.plan_keys import are_same, plan_keys

NUM_ROUNDS = 4
"""Number of suggestions that a test checks."""


class AlgorithmContract(ABC):
    """The rules. `space` must be provided as a fixture; it may have a single design, or none that keeps its limits."""

    @abstractmethod
    def begin(self, space: Space, seed: int) -> SearchAlgorithm:
        """Returns a new instance of the algorithm."""

    def test_the_first_suggestion_is_not_empty(self, space: Space) -> None:
        """In a space with designs there is something to try."""
        assert len(self.begin(space, seed=1).suggest()) > 0

    def test_suggestions_are_valid_layouts_and_the_same_for_the_same_seed(self, space: Space) -> None:
        """Every suggestion can be simulated, and is made only once if `suggests_once` says so.

        A study is resumed by searching again, so nothing may depend on time, memory addresses or hashes of the process.
        """
        algorithm, same = self.begin(space, seed=5), self.begin(space, seed=5)
        suggestions = []
        for _ in range(NUM_ROUNDS):
            first, second = algorithm.suggest(), same.suggest()
            assert is_valid_layout(space.job, first).all()
            assert len(first) == len(second)
            assert are_same(first, second).all()
            suggestions.append(first)
            results = _results(space, first)
            algorithm.update(results)
            same.update(results)
        keys = np.concatenate([plan_keys(plans) for plans in suggestions])
        if algorithm.suggests_once:
            assert len(np.unique(keys)) == len(keys)

    def test_results_that_are_infinite_or_break_limits_are_taken(self, space: Space) -> None:
        """Designs that never end or that break limits are results like any other."""
        algorithm = self.begin(space, seed=3)
        for number in range(NUM_ROUNDS):
            plans = algorithm.suggest()
            values = np.full((len(plans), len(space.job.objectives)), np.inf if number % 2 else 1.0)
            algorithm.update(
                Results(values=values, excess=np.full(len(plans), np.inf if number % 2 else 0.5))
            )

    def test_it_says_what_it_does(self, space: Space) -> None:
        """Progress reports have a text."""
        assert self.begin(space, seed=1).stage

    def test_it_prints_nothing(self, space: Space) -> None:
        """A command prints only its answer, but libraries would warn on the same stream."""
        with redirect_stdout(StringIO()) as printed:
            self._suggestions(space, seed=2)
        assert printed.getvalue() == ""

    def _suggestions(self, space: Space, seed: int) -> list[PlanTable]:
        """The suggestions of the first rounds, given the true results."""
        algorithm = self.begin(space, seed)
        suggestions = []
        for _ in range(NUM_ROUNDS):
            plans = algorithm.suggest()
            suggestions.append(plans)
            algorithm.update(_results(space, plans))
        return suggestions


def _results(space: Space, plans: PlanTable) -> Results:
    evaluation = evaluate(space.job, plans)
    return Results(values=evaluation.objectives(space.job), excess=evaluation.excess.total)
