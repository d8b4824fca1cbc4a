"""How much of the first gather of a backward pass shows?"""

from __future__ import annotations

import numpy as np
import pytest

from simulator.domain.plan import Plan, PlanTable, Schedule
from simulator.machine.rank import Rank
from simulator.pipeline.shape import PipelineShape, stage_of
from simulator.pipeline.turns import turns_of_stages
from simulator.step.first_gathers import shares_behind, shown_first_s
from tests.simulator.builders import gpt, job_of, plan_of, training


def _rank(plan: Plan, num_micro_batches: int) -> Rank:
    workload = training(gpt(num_layers=12), global_batch_size=num_micro_batches * plan.data_parallel)
    return Rank.of(job_of(workload), PlanTable.from_plans([plan]))


@pytest.mark.parametrize("num_micro_batches", [4, 16])
@pytest.mark.parametrize(
    "plan",
    [
        plan_of(pipeline=4, data=2, zero=3),
        plan_of(pipeline=4, data=2, zero=3, schedule=Schedule.GPIPE),
        plan_of(pipeline=4, data=2, zero=3, virtual=3),
    ],
)
def test_the_last_stage_follows_its_order(plan: Plan, num_micro_batches: int) -> None:
    num_chunks = plan.pipeline_parallel * plan.virtual_pipeline
    shape = PipelineShape(plan.pipeline_schedule.code, 4, num_chunks, num_micro_batches, 4)
    turns = np.asarray(turns_of_stages(shape)[3])
    is_backward, chunk = turns // num_chunks == 1, turns % num_chunks
    behind = chunk[1:][is_backward[1:] & is_backward[:-1]]
    own = [each for each in range(num_chunks) if stage_of(shape, each) == 3]
    counted = [np.count_nonzero(behind == each) / num_micro_batches for each in own]
    np.testing.assert_allclose(shares_behind(_rank(plan, num_micro_batches), num_chunks)[0, own], counted)


@pytest.mark.parametrize("num_micro_batches", [1, 4, 16])
def test_passes_that_follow_each_other_show_what_the_last_stage_does(num_micro_batches: int) -> None:
    rank = _rank(plan_of(pipeline=4, data=2, zero=3), num_micro_batches)
    shown_s = shown_first_s(rank, np.array([[1.0, 2.0, 1.0, 4.0]]))[0]
    # All passes of the last stage, and the last ones of the others on the way up to the first stage.
    assert num_micro_batches * shown_s[3] + shown_s[:3].sum() == pytest.approx(num_micro_batches * 4.0)
    assert np.all(shown_s[:3] > 0.0)
