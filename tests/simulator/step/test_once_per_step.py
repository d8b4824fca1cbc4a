"""What is done to whole gradients once per step, against counts by hand of `start_grad_sync` of Megatron Core."""

from __future__ import annotations

import pytest

from simulator.domain.hardware import Precision
from simulator.domain.plan import Plan
from simulator.layout.chunks import split_layers
from simulator.layout.trained_weights import StepWeights
from simulator.machine.rank import Rank
from simulator.step.once_per_step import once_per_step_bytes
from tests.simulator.builders import job_of, plan_of, table_of, training


def bytes_of_a_gradient(plan: Plan, **changes: object) -> float:
    """Bytes that a rank moves for one of its weights, of which there are as many as it has parameters."""
    workload = training("llama-3.1-8b").model_copy(update=changes)
    plans = table_of(plan)
    chunks = split_layers(workload.model, plans)
    weights = StepWeights.of(workload, plans, chunks)
    stages = chunks.unlike_stages()
    trained = chunks.on_stage(weights.trained.shared_on_rank(plans), stages)
    moved = once_per_step_bytes(Rank.of(job_of(workload), plans), chunks, stages, weights, trained)
    return float(moved[0, 0] / trained[0, 0])


@pytest.mark.parametrize("gradient_bytes", [2, 4])
@pytest.mark.parametrize("zero", [0, 1])
def test_whole_gradients_are_zeroed_read_and_divided(zero: int, gradient_bytes: int) -> None:
    plan = plan_of(data=8, zero=zero)
    for checks, divides, passes in ((False, False, 1), (True, False, 2), (False, True, 3), (True, True, 4)):
        moved = bytes_of_a_gradient(
            plan, gradient_bytes=gradient_bytes, checks_gradients=checks, divides_gradients=divides
        )
        assert moved == passes * gradient_bytes


def test_one_replica_has_nothing_to_divide_by() -> None:
    assert bytes_of_a_gradient(plan_of()) == 4 + 4
    assert bytes_of_a_gradient(plan_of(context=2)) == 4 + 4 + 8


@pytest.mark.parametrize("zero", [2, 3])
def test_sharded_gradients_are_new_in_every_pass(zero: int) -> None:
    assert bytes_of_a_gradient(plan_of(data=8, zero=zero)) == 0


@pytest.mark.parametrize("changes", [{}, {"step_bytes": 62.0}])
def test_buckets_are_filled_and_copied_back_whatever_the_step_moves(changes: dict[str, object]) -> None:
    plan, alone = plan_of(data=8), plan_of()
    for found, more in ((plan, 8.0), (alone, 0.0)):
        none, copied = (bytes_of_a_gradient(found, bucket_copy_bytes=each, **changes) for each in (0.0, 8.0))
        assert copied - none == more


def test_loss_scaling_finds_nan_itself() -> None:
    assert bytes_of_a_gradient(plan_of(data=8, precision=Precision.FP16)) == 4 + 8
