"""How long does attention to compressed tokens take, and what does it keep? Counts by hand, published kernels."""

from __future__ import annotations

import numpy as np
import pytest

from objectives.unsure_inputs import step_error_of
from simulator.domain.documents import Documents
from simulator.domain.hardware import Precision
from simulator.domain.model import ModelShape
from simulator.domain.plan import Plan, Recompute
from simulator.domain.workload import Workload
from simulator.layers.attention_costs import (
    attention_core_s,
    attention_products,
    choice_s,
    each_projection_s,
    up_projections_s,
)
from simulator.layers.backward_doubt import doubtful_log_ratio
from simulator.layers.compressed_costs import (
    compressor_products,
    group_product,
    num_compressed_kernels,
)
from simulator.layers.compressed_indexer import compressed_indexer_gradients_s, indexer_products_of
from simulator.layers.compressed_parts import places_of
from simulator.layers.host_time import host_waits_s
from simulator.layers.layer_costs import dense_layer, expert_layer
from simulator.layers.moved_operators import rotary_again_bytes, rotary_bytes
from simulator.layers.transferred_kernels import best_attention_flop_per_s
from simulator.layers.weight_gradients import dense_layer_weight_gradients_s
from simulator.machine.rank import Rank
from simulator.memory.compressed_widths import (
    compressed_width,
    compressed_working_bytes,
    queries_again_width,
)
from simulator.memory.layer_activations import LayerActivations
from simulator.step.step_reach import MEASURED_REACH, beyond_measured, reach_of
from tests.simulator.builders import changed, job_of, plan_of, rank_of, rented, step_of, table_of, training
from tests.simulator.compressed import DENSE, FLASH, FLASH_ATTENTION, of_one_kind

B200 = "b200-sxm-180gb"
LENGTH = 8192
WINDOW_PAIRS = 128 * LENGTH - 128**2 / 2
CHOSEN_PAIRS = 512 * LENGTH - 4 * 512**2 / 2
VISIBLE_PAIRS = LENGTH**2 / 8
KEYS = {"window": 128.0, "chosen": (WINDOW_PAIRS + CHOSEN_PAIRS) / LENGTH, "heavy": 128.0 + LENGTH / 128}
"""Without an indexer kernels go through all places, seen or not."""


def workload_of(model: ModelShape = FLASH, **choices: object) -> Workload:
    workload = training(model, sequence_length=LENGTH, global_batch_size=64)
    return changed(workload, **{"kernel_launch": "graph", **choices})


def rank_with(
    model: ModelShape = FLASH, plan: Plan | None = None, *, accelerator: str = B200, **choices: object
) -> Rank:
    return rank_of(workload_of(model, **choices), plan or plan_of(), accelerator=accelerator)


def core_flop(keys: float) -> float:
    """Operations of the core forward: 64 heads, a key and a value of 512."""
    return 2.0 * 64 * 1024 * keys * LENGTH


def moved_s(rank: Rank, *, chosen: float, heavy: float, way: int) -> float:
    """Norms of 64 queries and a key, joined keys, 32 bytes for each place, and sums of compressors."""
    joined = 4.0 * 512 * (1 + chosen / 4 + heavy / 128)
    places = 32.0 * (128 + chosen * 512 + heavy * 64)
    of_norms = (4.0, 6.0)[way] * 65 * 512
    around = of_norms + joined + (places if way == 0 else 0.0)
    seconds = float(rank.memory_bound_s(np.array([LENGTH * around]), (12.0, 10.0)[way])[0])
    for share, values in ((chosen, 2048), (heavy, 1024)):
        num_bytes = (2.0, 4.0)[way] * values * LENGTH
        seconds += share * float(rank.memory_bound_s(np.array([num_bytes]), (5.0, 6.0)[way])[0])
    return seconds


class TestCore:
    @pytest.mark.parametrize(
        ("keys", "published_flop_per_s"),
        [(128, 306.6e12), (512, 557.2e12), (1024, 637.8e12), (2048, 684.0e12)],
    )
    def test_backward_is_as_fast_as_the_published_kernel(
        self, keys: int, published_flop_per_s: float
    ) -> None:
        """Pull request 318 of the cuDNN frontend: B200, 4,096 tokens, 64 heads of 512; five products for each pair."""
        model = of_one_kind(FLASH)
        window = changed(FLASH_ATTENTION, num_chosen_layers=0, num_heavy_layers=0, window_tokens=keys)
        rank = rank_of(
            workload_of(changed(model, compressed_attention=window), sequence_length=1_000_000),
            plan_of(),
            accelerator=B200,
        )
        tokens = 1_000_000.0
        around = tokens * (6.0 * 65 * 512 + 4.0 * 512)
        apart_s = float(rank.memory_bound_s(np.array([around]), 10.0)[0])
        kernel_s = float(attention_core_s(rank)[1][0]) - apart_s
        reached = 5 * 2.0 * 64 * 512 * keys * tokens / kernel_s
        assert 0.85 * published_flop_per_s < reached < 1.05 * published_flop_per_s

    @pytest.mark.parametrize("kind", ["window", "chosen", "heavy"])
    def test_every_kind_of_layer_computes_what_it_sees_or_all_places_for_it(self, kind: str) -> None:
        model = of_one_kind(FLASH, chosen=kind == "chosen", heavy=kind == "heavy")
        rank, keys = rank_with(model), KEYS[kind]
        shares = {"chosen": float(kind == "chosen"), "heavy": float(kind == "heavy")}
        speed = float(best_attention_flop_per_s(rank, 128.0)[0])
        moved = 2 * 2.0 * LENGTH * 64 * 512
        joined = 1 + shares["chosen"] / 4 + shares["heavy"] / 128
        backward_speed = speed * float(rank.kernels.attention_backward_fraction[0])
        few = (1 + 175 / keys) / (1 + 175 / 2048)
        expected = (
            (moved, core_flop(keys) / speed),
            (2 * moved + 8.0 * LENGTH * joined * 512, few * 2.5 * core_flop(keys) / backward_speed),
        )
        for way, (num_bytes, flop_s) in enumerate(expected):
            kernel_s = max(float(rank.memory_bound_s(np.array([num_bytes]), 1.0)[0]), flop_s)
            found_s = float(attention_core_s(rank)[way][0])
            assert found_s == pytest.approx(kernel_s + moved_s(rank, **shares, way=way), rel=1e-6)

    def test_a_layer_is_the_mean_of_its_kinds(self) -> None:
        kinds = [
            (21 / 43, of_one_kind(FLASH, chosen=True)),
            (20 / 43, of_one_kind(FLASH, heavy=True)),
            (2 / 43, of_one_kind(FLASH)),
        ]
        for find in (attention_core_s, choice_s):
            for way in (0, 1):
                mean_s = sum(share * float(find(rank_with(model))[way][0]) for share, model in kinds)
                # Launches around the core are not told apart by kind.
                assert float(find(rank_with())[way][0]) == pytest.approx(mean_s, rel=0.02)

    def test_fewer_heads_than_a_tile_take_as_long(self) -> None:
        model = of_one_kind(FLASH, chosen=True)
        few = changed(model, num_heads=32)
        whole_s, few_s = (float(attention_core_s(rank_with(each))[1][0]) for each in (model, few))
        assert 0.8 * whole_s < few_s < whole_s

    def test_time_grows_with_the_length_and_not_with_its_square(self) -> None:
        short_s, long_s = (
            sum(
                float(way_s[0])
                for way_s in attention_core_s(rank_of(workload_of(sequence_length=n), plan_of()))
            )
            for n in (16_384, 65_536)
        )
        assert 4.0 * short_s < long_s < 6.0 * short_s

    def test_documents_have_less_to_see(self) -> None:
        whole, packed = (
            rank_with(documents=documents) for documents in (None, Documents(lengths_tokens=(1024,)))
        )
        for find in (attention_core_s, choice_s):
            assert find(packed)[0] < find(whole)[0]

    @pytest.mark.parametrize(
        ("documents", "longest"),
        [
            (Documents(lengths_tokens=(512, 1024)), 1024),
            (Documents(lengths_tokens=(100 * LENGTH,)), LENGTH),
            (Documents(mean_tokens=1024), LENGTH),
        ],
    )
    def test_there_are_places_for_the_longest_document(self, documents: Documents, longest: int) -> None:
        model = of_one_kind(FLASH, heavy=True)
        assert places_of(rank_with(model, documents=documents), "heavy") == 128 + longest / 128
        kept = [
            compressed_width(workload_of(model, documents=each), table_of(plan_of()))
            for each in (documents, None)
        ]
        assert kept[1] - kept[0] == pytest.approx(4.0 * (LENGTH - longest) / 128)

    def test_hopper_may_have_a_faster_backward_kernel(self) -> None:
        for accelerator, has_doubt in ((B200, False), ("h100-sxm5-80gb", True)):
            job, plans = job_of(workload_of(), rented(accelerator)), table_of(plan_of())
            assert (doubtful_log_ratio(job, plans, 0) > 0.05) == has_doubt
            assert step_error_of(job, plans, 0) is not None


class TestProducts:
    def test_they_are_those_of_the_checkpoint(self) -> None:
        rank = rank_with()
        products = [
            *attention_products(rank),
            group_product(rank)[0],
            *(p for _, p in compressor_products(rank)),
        ]
        found = [(float(output[0]), float(inner[0])) for _, output, inner in products]
        assert found == [
            (1024, 4096),
            (32_768, 1024),
            (512, 4096),
            (4096, 8192),
            (1024, 4096),
            (1024, 4096),
            (512, 4096),
        ]
        assert group_product(rank)[1].num_gemms == 8.0
        indexer = [(float(o[0]), float(i[0])) for _, (_, o, i) in indexer_products_of(rank)]
        assert indexer == [(8192, 1024), (64, 4096), (256, 4096), (256, 4096)]

    def test_their_weights_are_those_of_the_shape(self) -> None:
        rank = rank_with()
        shared = sum(float(o[0] * i[0]) for _, o, i in attention_products(rank))
        _, output, inner = group_product(rank)[0]
        assert shared + 8 * float(output[0] * inner[0]) == FLASH.attention_parameters

    def test_compressors_and_groups_stay_in_16_bits(self) -> None:
        """Those into and out of latents and the key are faster in 8 bits, the others as fast."""
        wide, narrow = (rank_with(plan=plan_of(precision=each)) for each in (Precision.BF16, Precision.FP8))
        wide_s, narrow_s = (
            [float(each[0][0]) for each in each_projection_s(rank)] for rank in (wide, narrow)
        )
        assert narrow_s[1] < 0.9 * wide_s[1]
        assert narrow_s[3:5] == pytest.approx(wide_s[3:5])

    def test_what_is_computed_again_is_queries_and_the_key(self) -> None:
        rank = rank_with()
        again_s = sum(float(each[0][0]) for each in up_projections_s(rank))
        queries_s, key_s = (float(each_projection_s(rank)[place][0][0]) for place in (1, 2))
        assert again_s == pytest.approx(queries_s + key_s)

    def test_a_trained_indexer_has_gradients_of_weights_alone(self) -> None:
        rank = rank_with()
        weights_s = sum(float(each.weight_gradient_s(*p)[0]) for each, p in indexer_products_of(rank))
        assert float(compressed_indexer_gradients_s(rank)[0]) == pytest.approx(21 / 43 * weights_s)
        assert float(compressed_indexer_gradients_s(rank_with(trains_indexer=False))[0]) == 0.0
        assert float(choice_s(rank_with(trains_indexer=False))[1][0]) == 0.0

    def test_delayed_weight_gradients_are_part_of_the_backward_pass(self) -> None:
        rank = rank_with(DENSE)
        assert 0.0 < dense_layer_weight_gradients_s(rank) < dense_layer(rank).backward_compute_s

    def test_a_part_of_each_head_has_a_position_and_outputs_lose_it(self) -> None:
        assert float(rotary_bytes(rank_with())[0]) == 2 * 2.0 * LENGTH * 64 * (64 + 1 + 64)

    def test_only_queries_and_the_key_get_their_position_again(self) -> None:
        assert float(rotary_again_bytes(rank_with())[0]) == 2 * 2.0 * LENGTH * 64 * (64 + 1)


class TestIndexer:
    def test_it_scores_a_quarter_of_the_tokens(self) -> None:
        """Scores of a long sequence take nearly all of its time forward."""
        tokens = 524_288
        rank = rank_of(
            workload_of(of_one_kind(FLASH, chosen=True), sequence_length=tokens, global_batch_size=1),
            plan_of(),
            accelerator=B200,
        )
        visible = tokens**2 / 8
        scores_s = 2.0 * 64 * 128 * visible / float(best_attention_flop_per_s(rank, 128.0)[0])
        read_s = float(rank.memory_bound_s(np.array([8.0 * visible]), 1.0)[0])
        assert float(choice_s(rank)[0][0]) == pytest.approx(scores_s + read_s, rel=0.05)

    def test_the_loss_takes_time_backward(self) -> None:
        """Scores of 64 heads and the chosen ones, and three products of the indexer for each of them, at least."""
        rank = rank_with(of_one_kind(FLASH, chosen=True))
        speed = float(best_attention_flop_per_s(rank, 128.0)[0])
        backward = speed * float(rank.kernels.attention_backward_fraction[0])
        target_s = max(
            2.0 * 64 * 512 * CHOSEN_PAIRS / speed,
            float(rank.memory_bound_s(np.array([2.0 * LENGTH * 64 * 512]), 1.0)[0]),
        )
        gradients_s = max(
            6.0 * 64 * 128 * CHOSEN_PAIRS / backward,
            float(rank.memory_bound_s(np.array([4.0 * LENGTH * 8192]), 1.0)[0]),
        )
        compared_s = float(rank.memory_bound_s(np.array([100.0 * 512 * LENGTH]), 0.0)[0])
        moved = float(rank.memory_bound_s(np.array([4.0 * LENGTH * (64 * 64 + 2 * 8192)]), 0.0)[0])
        sums = float(rank.memory_bound_s(np.array([2 * 2.0 * 2 * 256 * LENGTH]), 6.0)[0])
        weights_s = float(compressed_indexer_gradients_s(rank)[0])
        expected = target_s + gradients_s + compared_s + moved + sums + weights_s
        assert float(choice_s(rank)[1][0]) == pytest.approx(expected)


class TestMemory:
    @pytest.mark.parametrize("trains", [True, False])
    def test_what_is_kept_is_counted_by_tensor(self, trains: bool) -> None:
        """Bytes of a token: queries twice and the output; the key, latents, groups; compressors; places and exponentials."""
        chosen, heavy = 21 / 43, 20 / 43
        made = chosen / 4 + heavy / 128
        kept = 2.0 * (3 * 32_768 + 512 * (1 + 1 + made + made) + 2 * 1024 + 8 * 1024)
        kept += 2.0 * (chosen * 2 * 2 * 512 + heavy * 2 * 512)
        kept += 4.0 * (64 + 128 + chosen * 512 + heavy * 64)
        if trains:
            kept += chosen * 2.0 * (8192 + 64 + 128 / 4 + 2 * 2 * 128 + 128 / 4)
        found = compressed_width(workload_of(trains_indexer=trains), table_of(plan_of()))
        assert float(found[0]) == pytest.approx(kept)

    def test_the_layer_keeps_that_and_what_other_layers_keep(self) -> None:
        """Input and output of the norm before it, in 8 bits once in 16 and for two products in 8."""
        for precision, normed in ((Precision.BF16, 2.0), (Precision.FP8, 4.0)):
            plans = table_of(plan_of(precision=precision))
            workload = workload_of(changed(DENSE, ffn_hidden_size=1))
            block = (2.0 * 2 + (2.0 if precision is Precision.BF16 else 1.0)) * 1
            second = 2.0 + (2.0 if precision is Precision.BF16 else 1.0)
            kept = compressed_width(workload, plans) + 2048 * (2.0 + normed + second) + block
            found = LayerActivations.of(workload, plans, is_expert=False).kept
            assert float(found[0]) == pytest.approx(LENGTH * float(kept[0]))

    def test_queries_computed_again_are_not_kept_and_are_at_work(self) -> None:
        plans = table_of(plan_of(recompute=Recompute.SELECTIVE))
        base, again = (
            LayerActivations.of(workload_of(DENSE, recompute_modules=modules), plans, is_expert=False)
            for modules in (("core_attn",), ("mla_up_proj",))
        )
        freed = queries_again_width(workload_of(DENSE))
        assert freed == 2.0 * (2 * 16 + 1) * 512
        assert base.kept - again.kept == pytest.approx(LENGTH * freed)
        assert again.at_work >= base.at_work

    def test_its_core_is_not_computed_again(self) -> None:
        workload = workload_of(DENSE)
        none, selective = (plan_of(recompute=each) for each in (Recompute.NONE, Recompute.SELECTIVE))
        kept = [
            LayerActivations.of(workload, table_of(plan), is_expert=False).kept for plan in (none, selective)
        ]
        times_s = [dense_layer(rank_of(workload, plan)).backward_compute_s for plan in (none, selective)]
        assert kept[0] == kept[1]
        assert times_s[0] == times_s[1]

    def test_gradients_of_queries_and_outputs_are_at_work_or_scores(self) -> None:
        found = float(compressed_working_bytes(workload_of(), table_of(plan_of()))[0])
        keys = 512 * (1 + 21 / 43 / 4 + 20 / 43 / 128)
        assert found == pytest.approx(LENGTH * (4.0 * 32_768 + 4.0 * keys))
        few = changed(FLASH, num_heads=8)
        longer = changed(workload_of(few), sequence_length=131_072)
        assert float(compressed_working_bytes(longer, table_of(plan_of()))[0]) == pytest.approx(
            max(3.0 * 2**30, 131_072 * (4.0 * 8 * 512 + 4.0 * keys))
        )


class TestSteps:
    def test_a_slow_host_launches_its_kernels(self) -> None:
        rank = rank_with(DENSE, kernel_launch="eager")
        forward, backward = num_compressed_kernels(rank)
        chosen, heavy = 4 / 8, 3 / 8
        assert forward == 12 + 5 * (2 * chosen + heavy) + 20 * chosen
        assert backward == 10 + 6 * (chosen + heavy) + (30 + 6) * chosen
        other = rank_with(changed(DENSE, compressed_attention=None), kernel_launch="eager")
        waits, others = (host_waits_s(each, np.zeros(1), np.zeros(1)) for each in (rank, other))
        launch_s = rank.training.launch_s
        assert waits[0] - others[0] == pytest.approx(launch_s * (forward + 3))  # five products, not two

    @pytest.mark.parametrize("data", [8, 64])
    def test_a_step_is_longer_where_more_is_chosen(self, data: int) -> None:
        steps = [
            float(
                step_of(
                    workload_of(
                        changed(FLASH, compressed_attention=changed(FLASH_ATTENTION, chosen_tokens=k))
                    ),
                    plan_of(data=data, expert=8),
                ).step_time_s[0]
            )
            for k in (128, 512, 1024)
        ]
        assert steps == sorted(steps)

    def test_long_sequences_take_less_than_with_attention_to_all(self) -> None:
        compressed = changed(DENSE, num_heads=16)
        full = changed(DENSE, compressed_attention=None, num_kv_heads=16)
        times = [
            dense_layer(
                rank_of(changed(workload_of(model), sequence_length=131_072), plan_of(), accelerator=B200)
            )
            for model in (compressed, full)
        ]
        assert times[0].forward_s < 0.5 * times[1].forward_s

    def test_no_measured_step_has_it(self) -> None:
        job, plans = job_of(workload_of(DENSE)), table_of(plan_of())
        assert beyond_measured(reach_of(job, plans, 0)) == ("compressed attention",)
        assert not MEASURED_REACH.is_compressed
        assert expert_layer(rank_with()).forward_s > 0.0
