"""What does an archive say of its front? Nothing without one, else how much of the space of objectives it dominates."""

from __future__ import annotations

import numpy as np
import pytest

from constraints.evaluation import evaluate
from constraints.space import pruned_space
from studies.designs.archive import Archive
from tests.studies.study_jobs import small_job

JOB = small_job(tensor_parallel=[1], context_parallel=[1])


def test_without_a_feasible_design_there_is_no_front() -> None:
    archive = Archive(JOB)
    front, ids = archive.distinct_front()
    assert front is None
    assert len(ids) == len(archive.ids) == archive.num_distinct == 0
    assert archive.hypervolume() == 0.0


def test_one_design_dominates_an_eleventh_in_every_objective_of_what_lies_below_1_1_times_its_values() -> (
    None
):
    archive = Archive(JOB)
    archive.add(evaluate(JOB, pruned_space(JOB).designs().take(slice(0, 1))))
    assert len(JOB.objectives) == 3
    assert archive.hypervolume() == pytest.approx((1.0 - 1.0 / 1.1) ** 3)
    np.testing.assert_array_equal(archive.distinct_front()[1], [0])
