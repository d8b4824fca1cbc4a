"""How long do the parts of a vision encoder take? Products, bytes and collectives counted by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.domain.hardware import Precision
from simulator.domain.images import Images
from simulator.domain.lora import Lora
from simulator.domain.plan import Plan, Recompute
from simulator.domain.vision import VisionEncoder
from simulator.domain.workload import Workload
from simulator.layers.attention_costs import attention_core_s
from simulator.layers.encoder_costs import (
    encoder_layer,
    encoder_rank,
    encoder_weight_gradients_s,
    patch_weight_gradients_s,
    patches,
    projector_traffic,
    projector_weight_gradients_s,
    projectors,
)
from simulator.layers.layer_costs import dense_layer
from simulator.layout.chunks import split_layers
from simulator.layout.encoder import encoder_shape
from simulator.machine.compute import attention_time_s
from simulator.machine.network import all_gather_s, all_reduce_s
from simulator.machine.rank import Rank
from simulator.step.card_time import part_traffic_s
from simulator.step.model_parts import ModelParts, part_collectives_s, part_times
from simulator.step.parts import VISION, Part
from simulator.step.step_reach import MEASURED_REACH, beyond_measured, reach_of
from simulator.table import Floats, total
from tests.simulator.builders import changed, job_of, plan_of, rank_of, step_of, table_of, training
from tests.simulator.vision import DEEP_TOWER, IMAGES, LANGUAGE, TOWER, on_images

H, P, N, T = 1024.0, 1440.0, 360.0, 4096.0
"""Width of the encoder, its patches in a micro-batch, their tokens, and all tokens."""


def rank_with(plan: Plan | None = None, workload: Workload | None = None) -> Rank:
    return rank_of(workload or on_images(kernel_launch="graph"), plan or plan_of())


def core_s(rank: Rank) -> Floats:
    return attention_core_s(rank)[0]


def values(columns: list[Floats]) -> list[float]:
    """The entries of the only design."""
    return [float(column[0]) for column in columns]


def one(value: float) -> Floats:
    return np.array([value])


def product_s(rank: Rank, m: float, n: float, k: float) -> Floats:
    return rank.product_s(one(m), one(n), one(k))


def gradient_s(rank: Rank, m: float, n: float, k: float) -> Floats:
    return rank.weight_gradient_s(one(m), one(n), one(k))


class TestLayers:
    def test_a_layer_is_that_of_a_transformer_whose_sequences_are_images(self) -> None:
        """Attention aside, which sees what is behind a patch, too, and with the host launching every kernel."""
        text = changed(
            training(encoder_shape(TOWER), sequence_length=1440, global_batch_size=64),
            has_sequence_parallel=False,
        )
        plan = plan_of(tensor=2, data=2)
        ours, theirs = encoder_layer(rank_with(plan)), dense_layer(rank_of(text, plan))
        assert ours.forward_tensor_comm_s == pytest.approx(theirs.forward_tensor_comm_s)
        assert ours.backward_tensor_comm_s == pytest.approx(theirs.backward_tensor_comm_s)
        assert ours.forward_s == pytest.approx(theirs.forward_s, rel=0.02)

    def test_attention_to_all_patches_is_as_long_as_causal_attention_in_twice_as_many(self) -> None:
        windows = changed(TOWER, window_patches=64)
        for tower, seen in ((TOWER, 576), (windows, 64)):
            rank = encoder_rank(rank_with(plan_of(data=2), on_images(tower)))
            causal_s = attention_time_s(
                tokens=one(P),
                sequence_length=2.0 * seen,
                num_heads=16.0,
                head_dim=64.0,
                bf16_flop_per_s=rank.offers.peak_flop_per_s[:, Precision.BF16.code],
                constants=rank.kernels,
            )
            assert core_s(rank) == pytest.approx(causal_s)

    @pytest.mark.parametrize("language_heads", [64, 256])
    def test_attention_backward_has_the_speed_of_its_own_heads(self, language_heads: int) -> None:
        model = changed(LANGUAGE, head_dim=language_heads)
        rank = rank_with(workload=on_images(model=model, kernel_launch="graph"))
        assert attention_core_s(encoder_rank(rank))[1] == attention_core_s(encoder_rank(rank_with()))[1]
        assert attention_core_s(rank)[1] != attention_core_s(rank_with())[1]

    def test_ranks_that_cut_a_sequence_share_weights_of_the_encoder(self) -> None:
        """Their products therefore add to no whole gradients, as those of replicas do not under ZeRO-3."""
        replicas, ranks = (rank_with(plan) for plan in (plan_of(data=2, zero=3), plan_of(context=2, zero=3)))
        assert encoder_layer(ranks).backward_s == pytest.approx(encoder_layer(replicas).backward_s)

    def test_images_of_all_sequences_of_a_micro_batch_are_encoded_on_every_context_parallel_rank(
        self,
    ) -> None:
        assert encoder_rank(rank_with()).tokens == P
        assert encoder_rank(rank_with(plan_of(context=4, micro_batch=2))).tokens == 2 * P
        uneven = on_images(images=changed(IMAGES, imbalance=1.5))
        assert encoder_rank(rank_with(workload=uneven)).tokens == 1.5 * P

    def test_products_stay_in_16_bits_and_are_launched_one_by_one(self) -> None:
        in_8_bits = rank_with(plan_of(precision=Precision.FP8), on_images(precisions=(Precision.FP8,)))
        assert encoder_layer(in_8_bits).forward_s == encoder_layer(rank_with()).forward_s
        eager, graph = (rank_with(workload=on_images(kernel_launch=how)) for how in ("eager", "graph"))
        assert encoder_layer(eager).forward_s == encoder_layer(graph).forward_s

    def test_replicated_encoders_have_no_collectives_and_all_of_the_work(self) -> None:
        whole = on_images(changed(TOWER, is_replicated=True))
        alone, shared = (encoder_layer(rank_with(plan_of(tensor=4), each)) for each in (whole, on_images()))
        assert alone.forward_tensor_comm_s == 0.0
        assert alone.forward_compute_s == encoder_layer(rank_with()).forward_compute_s
        assert shared.forward_tensor_comm_s > 0.0

    @pytest.mark.parametrize(("recompute", "more"), [(Recompute.NONE, 0.0), (Recompute.FULL, 1.0)])
    def test_a_plan_that_recomputes_does_not_concern_it(self, recompute: Recompute, more: float) -> None:
        again = on_images(images=changed(IMAGES, encoder_recompute=recompute))
        found, plain = encoder_layer(rank_with(workload=again)), encoder_layer(rank_with())
        longer_s = found.backward_s - plain.backward_s
        assert longer_s == pytest.approx(more * plain.forward_s, rel=0.05)
        planned = encoder_layer(rank_with(plan_of(recompute=Recompute.FULL)))
        assert planned.backward_s == plain.backward_s


class TestPatches:
    def test_a_product_and_positions(self) -> None:
        rank = rank_with(plan_of(tensor=4))
        found = patches(rank)
        added_s = rank.memory_bound_s(one(3 * 2 * P * H), 1.0)
        assert found.forward_s == pytest.approx(product_s(rank, P, H, 588) + added_s)
        read_s = rank.memory_bound_s(one(2 * P * H), 1.0)
        assert found.backward_s == pytest.approx(gradient_s(rank, P, H, 588) + read_s)
        assert patch_weight_gradients_s(rank) == found.backward_s
        assert not np.any(part_traffic_s(rank, Part.PATCHES))


class TestProjectors:
    def test_two_products_with_an_activation_between_them(self) -> None:
        rank = rank_with()
        found = projectors(rank)
        moved = [2 * P * H, 2 * N * 4096, 3 * T * 2048]
        forward_s = product_s(rank, N, 4096, 4096) + product_s(rank, N, 2048, 4096)
        forward_s = forward_s + sum(
            rank.memory_bound_s(one(2 * values), kernels)
            for values, kernels in zip(moved, (1, 1, 3), strict=True)
        )
        assert found.forward_s == pytest.approx(forward_s)
        back = [2 * P * H, 3 * N * 4096, 2 * T * 2048]
        backward_s = total(gradient_s(rank, N, n, 4096) + product_s(rank, N, 4096, n) for n in (4096, 2048))
        backward_s = backward_s + sum(
            rank.memory_bound_s(one(2 * values), kernels)
            for values, kernels in zip(back, (1, 1, 2), strict=True)
        )
        assert found.backward_s == pytest.approx(backward_s)
        gradients_s = gradient_s(rank, N, 4096, 4096) + gradient_s(rank, N, 2048, 4096)
        assert projector_weight_gradients_s(rank) == pytest.approx(gradients_s)

    def test_under_a_power_cap_products_take_longer_and_nothing_else_does(self) -> None:
        rank = rank_with()
        capped = replace(rank, compute_slowdown=one(1.5))
        forward_s = product_s(rank, N, 4096, 4096) + product_s(rank, N, 2048, 4096)
        gradients_s = gradient_s(rank, N, 4096, 4096) + gradient_s(rank, N, 2048, 4096)
        backward_s = gradients_s + product_s(rank, N, 4096, 4096) + product_s(rank, N, 4096, 2048)
        slow, usual = projectors(capped), projectors(rank)
        assert slow.forward_s - usual.forward_s == pytest.approx(0.5 * forward_s)
        assert slow.backward_s - usual.backward_s == pytest.approx(0.5 * backward_s)
        assert projector_weight_gradients_s(capped) == pytest.approx(1.5 * gradients_s)
        entered_s = product_s(rank, P, H, TOWER.patch_values)
        assert patches(capped).forward_s - patches(rank).forward_s == pytest.approx(0.5 * entered_s)

    def test_ranks_split_columns_then_rows_and_add_up(self) -> None:
        rank = rank_with(plan_of(tensor=4))
        traffic = projector_traffic(rank)
        assert values(traffic.summed) == [2 * N * 2048]
        assert values(traffic.summed_back) == [2 * N * 4096]
        assert values(traffic.gathered) == []
        found = projectors(rank)
        for num_bytes, shown_s in (
            (traffic.summed, found.forward_tensor_comm_s),
            (traffic.summed_back, found.backward_tensor_comm_s),
        ):
            assert shown_s == pytest.approx(all_reduce_s(num_bytes=num_bytes[0], **rank.tensor_group))
        split_s = gradient_s(rank, N, 1024, 4096) + gradient_s(rank, N, 2048, 1024)
        assert projector_weight_gradients_s(rank) == pytest.approx(split_s)

    def test_a_last_product_alone_is_gathered(self) -> None:
        rank = rank_with(plan_of(tensor=2), on_images(DEEP_TOWER))
        traffic = projector_traffic(rank)
        assert values(traffic.summed) == 3 * [2 * N * 4096]
        assert values(traffic.gathered) == 3 * [2 * N * 2048]
        assert values(traffic.summed_back) == 3 * [2 * N * 4096, 2 * N * 4096]
        forward_s = 3.0 * (
            all_reduce_s(num_bytes=one(2 * N * 4096), **rank.tensor_group)
            + all_gather_s(num_bytes=one(2 * N * 2048), **rank.tensor_group)
        )
        assert projectors(rank).forward_tensor_comm_s == pytest.approx(forward_s)

    def test_one_product_is_gathered(self) -> None:
        single = changed(TOWER, projector_sizes=(1024,))
        traffic = projector_traffic(rank_with(plan_of(tensor=2), on_images(single)))
        assert values(traffic.summed) == []
        assert values(traffic.gathered) == [2 * N * 2048]
        assert values(traffic.summed_back) == [2 * N * 1024]

    def test_tokens_are_placed_before_they_are_cut(self) -> None:
        whole, cut = (projectors(rank_with(plan)) for plan in (plan_of(data=4), plan_of(context=4)))
        assert cut.forward_compute_s == pytest.approx(whole.forward_compute_s)


class TestFrozen:
    FROZEN = on_images(images=changed(IMAGES, trains_encoder=False), kernel_launch="graph")
    ADAPTED = on_images(lora=Lora(rank=16), kernel_launch="graph")

    @pytest.mark.parametrize("part", [Part.PATCHES, Part.ENCODER])
    def test_an_encoder_has_no_backward_pass(self, part: Part) -> None:
        rank = rank_with(plan_of(tensor=2), self.FROZEN)
        found = part_times(rank, part)
        assert found.forward_s == part_times(rank_with(plan_of(tensor=2)), part).forward_s
        assert found.backward_s == 0.0
        assert part_traffic_s(rank, part)[1] == 0.0
        assert encoder_weight_gradients_s(rank) == patch_weight_gradients_s(rank) == 0.0

    def test_behind_a_frozen_encoder_the_gradients_of_later_products_are_still_added_up(self) -> None:
        frozen = on_images(DEEP_TOWER, changed(IMAGES, trains_encoder=False))
        traffic = projector_traffic(rank_with(plan_of(tensor=2), frozen))
        assert values(traffic.summed_back) == 3 * [2 * N * 4096]

    def test_projectors_have_one_without_the_gradient_of_what_enters(self) -> None:
        rank = rank_with(plan_of(tensor=2), self.FROZEN)
        found, trained = projectors(rank), projectors(rank_with(plan_of(tensor=2)))
        assert found.forward_s == trained.forward_s
        assert found.backward_tensor_comm_s == 0.0
        less_s = product_s(rank, N, 4096, 2048) + rank.memory_bound_s(one(2 * 2 * P * H), 1.0)
        assert trained.backward_compute_s - found.backward_compute_s == pytest.approx(less_s)
        assert projector_weight_gradients_s(rank) > 0.0

    def test_adapters_leave_forward_passes_alone(self) -> None:
        rank = rank_with(plan_of(tensor=2), self.ADAPTED)
        for part in VISION:
            assert part_times(rank, part).backward_s == 0.0
            assert part_collectives_s(rank, part)[1] == 0.0
        assert projector_weight_gradients_s(rank) == 0.0

    def test_shards_of_what_is_frozen_are_gathered_forward_alone(self) -> None:
        plan = plan_of(data=8, zero=3)
        rank = rank_with(plan, self.FROZEN)
        parts = ModelParts.of(rank, split_layers(rank.workload.model, rank.plans))
        traffic = parts.traffic(rank)
        tower = [part in (Part.PATCHES, Part.ENCODER) for part in parts.kinds]
        assert (traffic.forward_s > 0.0).all()
        assert (traffic.backward_s[0] == 0.0).tolist() == tower
        assert (traffic.gradient_s == 0.0).all()
        assert parts.times[Part.ENCODER].backward_s == 0.0


class TestSteps:
    def test_text_alone_is_as_without_an_encoder(self) -> None:
        plan = plan_of(tensor=2, pipeline=2, data=2)
        text = training(LANGUAGE, global_batch_size=64)
        few = on_images(images=Images(tokens_per_image=1, per_sequence=1e-6))
        found, plain = step_of(few, plan), step_of(text, plan)
        assert found.step_time_s > plain.step_time_s  # the encoder's weights and launches remain

    @settings(max_examples=25, deadline=None)
    @given(
        st.sampled_from([1, 2, 4]),
        st.sampled_from([1, 2, 4]),
        st.sampled_from([0, 1, 2, 3]),
        st.floats(0.1, 7.0),
        st.booleans(),
        st.sampled_from([TOWER, DEEP_TOWER, changed(TOWER, is_replicated=True)]),
    )
    def test_more_images_take_longer_and_freezing_saves_time(
        self, tensor: int, pipeline: int, zero: int, number: float, trains: bool, tower: VisionEncoder
    ) -> None:
        plan = plan_of(tensor=tensor, pipeline=pipeline, data=4, zero=zero)
        images = changed(IMAGES, per_sequence=number, trains_encoder=trains)
        more = changed(images, per_sequence=2.0 * number)
        uneven = changed(images, imbalance=2.0)
        longer = [step_of(on_images(tower, each), plan).step_time_s[0] for each in (more, uneven)]
        step_s = step_of(on_images(tower, images), plan).step_time_s[0]
        assert step_s <= longer[0] * (1.0 + 1e-9)  # equal where gathers of shards hide the encoder
        assert longer[0] == pytest.approx(longer[1], rel=1e-9)
        frozen = on_images(tower, changed(images, trains_encoder=False))
        assert step_of(frozen, plan).step_time_s[0] <= step_s * (1.0 + 1e-9)

    def test_no_compared_step_has_images(self) -> None:
        reach = reach_of(job_of(on_images()), table_of(plan_of()), 0)
        assert reach.has_images
        assert not MEASURED_REACH.has_images
        assert beyond_measured(reach) == ("images",)

    @pytest.mark.parametrize(
        "plan", [plan_of(data=4), plan_of(tensor=2, data=2), plan_of(data=2, micro_batch=2)]
    )
    def test_with_few_images_some_micro_batches_pass_without_the_encoder(self, plan: Plan) -> None:
        rank = rank_with(plan)
        number = 0.25 / plan.micro_batch_size
        few = rank_with(plan, on_images(images=changed(IMAGES, per_sequence=number), kernel_launch="graph"))
        one_each = changed(IMAGES, per_sequence=1.0 / plan.micro_batch_size)
        single = rank_with(plan, on_images(images=one_each, kernel_launch="graph"))
        for part in VISION:
            ours, theirs = part_times(few, part), part_times(single, part)
            assert ours.forward_s == pytest.approx(0.25 * theirs.forward_s)
            assert ours.backward_s == pytest.approx(0.25 * theirs.backward_s)
            assert part_traffic_s(few, part)[0] == pytest.approx(0.25 * part_traffic_s(single, part)[0])
        assert encoder_rank(few).tokens == encoder_rank(single).tokens == 576
        assert encoder_rank(rank).tokens == plan.micro_batch_size * P
