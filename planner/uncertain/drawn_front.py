"""What would the designs of a front be worth under other inputs? Drawn once for the ties and for the results."""

from __future__ import annotations

from constraints.evaluation import Evaluation
from objectives.drawn_runs import UnsureDesigns
from objectives.input_uncertainty import DrawnObjectives, draw_objectives
from simulator.domain.job import Job
from simulator.latest import remembering_latest


@remembering_latest
def drawn_front(job: Job, front: Evaluation, seed: int) -> tuple[UnsureDesigns, DrawnObjectives]:
    """Returns all designs of a front with their uncertain inputs, and their objectives under draws of them."""
    unsure = UnsureDesigns.of(job, front.plans, front.outcomes, front.scores)
    return unsure, draw_objectives(unsure, seed=seed)
