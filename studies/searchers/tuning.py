"""What are the searcher's own parameters? Shares and spreads that a search is made with, not part of the question.

`benchmarks/tune_search.py` tunes them on some jobs and reports on others; docs/studies.md has what came of it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """How NSGA-II and NSGA-III spend their evaluations, and how far children fall from their parents."""

    screening_share: float = 0.7
    """Share of the evaluations that screening may spend."""
    first_share: float = 0.2
    """Share of these for the designs from which the first estimates are made."""
    num_rounds: int = 8
    """Rounds in which screening spends the rest."""
    evolution_share: float = 0.4
    """Share of what screening leaves that populations may spend; the rest is for the neighbours of the front."""
    crossover_probability: float = 0.9
    """Of a pair to have a child between them rather than a copy of one."""
    crossover_eta: float = 3.0
    """The larger, the nearer are children to their parents (index of the distribution)."""
    mutation_eta: float = 3.0
    """The larger, the smaller are mutations."""


DEFAULT = Tuning()
"""What searches are made with."""
