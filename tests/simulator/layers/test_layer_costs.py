"""Does a layer compute and exchange what Megatron-LM's layers do?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator import catalog
from simulator.domain.blocks import MixtureOfExperts
from simulator.domain.hardware import Precision
from simulator.domain.offer import Offer
from simulator.domain.plan import Plan, Recompute
from simulator.domain.workload import Workload
from simulator.layers.attention_costs import attention_products
from simulator.layers.layer_costs import dense_layer, expert_layer, feed_forward_operators
from simulator.layers.model_ends import embedding, output_layer
from simulator.layers.moved_operators import moved_backward_bytes, moved_bytes
from simulator.layers.part_times import PartTimes
from simulator.machine.compute import gemm_time_s
from simulator.machine.network import all_gather_s, all_reduce_s, reduce_scatter_s
from simulator.machine.rank import Rank, members_in_domain
from simulator.table import Floats
from simulator.traffic.context_exchange import context_exchange_s
from simulator.traffic.latent_exchange import latent_bytes
from simulator.traffic.layer_collectives import CORE_SHARE, entered_products, exposed_s, in_pieces_s
from tests.simulator.builders import gpt, job_of, plan_of, rented, table_of, training, with_fabric_rate

WITHOUT_SEQUENCE_PARALLEL = {"has_sequence_parallel": False}


def rank_of(plan: Plan, workload: Workload | None = None, offer: Offer | None = None) -> Rank:
    return Rank.of(job_of(workload or training(), *([offer] if offer else [])), table_of(plan))


def total_comm_s(times: PartTimes) -> Floats:
    return np.asarray(
        times.forward_tensor_comm_s
        + times.backward_tensor_comm_s
        + times.forward_expert_comm_s
        + times.backward_expert_comm_s
    )


class TestCompute:
    def test_a_layer_takes_at_least_its_flop_at_the_peak(self) -> None:
        workload = training(gpt(hidden_size=4096), sequence_length=2048)
        rank = rank_of(plan_of(), workload)
        layer = dense_layer(rank)
        # 24 B s h^2 (1 + s/(6 h)) forward, twice as much backward (arXiv 2104.04473, appendix); half for causal scores.
        projections, scores = 24 * 2048 * 4096**2, 4 * 2048**2 * 4096 / 2
        peak = float(rank.offers.peak_flop_per_s[0, Precision.BF16.code])
        assert layer.forward_compute_s[0] > (projections + scores) / peak
        assert layer.backward_compute_s[0] > 2 * layer.forward_compute_s[0] * 0.9
        # Published layers of that size reach 40-60 % of the peak; three times the ideal would be a slip.
        assert layer.forward_compute_s[0] < 3 * (projections + scores) / peak

    def test_tensor_parallelism_splits_products_but_not_evenly_in_time(self) -> None:
        one, eight = (dense_layer(rank_of(plan_of(tensor=t))) for t in (1, 8))
        assert (
            1 / 8 < (eight.forward_compute_s / one.forward_compute_s)[0] < 1 / 4
        )  # small products are slower

    def test_norms_of_queries_and_keys_read_and_write_them_once(self) -> None:
        plain = training("qwen3-8b", sequence_length=4096)
        without = plain.model_copy(update={"model": plain.model.model_copy(update={"qk_norm": None})})
        normed, others = (dense_layer(rank_of(plan_of(tensor=2), each)) for each in (plain, without))
        constants = rank_of(plan_of(), plain).kernels
        # 40 heads of 128 values in 16 bits, half of them on a rank: a read and a write, backward a read more; two kernels, and
        # four backward.
        pass_s = 2 * 4096 * 40 * 128 / 2 / (3.35e12 * constants.memory_fraction)
        assert normed.forward_s - others.forward_s == pytest.approx(2 * pass_s + 2 * constants.launch_s)
        assert normed.backward_s - others.backward_s == pytest.approx(3 * pass_s + 4 * constants.launch_s)

    def test_norms_of_32_bit_inputs_copy_these_and_their_gradients(self) -> None:
        plain, plan = training("llama-3.1-8b"), plan_of(recompute=Recompute.FULL)
        cast = plain.model_copy(update={"checkpoints_norms": True})
        casts, others = (dense_layer(rank_of(plan, workload)) for workload in (cast, plain))
        constants = rank_of(plan, plain).kernels
        value_s = (
            2 * 4096 * 4096 / (3.35e12 * constants.memory_fraction)
        )  # a byte for each value of two norms
        forward_s, backward_s = casts.forward_s - others.forward_s, casts.backward_s - others.backward_s
        # 2 bytes are read and 4 written, of which the norm reads 2 more; a copy is a kernel more.
        assert forward_s == pytest.approx((6 + 2) * value_s + 2 * constants.launch_s)
        # The layer goes forward again. Norms read their input in 32 bits and write its gradient so, which is cast back.
        assert backward_s - forward_s == pytest.approx((6 + 2 + 2) * value_s + 4 * constants.launch_s)

    @pytest.mark.parametrize(
        ("is_gated", "is_fused", "backward_per_forward"),
        # Llama 3 8B: 10 h + 2 (a + g) d + 3 f values forward, 12 h + 2 (a + g) d + 5 f backward.
        [(True, True, 131_072 / 94_208), (True, False, 2), (False, True, 2)],
    )
    def test_small_operators_of_gated_blocks_move_what_each_of_them_reads_and_writes_backward(
        self, backward_per_forward: float, *, is_gated: bool, is_fused: bool
    ) -> None:
        model = catalog.model("llama-3.1-8b").model_copy(update={"is_gated": is_gated})
        workload = training(model).model_copy(update={"has_fused_operators": is_fused})
        rank = rank_of(plan_of(), workload)
        forward, backward = moved_bytes(rank, is_expert=False), moved_backward_bytes(rank, is_expert=False)
        assert backward[0] / forward[0] == pytest.approx(backward_per_forward)

    def test_small_operators_of_experts_move_more_backward_where_more_is_activated(self) -> None:
        rank = rank_of(plan_of(tensor=2), training("mixtral-8x7b"))
        more = moved_backward_bytes(rank, is_expert=True) - moved_backward_bytes(rank, is_expert=False)
        # Two experts in the place of one block: 5 values of 14,336 more for each token, half of them on a rank.
        assert more[0] == pytest.approx(2 * 5 * 14_336 * 4096 / 2)

    def test_grouped_key_value_heads_need_smaller_products(self) -> None:
        grouped = training("llama-3.1-8b")
        ordinary = grouped.model_copy(
            update={"model": grouped.model.model_copy(update={"num_kv_heads": grouped.model.num_heads})}
        )
        few, many = (dense_layer(rank_of(plan_of(), workload)) for workload in (grouped, ordinary))
        assert few.forward_compute_s < many.forward_compute_s

    def test_full_recomputation_repeats_the_forward_pass_with_its_collectives(self) -> None:
        kept, repeated = (
            dense_layer(rank_of(plan_of(tensor=8, recompute=recompute)))
            for recompute in (Recompute.NONE, Recompute.FULL)
        )
        assert repeated.forward_s == kept.forward_s
        assert repeated.backward_s == pytest.approx(kept.backward_s + kept.forward_s)

    def test_selective_recomputation_repeats_attention_only(self) -> None:
        none, selective, full = (
            dense_layer(rank_of(plan_of(recompute=recompute))).backward_compute_s[0]
            for recompute in (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL)
        )
        assert none < selective < (none + full) / 2

    def test_operator_wise_checkpointing_repeats_half_of_what_is_not_attention(self) -> None:
        workload = training().model_copy(update={"selective_recompute": "every_other_product"})
        none, selective, full = (
            dense_layer(rank_of(plan_of(recompute=recompute), workload)).backward_compute_s[0]
            for recompute in (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL)
        )
        attention = dense_layer(rank_of(plan_of(recompute=Recompute.SELECTIVE))).backward_compute_s[0] - none
        assert selective - none == pytest.approx((full - none - attention) / 2)

    def test_eight_bit_products_are_faster_but_attention_is_not(self) -> None:
        sixteen, eight = (
            dense_layer(rank_of(plan_of(precision=precision), training("llama-3.1-405b")))
            for precision in (Precision.BF16, Precision.FP8)
        )
        assert 0.5 < (eight.forward_compute_s / sixteen.forward_compute_s)[0] < 1.0

    def test_a_power_cap_slows_products_and_not_collectives(self) -> None:
        free, capped = (dense_layer(rank_of(plan_of(tensor=8, cap=cap))) for cap in (1.0, 0.5))
        slowdown = (capped.forward_compute_s / free.forward_compute_s)[0]
        # ((0.96 - idle)/(0.5 - idle))^(1/2) with an H100 that idles at a tenth of its 700 W.
        assert 1.0 < slowdown < ((0.96 - 0.1) / (0.5 - 0.1)) ** 0.5 + 0.01
        assert capped.forward_tensor_comm_s == free.forward_tensor_comm_s

    def test_a_power_cap_does_not_slow_the_sorting_of_tokens(self) -> None:
        workload = training("qwen3-30b-a3b", sequence_length=4096)
        free, capped = (
            feed_forward_operators(rank_of(plan_of(expert=8, data=8, cap=cap), workload), is_expert=True)
            for cap in (1.0, 0.5)
        )
        assert capped["permutation"] == free["permutation"]
        slower = [capped[name][0][0] / free[name][0][0] for name in ("routed experts", "router")]
        # ((1 - idle)/(0.5 - idle))^(1/2): products of a model as large take all of the power.
        assert slower == pytest.approx([((1.0 - 0.1) / (0.5 - 0.1)) ** 0.5] * 2)

    def test_the_output_layer_is_one_product_and_the_loss(self) -> None:
        workload = training("llama-3.1-8b", sequence_length=8192)
        rank = rank_of(plan_of(), workload)
        product_s = gemm_time_s(
            m=8192.0,
            n=128_256.0,
            k=4096.0,
            bytes_per_element=2.0,
            peak_flop_per_s=rank.sustained_flop_per_s,
            memory_bytes_per_s=rank.offers.memory_bytes_per_s,
            constants=rank.kernels,
        )
        # Four passes over fp32 logits at the bandwidth that kernels reach, and four launches.
        passes_s = 16 * 8192 * 128_256 / (rank.offers.memory_bytes_per_s * rank.kernels.memory_fraction)
        expected_s = product_s + passes_s + 4 * rank.kernels.launch_s
        assert output_layer(rank).forward_compute_s == pytest.approx(expected_s)


ONE_BY_ONE = {"overlaps_input_gradients": False}
"""Nothing hides what tensor-parallel ranks exchange."""


class TestTensorParallelism:
    def collective_s(self, collective: Callable[..., Floats], rank: Rank, t: int) -> Floats:
        hidden_bytes = 2.0 * 4096 * 4096  # one sequence of 4,096 tokens, h = 4,096, 16 bits
        return collective(
            num_bytes=hidden_bytes, group_size=float(t), members_per_domain=float(min(t, 8)), links=rank.links
        )

    @pytest.mark.parametrize("t", [2, 8, 16])
    def test_sequence_parallelism_gathers_and_scatters_twice_in_each_direction(self, t: int) -> None:
        rank = rank_of(plan_of(tensor=t), training().model_copy(update=ONE_BY_ONE))
        layer = dense_layer(rank)
        pair_s = self.collective_s(all_gather_s, rank, t) + self.collective_s(reduce_scatter_s, rank, t)
        assert layer.forward_tensor_comm_s == pytest.approx(2 * pair_s)
        assert layer.backward_tensor_comm_s == pytest.approx(2 * pair_s)

    def test_inputs_of_eight_bit_products_are_gathered_in_eight_bits_and_their_results_summed_in_sixteen(
        self,
    ) -> None:
        workload = training().model_copy(update={"fp8_recipe": "delayed", **ONE_BY_ONE})
        eight, sixteen = (
            rank_of(plan_of(tensor=8, precision=precision), workload)
            for precision in (Precision.FP8, Precision.BF16)
        )
        gathered_s = all_gather_s(
            num_bytes=4096.0 * 4096, group_size=8.0, members_per_domain=8.0, links=eight.links
        )
        pair_s = gathered_s + self.collective_s(reduce_scatter_s, eight, 8)
        layer = dense_layer(eight)
        assert layer.forward_tensor_comm_s == pytest.approx(2 * pair_s)
        assert layer.backward_tensor_comm_s == pytest.approx(2 * pair_s)
        assert embedding(eight).backward_tensor_comm_s == embedding(sixteen).backward_tensor_comm_s
        assert output_layer(eight).forward_tensor_comm_s == output_layer(sixteen).forward_tensor_comm_s

    @pytest.mark.parametrize(("block", "num_entered"), [("one_norm", 1), ("two_norms", 2)])
    def test_blocks_side_by_side_send_one_sum_and_enter_once_behind_one_norm(
        self, block: str, num_entered: int
    ) -> None:
        model = training().model.model_copy(update={"parallel_block": block})
        split = training(model).model_copy(update=ONE_BY_ONE)
        rank = rank_of(plan_of(tensor=8), split)
        gather_s, scatter_s = (
            self.collective_s(collective, rank, 8) for collective in (all_gather_s, reduce_scatter_s)
        )
        layer = dense_layer(rank)
        assert layer.forward_tensor_comm_s == pytest.approx(num_entered * gather_s + scatter_s)
        assert layer.backward_tensor_comm_s == pytest.approx(num_entered * scatter_s + gather_s)
        # GPT-NeoX: `reduce_from_model_parallel_region` of the sum, `copy_to_model_parallel_region` before each product.
        rank = rank_of(plan_of(tensor=8), split.model_copy(update=WITHOUT_SEQUENCE_PARALLEL))
        layer, reduced_s = dense_layer(rank), self.collective_s(all_reduce_s, rank, 8)
        assert layer.forward_tensor_comm_s == pytest.approx(reduced_s)
        assert layer.backward_tensor_comm_s == pytest.approx(num_entered * reduced_s)

    @pytest.mark.parametrize("t", [2, 8, 16])
    def test_without_it_there_are_two_all_reduces_in_each_direction(self, t: int) -> None:
        choices = {**WITHOUT_SEQUENCE_PARALLEL, **ONE_BY_ONE}
        rank = rank_of(plan_of(tensor=t), training().model_copy(update=choices))
        layer = dense_layer(rank)
        assert layer.forward_tensor_comm_s == pytest.approx(2 * self.collective_s(all_reduce_s, rank, t))
        assert layer.backward_tensor_comm_s == pytest.approx(2 * self.collective_s(all_reduce_s, rank, t))

    def test_the_embedding_leaves_a_block_and_the_output_layer_enters_one(self) -> None:
        choices = {**WITHOUT_SEQUENCE_PARALLEL, **ONE_BY_ONE}
        rank = rank_of(plan_of(tensor=8), training().model_copy(update=choices))
        reduced_s = self.collective_s(all_reduce_s, rank, 8)
        first, last = embedding(rank), output_layer(rank)
        # Megatron-LM's f and g: the one that does something forward does nothing backward.
        assert first.forward_tensor_comm_s == last.backward_tensor_comm_s == pytest.approx(reduced_s)
        assert first.backward_tensor_comm_s == last.forward_tensor_comm_s == 0

    def test_nothing_is_exchanged_on_one_rank(self) -> None:
        rank = rank_of(plan_of(), training("mixtral-8x7b"))
        parts = [dense_layer(rank), expert_layer(rank), embedding(rank), output_layer(rank)]
        assert [total_comm_s(times)[0] for times in parts] == [0, 0, 0, 0]


class TestContextParallelism:
    def test_a_ring_shorter_than_the_core_takes_only_its_share_of_cores(self) -> None:
        workload = training(sequence_length=131_072)
        rank = rank_of(plan_of(context=8), workload)
        forward_s, backward_s = context_exchange_s(rank, (np.array([10.0]), np.array([20.0])))
        ring_s = forward_s / CORE_SHARE
        # K and V of 8 heads of 128 values: 131,072 x 2 x 1,024 x 2 bytes; 7 of 8 parts arrive over 450 GB/s.
        assert ring_s[0] > 131_072 * 2 * 1024 * 2 * 7 / 8 / 450e9
        # Keys and gradients go round together, in one message where both do.
        assert backward_s == pytest.approx(2 * forward_s, rel=0.02)

    def test_what_the_core_does_not_hide_is_exposed(self) -> None:
        rank = rank_of(plan_of(context=8), training(sequence_length=131_072))
        none_s = np.zeros(1)
        whole_s = context_exchange_s(rank, (none_s, none_s))
        # The last of 8 kernels hides nothing.
        half_hidden_s = context_exchange_s(rank, (whole_s[0] / 2 * 8 / 7, whole_s[1] / 2 * 8 / 7))
        assert half_hidden_s[0] == pytest.approx(whole_s[0] * 0.5)
        # Backward a kernel takes as long as one of 14 shares: keys alone hide behind the first kernel, gradients alone behind
        # the last, at the cost of cores, and one share of the two behind each of the six between.
        assert half_hidden_s[1] == pytest.approx(whole_s[1] * (6 + 2 * CORE_SHARE) / 14, rel=0.02)

    def test_grouped_heads_make_the_ring_lighter_in_proportion(self) -> None:
        workload = training(sequence_length=131_072)
        ordinary = workload.model_copy(
            update={"model": workload.model.model_copy(update={"num_kv_heads": workload.model.num_heads})}
        )
        grouped_s, ordinary_s = (
            context_exchange_s(rank_of(plan_of(context=8), each), (np.zeros(1), np.zeros(1)))[0][0]
            for each in (workload, ordinary)
        )
        assert ordinary_s / grouped_s == pytest.approx(32 / 8, rel=0.1)  # but for latency

    def test_compute_of_all_ranks_is_that_of_one(self) -> None:
        workload = training(sequence_length=131_072)
        one, eight = (dense_layer(rank_of(plan_of(context=c), workload)) for c in (1, 8))
        # Every rank works on an eighth of the queries against all keys; smaller products are a little slower.
        assert 1.0 <= (8 * eight.forward_compute_s / one.forward_compute_s)[0] < 1.1


class TestLatentAttention:
    @pytest.mark.parametrize("tensor", [1, 2, 8])
    @pytest.mark.parametrize("model", ["llama-3.1-8b", "deepseek-v2-lite", "deepseek-v3"])
    def test_ranks_that_split_sequences_multiply_each_token_once_with_every_weight_of_attention(
        self, model: str, tensor: int
    ) -> None:
        rank = rank_of(plan_of(tensor=tensor, data=8), training(model))
        products = [tokens * width * depth for tokens, width, depth in attention_products(rank)]
        # Weights are those of the model's published count; no rank repeats what another one does.
        weights = rank.workload.model.attention_parameters
        assert tensor * sum(float(each[0]) for each in products) == pytest.approx(4096 * weights)

    def test_without_sequence_parallelism_every_rank_brings_all_tokens_down_to_latents(self) -> None:
        workload = training("deepseek-v3").model_copy(update=WITHOUT_SEQUENCE_PARALLEL)
        rank = rank_of(plan_of(tensor=8, data=8), workload)
        per_token = sum(
            float(tokens[0] * width[0] * depth[0]) for tokens, width, depth in attention_products(rank)
        )
        # 7,168 x (1,536 + 512 + 64) weights down, of 187,105,280 in all: a rank repeats 7/8 of them.
        assert per_token == 4096 * (187_105_280 / 8 + 7 / 8 * 7168 * 2112)

    @pytest.mark.parametrize(
        ("model", "width", "is_split"),
        [
            # Latents of queries, of keys and values, and the shared rotary key (`config.json` of each model); without latents
            # queries come from the residual stream.
            ("deepseek-v3", 1536 + 512 + 64, True),
            ("deepseek-v3", 1536 + 512 + 64, False),
            ("deepseek-v2-lite", 2048 + 512 + 64, True),
        ],
    )
    def test_what_enters_it_are_latents(self, model: str, width: int, is_split: bool) -> None:
        workload = training(model).model_copy(update={"has_sequence_parallel": is_split})
        gathered, summed = latent_bytes(rank_of(plan_of(tensor=8, data=8), workload))
        assert sum(float(each[0]) for each in gathered) == is_split * 2 * 4096 * width
        assert sum(float(each[0]) for each in summed) == 2 * 4096 * width

    def test_a_layer_waits_for_them_and_for_one_block_more(self) -> None:
        rank = rank_of(plan_of(tensor=8, data=8), training("deepseek-v3"))
        gathers_s = [
            all_gather_s(
                num_bytes=2.0 * 4096 * width, group_size=8.0, members_per_domain=8.0, links=rank.links
            )
            for width in (1536, 512, 64)
        ]
        # Attention is left, the feed-forward block entered and left over the residual stream.
        assert dense_layer(rank).forward_tensor_comm_s == pytest.approx(
            sum(gathers_s) + 3 * rank.hidden_gather_s
        )

    def test_inputs_in_8_bits_are_gathered_behind_their_cast_and_the_rotary_key_is_none(self) -> None:
        plan = plan_of(tensor=8, data=8, precision=Precision.FP8)
        gathered, _ = latent_bytes(rank_of(plan, training("deepseek-v3")))
        assert [float(each[0]) for each in gathered] == [4096 * 1536, 4096 * 512, 2 * 4096 * 64]


class TestExperts:
    def test_one_expert_for_all_tokens_is_a_dense_layer_with_a_router(self) -> None:
        single = MixtureOfExperts(num_experts=1, experts_per_token=1, expert_ffn_hidden_size=4 * 4096)
        model = gpt(hidden_size=4096)
        dense = dense_layer(rank_of(plan_of(), training(model)))
        routed = expert_layer(rank_of(plan_of(), training(model.model_copy(update={"experts": single}))))
        # The router is a product with one column, tokens are permuted there and back: 4 passes over h beside 30, and
        # two dozen small kernels.
        assert 1.0 < (routed.forward_compute_s / dense.forward_compute_s)[0] < 1.15

    def test_routed_tokens_are_not_gathered_again_over_tensor_ranks(self) -> None:
        routed = rank_of(plan_of(tensor=8, data=8), training("mixtral-8x7b"))
        shared = rank_of(plan_of(tensor=8, data=8), training("deepseek-v2-lite"))
        assert expert_layer(routed).forward_tensor_comm_s == pytest.approx(
            dense_layer(routed).forward_tensor_comm_s / 2
        )
        assert expert_layer(shared).forward_tensor_comm_s == dense_layer(shared).forward_tensor_comm_s

    def test_behind_latent_attention_they_are_not_either(self) -> None:
        model = catalog.model("deepseek-v2-lite")
        assert model.experts is not None
        experts = model.experts.model_copy(update={"shared_ffn_hidden_size": 0})
        routed = rank_of(plan_of(tensor=8, data=8), training(model.model_copy(update={"experts": experts})))
        assert entered_products(routed, is_expert=True) == []
        assert len(entered_products(routed, is_expert=False)) == 1

    def test_expert_parallelism_keeps_the_work_of_a_rank(self) -> None:
        # An eighth of the experts with eight times the tokens each: the same operations in fewer, larger products.
        # Copies for a single expert need no sorting: 4 k h values of 2 bytes each way less, 0.2 ms at 2.7 TB/s.
        workload = training("mixtral-8x22b")
        alone, spread = (expert_layer(rank_of(plan_of(expert=e, data=8), workload)) for e in (1, 8))
        ratio = (spread.forward_compute_s / alone.forward_compute_s)[0]
        assert 0.7 < ratio < 1.05


@pytest.mark.parametrize("stride", [1, 2, 3, 4, 5, 6, 12])
@pytest.mark.parametrize("size", [2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 20, 24, 40])
def test_groups_astride_nodes_count_as_the_one_of_which_the_fewest_sit_together(
    stride: int, size: int
) -> None:
    rank = rank_of(plan_of(data=8 * stride * size))  # nodes of eight, one a link domain
    # Groups of neighbours one after the other, until both groups and nodes have ended, counted node by node.
    first_ranks = [
        block + rest for block in range(0, 8 * stride * size, stride * size) for rest in range(stride)
    ]
    together = [
        min(Counter((first + stride * member) // 8 for member in range(size)).values())
        for first in first_ranks
    ]
    assert members_in_domain(rank, stride, np.array([size])) == min(together)


@pytest.mark.parametrize(
    ("num_gpus", "stride", "size"), [(3, 1, 3), (6, 1, 6), (6, 2, 3), (6, 1, 3), (8, 1, 7)]
)
def test_a_run_within_a_node_has_all_its_groups_there(num_gpus: int, stride: int, size: int) -> None:
    assert members_in_domain(rank_of(plan_of(data=num_gpus)), stride, np.array([size])) == size


def test_racks_hold_groups_that_do_not_fill_them() -> None:
    # Nodes are chosen so that 64 of 72 neighbours sit together: the answer says which (`planner.notes.placement_note`).
    rank = rank_of(plan_of(data=72), offer=rented("gb200"))
    assert members_in_domain(rank, 1, np.array([64])) == 64


@pytest.mark.parametrize(
    ("stride", "size", "together"),
    [(1, 96, 48), (1, 128, 64), (8, 64, 8), (8, 72, 9), (8, 10, 5), (12, 48, 6), (96, 4, 1)],
)
def test_larger_groups_are_spread_evenly_over_the_racks_that_hold_them(
    stride: int, size: int, together: int
) -> None:
    # 64 ranks of which 9 fit into a rack of 72 need 8 racks, and no rack has but one of them.
    rank = rank_of(plan_of(data=72), offer=rented("gb200"))
    assert members_in_domain(rank, stride, np.array([size])) == together


def test_tensor_parallelism_over_six_of_eight_accelerators_leaves_the_node() -> None:
    workload = training("gpt3-175b", sequence_length=2048).model_copy(update=WITHOUT_SEQUENCE_PARALLEL)
    six, eight = (
        dense_layer(rank_of(plan_of(tensor=tensor, data=4), workload)).forward_tensor_comm_s[0]
        for tensor in (6, 8)
    )
    # Two ranks of a group have two cards of 50 GB/s to the rest of it, eight have links of 450 GB/s.
    assert six > 3.0 * eight


@given(traffic=st.floats(0, 1e3), cover=st.floats(0, 1e3))
def test_hidden_communication_costs_between_its_cores_and_its_time(traffic: float, cover: float) -> None:
    exposed = exposed_s(np.array([traffic]), np.array([cover]))[0]
    # The computation goes on with 0.85 of the cores until the traffic ends; what ends last decides.
    end = max(cover + 0.15 * min(traffic, cover), traffic)
    assert exposed == pytest.approx(end - cover, abs=1e-9)


def test_traffic_in_pieces_hides_its_share_and_shows_the_rest() -> None:
    rank = rank_of(plan_of(tensor=8), training().model_copy(update={"overlaps_tensor_comm": True}))
    second, hidden = np.ones(1), rank.training.hidden_tensor_fraction
    assert in_pieces_s(rank, second, 0.0 * second) == 1.0
    assert in_pieces_s(rank, second, 10.0 * second) == pytest.approx(1.0 - hidden + CORE_SHARE * hidden)


@given(factor=st.floats(1.0, 10.0))
def test_a_faster_fabric_never_makes_a_layer_slower(factor: float) -> None:
    plan = plan_of(tensor=2, expert=16, context=2, data=32)
    workload = training("mixtral-8x7b")
    slow, fast = (
        total_comm_s(expert_layer(rank_of(plan, workload, with_fabric_rate(rate))))[0]
        for rate in (200e9, 200e9 * factor)
    )
    assert fast <= slow


def test_every_model_of_the_catalogue_has_a_price() -> None:
    for name in catalog.names(catalog.Kind.MODELS):
        workload = training(name)
        rank = rank_of(plan_of(), workload)
        times = [dense_layer(rank), *([expert_layer(rank)] if workload.model.experts else [])]
        assert all(each.forward_s[0] > 0 and each.backward_s[0] > each.forward_s[0] for each in times), name
