"""Do context-parallel ranks exchange what the published schemes exchange?"""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.domain.choices import ContextExchange
from simulator.domain.plan import Recompute
from simulator.domain.workload import Workload
from simulator.layers.attention_costs import attention_core_s
from simulator.layers.layer_costs import dense_layer
from simulator.machine.network import all_gather_s, all_to_all_s, point_to_point_s
from simulator.machine.rank import Rank
from simulator.memory.activations import Activations, activations_of_layers
from simulator.simulate import simulate
from simulator.table import Floats
from simulator.traffic.context_exchange import (
    context_exchange_s,
    gradient_rounds_s,
    head_ranks_of,
    num_core_kernels,
    ring_steps,
)
from simulator.traffic.layer_collectives import Directions
from tests.simulator.builders import changed, gpt, job_of, plan_of, table_of, training

TOKENS = 131_072
NOTHING_TO_HIDE_BEHIND = (np.zeros(1), np.zeros(1))


def core_of(forward_s: float) -> Directions:
    """A core that takes twice as long backward."""
    return np.array([forward_s]), np.array([2.0 * forward_s])


def long_training(exchange: ContextExchange, *, num_kv_heads: int = 32) -> Workload:
    model = gpt(hidden_size=4096, num_heads=32).model_copy(update={"num_kv_heads": num_kv_heads})
    workload = training(model, sequence_length=TOKENS, global_batch_size=8)
    return workload.model_copy(update={"context_exchange": exchange})


def rank_of(
    exchange: ContextExchange,
    *,
    tensor: int = 1,
    context: int = 8,
    num_kv_heads: int = 32,
    copies: bool = False,
    fused: bool = True,
) -> Rank:
    workload = long_training(exchange, num_kv_heads=num_kv_heads)
    changes = {"copies_shared_heads": copies, "has_fused_operators": fused}
    job = job_of(workload.model_copy(update=changes))
    return Rank.of(job, table_of(plan_of(tensor=tensor, context=context)))


def layer_activations(workload: Workload) -> Activations:
    plans, none = table_of(plan_of(context=8)), np.zeros(1)
    stage = np.zeros(1, dtype=np.int64)
    return activations_of_layers(workload, plans, stage=stage, dense_layers=none + 1, expert_layers=none)


class TestUlysses:
    def test_a_rank_sends_what_the_paper_says(self) -> None:
        rank = rank_of("all_to_all")
        # arXiv 2309.14509, section 3.2: 3 N h / P values for queries, keys and values, N h / P for the output; 2 bytes each.
        values = TOKENS * 4096 / 8
        expected_s = sum(
            all_to_all_s(
                num_bytes=2 * count * values, group_size=8.0, members_per_domain=8.0, links=rank.links
            )
            for count in (3, 1)
        )
        forward_s, backward_s = context_exchange_s(rank, NOTHING_TO_HIDE_BEHIND)
        assert forward_s == pytest.approx(expected_s)
        assert backward_s == pytest.approx(expected_s)

    def test_nothing_hides_it(self) -> None:
        rank = rank_of("all_to_all")
        shown, behind = (context_exchange_s(rank, core_of(core_s)) for core_s in (0.0, 10.0))
        assert shown == behind

    def test_traffic_of_a_rank_falls_with_the_ranks_and_that_of_a_ring_does_not(self) -> None:
        ulysses, ring = (
            [
                float(context_exchange_s(rank_of(exchange, context=c), NOTHING_TO_HIDE_BEHIND)[0][0])
                for c in (2, 8)
            ]
            for exchange in ("all_to_all", "ring")
        )
        assert ulysses[1] < ulysses[0]
        assert ring[1] > ring[0]

    def test_whole_heads_are_computed_in_one_kernel_without_merging(self) -> None:
        ulysses, ring = rank_of("all_to_all"), rank_of("ring")
        assert (ring_steps(ulysses)[0], num_core_kernels(ulysses)[0]) == (1.0, 1.0)
        assert (ring_steps(ring)[0], num_core_kernels(ring)[0]) == (8.0, 8.0)
        assert dense_layer(ulysses).forward_compute_s < dense_layer(ring).forward_compute_s


class TestRing:
    @pytest.mark.parametrize(("context", "is_near"), [(2, True), (8, True), (16, False), (32, False)])
    def test_every_step_is_a_message_to_the_next_rank(self, context: int, is_near: bool) -> None:
        # One of the ranks of a node sends to the next node, so that a step takes as long as its card alone does.
        rank = rank_of("ring", context=context)
        step_s = point_to_point_s(
            num_bytes=2.0 * TOKENS * 2 * 4096 / context, is_same_domain=is_near, links=rank.links
        )
        forward_s, backward_s = context_exchange_s(rank, NOTHING_TO_HIDE_BEHIND)
        assert forward_s == pytest.approx((context - 1) * step_s)
        # Backward a message of keys first, of gradients last, and of both in every step between.
        both_s = point_to_point_s(
            num_bytes=2 * 2.0 * TOKENS * 2 * 4096 / context, is_same_domain=is_near, links=rank.links
        )
        assert backward_s == pytest.approx(2 * step_s + (context - 2) * both_s)

    @pytest.mark.parametrize("context", [2, 4])
    def test_backward_all_steps_hide_what_goes_round(self, context: int) -> None:
        # Steps that take longer than a message of keys and less than one with gradients, too, show the rest of the latter.
        rank = rank_of("ring", context=context)
        one_s = float(context_exchange_s(rank, NOTHING_TO_HIDE_BEHIND)[0][0]) / (context - 1)
        _, backward_s = context_exchange_s(rank, core_of(context * 1.5 * one_s / 2.0))
        shown_s = (context - 2) * (2.0 - 1.5) * one_s
        lent_s = 0.15 * 2 * one_s
        assert backward_s == pytest.approx(shown_s + lent_s, rel=0.02)  # a message of both has one latency

    def test_between_nodes_a_gather_has_the_cards_of_all_and_a_ring_that_of_one(self) -> None:
        # 15/16 of 2 GiB through one card of 50 GB/s, or through eight.
        ring_s, gather_s = (
            float(context_exchange_s(rank_of(exchange, context=16), NOTHING_TO_HIDE_BEHIND)[0][0])
            for exchange in ("ring", "all_gather")
        )
        assert ring_s > 15 / 16 * 2 * 2**30 / 50e9
        assert ring_s > 6 * gather_s


class TestGather:
    def gathered_s(self, rank: Rank) -> Floats:
        # Llama 3, arXiv 2407.21783, section 3.3.2: keys and values of the whole sequence, here 8 heads of 128.
        return all_gather_s(
            num_bytes=2.0 * TOKENS * 2 * 8 * 128, group_size=8.0, members_per_domain=8.0, links=rank.links
        )

    def test_keys_and_values_are_gathered_before_the_core(self) -> None:
        rank = rank_of("all_gather", num_kv_heads=8)
        forward_s, backward_s = context_exchange_s(rank, core_of(10.0))
        assert forward_s == pytest.approx(self.gathered_s(rank))
        assert backward_s == pytest.approx(2 * forward_s)

    def test_a_ring_hides_what_a_gather_shows(self) -> None:
        ring, gather = (
            context_exchange_s(rank_of(exchange, num_kv_heads=8), core_of(10.0))[0]
            for exchange in ("ring", "all_gather")
        )
        assert ring < gather

    def test_what_is_gathered_takes_memory_where_it_is_more_than_the_feed_forward_block(self) -> None:
        held = {}
        for num_kv_heads in (8, 16, 32):
            activations = layer_activations(long_training("all_gather", num_kv_heads=num_kv_heads))
            held[num_kv_heads] = activations.at_work_bytes[0]
        # Seven eighths of the keys and values of 16 heads, 2 x 2,048 values a token, and of their gradients, 2 bytes each.
        assert held[32] - held[16] == pytest.approx(7 / 8 * TOKENS * 2 * 2048 * 2 * 2)
        # Of a feed-forward block of 4 h the input and the gradients of 4 h are there, of which a rank has an eighth.
        assert held[8] == TOKENS / 8 * (4 + 1) * 4096 * 2


class TestGatheredRing:
    """PyTorch's `context_parallel`: keys and values gathered, a kernel for each part, gradients round the ring in 32 bits."""

    def test_compiled_it_hides_nothing_and_gradients_are_twice_as_wide(self) -> None:
        rank, gather = rank_of("gathered_ring"), rank_of("all_gather")
        forward_s, backward_s = context_exchange_s(rank, core_of(10.0))
        assert forward_s == context_exchange_s(gather, core_of(10.0))[0]
        # Each of 8 ranks sends an eighth of 32 heads of 128, keys and values, on 8 times in 4 bytes.
        rounds_s = 8.0 * point_to_point_s(
            num_bytes=TOKENS * 2 * 4096 * 4.0 / 8, is_same_domain=True, links=rank.links
        )
        assert backward_s == pytest.approx(forward_s + rounds_s)

    def test_operator_by_operator_only_the_first_kernel_hides_what_is_gathered(self) -> None:
        rank = rank_of("gathered_ring", fused=False)
        gather_s = float(context_exchange_s(rank, NOTHING_TO_HIDE_BEHIND)[0][0])
        # Of eight kernels the first is as long as half of the gather, which ends last.
        forward_s, backward_s = context_exchange_s(rank, core_of(8 * gather_s / 2))
        assert forward_s == pytest.approx(gather_s / 2)
        # Backward it is as long, and hiding takes 15 % of the cores (Calculon). Nothing hides the last of eight times that
        # gradients go on.
        rounds_s = gradient_rounds_s(rank)
        assert backward_s == pytest.approx(0.15 * gather_s + rounds_s / 8 + 0.15 * rounds_s * 7 / 8)

    def test_a_kernel_for_every_part_is_merged_in_more_bytes_than_in_16_bits(self) -> None:
        ranks = [rank_of("ring"), rank_of("gathered_ring"), rank_of("gathered_ring", fused=False)]
        assert {float(num_core_kernels(rank)[0]) for rank in ranks} == {8.0}
        sixteen_bit_s, compiled_s, eager_s = (float(attention_core_s(rank)[0][0]) for rank in ranks)
        moved_s = float(ranks[0].memory_bound_s(np.array([8.0 * TOKENS / 8 * 4096]), 0.0)[0])
        assert compiled_s - sixteen_bit_s == pytest.approx((10 - 6) * moved_s)
        # As many values of keys as of queries, and of values; ten kernels a step in the place of two.
        launches_s = 8 * (10 - 2) * float(ranks[0].kernels.launch_s[0])
        assert eager_s - compiled_s == pytest.approx((38 + 2 * 4 - 10) * moved_s + launches_s)

    def test_gradients_in_32_bits_are_a_ranks_own(self) -> None:
        ring, gather = (layer_activations(long_training(it)) for it in ("gathered_ring", "all_gather"))
        # Of 7 gradients of the others in 2 bytes remain 3 of its own in 4 bytes, for the keys and values of 32 heads.
        saved = (7 * 2 - 3 * 4) * TOKENS / 8 * 2 * 4096
        assert gather.at_work_bytes[0] - ring.at_work_bytes[0] == pytest.approx(saved)


class TestCopiedHeads:
    """torchtitan until 2025: keys and values are copied for the query heads that share them."""

    @pytest.mark.parametrize("exchange", get_args(ContextExchange))
    def test_ranks_exchange_as_much_as_if_every_query_head_had_its_own(
        self, exchange: ContextExchange
    ) -> None:
        copied, own, shared = (
            float(context_exchange_s(rank, NOTHING_TO_HIDE_BEHIND)[0][0])
            for rank in (
                rank_of(exchange, num_kv_heads=8, copies=True),
                rank_of(exchange, num_kv_heads=32),
                rank_of(exchange, num_kv_heads=8),
            )
        )
        assert copied == own
        assert copied > shared

    def test_layers_keep_the_copies(self) -> None:
        shared = long_training("all_gather", num_kv_heads=8)
        copying = shared.model_copy(update={"copies_shared_heads": True})
        own = long_training("all_gather", num_kv_heads=32)
        less, copied, more = (layer_activations(workload) for workload in (shared, copying, own))
        assert copied == more
        assert less.kept_bytes < copied.kept_bytes


def test_windows_are_gathered_unless_the_job_says_otherwise() -> None:
    windowed = training("mistral-7b", sequence_length=TOKENS)
    assert training(sequence_length=TOKENS).chosen_exchange == "ring"
    assert windowed.chosen_exchange == "all_gather"
    assert windowed.model_copy(update={"context_exchange": "all_to_all"}).chosen_exchange == "all_to_all"


class TestHybrid:
    def test_inside_one_link_domain_it_is_an_exchange_of_heads(self) -> None:
        hybrid, ulysses = (
            context_exchange_s(rank_of(exchange), NOTHING_TO_HIDE_BEHIND)
            for exchange in ("hybrid", "all_to_all")
        )
        assert hybrid == ulysses

    def test_where_tensor_parallelism_fills_the_domain_it_is_a_ring(self) -> None:
        hybrid, ring = (
            context_exchange_s(rank_of(exchange, tensor=8, context=4), NOTHING_TO_HIDE_BEHIND)
            for exchange in ("hybrid", "ring")
        )
        assert hybrid == ring

    def test_between_domains_goes_a_ring_of_fewer_heads(self) -> None:
        rank = rank_of("hybrid", context=16)
        assert head_ranks_of(rank)[0] == 8
        assert ring_steps(rank)[0] == 2.0
        # Once half of the keys and values of four heads.
        ring_s = point_to_point_s(
            num_bytes=2.0 * TOKENS * 2 * (32 / 8) * 128 / 2, is_same_domain=False, links=rank.links
        )
        # 3 N h / P and N h / P values inside each node, N being the whole sequence.
        heads_s = sum(
            all_to_all_s(
                num_bytes=2 * count * TOKENS * 4096 / 16,
                group_size=8.0,
                members_per_domain=8.0,
                links=rank.links,
            )
            for count in (3, 1)
        )
        forward_s, _ = context_exchange_s(rank, NOTHING_TO_HIDE_BEHIND)
        assert forward_s == pytest.approx(ring_s + heads_s)

    def test_what_crosses_the_fabric_hides_behind_the_core(self) -> None:
        # USP, arXiv 2405.07719: all-to-all over the fast links, point to point over the slow ones behind computation.
        hybrid_s, ulysses_s = (
            context_exchange_s(rank_of(exchange, context=32), core_of(1.0))[0]
            for exchange in ("hybrid", "all_to_all")
        )
        assert hybrid_s < ulysses_s


@given(
    st.sampled_from(get_args(ContextExchange)),
    st.sampled_from([1, 2, 4, 8, 16, 32]),
    st.sampled_from([1, 2, 4, 8]),
)
def test_one_rank_exchanges_nothing_and_more_take_a_finite_time(
    exchange: ContextExchange, context: int, tensor: int
) -> None:
    job = job_of(long_training(exchange))
    plans = table_of(plan_of(tensor=tensor, context=context))
    forward_s, backward_s = context_exchange_s(Rank.of(job, plans), NOTHING_TO_HIDE_BEHIND)
    assert (forward_s[0] > 0) == (backward_s[0] > 0) == (context > 1)
    assert np.isfinite(simulate(job, plans).steps.step_time_s[0])


@pytest.mark.parametrize("exchange", ["ring", "all_gather", "gathered_ring", "all_to_all"])
def test_a_core_that_is_computed_again_exchanges_again(exchange: ContextExchange) -> None:
    # Over nodes of eight, where something of every exchange shows.
    job = job_of(changed(long_training(exchange), recompute_modules=("core_attn",)))
    none, selective = (
        dense_layer(Rank.of(job, table_of(plan_of(context=32, recompute=recompute))))
        for recompute in (Recompute.NONE, Recompute.SELECTIVE)
    )
    again_s = selective.backward_tensor_comm_s - none.backward_tensor_comm_s
    assert again_s[0] == pytest.approx(none.forward_tensor_comm_s[0])
    assert again_s[0] > 0.0
