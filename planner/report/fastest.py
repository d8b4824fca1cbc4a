"""How fast is the fastest layout of an offer at a size? Several figures of a report need it; it is simulated once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from constraints.evaluation import Evaluation
from planner.recommended.recommendation import Design
from planner.sweep.fastest_layout import fastest_of_sizes
from simulator.domain.job import Job


@final
class FastestRuns:
    """The fastest runs of a job's offers, only at the recommended ZeRO stage, to simulate a size in a fraction of a second."""

    def __init__(self, job: Job, best: Design) -> None:
        """Begins without any run.

        Args:
            job: the job.
            best: the recommended design.
        """
        chosen: dict[str, object] = {"zero_stages": (best.plan.zero_stage,)}
        # A stage that is listed would be tried in pipelines, too.
        if best.plan.zero_stage >= 2 and not job.search.shards_more_in_pipelines:
            chosen["pipeline_parallel"] = (1,)
        self._job = job.model_copy(update={"search": job.search.model_copy(update=chosen)})
        self._known: dict[tuple[int, int], Evaluation | None] = {}

    def at(self, offer: int, sizes: Sequence[int]) -> list[Evaluation | None]:
        """Returns the evaluation of the fastest layout at each size of one offer, as if it were the job's only offer.

        `None` if no layout fits in memory.
        """
        if unknown := [size for size in sizes if (offer, size) not in self._known]:
            alone = self._job.model_copy(update={"offers": (self._job.offers[offer],)})
            found = fastest_of_sizes(alone, unknown)
            self._known |= {(offer, size): found.get(size) for size in unknown}
        return [self._known[offer, size] for size in sizes]
