"""What did the designs of each offer reach? How many were simulated, which limits they break, and their least objectives."""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

import numpy as np

from constraints.evaluation import Evaluation
from constraints.limits import ExcessTable
from simulator.domain.job import Job


@final
class OfferTally:
    """Counts and least objectives of all designs that were added, offer by offer."""

    def __init__(self, job: Job) -> None:
        """Begins without any design of the job's `o` offers."""
        self._job = job
        num_offers = len(job.offers)
        self.num_designs = np.zeros(num_offers, dtype=np.int64)
        """Designs, `(o,)`."""
        self.num_feasible = np.zeros(num_offers, dtype=np.int64)
        """Those that keep all limits, `(o,)`."""
        self.num_breaking = np.zeros((num_offers, len(ExcessTable.names())), dtype=np.int64)
        """Those that break each limit, `(o, limits)`; one design may break several."""
        self.least = np.full((num_offers, len(job.objectives)), np.inf)
        """Least value of each objective among the feasible designs, `(o, k)`; infinite without any."""

    def add(self, found: Evaluation) -> None:
        """Adds designs."""
        breaks = np.column_stack(list(found.excess.columns().values())) > 0.0
        values = np.where(found.is_feasible[:, None], found.objectives(self._job), np.inf)
        for offer in np.unique(found.plans.offer):
            rows = found.plans.offer == offer
            self.num_designs[offer] += np.count_nonzero(rows)
            self.num_feasible[offer] += np.count_nonzero(found.is_feasible[rows])
            self.num_breaking[offer] += np.count_nonzero(breaks[rows], axis=0)
            self.least[offer] = np.minimum(self.least[offer], values[rows].min(axis=0))

    def breaking_of(self, offers: Iterable[int]) -> dict[str, int]:
        """Returns how many designs of some offers break each limit that any of them breaks."""
        numbers = self.num_breaking[list(offers)].sum(axis=0).tolist()
        return {name: number for name, number in zip(ExcessTable.names(), numbers, strict=True) if number}
