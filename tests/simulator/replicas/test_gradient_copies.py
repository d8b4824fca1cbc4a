"""Kernels that add gradients up and copy them, and all-reduces in the place of scatters, against counts by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.deep.plans.plan_items import seconds_of
from simulator.deep.plans.plan_step import parts_and_shape
from simulator.domain.plan import Plan, Recompute
from simulator.domain.workload import Workload
from simulator.layers.model_ends import output_layer
from simulator.layers.moved_operators import moved_operators_s
from simulator.layout.chunks import split_layers
from simulator.layout.trained_weights import StepWeights
from simulator.replicas.replica_sync import ReplicaTraffic
from simulator.step.gradient_buckets import Buckets
from simulator.step.model_parts import ModelParts
from simulator.step.parts import Part
from tests.simulator.builders import gpt, job_of, plan_of, rank_of, step_of, training

MODEL = gpt(num_layers=8, hidden_size=4096, num_heads=32, vocabulary_size=1024)
GATED = training("llama-3.1-8b", global_batch_size=64)
H100_BYTES_PER_S = 3.35e12
NUM_PARTS = 10
"""Eight layers, embedding and output layer."""


def workload_of(**choices: object) -> Workload:
    return training(MODEL, global_batch_size=64).model_copy(update=choices)


def traffic_of(plan: Plan, **choices: object) -> ReplicaTraffic:
    rank = rank_of(workload_of(**choices), plan)
    weights = StepWeights.of(rank.workload, rank.plans, split_layers(MODEL, rank.plans))
    return ReplicaTraffic.of(rank, weights)


def moved_s(num_bytes: float, launches: float = 1.0) -> float:
    kernels = rank_of(workload_of(), plan_of()).kernels
    streamed_s = num_bytes / (H100_BYTES_PER_S * float(kernels.memory_fraction[0]))
    return streamed_s + launches * float(kernels.launch_s[0])


class TestSums:
    @pytest.mark.parametrize("zero", [0, 1])
    def test_pytorch_adds_gradients_in_16_bits_in_all_micro_batches_but_the_first(self, zero: int) -> None:
        plan = plan_of(tensor=2, data=8, zero=zero)
        none, added = (
            step_of(workload_of(gradient_bytes=2, added_gradient_bytes=each), plan) for each in (0.0, 6.0)
        )
        # 8 micro-batches, of which 7 read the sum and the new gradient and write the sum.
        wanted = moved_s(6 * 7 * MODEL.num_parameters / 2, launches=8 * NUM_PARTS)
        assert float(added.compute_s[0] - none.compute_s[0]) == pytest.approx(wanted, rel=1e-3)

    def test_sums_in_32_bits_are_cleared_and_take_all_micro_batches(self) -> None:
        plan = plan_of(data=8)
        none, added = (
            step_of(workload_of(gradient_bytes=6, added_gradient_bytes=each), plan) for each in (0.0, 26.0)
        )
        wanted = moved_s(26 * 8 * MODEL.num_parameters, launches=8 * NUM_PARTS)
        assert float(added.compute_s[0] - none.compute_s[0]) == pytest.approx(wanted, rel=1e-3)

    def test_products_that_do_not_add_are_no_slower(self) -> None:
        plan = plan_of(data=8)
        inside, apart = (step_of(workload_of(added_gradient_bytes=each), plan) for each in (None, 0.0))
        assert apart.compute_s[0] < inside.compute_s[0]

    @pytest.mark.parametrize(
        ("plan", "adds"),
        [
            (plan_of(data=8, zero=1), True),
            (plan_of(data=8, zero=2), False),  # reduced in every micro-batch, as by FSDP2
            (plan_of(pipeline=2, data=8, zero=2), True),  # grow until the last micro-batch of a chunk
            (plan_of(zero=2), True),  # nobody to share them with
            (plan_of(data=8, zero=3), False),
        ],
    )
    def test_products_add_to_gradients_that_a_rank_keeps_whole(self, plan: Plan, adds: bool) -> None:
        product = (np.array([4096.0]), np.array([4096.0]), np.array([4096.0]))
        inside = rank_of(workload_of(), plan_of())
        found = replace(rank_of(workload_of(), plan), sustained_fraction=inside.sustained_fraction)
        is_as_long = found.weight_gradient_s(*product) == pytest.approx(inside.weight_gradient_s(*product))
        assert is_as_long is adds

    @pytest.mark.parametrize("zero", [2, 3])
    def test_sharded_gradients_are_no_whole_sums(self, zero: int) -> None:
        plan = plan_of(data=8, zero=zero)
        inside, apart = (step_of(workload_of(added_gradient_bytes=each), plan) for each in (None, 26.0))
        assert apart.step_time_s[0] == inside.step_time_s[0]


class TestBuckets:
    def test_deepspeed_fills_its_buckets_in_every_micro_batch_of_zero_2(self) -> None:
        plan = plan_of(data=8, zero=2)
        none, copied = (step_of(workload_of(bucket_copy_bytes=each), plan) for each in (0.0, 12.0))
        wanted = moved_s(12 * 8 * MODEL.num_parameters, launches=8 * NUM_PARTS)
        assert float(copied.compute_s[0] - none.compute_s[0]) == pytest.approx(wanted, rel=1e-3)

    def test_one_replica_has_no_buckets(self) -> None:
        none, copied = (step_of(workload_of(bucket_copy_bytes=each), plan_of(zero=2)) for each in (0.0, 12.0))
        assert none.step_time_s[0] == copied.step_time_s[0]

    @pytest.mark.parametrize("weights", [2e8, 5e8, 5e9])
    def test_buckets_of_a_given_size_are_as_many_as_hold_the_weights(self, weights: float) -> None:
        rank = rank_of(workload_of(bucket_weights=weights), plan_of(data=8))
        chunks = split_layers(MODEL, rank.plans)
        found = Buckets.of(
            rank, ModelParts.of(rank, chunks), StepWeights.of(rank.workload, rank.plans, chunks)
        )
        assert found.gradients[0, 0] == np.ceil(MODEL.num_parameters / weights)


class TestAllReduces:
    @pytest.mark.parametrize("zero", [1, 2])
    def test_gradients_that_all_ranks_get_take_two_ways_round_the_ring(self, zero: int) -> None:
        plan = plan_of(data=64, zero=zero)
        scattered, whole = (traffic_of(plan, scatters_gradients_from=each) for each in (zero, zero + 1))
        for name in ("gradient_s", "backward_s"):
            before_s, behind_s = getattr(scattered, name)[0, 0], getattr(whole, name)[0, 0]
            assert behind_s == pytest.approx(2 * before_s, rel=0.03)  # with one start-up
        assert whole.parameter_s[0, 0] == scattered.parameter_s[0, 0]

    def test_groups_that_share_states_do_not_narrow_the_reduction_of_internevo(self) -> None:
        plain, groups = (
            traffic_of(plan_of(data=64, zero=1, shards=each), scatters_gradients_from=2) for each in (None, 8)
        )
        assert groups.gradient_s[0, 0] == plain.gradient_s[0, 0]
        assert groups.parameter_s[0, 0] < plain.parameter_s[0, 0]

    @given(zero=st.sampled_from([0, 3]), data=st.sampled_from([1, 8, 64]))
    def test_zero_0_and_3_have_their_own_ways(self, zero: int, data: int) -> None:
        plan = plan_of(data=data, zero=zero)
        one, three = (step_of(workload_of(scatters_gradients_from=each), plan) for each in (1, 3))
        assert one.step_time_s[0] == three.step_time_s[0]


class TestOperators:
    @pytest.mark.parametrize(
        ("recompute", "backward"), [(Recompute.NONE, 2 * 10 + 2 * 12 + 6), (Recompute.FULL, 2 * 10)]
    )
    def test_norms_of_internevo_have_copies_in_32_bits_and_are_computed_again(
        self, recompute: Recompute, backward: int
    ) -> None:
        plan = plan_of(recompute=recompute)
        plain, again = (
            moved_operators_s(
                rank_of(GATED.model_copy(update={"checkpoints_norms": each}), plan), is_expert=False
            )
            for each in (False, True)
        )
        values = 4096 * GATED.model.hidden_size
        launches = 4 + (5 if recompute is Recompute.NONE else 0)
        # Forward: cast 2 + 4 and 4 in the place of 2, for each norm.
        assert float(again[0][0] - plain[0][0]) == pytest.approx(moved_s(2 * 8 * values, 2), rel=1e-6)
        assert float(again[1][0] - plain[1][0]) == pytest.approx(
            moved_s(backward * values, launches), rel=1e-6
        )

    def test_accuracy_and_a_fused_loss_move_46_and_14_bytes_a_logit(self) -> None:
        plain, measured = (
            output_layer(rank_of(GATED.model_copy(update={"measures_accuracy": each}), plan_of()))
            for each in (False, True)
        )
        logits = 4096 * GATED.model.vocabulary_size
        forward_s = float(measured.forward_compute_s[0] - plain.forward_compute_s[0])
        backward_s = float(plain.backward_compute_s[0] - measured.backward_compute_s[0])
        assert forward_s == pytest.approx(moved_s((46 - 16) * logits, 0), rel=1e-6)
        assert backward_s == pytest.approx(moved_s((16 - 14) * logits, 0), rel=1e-6)


def test_the_deep_depth_adds_and_copies_as_long() -> None:
    for plan, choices, moved in (
        (plan_of(tensor=2, data=4), {"gradient_bytes": 2, "added_gradient_bytes": 6.0}, 6 * 15 / 16),
        (plan_of(tensor=2, data=4, zero=2), {"bucket_copy_bytes": 12.0}, 12),
    ):
        before = {"gradient_bytes": choices.get("gradient_bytes", 4), "added_gradient_bytes": 0.0}
        (none, _), (copied, _) = (
            parts_and_shape(job_of(workload_of(**each)), plan) for each in (before, {**before, **choices})
        )
        none_s, copied_s = (seconds_of(parts.passes[Part.DENSE].backward) for parts in (none, copied))
        wanted_s = moved_s(moved * MODEL.dense_layer_parameters / 2, 1)
        assert copied_s - none_s == pytest.approx(wanted_s, rel=1e-3, abs=3e-6)
