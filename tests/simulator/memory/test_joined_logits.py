"""Do last stages that return the outputs of a step have room for the logits of all its micro-batches?"""

from __future__ import annotations

import pytest

from simulator.domain.plan import Plan, Recompute, Schedule
from simulator.domain.workload import Workload
from simulator.memory.peak import MemoryTable, memory_by_stage, memory_of_loss
from tests.simulator.builders import plan_of, table_of, training

NUM_SEQUENCES = 8


def stages_of(plan: Plan, *, joins: bool, **fields: object) -> MemoryTable:
    workload = training("llama-3.1-8b", global_batch_size=NUM_SEQUENCES).model_copy(
        update={"joins_logits": joins, **fields}
    )
    return memory_by_stage(workload, plan)


def logits_of_one(workload: Workload, tensor: int) -> float:
    return 2.0 * workload.sequence_length * workload.model.vocabulary_size / tensor


@pytest.mark.parametrize("tensor", [1, 4])
def test_logits_of_all_other_micro_batches_wait_on_the_last_stage(tensor: int) -> None:
    plan = plan_of(pipeline=4, tensor=tensor)
    joined, usual = (stages_of(plan, joins=joins, logit_bytes=32).logits_bytes for joins in (True, False))
    one = logits_of_one(training("llama-3.1-8b"), tensor)
    assert (joined - usual).tolist() == pytest.approx([0.0, 0.0, 0.0, (NUM_SEQUENCES - 1) * one])


def test_joining_them_takes_as_much_again_where_little_else_was_there() -> None:
    # One layer a stage whose input alone is kept: what all logits and the joined ones take is more than a micro-batch.
    workload = training("llama-3.1-8b", global_batch_size=64, sequence_length=1024)
    shape = workload.model.model_copy(update={"num_layers": 2})
    workload = workload.model_copy(update={"model": shape, "joins_logits": True, "logit_bytes": 2})
    last = memory_by_stage(workload, plan_of(pipeline=2, recompute=Recompute.FULL))
    everything = (
        last.activations_bytes + last.logits_bytes + last.workspace_bytes - workload.sync_buffer_bytes
    )
    assert everything[-1] == pytest.approx(2.0 * 64 * logits_of_one(workload, 1))


def test_a_single_stage_returns_nothing() -> None:
    joined, usual = (stages_of(plan_of(), joins=joins).peak_bytes for joins in (True, False))
    assert joined.tolist() == usual.tolist()


@pytest.mark.parametrize(("schedule", "stage"), [(Schedule.ONE_F_ONE_B, 3), (Schedule.ZB_V, 0)])
def test_the_stage_of_the_loss_is_found(schedule: Schedule, stage: int) -> None:
    plan = plan_of(pipeline=4, schedule=schedule, virtual=2 if schedule is Schedule.ZB_V else 1)
    workload = training("llama-3.1-8b", global_batch_size=NUM_SEQUENCES)
    of_loss = memory_of_loss(workload, table_of(plan))
    assert of_loss.logits_bytes[0] > 0.0
    assert of_loss.peak_bytes[0] == memory_by_stage(workload, plan).peak_bytes[stage]
