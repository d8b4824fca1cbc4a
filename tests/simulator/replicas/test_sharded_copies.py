"""How long do the copies of FSDP2 take, and where are there any?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.deep.plans.plan_items import seconds_of
from simulator.deep.plans.plan_step import parts_and_shape
from simulator.domain.blocks import MixtureOfExperts
from simulator.domain.choices import ShardedCopies
from simulator.domain.lora import Lora, adapter_parameters
from simulator.domain.model import ModelShape
from simulator.domain.plan import Plan
from simulator.domain.workload import Workload
from simulator.machine.rank import Rank
from simulator.step.parts import Part
from tests.simulator.builders import gpt, job_of, plan_of, step_of, table_of, training

MODEL = gpt(num_layers=8, hidden_size=4096, num_heads=32, vocabulary_size=1024)
EXPERTS = MixtureOfExperts(num_experts=8, experts_per_token=2, expert_ffn_hidden_size=4096)
MIXTURE = MODEL.model_copy(update={"experts": EXPERTS})


def workload_of(copies: ShardedCopies, model: ModelShape = MODEL, **choices: object) -> Workload:
    update = {"sharded_copies": copies, **choices}
    return training(model, global_batch_size=64).model_copy(update=update)


def longer_s(plan: Plan, model: ModelShape = MODEL, **choices: object) -> float:
    """By how much longer a step computes with the copies than without."""
    none, copied = (step_of(workload_of(way, model, **choices), plan) for way in ("none", "fsdp-2"))
    return float(copied.compute_s[0] - none.compute_s[0])


def moved_s(num_bytes: float, launches: float, plan: Plan) -> float:
    """Bytes on an H100 of 3.35 TB/s."""
    kernels = Rank.of(job_of(workload_of("none")), table_of(plan)).kernels
    streamed_s = num_bytes / (3.35e12 * float(kernels.memory_fraction[0]))
    return streamed_s + launches * float(kernels.launch_s[0])


@pytest.mark.parametrize(("sync_bytes", "bytes_per_weight"), [(4, 4 + 10), (2, 4 + 8)])
def test_every_micro_batch_copies_what_it_gathers_twice_and_gradients_once(
    sync_bytes: int, bytes_per_weight: int
) -> None:
    plan = plan_of(tensor=2, data=4, zero=3)
    a_pass_s = moved_s(bytes_per_weight * MODEL.num_parameters / 2, 3 * 10, plan)
    assert longer_s(plan, sync_bytes=sync_bytes) == pytest.approx(16 * a_pass_s, rel=1e-3)


def test_weights_of_experts_have_copies_of_their_own_where_they_are_shared_out() -> None:
    routed = 8 * 8 * MIXTURE.expert_parameters
    shared = MIXTURE.num_parameters - routed
    near, far = plan_of(expert=4, data=8, zero=3), plan_of(expert=8, data=8, zero=3)
    assert longer_s(near, MIXTURE) == pytest.approx(
        8 * moved_s(14 * (shared + routed / 4), 3 * 18, near), rel=1e-3
    )
    assert longer_s(far, MIXTURE) == pytest.approx(8 * moved_s(14 * shared, 3 * 10, far), rel=1e-3)


def test_frozen_weights_have_no_gradients_to_copy() -> None:
    plan, lora = plan_of(data=8, zero=3), Lora(rank=16)
    adapters = 8 * adapter_parameters(MODEL, lora)
    copied_s = moved_s(8 * (MODEL.num_parameters + adapters) + 6 * adapters, 2 * 10 + 8, plan)
    assert longer_s(plan, lora=lora) == pytest.approx(8 * copied_s, rel=1e-3)


@given(
    zero=st.integers(0, 3),
    pipeline=st.sampled_from([1, 2]),
    data=st.sampled_from([1, 8, 64]),
    model=st.sampled_from([MODEL, MIXTURE]),
)
def test_copies_are_never_faster_and_those_of_zero_3_alone(
    zero: int, pipeline: int, data: int, model: ModelShape
) -> None:
    plan = plan_of(pipeline=pipeline, data=data, zero=zero)
    none, copied = (
        float(step_of(workload_of(way, model), plan).step_time_s[0]) for way in ("none", "fsdp-2")
    )
    assert copied > none if zero == 3 and data > 1 else copied == none


def test_the_deep_depth_copies_as_long() -> None:
    plan = plan_of(tensor=2, data=4, zero=3)
    (none, _), (copied, _) = (parts_and_shape(job_of(workload_of(way)), plan) for way in ("none", "fsdp-2"))
    weights = MODEL.dense_layer_parameters / 2
    for name, bytes_per_weight, launches in (("forward", 4, 1), ("backward", 10, 2)):
        before_s, behind_s = (seconds_of(getattr(parts.passes[Part.DENSE], name)) for parts in (none, copied))
        assert behind_s - before_s == pytest.approx(moved_s(bytes_per_weight * weights, launches, plan))
