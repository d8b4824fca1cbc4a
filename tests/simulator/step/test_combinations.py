"""Do features that are modelled in modules of their own hold together in one design?"""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator import catalog
from simulator.domain.attention_span import SlidingWindow
from simulator.domain.documents import Documents
from simulator.domain.lora import ATTENTION_PRODUCTS, Lora
from simulator.domain.plan import Plan, Recompute
from simulator.domain.workload import Workload
from simulator.layout.chunks import split_layers
from simulator.layout.expert_ranks import routed_shard_group
from simulator.layout.trained_weights import StepWeights, trained_flop_per_token
from simulator.machine.offer_table import OfferTable
from simulator.replicas.replica_sync import ReplicaGroup, ReplicaTraffic
from simulator.step.offload import offloaded_bytes_per_node
from tests.simulator.builders import (
    changed,
    gpt,
    job_of,
    memory_of,
    plan_of,
    rank_of,
    step_of,
    table_of,
    training,
)

MIXTRAL = training("mixtral-8x7b", global_batch_size=512)
MODEL = MIXTRAL.model
ROUTED = 32 * 8 * 3 * 4096 * 14_336
"""Weights of Mixtral's experts: eight of three matrices in each of 32 layers."""
ROUTERS = 32 * 8 * 4096
SHARED = MODEL.num_parameters - ROUTED
ADAPTED = {"lora": Lora(rank=16, targets=ATTENTION_PRODUCTS)}


def traffic_of(workload: Workload, plan: Plan) -> ReplicaTraffic:
    rank = rank_of(workload, plan)
    chunks = split_layers(workload.model, rank.plans)
    return ReplicaTraffic.of(rank, StepWeights.of(workload, rank.plans, chunks))


class TestShardGroupsOfPartsOfExperts:
    """Hybrid sharding where t_e ranks share each expert: e t_e ranks hold a set of experts, z t ranks a whole copy."""

    @given(
        tensor=st.sampled_from([1, 2, 4]),
        expert=st.sampled_from([1, 2, 4, 8]),
        parts=st.sampled_from([1, 2, 4]),
        shards=st.sampled_from([1, 2, 4, 8, 32]),
    )
    def test_all_ranks_together_hold_a_whole_number_of_copies(
        self, tensor: int, expert: int, parts: int, shards: int
    ) -> None:
        workload = changed(MIXTRAL, expert_tensor_parallel=parts)
        memory = memory_of(workload, plan_of(tensor=tensor, expert=expert, data=32, zero=3, shards=shards))
        states = (memory.weights_bytes + memory.gradients_bytes + memory.optimizer_bytes)[0]
        # 16 bytes of a weight in each of 32 / z groups; experts that several groups share have fewer copies, and routers one
        # on every tensor-parallel rank.
        num_ranks = 32 * tensor
        held = (SHARED + (tensor - 1) * ROUTERS) * 32 / shards + ROUTED * num_ranks / max(
            expert * parts, shards * tensor
        )
        assert states * num_ranks == pytest.approx(16 * held)

    @given(
        tensor=st.sampled_from([1, 2, 4]),
        expert=st.sampled_from([1, 2, 4, 8]),
        parts=st.sampled_from([1, 2, 4]),
        shards=st.sampled_from([1, 2, 4, 8, 32]),
    )
    def test_groups_copies_and_sets_of_experts_multiply_to_all_ranks(
        self, tensor: int, expert: int, parts: int, shards: int
    ) -> None:
        workload = changed(MIXTRAL, expert_tensor_parallel=parts)
        rank = rank_of(workload, plan_of(tensor=tensor, expert=expert, data=32, zero=3, shards=shards))
        group, copies = ReplicaGroup.of_routed(rank), ReplicaGroup.of_routed_copies(rank)
        assert group.size.item() == routed_shard_group(workload, rank.plans).item()
        assert group.size.item() * copies.size.item() * expert * parts == 32 * tensor

    @pytest.mark.parametrize("zero", [0, 1, 2, 3])
    @pytest.mark.parametrize("shards", [None, 2, 8, 16])
    @pytest.mark.parametrize("adapters", [{}, ADAPTED])
    def test_halves_of_experts_travel_as_whole_ones_on_twice_as_many_ranks_do(
        self, zero: int, shards: int | None, adapters: dict[str, object]
    ) -> None:
        whole, halves = (
            traffic_of(
                changed(MIXTRAL, expert_tensor_parallel=parts, **adapters),
                plan_of(tensor=2, expert=expert, data=32, zero=zero, shards=shards if zero else None),
            )
            for expert, parts in ((8, 1), (4, 2))
        )
        for field in fields(ReplicaTraffic):
            np.testing.assert_array_equal(getattr(whole, field.name), getattr(halves, field.name))

    @pytest.mark.parametrize("adapters", [{}, ADAPTED, {"keeps_cast_weights": True}])
    def test_halves_of_experts_take_the_memory_of_whole_ones_on_twice_as_many_ranks(
        self, adapters: dict[str, object]
    ) -> None:
        whole, halves = (
            memory_of(
                changed(MIXTRAL, expert_tensor_parallel=parts, **adapters),
                plan_of(expert=expert, data=32, zero=3, shards=16),
            )
            for expert, parts in ((8, 1), (4, 2))
        )
        for name in ("weights_bytes", "gradients_bytes", "optimizer_bytes", "update_bytes"):
            assert getattr(whole, name) == getattr(halves, name)

    @pytest.mark.parametrize(("expert", "parts", "sharing"), [(8, 1, 16), (4, 2, 16), (8, 4, 32)])
    def test_hosts_hold_the_states_of_the_parts(self, expert: int, parts: int, sharing: int) -> None:
        workload = changed(MIXTRAL, expert_tensor_parallel=parts, optimizer_offload_fraction=1.0)
        job = job_of(workload)
        plans = table_of(plan_of(expert=expert, data=32, zero=1, shards=16))
        found = offloaded_bytes_per_node(job, plans, OfferTable.from_job(job).take(plans.offer))
        # 12 bytes of states, a gradient in 32 bits and a weight in 16, of eight ranks of a node.
        assert found[0] == pytest.approx(8 * 18 * (SHARED / 16 + ROUTED / sharing))

    def test_adapters_leave_the_frozen_parts_of_experts_as_large(self) -> None:
        adapted = changed(MIXTRAL, expert_tensor_parallel=2, **ADAPTED)
        found = memory_of(adapted, plan_of(expert=4, data=32, zero=3)).weights_bytes[0]
        # 2 bytes of what is frozen over all ranks; an adapter of rank 16 beside 4096 x 6144 and 4096 x 4096, 4 bytes.
        adapters = 32 * 16 * (4096 + 6144 + 4096 + 4096)
        assert found == pytest.approx((2 * (SHARED + ROUTED) + 4 * adapters) / 32)


class TestRecomputationOfWindows:
    LAYERS = gpt(num_layers=16, hidden_size=4096, num_heads=32, vocabulary_size=1024)
    PLAIN = training(LAYERS, sequence_length=16_384, global_batch_size=64)
    WINDOWED = training(
        LAYERS.model_copy(update={"sliding_window": SlidingWindow(window_tokens=1024)}),
        sequence_length=16_384,
        global_batch_size=64,
    )

    def recomputed_s(self, workload: Workload, num_layers: int | None) -> float:
        again = plan_of(data=8, recompute=Recompute.FULL, recompute_num_layers=num_layers)
        return float((step_of(workload, again).compute_s - step_of(workload, plan_of(data=8)).compute_s)[0])

    def test_so_many_layers_with_windows_are_computed_again(self) -> None:
        all_s = self.recomputed_s(self.WINDOWED, None)
        assert self.recomputed_s(self.WINDOWED, 5) == pytest.approx(all_s * 5 / 16)

    def test_a_window_makes_them_shorter_by_what_it_saves_forward(self) -> None:
        plain, windowed = (workload.sequence_shape for workload in (self.PLAIN, self.WINDOWED))
        assert windowed != plain
        saved_s = self.recomputed_s(self.PLAIN, 5) - self.recomputed_s(self.WINDOWED, 5)
        # 2 s a d operations of the causal product of scores, and of that with the values, on at most 989 TFLOP/s.
        skipped_flop = 2 * 2 * 16_384 * (16_384 - 2 * 1024) / 2 * 4096
        assert saved_s > 5 * 8 * skipped_flop / 989e12

    @pytest.mark.parametrize("method", ["block", "uniform"])
    def test_windows_change_nothing_of_what_is_kept(self, method: str) -> None:
        plan = plan_of(data=8, recompute=Recompute.FULL, recompute_num_layers=4)
        plain, windowed = (
            memory_of(changed(workload, recompute_method=method), plan)
            for workload in (self.PLAIN, self.WINDOWED)
        )
        assert plain.activations_bytes == windowed.activations_bytes


class TestAdaptersOnPackedDocuments:
    FULL = training("llama-2-70b", sequence_length=8192, global_batch_size=64)

    def packed(self, **changes: object) -> Workload:
        return changed(self.FULL, documents=Documents(lengths_tokens=(1024,)), **changes)

    def test_gradients_of_frozen_weights_are_as_many_operations_less(self) -> None:
        # 80 layers of 8192 x (10240 + 8192 + 3 x 28672) weights and an output layer of 32,000 words, twice each.
        frozen = 80 * 8192 * (10_240 + 8192 + 3 * 28_672) + 8192 * 32_000
        saved = trained_flop_per_token(self.packed()) - trained_flop_per_token(self.packed(**ADAPTED))
        assert saved == pytest.approx(2 * frozen)

    def test_documents_shorten_attention_as_sequences_of_their_length_do(self) -> None:
        short = training("llama-2-70b", sequence_length=1024, global_batch_size=512)
        assert trained_flop_per_token(self.packed(**ADAPTED)) == pytest.approx(
            trained_flop_per_token(changed(short, **ADAPTED))
        )

    def test_a_step_saves_as_much_computation_by_packing_as_without_adapters(self) -> None:
        plan = plan_of(tensor=8, data=8)
        saved_s = [
            (step_of(changed(self.FULL, **adapters), plan).compute_s)[0]
            - (step_of(self.packed(**adapters), plan).compute_s)[0]
            for adapters in ({}, ADAPTED)
        ]
        assert saved_s[0] > 0
        assert saved_s[1] == pytest.approx(saved_s[0])


def test_a_step_with_everything_at_once_can_be_played() -> None:
    shape = catalog.model("mixtral-8x7b").model_copy(
        update={"sliding_window": SlidingWindow(window_tokens=1024)}
    )
    workload = changed(
        training(shape, global_batch_size=512),
        documents=Documents(mean_tokens=512),
        context_exchange="all_gather",
        expert_tensor_parallel=2,
        dispatches_in_8_bits=True,
        activation_offload_fraction=0.5,
        optimizer_offload_fraction=0.5,
        **ADAPTED,
    )
    plan = plan_of(
        tensor=2,
        context=2,
        pipeline=2,
        expert=4,
        data=8,
        zero=3,
        shards=8,
        recompute=Recompute.FULL,
        recompute_num_layers=3,
    )
    step = step_of(workload, plan)
    parts = sum(column[0] for name, column in step.columns().items() if name != "step_time_s")
    assert parts == pytest.approx(step.step_time_s[0])
