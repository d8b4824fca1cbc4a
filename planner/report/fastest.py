"""How fast is the fastest layout of an offer at a size? Asked by several figures of a report, simulated once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from constraints.evaluation import Evaluation
from planner.recommended.recommendation import Design
from planner.sweep.fastest_layout import fastest_of_sizes
from simulator.domain.job import Job


@final
class FastestRuns:
    """The fastest runs of a job's offers at the recommended ZeRO stage, so that a size takes a fraction of a second."""

    def __init__(self, job: Job, best: Design) -> None:
        """Begins with none.

        Args:
            job: what was asked.
            best: the recommended design.
        """
        chosen = {"zero_stages": (best.plan.zero_stage,)}
        self._job = job.model_copy(update={"search": job.search.model_copy(update=chosen)})
        self._known: dict[tuple[int, int], Evaluation | None] = {}

    def at(self, offer: int, sizes: Sequence[int]) -> list[Evaluation | None]:
        """Returns what becomes of the fastest layout of each size of one offer, as if there were no other one.

        None where no layout fits the memory.
        """
        if unknown := [size for size in sizes if (offer, size) not in self._known]:
            alone = self._job.model_copy(update={"offers": (self._job.offers[offer],)})
            found = fastest_of_sizes(alone, unknown)
            self._known |= {(offer, size): found.get(size) for size in unknown}
        return [self._known[offer, size] for size in sizes]
