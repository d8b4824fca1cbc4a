"""Do a design's figures sum up, in the units that their names say?"""

from __future__ import annotations

import pytest

from constraints.evaluation import evaluate
from planner.recommended.designs import design_at
from simulator.domain.plan import CheckpointScheme
from tests.support import H100_BOUGHT, job_with, plans_with


def test_parts_sum_to_the_whole_in_units_for_people() -> None:
    job = job_with(H100_BOUGHT)
    found = evaluate(job, plans_with({"num_gpus": 16, "num_spare_nodes": 1}))
    design = design_at(job, found, 0, 7)
    seconds = design.time_to_train_days * 24 * 3600
    assert seconds == pytest.approx(found.scores.time_to_train_s[0])
    assert sum(design.run_seconds.values()) == pytest.approx(seconds)
    assert sum(design.step_seconds.values()) == pytest.approx(design.step_time_s)
    assert sum(design.cost_parts_usd.values()) == pytest.approx(design.cost_usd)
    assert sum(design.carbon_parts_kgco2e.values()) == pytest.approx(design.carbon_kgco2e)
    assert design.energy_kwh * 3.6e6 == pytest.approx(found.scores.energy_j[0])
    assert sum(design.energy_parts_kwh.values()) == pytest.approx(found.outcomes.energy.total_j[0] / 3.6e6)


@pytest.mark.parametrize(("num_gpus", "num_nodes"), [(4, 1), (8, 1), (16, 2)])
def test_training_takes_whole_nodes(num_gpus: int, num_nodes: int) -> None:
    job = job_with(H100_BOUGHT)
    assert design_at(job, evaluate(job, plans_with({"num_gpus": num_gpus})), 0, 7).num_nodes == num_nodes


def test_only_a_design_that_saves_has_an_interval() -> None:
    job = job_with(H100_BOUGHT)
    schemes = (CheckpointScheme.ASYNC, CheckpointScheme.NONE)
    found = evaluate(job, plans_with(*({"num_gpus": 16, "checkpoint_scheme": scheme} for scheme in schemes)))
    saving, other = (design_at(job, found, row, 7).checkpoint_interval_s for row in (0, 1))
    assert saving == found.outcomes.run.checkpoint_interval_s[0]
    assert other is None
