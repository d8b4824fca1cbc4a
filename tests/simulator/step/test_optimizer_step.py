"""Does the optimizer move the bytes of the weights that the fullest stage updates, and what it leaves to the host?"""

from __future__ import annotations

import numpy as np
import pytest

from simulator.domain.plan import Plan
from simulator.domain.workload import Workload
from tests.simulator.builders import changed, gpt, plan_of, rank_of, step_of, training

KERNELS = 50
"""Launches of an update, docs/model/replicas.md."""
BYTES = 4 + 8 + 28 + 6
"""Norm, clipping, Adam and the copy of the master: `tests/simulator/layout/test_update_bytes.py`."""
WHOLE, WITH_REPLICAS = 4 + 4, 8
"""Passes of gradients that are whole on a rank: zeroed and checked, and divided where there are replicas
(`tests/simulator/step/test_once_per_step.py`)."""
SMALL = training(gpt(num_layers=4, vocabulary_size=8))
LAYER = 12 * 2048**2 + 2 * 2048


def moved_bytes(workload: Workload, plan: Plan) -> float:
    """What an update moves, by the time that it takes."""
    rank = rank_of(workload, plan)
    rate = rank.offers.memory_bytes_per_s[0] * rank.kernels.memory_fraction[0]
    moved_s = step_of(workload, plan).optimizer_s[0] - KERNELS * rank.kernels.launch_s[0]
    return float(moved_s * rate)


@pytest.mark.parametrize(("zero", "share", "whole"), [(0, 1, 1), (1, 8, 1), (2, 8, 0)])
def test_replicas_share_the_update_from_the_first_stage_of_zero_on(zero: int, share: int, whole: int) -> None:
    each = BYTES / share + whole * (WHOLE + WITH_REPLICAS)
    found = moved_bytes(SMALL, plan_of(data=8, zero=zero))
    assert found == pytest.approx(each * SMALL.model.num_parameters, rel=1e-6)


def test_the_fullest_stage_takes_longest() -> None:
    # Five layers on two stages: the last one has three, and the output layer with a final norm.
    five = training(gpt(num_layers=5, vocabulary_size=8))
    most = 3 * LAYER + 8 * 2048 + 2048
    assert moved_bytes(five, plan_of(pipeline=2, zero=0)) == pytest.approx((BYTES + WHOLE) * most, rel=1e-3)


def test_experts_are_shared_by_those_that_have_the_same() -> None:
    # Mixtral 8x7B on 64 ranks: eight sets of eight experts, so that eight ranks have each; all have what is shared.
    mixtral = training("mixtral-8x7b")
    routed = 32 * 8 * 3 * 4096 * 14_336
    shared = mixtral.model.num_parameters - routed
    sharded = plan_of(data=64, expert=8, zero=2)
    assert moved_bytes(mixtral, sharded) == pytest.approx(BYTES * (shared / 64 + routed / 8 / 8), rel=1e-6)


def test_what_the_host_updates_is_not_moved_by_the_accelerator_and_takes_longer_there() -> None:
    plan = plan_of(data=8)
    times_s = [
        step_of(changed(SMALL, optimizer_offload_fraction=share), plan).optimizer_s[0]
        for share in (0.0, 1e-6, 0.5, 1.0)
    ]
    assert times_s[1] == pytest.approx(times_s[0], rel=1e-5)  # the accelerator's share is all
    assert times_s[2] > 2.0 * times_s[0]  # main memory is slower
    assert times_s[3] == pytest.approx(2.0 * times_s[2], rel=0.01)


def test_hosts_of_the_fullest_stage_update_longest() -> None:
    # Three layers are one and two; four are two on each stage. The vocabulary is negligible.
    three_s, four_s, two_s = (
        step_of(
            changed(
                training(gpt(num_layers=layers, vocabulary_size=8), num_steps=1),
                optimizer_offload_fraction=1.0,
            ),
            plan_of(pipeline=2, data=4),
        ).optimizer_s[0]
        for layers in (3, 4, 2)
    )
    assert three_s == pytest.approx(four_s, rel=1e-3)
    assert three_s == pytest.approx(2.0 * two_s, rel=1e-2)


def test_the_parts_of_a_step_sum_to_it_with_what_comes_behind_the_pipeline() -> None:
    # A tied embedding is summed between the ends behind the pipeline, which belongs to the synchronisation.
    tied = training(gpt(num_layers=4, has_tied_embeddings=True))
    steps = step_of(tied, plan_of(pipeline=2, data=4, tensor=2))
    parts = [getattr(steps, name)[0] for name in steps.names() if name != "step_time_s"]
    assert np.sum(parts) == pytest.approx(steps.step_time_s[0], rel=1e-9)
    free = step_of(training(gpt(num_layers=4)), plan_of(pipeline=2, data=4, tensor=2))
    assert steps.gradient_sync_s[0] > free.gradient_sync_s[0]
