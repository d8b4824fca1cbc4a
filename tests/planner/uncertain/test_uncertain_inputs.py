"""Does every uncertain input say rightly what of a simulation it leaves as it is?"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from constraints.lattice import cross_run_knobs, enumerate_layouts
from planner import load_job
from planner.uncertain.uncertain_inputs import Moved, uncertain_inputs
from simulator.accuracy.published_runs import Accuracy
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.simulate import Outcomes, simulate

EXAMPLES = Path(__file__).parents[3] / "examples"
QUARTER = Accuracy(num_rows=9, bias_fraction=0.0, mean_absolute_error_fraction=0.25, is_measured=True)


def designs_of(job: Job) -> PlanTable:
    """Twenty designs over all offers."""
    designs = cross_run_knobs(job, enumerate_layouts(job))
    return designs.take(np.linspace(0, len(designs) - 1, 20).astype(np.intp))


def moved_parts(job: Job, before: Outcomes, plans: PlanTable) -> set[str]:
    """Parts of the outcomes that are others when designs are simulated from scratch."""
    after = simulate(job, plans)
    return {
        part
        for part in before.parts()
        for name, column in getattr(before, part).columns().items()
        if not np.array_equal(column, getattr(getattr(after, part), name), equal_nan=True)
    }


@pytest.mark.short(1)
@pytest.mark.parametrize("name", ["bloom-176b", "llama-3.1-405b", "llama-3.1-70b"])
def test_what_an_input_is_said_to_leave_is_the_same_when_simulated_anew(name: str) -> None:
    job = load_job(EXAMPLES / f"{name}.yaml")
    plans = designs_of(job)
    before = simulate(job, plans)
    reached: dict[Moved, set[str]] = {moved: set() for moved in Moved}
    for offer in range(len(job.offers)):
        for lever in uncertain_inputs(job, offer, QUARTER):
            for value in (lever.input.low, 1.5 * lever.input.mid, lever.input.high):
                reached[lever.moves] |= moved_parts(lever.change(job, value), before, plans)
    assert reached[Moved.WORTH] == set()
    assert not reached[Moved.RUN] & {"steps", "memory"}
    assert {"run", "energy"} <= reached[Moved.RUN]
    assert "steps" in reached[Moved.STEP]
