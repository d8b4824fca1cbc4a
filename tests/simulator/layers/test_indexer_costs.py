"""How long does attention to chosen tokens take, and what do its ranks exchange and keep? Counts by hand, published kernels."""

from __future__ import annotations

import numpy as np
import pytest

from objectives.unsure_inputs import step_error_of
from simulator.domain.documents import Documents
from simulator.domain.hardware import Precision
from simulator.domain.model import ModelShape
from simulator.domain.plan import Plan, Recompute, Schedule
from simulator.domain.workload import Workload
from simulator.layers.attention_costs import (
    attention_core_s,
    attention_products,
    products_of_heads,
    up_products,
    up_projections_s,
)
from simulator.layers.backward_doubt import doubtful_log_ratio
from simulator.layers.context_copies import context_copies_s
from simulator.layers.context_split import slowest_ranks
from simulator.layers.host_time import host_waits_s
from simulator.layers.indexer_costs import (
    NUM_BACKWARD_KERNELS,
    NUM_FORWARD_KERNELS,
    NUM_LOSS_KERNELS,
    indexer_products,
    indexer_s,
    indexer_weight_gradients_s,
    num_indexer_kernels,
    sparse_core_s,
)
from simulator.layers.input_gradients import entered_in_attention
from simulator.layers.layer_costs import dense_layer, expert_layer
from simulator.layers.transferred_kernels import best_attention_flop_per_s
from simulator.layers.weight_gradients import dense_layer_weight_gradients_s
from simulator.layout.attended_keys import key_value_width
from simulator.machine.rank import Rank
from simulator.memory.indexer_widths import core_width, keys_width, queries_width, working_bytes
from simulator.memory.layer_activations import LayerActivations
from simulator.step.step_reach import MEASURED_REACH, beyond_measured, reach_of
from simulator.traffic.context_exchange import context_exchange_s, keys_and_values_bytes
from simulator.traffic.latent_exchange import indexer_bytes, indexer_exchange_s, latent_bytes
from tests.simulator.builders import (
    changed,
    job_of,
    memory_of,
    plan_of,
    rank_of,
    rented,
    step_of,
    table_of,
    training,
)
from tests.simulator.sparse import DEEPSEEK_V3, DEEPSEEK_V3_2, DENSE, INDEXER, SMALL, with_indexer

B200 = "b200-sxm-180gb"
H200 = "h200-sxm-141gb"
LENGTH = 8192
CHOSEN_PAIRS = 2048 * LENGTH - 2048**2 / 2
"""Pairs of a token and a chosen one in a sequence of that length."""


def workload_of(model: ModelShape = DEEPSEEK_V3_2, **choices: object) -> Workload:
    workload = training(model, sequence_length=LENGTH, global_batch_size=64)
    return changed(workload, kernel_launch="graph", **choices)


def rank_with(plan: Plan | None = None, *, accelerator: str = B200, **choices: object) -> Rank:
    workload = workload_of(DEEPSEEK_V3_2, **choices)
    return rank_of(workload, plan or plan_of(), accelerator=accelerator)


def sparse_flop(heads: int) -> float:
    """Operations of the sparse core forward: 576 values of a key, of which 512 are the value."""
    return 2.0 * heads * (576 + 512) * CHOSEN_PAIRS


def copied_bytes(tensor: int = 1, tokens: float = LENGTH) -> tuple[float, float]:
    """Bytes of queries with their positions, and of weights of values; 32 heads or less are put into a tile of 64.

    Backward, queries, outputs and gradients, 576 + 2 x 512 values, are copied twice; gradients of queries are put in place.
    """
    own, tiled = 128 / tensor, max(128 / tensor, 64)
    joined = 4.0 * (tokens * own * (576 + 512) + own * 128 * 512)
    backward = 2 * 4.0 * tiled * (576 + 2 * 512) + 6.0 * own * 576
    if own == tiled:
        return joined, joined + tokens * backward
    into_tiles = 2.0 * tiled + 4.0 * own
    backward += into_tiles * (576 + 2 * 512) + 4.0 * own * 576
    return joined + tokens * into_tiles * 576, joined + tokens * backward


def copies_s(rank: Rank, way: int) -> float:
    copied = copied_bytes(int(rank.plans.tensor_parallel[0]), float(rank.tokens[0]))[way]
    return float(rank.memory_bound_s(np.array([copied]), (3.0, 9.0)[way])[0])


class TestSparseCore:
    @pytest.mark.parametrize(
        ("accelerator", "published_flop_per_s"), [("h800-sxm5-80gb", 640e12), (B200, 1450e12)]
    )
    def test_forward_is_as_fast_as_the_published_kernel(
        self, accelerator: str, published_flop_per_s: float
    ) -> None:
        """README of FlashMLA, which tells the most that its kernel reaches."""
        rank = rank_with(accelerator=accelerator)
        kernel_s = float(sparse_core_s(rank)[0][0]) - copies_s(rank, 0)
        assert 0.85 * published_flop_per_s < sparse_flop(128) / kernel_s < published_flop_per_s

    @pytest.mark.parametrize(("accelerator", "published_flop_per_s"), [(H200, 115e12), (B200, 684e12)])
    def test_backward_is_as_fast_as_the_published_kernels(
        self, accelerator: str, published_flop_per_s: float
    ) -> None:
        """READMEs of TileLang and pull request 318 of the cuDNN frontend; three products with 576 values and two with 512."""
        rank = rank_with(accelerator=accelerator)
        kernel_s = float(sparse_core_s(rank)[1][0]) - copies_s(rank, 1)
        reached = sparse_flop(128) * (3 * 576 + 2 * 512) / (576 + 512) / kernel_s
        assert 0.85 * published_flop_per_s < reached < 1.02 * published_flop_per_s

    def test_time_grows_with_the_length_and_not_with_its_square(self) -> None:
        short_s, long_s = (
            sum(
                float(way[0])
                for way in sparse_core_s(rank_of(changed(workload_of(), sequence_length=n), plan_of()))
            )
            for n in (16_384, 65_536)
        )
        assert long_s == pytest.approx(4.0 * short_s, rel=0.06)

    @pytest.mark.parametrize(("tensor", "part"), [(2, 0.5), (4, 0.5), (8, 0.5)])
    def test_ranks_compute_whole_tiles_of_heads(self, tensor: int, part: float) -> None:
        """128 heads over 4 ranks are 32, of which tiles have 64."""
        whole, split = (rank_with(plan_of(tensor=degree)) for degree in (1, tensor))
        for way in (0, 1):
            whole_s, split_s = (
                float(sparse_core_s(rank)[way][0]) - copies_s(rank, way) for rank in (whole, split)
            )
            assert split_s == pytest.approx(part * whole_s, rel=0.001)

    def test_a_power_cap_slows_it(self) -> None:
        full, capped = (rank_with(plan_of(cap=cap)) for cap in (1.0, 0.7))
        slowdown = float(capped.compute_slowdown[0])
        assert slowdown > 1.05
        for way in (0, 1):
            assert float(indexer_s(capped)[way][0]) > 1.02 * float(indexer_s(full)[way][0])
            layers = [dense_layer(rank) for rank in (full, capped)]
            assert float(layers[1].forward_s[0]) > float(layers[0].forward_s[0])

    @pytest.mark.parametrize(("tensor", "context"), [(1, 1), (4, 2)])
    def test_few_chosen_tokens_take_as_long_as_their_bytes(self, tensor: int, context: int) -> None:
        """Queries and outputs of a rank; gradients of the key of all tokens in 32 bits; copies, sorted ones backward."""
        one = with_indexer(DEEPSEEK_V3_2, changed(INDEXER, chosen_tokens=1))
        rank = rank_of(workload_of(one), plan_of(tensor=tensor, context=context), accelerator=B200)
        moved, summed = 2.0 * LENGTH / context * 128 / tensor * (576 + 512), 2 * 4.0 * LENGTH * 576
        of_ranks = context_copies_s(rank)
        for way, core in enumerate((moved, 2.0 * moved + summed)):
            least_s = float(rank.memory_bound_s(np.array([core]), 1.0)[0]) + copies_s(rank, way)
            assert sparse_core_s(rank)[way] == pytest.approx([least_s])
            assert attention_core_s(rank)[way] == pytest.approx(least_s + of_ranks[way])

    def test_keys_of_all_ranks_are_put_in_order(self) -> None:
        """A read and a write of each; gradients are cleared, and added with two reads and a write."""
        rank, values = rank_with(plan_of(context=4)), LENGTH * (576 + 128)
        forward_s, backward_s = context_copies_s(rank)
        assert forward_s == pytest.approx(rank.memory_bound_s(np.array([4.0 * values]), 2.0))
        assert backward_s == pytest.approx(rank.memory_bound_s(np.array([(2.0 + 6.0) * values]), 4.0))

    def test_gradients_of_few_choices_take_as_long_as_their_bytes(self) -> None:
        one = with_indexer(DEEPSEEK_V3_2, changed(INDEXER, chosen_tokens=1))
        rank = rank_of(workload_of(one), plan_of(tensor=4), accelerator=B200)
        rotary = 20.0 * 65 * 64 + 3 * 4.0 * 65 * 128 + 4.0 * 128
        parts = [
            rank.memory_bound_s(np.array([LENGTH * num_bytes]), number)
            for num_bytes, number in ((2.0 * 32 * 576, 1.0), (4.0 * 64 * 128, 1.0), (100.0 + rotary, 0.0))
        ]
        told = sum(parts) + indexer_weight_gradients_s(rank)
        assert indexer_s(rank)[1] == pytest.approx(told)


class TestProducts:
    def test_heads_attend_to_latents(self) -> None:
        """7,168 to 1,536 to 128 heads of 192; 7,168 to 576; 128 heads of 128 to 7,168; and none up to keys and values."""
        rank = rank_with(plan_of(tensor=4))
        sizes = [tuple(float(each[0]) for each in product) for product in attention_products(rank)]
        assert sizes == [
            (LENGTH / 4, 1536, 7168),
            (LENGTH, 128 * 192 / 4, 1536),
            (LENGTH / 4, 576, 7168),
            (LENGTH, 7168, 128 * 128 / 4),
        ]

    def test_each_head_multiplies_queries_and_outputs(self) -> None:
        rank = rank_with(plan_of(tensor=4))
        (queries, batch), (outputs, _) = products_of_heads(rank)
        assert [float(each[0]) for each in queries] == [LENGTH, 512, 128]
        assert [float(each[0]) for each in outputs] == [LENGTH, 128, 512]
        assert np.all(np.asarray(batch.num_gemms) == 32)
        assert products_of_heads(rank_of(workload_of(DENSE), plan_of())) == []

    def test_products_of_heads_stay_in_16_bits(self) -> None:
        wide, narrow = (rank_with(plan_of(precision=each)) for each in (Precision.BF16, Precision.FP8))
        (product, batch), _ = products_of_heads(wide)
        queries_s, absorbed_s = up_projections_s(narrow)
        assert absorbed_s[0] == pytest.approx(wide.gemm_s(*product, batch)[0])
        assert queries_s[0] < up_projections_s(wide)[0][0]

    def test_latents_of_keys_enter_no_product(self) -> None:
        rank = rank_with(plan_of(tensor=4))
        (product,), (entered,) = up_products(rank), entered_in_attention(rank, is_expert=False)
        assert [float(each[0]) for each in product] == [LENGTH, 128 * 192 / 4, 1536]
        assert [float(each[0]) for each in entered.product] == [LENGTH, 128 * 192 / 4, 1536]
        assert len(entered_in_attention(rank_of(workload_of(DENSE), plan_of(tensor=4)), is_expert=False)) == 2

    def test_ranks_have_the_products_of_the_indexer_whole(self) -> None:
        rank = rank_with(plan_of(tensor=8))
        sizes = [tuple(float(each[0]) for each in product) for product in indexer_products(rank)]
        assert sizes == [(LENGTH, 64 * 128, 1536), (LENGTH, 128, 7168), (LENGTH, 64, 7168)]

    def test_weight_gradients_are_those_of_all_products(self) -> None:
        rank = rank_with()
        of_heads = [rank.weight_gradient_s(*product, batch) for product, batch in products_of_heads(rank)]
        others = [rank.weight_gradient_s(*product) for product in attention_products(rank)]
        of_indexer = [rank.weight_gradient_s(*product) for product in indexer_products(rank)]
        told = sum(float(each[0]) for each in (*of_heads, *others, *of_indexer))
        h, f, tokens = (np.array([width]) for width in (7168.0, 18432.0, float(LENGTH)))
        block = rank.weight_gradient_s(tokens, 2.0 * f, h) + rank.weight_gradient_s(tokens, h, f)
        assert dense_layer_weight_gradients_s(rank)[0] == pytest.approx(told + float(block[0]))


class TestIndexer:
    def test_scores_grow_with_the_square_of_the_length(self) -> None:
        short_s, long_s = (
            float(indexer_s(rank_of(changed(workload_of(), sequence_length=n), plan_of()))[0][0])
            for n in (32_768, 131_072)
        )
        assert 8.0 * short_s < long_s < 16.0 * short_s

    def test_forward_is_its_products_operators_scores_and_choice(self) -> None:
        """64 heads of 128: scores of half of all pairs at the speed of fused attention; 90 bytes for each of 2,048 choices."""
        rank = rank_with()
        products_s = sum(float(rank.gemm_s(*product)[0][0]) for product in indexer_products(rank))
        constants = rank.kernels
        fraction = constants.attention_peak_fraction / (1.0 + constants.attention_ramp_head_dim / 128.0)
        scores_s = 2.0 * 64 * 128 * LENGTH**2 / 2 / (2250e12 * float(fraction[0]))
        rotary = 20.0 * 65 * 64 + 3 * 4.0 * 65 * 128 + 4.0 * 128
        moved_s = rank.memory_bound_s(np.array([LENGTH * rotary]), NUM_FORWARD_KERNELS)
        read = 2 * 4.0 * LENGTH**2 / 2 + 90.0 * LENGTH * 2048
        choice_s = rank.memory_bound_s(np.array([read]), 1.0)
        told = products_s + scores_s + float(moved_s[0] + choice_s[0])
        assert indexer_s(rank)[0][0] == pytest.approx(told)

    def test_the_loss_takes_chosen_scores_again_and_gradients_of_the_indexer(self) -> None:
        rank = rank_with()
        forward_flop_per_s = sparse_flop(128) / (float(sparse_core_s(rank)[0][0]) - copies_s(rank, 0))
        ratio = float(rank.kernels.attention_backward_fraction[0])
        target_s = 2.0 * 128 * 576 * CHOSEN_PAIRS / forward_flop_per_s
        gradients_s = 6.0 * 64 * 128 * CHOSEN_PAIRS / (forward_flop_per_s * ratio)
        compared_s = rank.memory_bound_s(np.array([100.0 * LENGTH * 2048]), 0.0)
        rotary = 20.0 * 65 * 64 + 3 * 4.0 * 65 * 128 + 4.0 * 128
        moved_s = rank.memory_bound_s(np.array([LENGTH * rotary]), 0.0)
        weights_s = indexer_weight_gradients_s(rank)
        told = target_s + gradients_s + float((compared_s + moved_s + weights_s)[0])
        assert indexer_s(rank)[1][0] == pytest.approx(told)

    @pytest.mark.parametrize("replicas", [1, 8])
    def test_packed_documents_choose_no_more_than_others(self, replicas: int) -> None:
        """Replicas wait for the one with the most; if all see k tokens at least, no token sees more."""
        chosen = with_indexer(DEEPSEEK_V3_2, changed(INDEXER, chosen_tokens=64))
        documents = Documents(mean_tokens=4096.0)
        rank = rank_of(workload_of(chosen, documents=documents), plan_of(data=replicas), accelerator=B200)
        plain = rank_of(workload_of(chosen), plan_of(data=replicas), accelerator=B200)
        assert float(sparse_core_s(rank)[1][0]) <= 1.01 * float(sparse_core_s(plain)[1][0])
        assert float(indexer_s(rank)[0][0]) < float(indexer_s(plain)[0][0])

    def test_context_ranks_wait_for_the_one_with_the_most_to_score(self) -> None:
        """Documents end where they do in a sequence, so that its pieces have unequal pairs unless each document is split."""
        forward_s = [
            float(
                indexer_s(
                    rank_of(
                        changed(
                            workload_of(documents=Documents(mean_tokens=8192.0, is_split_each=is_split)),
                            sequence_length=131_072,
                        ),
                        plan_of(context=16),
                        accelerator=B200,
                    )
                )[0][0]
            )
            for is_split in (True, False)
        ]
        assert forward_s[1] > 1.1 * forward_s[0]

    def test_without_a_loss_nothing_comes_back(self) -> None:
        trained, frozen = (rank_with(trains_indexer=trains) for trains in (True, False))
        assert indexer_s(frozen)[0] == pytest.approx(indexer_s(trained)[0])
        assert float(indexer_s(frozen)[1][0]) == 0.0
        assert float(indexer_weight_gradients_s(frozen)[0]) == 0.0
        assert np.array(sparse_core_s(frozen)) == pytest.approx(np.array(sparse_core_s(trained)))

    def test_layers_that_share_an_indexer_have_a_part_of_it(self) -> None:
        shared = with_indexer(DEEPSEEK_V3_2, changed(INDEXER, layer_step=2, num_leading_layers=1))
        whole, part = rank_with(), rank_of(workload_of(shared), plan_of(), accelerator=B200)
        share = 31 / 61
        assert shared.indexer_share == share
        for way in (0, 1):
            assert indexer_s(part)[way] == pytest.approx(share * indexer_s(whole)[way])
        assert np.array(sparse_core_s(part)) == pytest.approx(np.array(sparse_core_s(whole)))

    def test_the_host_launches_its_kernels(self) -> None:
        assert num_indexer_kernels(rank_with()) == (
            NUM_FORWARD_KERNELS,
            NUM_BACKWARD_KERNELS + NUM_LOSS_KERNELS,
        )
        assert num_indexer_kernels(rank_with(trains_indexer=False)) == (
            NUM_FORWARD_KERNELS,
            NUM_BACKWARD_KERNELS,
        )
        none_s = np.zeros(1)
        waits = []
        for model in (SMALL, DENSE):
            rank = rank_of(changed(workload_of(model), kernel_launch="eager"), plan_of())
            waits.append(host_waits_s(rank, none_s, none_s))
        launch_s, of_heads = rank.training.launch_s, 1  # two products of each head for one to keys and values
        assert waits[0][0] - waits[1][0] == pytest.approx(launch_s * (NUM_FORWARD_KERNELS + of_heads))
        more = launch_s * (NUM_BACKWARD_KERNELS + NUM_LOSS_KERNELS + 2 * of_heads)
        assert waits[0][1] - waits[1][1] == pytest.approx(more)

    def test_other_models_have_none(self) -> None:
        rank = rank_of(workload_of(DENSE), plan_of())
        assert [float(way[0]) for way in indexer_s(rank)] == [0.0, 0.0]
        assert num_indexer_kernels(rank) == (0.0, 0.0)
        assert indexer_bytes(rank) == ((), ())


class TestRecomputation:
    def test_a_checkpoint_of_the_core_repeats_the_choice_and_not_the_loss(self) -> None:
        """With the products out of latents, which are part of it."""
        plain, again = (rank_with(plan_of(recompute=each)) for each in (Recompute.NONE, Recompute.SELECTIVE))
        (product, batch) = products_of_heads(plain)[1]
        repeated_s = attention_core_s(plain)[0] + indexer_s(plain)[0] + plain.gemm_s(*product, batch)[0]
        added_s = dense_layer(again).backward_s - dense_layer(plain).backward_s
        assert added_s == pytest.approx(repeated_s)

    def test_it_repeats_the_gathers_of_the_indexer(self) -> None:
        plain, again = (
            rank_with(plan_of(tensor=4, recompute=each)) for each in (Recompute.NONE, Recompute.SELECTIVE)
        )
        traffic_s = [rank_layer.backward_tensor_comm_s for rank_layer in map(dense_layer, (plain, again))]
        assert traffic_s[1] - traffic_s[0] == pytest.approx(indexer_exchange_s(plain)[0], rel=1e-6)

    def test_products_up_to_queries_are_repeated_with_those_of_heads(self) -> None:
        plain, again = (
            rank_with(plan_of(recompute=each), recompute_modules=("mla_up_proj",))
            for each in (Recompute.NONE, Recompute.SELECTIVE)
        )
        products_s = sum(float(forward_s[0]) for forward_s, _ in up_projections_s(plain))
        added_s = float((dense_layer(again).backward_s - dense_layer(plain).backward_s)[0])
        assert products_s < added_s < 1.4 * products_s  # and positions


def layer_s(rank: Rank) -> float:
    layer = dense_layer(rank)
    return float((layer.forward_s + layer.backward_s)[0])


class TestTraffic:
    def test_ranks_gather_what_the_indexer_reads_and_add_up_scores_for_its_loss(self) -> None:
        gathered, summed = indexer_bytes(rank_with(plan_of(tensor=4)))
        assert [float(each[0]) for each in gathered] == [2.0 * LENGTH * 7168, 2.0 * LENGTH * 1536]
        assert [float(each[0]) for each in summed] == [4.0 * LENGTH * 2048]
        assert indexer_bytes(rank_with(plan_of(tensor=4), trains_indexer=False))[1] == ()
        assert indexer_bytes(rank_with(plan_of(tensor=4), has_sequence_parallel=False))[0] == ()

    @pytest.mark.parametrize("overlaps", [True, False])
    def test_nothing_hides_what_the_loss_adds_up(self, overlaps: bool) -> None:
        trained, frozen = (
            rank_with(plan_of(tensor=8), overlaps_tensor_comm=overlaps, trains_indexer=trains)
            for trains in (True, False)
        )
        waits = dense_layer(trained).backward_tensor_comm_s - dense_layer(frozen).backward_tensor_comm_s
        assert waits == pytest.approx(indexer_exchange_s(trained)[1])
        assert indexer_exchange_s(frozen)[1] == 0.0

    def test_latents_of_keys_are_gathered_in_16_bits(self) -> None:
        plan = plan_of(tensor=4, precision=Precision.FP8)
        gathered, summed = latent_bytes(rank_with(plan))
        assert [float(each[0]) for each in gathered] == [LENGTH * 1536, 2.0 * LENGTH * 512, 2.0 * LENGTH * 64]
        assert [float(each[0]) for each in summed] == [2.0 * LENGTH * width for width in (1536, 512, 64)]

    def test_context_ranks_gather_one_key_for_all_heads(self) -> None:
        rank = rank_with(plan_of(tensor=2, context=4))
        assert key_value_width(rank.workload, rank.plans) == pytest.approx([576 + 128])
        assert keys_and_values_bytes(rank) == pytest.approx([2.0 * LENGTH * (576 + 128)])
        gather_s, scatter_s = context_exchange_s(rank, attention_core_s(rank))
        assert scatter_s == pytest.approx(gather_s)


class TestMemory:
    def test_a_layer_keeps_what_its_autograd_saves(self) -> None:
        """Two norms, latents, queries twice, key, output in latents and from them, indices, gradients of the indexer."""
        workload, plans = workload_of(), table_of(plan_of())
        kept = LayerActivations.of(workload, plans, is_expert=False).kept / LENGTH
        norms = 2 * 7168 * (2 + 2)
        latents = 2 * (1536 + 512) + 2 * 1536
        heads = 128 * (2 * 192 + 2 * 576 + 2 * 512 + 4 + 2 * 128)
        shared = 2 * (576 + 128)
        of_indexer = 4 * 2048 + 2 * (128 + 64 * 128 + 64 + 128)
        block = 18432 * (2 * 2 + 2)
        assert kept == pytest.approx([norms + latents + heads + shared + of_indexer + block])

    @pytest.mark.parametrize(
        ("precision", "tensor", "choices", "inputs"),
        [
            (Precision.BF16, 1, {}, 0),  # what is there
            (Precision.BF16, 4, {}, 2 * (7168 + 1536)),  # gathered
            (Precision.BF16, 4, {"has_sequence_parallel": False}, 0),
            (Precision.FP8, 1, {}, 2 * 7168 + 1536),  # a copy for each product
            (Precision.FP8, 4, {}, 2 * 7168 + 1536),
        ],
    )
    def test_products_of_the_indexer_keep_their_inputs(
        self, precision: Precision, tensor: int, choices: dict[str, object], inputs: int
    ) -> None:
        plans = table_of(plan_of(tensor=tensor, precision=precision))
        trained, frozen = (
            workload_of(DEEPSEEK_V3_2, trains_indexer=trains, **choices) for trains in (True, False)
        )
        early = 2 * (128 + 64 * 128 + 64 + 128)
        assert core_width(trained, plans) - core_width(frozen, plans) == pytest.approx([inputs + early])

    @pytest.mark.parametrize(("tensor", "heads"), [(1, 128), (2, 64), (4, 64), (8, 64)])
    def test_outputs_are_those_of_whole_tiles(self, tensor: int, heads: int) -> None:
        """Others are views of them."""
        workload, plans = workload_of(trains_indexer=False), table_of(plan_of(tensor=tensor))
        assert core_width(workload, plans) == pytest.approx([heads * (2 * 512 + 4) + 4 * 2048])
        assert keys_width(workload) == 2 * 576

    def test_layers_that_share_an_indexer_keep_indices_of_their_own(self) -> None:
        shared = with_indexer(DEEPSEEK_V3_2, changed(INDEXER, layer_step=2, num_leading_layers=1))
        plans = table_of(plan_of(tensor=4))
        whole, part = (core_width(workload_of(model), plans) for model in (DEEPSEEK_V3_2, shared))
        early = 2 * (7168 + 1536) + 2 * (128 + 64 * 128 + 64 + 128)
        assert whole - part == pytest.approx([30 / 61 * early])

    def test_keys_of_other_ranks_are_kept(self) -> None:
        workload = workload_of()
        one, four = (table_of(plan_of(context=degree)) for degree in (1, 4))
        more = core_width(workload, four) - core_width(workload, one)
        assert more == pytest.approx(
            [3 * 2 * (576 + 128) + 3 * 2 * 128]
        )  # and the gradient of the key of the indexer
        assert keys_width(workload) == 2 * (576 + 128)

    def test_a_checkpoint_of_the_core_keeps_its_inputs_alone(self) -> None:
        workload = workload_of()
        plain, again = (
            LayerActivations.of(workload, table_of(plan_of(tensor=2, recompute=each)), is_expert=False)
            for each in (Recompute.NONE, Recompute.SELECTIVE)
        )
        freed = LENGTH * core_width(workload, table_of(plan_of(tensor=2)))
        assert plain.kept - again.kept == pytest.approx(freed)
        assert float((again.at_work - plain.at_work)[0]) <= float(freed[0])

    def test_a_checkpoint_of_the_products_keeps_what_makes_queries_and_the_key(self) -> None:
        """Which is as wide as the key is, and as what other products keep of latents."""
        workload = workload_of(recompute_modules=("mla_up_proj",))
        plain, again = (
            LayerActivations.of(workload, table_of(plan_of(tensor=2, recompute=each)), is_expert=False)
            for each in (Recompute.NONE, Recompute.SELECTIVE)
        )
        queries = queries_width(workload, table_of(plan_of(tensor=2)))
        assert queries == pytest.approx([64 * 2 * (192 + 576)])
        assert plain.kept - again.kept == pytest.approx(LENGTH * queries)

    @pytest.mark.parametrize("tensor", [1, 8])
    def test_tiles_are_copied_twice_backward(self, tensor: int) -> None:
        plans = table_of(plan_of(tensor=tensor, context=2))
        own, tiled = 128 / tensor, max(128 / tensor, 64)
        of_heads = 2 * 2 * tiled * (576 + 2 * 512) + 2 * tiled * 576 + 2 * own * 512
        per_token = of_heads + 4 * 2 * 576 + 2 * 4 * 2048
        assert working_bytes(workload_of(), plans) == pytest.approx([LENGTH / 2 * per_token])

    @pytest.mark.parametrize(("context", "scores"), [(32, 2.0**30), (64, 2.0**30), (128, 2.0**29)])
    def test_scores_take_no_more_room_than_a_piece_of_them(self, context: int, scores: float) -> None:
        workload = changed(workload_of(), sequence_length=131_072)
        plans = table_of(plan_of(tensor=8, context=context))
        assert working_bytes(workload, plans) == pytest.approx([3 * scores])

    def test_the_peak_is_below_that_of_a_rank_that_keeps_keys_and_values_of_all_heads(self) -> None:
        """Only where layers compute their core again: queries in latents are three times as wide as others."""
        plan = plan_of(tensor=8, pipeline=8, expert=8, data=8, recompute=Recompute.SELECTIVE)
        sparse, dense = (
            memory_of(workload_of(model), plan).peak_bytes for model in (DEEPSEEK_V3_2, DEEPSEEK_V3)
        )
        assert float(sparse[0]) > float(dense[0])


class TestStep:
    @pytest.mark.parametrize(("length", "is_faster"), [(4096, False), (262_144, True)])
    def test_long_sequences_are_faster_and_short_ones_are_not(self, length: int, is_faster: bool) -> None:
        plan = plan_of(context=8, pipeline=8, expert=8, data=8)
        sparse_s, dense_s = (
            layer_s(rank_of(changed(workload_of(model), sequence_length=length), plan, accelerator=B200))
            for model in (DEEPSEEK_V3_2, DEEPSEEK_V3)
        )
        assert (sparse_s < dense_s) is is_faster

    @pytest.mark.parametrize(
        "plan", [plan_of(tensor=2, pipeline=2, context=2, data=2), plan_of(data=8, zero=3)]
    )
    def test_parts_add_up(self, plan: Plan) -> None:
        step = step_of(workload_of(SMALL), plan)
        parts = sum(getattr(step, name) for name in step.names() if name != "step_time_s")
        assert parts == pytest.approx(step.step_time_s)

    def test_zero_bubble_schedules_compute_its_weights_later(self) -> None:
        plans = [
            plan_of(pipeline=4, data=2, schedule=each) for each in (Schedule.ONE_F_ONE_B, Schedule.ZB_H1)
        ]
        waits = [float(step_of(workload_of(SMALL), plan).pipeline_bubble_s[0]) for plan in plans]
        assert waits[1] < waits[0]

    def test_no_published_step_has_an_indexer(self) -> None:
        reach = reach_of(job_of(workload_of(SMALL)), table_of(plan_of()), 0)
        assert not reach.is_within([MEASURED_REACH])
        assert "attention to chosen tokens" in beyond_measured(reach)
        assert "attention to chosen tokens" not in beyond_measured(
            reach_of(job_of(workload_of(DENSE)), table_of(plan_of()), 0)
        )


class TestDoubt:
    """How much shorter are layers with a backward kernel as fast, relative to its forward speed, as on Blackwell?"""

    def ratio(self, model: ModelShape, accelerator: str) -> float:
        job = job_of(workload_of(model), rented(B200), rented(accelerator))
        return doubtful_log_ratio(job, table_of(plan_of().model_copy(update={"offer": 1})), 0)

    def test_it_is_what_the_core_and_the_gradients_of_the_indexer_would_save(self) -> None:
        rank = rank_with(accelerator=H200)
        layer = expert_layer(rank)
        whole_s = float((layer.forward_s + layer.backward_s)[0])
        flop = 2.0 * 128 * (3 * 576 + 2 * 512) * CHOSEN_PAIRS + 6.0 * 64 * 128 * CHOSEN_PAIRS
        speed = best_attention_flop_per_s(rank, 128.0)[0]
        saved_s = float(flop / speed * (1.0 / 0.18 - 1.0 / 0.47))
        assert self.ratio(DEEPSEEK_V3_2, H200) == pytest.approx(-np.log(1.0 - saved_s / whole_s), rel=1e-3)

    def test_it_is_nothing_on_blackwell_and_for_other_attention(self) -> None:
        assert self.ratio(DEEPSEEK_V3_2, B200) == 0.0
        assert self.ratio(DEEPSEEK_V3, H200) == 0.0

    def test_intervals_are_at_least_as_wide(self) -> None:
        job = job_of(workload_of(SMALL), rented(H200))
        plans = table_of(plan_of())
        below, above = step_error_of(job, plans, 0).interval_log_half_widths
        least = doubtful_log_ratio(job, plans, 0)
        assert least > 0.3
        assert min(below, above) >= least - 1e-12


def test_no_plans_have_no_slowest_ranks() -> None:
    ranks = rank_with(plan_of(context=2)).take(np.arange(0))
    assert [len(kind.kernel_tokens) for kind in slowest_ranks(ranks)] == [0]
    assert len(sparse_core_s(ranks)[0]) == 0
