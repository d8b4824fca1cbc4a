"""Which design of a front is recommended? The compromise that the job's preference asks for."""

from __future__ import annotations

import numpy as np

from constraints.evaluation import Evaluation
from objectives.pareto import compromise_row
from simulator.domain.job import Job


def chosen_row(job: Job, front: Evaluation) -> int:
    """Returns the row of the front that is recommended."""
    weights = np.array(job.objective_weights)
    return compromise_row(front.objectives(job), weights)
