"""Does a front end where it could? A walk from the design with the lowest value of each objective.

Refinement tunes designs for all objectives together, so it meets the lowest cost or energy only by chance. From each end of
the front the walk tries the other checkpoint schemes, one spare node more and one less, and the next power caps, each with
the interval that is expected to lose least. It goes on from every design that lowers an end.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, final

import numpy as np

from constraints.answers import has_any_number_of_spares, stepped_caps
from constraints.evaluation import Evaluation
from constraints.scheme_rules import can_save_by
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from studies.algorithm import Results, SearchAlgorithm
from studies.designs.archive import Archive
from studies.designs.plan_keys import plan_keys
from studies.searchers.refine import enough_spares

MOST_DESIGNS = 400
"""Most designs that a walk tries: a step tries at most eight for each end."""


@final
class Ends(SearchAlgorithm):
    """Suggests what is next to the designs with the lowest values of an archive's front, until none of these is new."""

    stage: ClassVar[str] = "walking to the ends of the front"
    num_designs: ClassVar[int] = MOST_DESIGNS

    def __init__(self, job: Job, archive: Archive) -> None:
        """Begins at the ends of the front that an archive holds, and of every later one."""
        self._job = job
        self._archive = archive
        self._walked: set[bytes] = set()

    def suggest(self) -> PlanTable:
        """Returns the designs next to those ends that the walk has not come to before."""
        front = self._archive.front
        assert front is not None, "a walk begins at a front"
        ends = ends_of(self._job, front)
        keys = [key.tobytes() for key in plan_keys(ends.plans)]
        is_new = np.array([key not in self._walked for key in keys])
        self._walked.update(keys)
        new = ends.take(np.flatnonzero(is_new))
        return PlanTable.concatenate([ends.plans.take(slice(0)), *self._beside_each(new)])

    def update(self, results: Results) -> None:
        """Does nothing: improvements are already in the archive."""
        del results

    def _beside_each(self, ends: Evaluation) -> list[PlanTable]:
        most_spares = enough_spares(self._job, ends)
        return [
            self._beside(ends.plans.take(np.array([row])), int(most_spares[row])) for row in range(len(ends))
        ]

    def _beside(self, end: PlanTable, most_spares: int) -> PlanTable:
        """Designs that differ from one in a single choice of how it is run."""
        own = replace(end, checkpoint_interval_s=np.array([np.nan]))
        schemes = self._job.search.checkpoint_schemes
        saved = [
            own.saving_by(scheme)
            for scheme, can in zip(schemes, can_save_by(self._job, own, schemes)[0], strict=True)
            if can
        ]
        spares, cap = int(own.num_spare_nodes[0]), float(own.power_cap_fraction[0])
        others = {spares - 1, spares + 1} if has_any_number_of_spares(self._job) else set()
        spared = [
            replace(own, num_spare_nodes=np.array([number]))
            for number in sorted(others)
            if 0 <= number <= max(spares, most_spares)
        ]
        caps = np.unique([*stepped_caps(self._job), cap])
        place = int(np.searchsorted(caps, cap))
        capped = [
            replace(own, power_cap_fraction=caps[[near]])
            for near in (place - 1, place + 1)
            if 0 <= near < len(caps)
        ]
        return PlanTable.concatenate([own, *saved, *spared, *capped])


def ends_of(job: Job, front: Evaluation) -> Evaluation:
    """Returns the designs of a front with the lowest value of an objective, each once; the first where several have it."""
    return front.take(np.unique(np.argmin(front.objectives(job), axis=0)))
