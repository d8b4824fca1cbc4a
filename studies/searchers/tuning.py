"""What are the searcher's own parameters? Shares and spreads of a search that are not part of the question.

`benchmarks/tune_search.py` tunes them on some jobs and reports on others; docs/studies.md has the results.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """How NSGA-II and NSGA-III spend their evaluations, and how far children are from their parents."""

    screening_share: float = 0.7
    """Share of the evaluations that screening may spend."""
    first_share: float = 0.2
    """Share of these evaluations for the designs from which the first estimates are made."""
    num_rounds: int = 8
    """Rounds in which screening spends the rest."""
    evolution_share: float = 0.4
    """Share of the evaluations left after screening that populations may spend; the rest is for neighbours of the front."""
    crossover_probability: float = 0.9
    """Probability that a pair has a child between them rather than a copy of one."""
    crossover_eta: float = 3.0
    """Distribution index: the larger, the nearer children are to their parents."""
    mutation_eta: float = 3.0
    """Distribution index: the larger, the smaller mutations are."""


DEFAULT = Tuning()
"""The parameters that searches use by default."""
