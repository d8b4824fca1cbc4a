"""Does each part of a played step stand where the fast depth has it?"""

from __future__ import annotations

import numpy as np
import pytest

from simulator.deep.plans.plan_breakdown import plan_breakdown
from simulator.deep.plans.plan_step import plan_step
from simulator.domain.lora import Lora
from simulator.domain.plan import Plan, Schedule
from simulator.domain.workload import Workload
from simulator.step.step import STEP_PARTS
from tests.simulator.builders import changed, job_of, plan_of, training


def parts_of(workload: Workload, plan: Plan) -> dict[str, float]:
    """Seconds of each part, the mean of all accelerators that were played."""
    seconds = plan_breakdown(plan_step(job_of(workload), plan)).seconds.mean(axis=0)
    return dict(zip(STEP_PARTS, map(float, seconds), strict=True))


def test_cores_that_gradients_take_are_no_tensor_parallelism() -> None:
    parts = parts_of(training(global_batch_size=64), plan_of(data=16))
    fast = plan_step(job_of(training(global_batch_size=64)), plan_of(data=16)).fast
    assert parts["tensor_comm_s"] == 0.0
    assert parts["gradient_sync_s"] == pytest.approx(float(np.sum(fast.gradient_sync_s)), rel=0.05)


def test_what_adapters_exchange_is_tensor_parallelism() -> None:
    workload = changed(training(global_batch_size=16), lora=Lora(rank=16))
    step = plan_step(job_of(workload), plan_of(tensor=8))
    played = dict(zip(STEP_PARTS, plan_breakdown(step).seconds.mean(axis=0), strict=True))
    assert played["tensor_comm_s"] == pytest.approx(float(step.fast.tensor_comm_s[0]), rel=0.02)
    assert played["compute_s"] == pytest.approx(float(step.fast.compute_s[0]), rel=0.02)


def test_maps_of_the_routing_are_traffic_of_experts() -> None:
    mixture = changed(training("qwen3-30b-a3b", global_batch_size=16), expert_dispatch="deduplicated")
    plan = plan_of(expert=16, data=16)
    without, with_maps = (
        parts_of(each, plan) for each in (mixture, changed(mixture, gathers_routing_maps=True))
    )
    assert with_maps["expert_comm_s"] > without["expert_comm_s"]
    assert with_maps["compute_s"] == pytest.approx(without["compute_s"], rel=0.01)


def test_gradients_of_weights_are_computed_and_not_exchanged() -> None:
    workload, plan = training(global_batch_size=8), plan_of(tensor=4, pipeline=2, schedule=Schedule.ZB_H1)
    step = plan_step(job_of(workload), plan)
    played = dict(zip(STEP_PARTS, plan_breakdown(step).seconds.mean(axis=0), strict=True))
    assert played["gradient_sync_s"] == played["shard_comm_s"] == 0.0
    assert played["compute_s"] == pytest.approx(float(step.fast.compute_s[0]), rel=0.05)
