"""What do ZeRO stages change where ranks share nothing? All gradients are whole, and weights in 32 bits are cast."""

from __future__ import annotations

import pytest

from simulator.domain.plan import Plan
from simulator.step.step import StepTable
from tests.simulator.builders import changed, gpt, plan_of, rank_of, step_of, training

H100_BYTES_PER_S = 3.35e12
MODEL = gpt(num_layers=8, hidden_size=4096, num_heads=32, vocabulary_size=1024)
WORKLOAD = training(MODEL, global_batch_size=64)
NUM_PARTS = 10
"""Eight layers, embedding and output layer."""


def lone(zero: int, **choices: object) -> StepTable:
    return step_of(changed(WORKLOAD, **choices), plan_of(zero=zero))


@pytest.mark.parametrize("choices", [{}, {"added_gradient_bytes": 6.0}, {"bucket_copy_bytes": 8.0}])
@pytest.mark.parametrize(
    "plan",
    [plan_of(), plan_of(tensor=8), plan_of(pipeline=4), plan_of(data=8, shards=1)],
    ids=["one rank", "tensor", "pipeline", "replicas"],
)
def test_up_to_stage_2_steps_are_one(choices: dict[str, object], plan: Plan) -> None:
    workload = changed(WORKLOAD, **choices)
    steps = [step_of(workload, changed(plan, zero_stage=zero)) for zero in (1, 2)]
    for name in ("compute_s", "optimizer_s"):
        assert getattr(steps[0], name) == getattr(steps[1], name)


def test_stage_3_casts_its_masters_in_every_pass_and_not_once_per_step() -> None:
    kernels = rank_of(WORKLOAD, plan_of()).kernels
    rate = H100_BYTES_PER_S * float(kernels.memory_fraction[0])
    # 64 micro-batches, forward and backward: 4 bytes read and 2 written; the update writes no weights in 16 bits.
    a_pass_s = 6 * MODEL.num_parameters / rate + NUM_PARTS * float(kernels.launch_s[0])
    whole, masters = lone(1), lone(3)
    assert float(masters.compute_s[0] - whole.compute_s[0]) == pytest.approx(128 * a_pass_s, rel=1e-3)
    update_s = 6 * MODEL.num_parameters / rate
    assert float(whole.optimizer_s[0] - masters.optimizer_s[0]) == pytest.approx(update_s, rel=1e-3)


def test_stage_3_with_weights_in_16_bits_casts_none() -> None:
    assert lone(1, gradient_bytes=2) == lone(3, gradient_bytes=2)


def test_replicas_share_weights_and_cast_none_in_the_computation() -> None:
    def computed_s(plan: Plan) -> float:
        return float(step_of(WORKLOAD, plan).compute_s[0])

    assert computed_s(plan_of(data=8, zero=3)) < computed_s(plan_of(data=8, zero=1))
