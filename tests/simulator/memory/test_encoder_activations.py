"""What does a vision encoder keep on the first stage, and which weights does it hold there?"""

from __future__ import annotations

import numpy as np
import pytest

from simulator.domain.images import Images
from simulator.domain.lora import Lora
from simulator.domain.plan import Plan, Recompute, Schedule
from simulator.domain.workload import Workload
from simulator.layout.chunks import chunk_weights, split_layers
from simulator.layout.stage_content import StageContent
from simulator.layout.trained_weights import StepWeights
from simulator.machine.network import all_reduce_s
from simulator.memory.activations import activations_of_stage, in_flight_chunks
from simulator.memory.encoder_activations import encoder_activations
from simulator.memory.peak import memory_by_stage
from simulator.memory.weights_at_work import weights_at_work
from simulator.step.whole_gradients import copies_s, summed_bytes, whole_gradient_s
from tests.simulator.builders import changed, plan_of, rank_of, table_of, training
from tests.simulator.vision import DEEP_TOWER, IMAGES, LANGUAGE, TOWER, on_images, with_tower

P, N, H = 1440, 360, 1024
FROZEN = changed(IMAGES, trains_encoder=False)
TEXT = training(LANGUAGE, global_batch_size=64)


def kept_of(workload: Workload, plan: Plan | None = None) -> float:
    return float(encoder_activations(workload, table_of(plan or plan_of())).kept[0])


class TestActivations:
    def test_layers_keep_what_ungated_ones_do_and_ends_their_inputs(self) -> None:
        """34 h bytes a token without dropout masks (Korthikanti et al.): 2 x 4 of norms, 8 h of heads, 2 x 8 h of the block."""
        layer = P * (8 * H + 8 * H + 16 * H)
        ends = 2 * P * 588 + 2 * N * (4096 + 2 * 4096)
        assert kept_of(on_images()) == pytest.approx(6 * layer + ends)

    def test_a_micro_batch_that_has_an_image_counts_where_most_have_none(self) -> None:
        one, few = (changed(IMAGES, per_sequence=number) for number in (1.0, 0.01))
        assert kept_of(on_images(images=few)) == kept_of(on_images(images=one))

    def test_tensor_parallel_ranks_split_blocks_but_not_norms(self) -> None:
        layer = P * (8 * H + 24 * H / 4)
        ends = 2 * P * 588 + 2 * N * (4096 + 2 * 4096 / 4)
        assert kept_of(on_images(), plan_of(tensor=4)) == pytest.approx(6 * layer + ends)
        whole = on_images(changed(TOWER, is_replicated=True))
        assert kept_of(whole, plan_of(tensor=4)) == kept_of(on_images())

    def test_full_recomputation_keeps_inputs_of_layers(self) -> None:
        again = on_images(images=changed(IMAGES, encoder_recompute=Recompute.FULL))
        ends = 2 * P * 588 + 2 * N * (4096 + 2 * 4096)
        assert kept_of(again) == pytest.approx(6 * 2 * P * H + ends)
        assert kept_of(on_images(), plan_of(recompute=Recompute.FULL)) == kept_of(on_images())

    def test_a_frozen_encoder_keeps_what_enters_its_projectors(self) -> None:
        assert kept_of(on_images(images=FROZEN)) == 2 * N * (4096 + 2 * 4096)
        several = 3 * 2 * N * (4096 + 2 * (2048 + 4096))
        assert kept_of(on_images(DEEP_TOWER, FROZEN)) == several
        assert kept_of(on_images(lora=Lora(rank=16))) == 0.0

    @pytest.mark.parametrize(
        "plan",
        [
            plan_of(pipeline=4, data=2),
            plan_of(pipeline=2, virtual=4, data=2),
            plan_of(pipeline=4, virtual=2, data=2, schedule=Schedule.ZB_V),
            plan_of(data=4),
        ],
    )
    def test_the_first_stage_keeps_them_for_every_micro_batch_in_flight(self, plan: Plan) -> None:
        plans, stages = table_of(plan), range(plan.pipeline_parallel)
        kept = [
            [
                float(
                    activations_of_stage(
                        each, plans, split_layers(each.model, plans), np.array([stage])
                    ).kept_bytes[0]
                )
                for stage in stages
            ]
            for each in (on_images(), TEXT)
        ]
        more = [ours - plain for ours, plain in zip(*kept, strict=True)]
        assert more[1:] == [0.0] * (plan.pipeline_parallel - 1)
        if plan.virtual_pipeline == 1:
            held = int(in_flight_chunks(on_images(), plans, np.array([0]))[0])
            assert more[0] == pytest.approx(held * kept_of(on_images(), plan))
        else:
            assert more[0] >= plan.pipeline_parallel * kept_of(on_images(), plan) * (1.0 - 1e-9)

    def test_a_wide_encoder_has_the_most_at_work_on_its_stage_alone(self) -> None:
        images = changed(IMAGES, per_sequence=16.0, encoder_recompute=Recompute.FULL)
        workload, plans = on_images(images=images), table_of(plan_of(pipeline=2))
        first, last = (
            activations_of_stage(workload, plans, split_layers(workload.model, plans), np.array([stage]))
            for stage in (0, 1)
        )
        text = activations_of_stage(TEXT, plans, split_layers(LANGUAGE, plans), np.array([1]))
        assert first.at_work_bytes == encoder_activations(workload, plans).at_work > last.at_work_bytes
        assert last.at_work_bytes == text.at_work_bytes

    def test_only_the_first_stage_needs_more_memory(self) -> None:
        plan = plan_of(pipeline=4, data=2)
        ours, plain = (memory_by_stage(each, plan).peak_bytes for each in (on_images(), TEXT))
        assert ours[0] > plain[0]
        assert ours[1:].tolist() == plain[1:].tolist()


class TestWeights:
    def test_they_are_on_the_first_chunk_alone(self) -> None:
        plans = table_of(plan_of(pipeline=2, virtual=2, data=2))
        ours, plain = (
            chunk_weights(model, plans, split_layers(model, plans)) for model in (with_tower(), LANGUAGE)
        )
        more = (ours.shared - plain.shared)[0].tolist()
        assert more == [TOWER.parameters(2048), 0.0, 0.0, 0.0]
        assert np.array_equal(ours.never_cast - plain.never_cast, [more])
        assert not np.any(ours.whole)

    def test_replicated_ones_are_whole_on_every_rank(self) -> None:
        plans, model = table_of(plan_of(tensor=4)), with_tower(tower=changed(TOWER, is_replicated=True))
        ours, plain = (
            chunk_weights(each, plans, split_layers(each, plans)).shared_on_rank(plans)[0, 0]
            for each in (model, LANGUAGE)
        )
        assert ours - plain == pytest.approx(TOWER.parameters(2048))

    @pytest.mark.parametrize("is_replicated", [False, True])
    def test_frozen_ones_are_told_apart_from_projectors(self, is_replicated: bool) -> None:
        tower = changed(TOWER, is_replicated=is_replicated)
        workload, plans = on_images(tower, FROZEN), table_of(plan_of(tensor=2, data=2))
        chunks = split_layers(workload.model, plans)
        weights = StepWeights.of(workload, plans, chunks)
        assert weights.frozen is not None
        assert weights.frozen.shared[0, 0] == tower.tower_parameters
        assert np.all(weights.frozen.whole == is_replicated * tower.tower_parameters)
        projectors = tower.projector_parameters(2048)
        assert weights.trained.shared[0, 0] == LANGUAGE.num_parameters + projectors
        whole = weights.together.whole
        assert np.all(whole == is_replicated * tower.parameters(2048))


class TestUnits:
    """What ZeRO-3 gathers, and what is added up or never cast on ranks that run a whole encoder."""

    def test_projectors_are_gathered_as_a_whole_where_they_are_larger_than_a_layer(self) -> None:
        plan, wide = plan_of(data=8, zero=3), changed(TOWER, num_projectors=9)
        projectors = 9 * (4096 * 4096 + 4096 + 4096 * 2048 + 2048)
        assert projectors > LANGUAGE.dense_layer_parameters
        ours, plain = (weights_of(each, plan) for each in (on_images(wide), on_images()))
        # 32-bit weights gathered in 16 bits: the unit at work, at most twice a layer's; gradients in 16 and 32 bits.
        more = projectors - LANGUAGE.dense_layer_parameters
        assert ours - plain == pytest.approx(2.0 * 2.0 * more + (2.0 + 4.0) * more, rel=0.3)

    def test_a_replicated_encoder_stays_in_16_bits_as_a_whole(self) -> None:
        plans, model = table_of(plan_of(tensor=4)), with_tower(tower=changed(TOWER, is_replicated=True))
        weights = chunk_weights(model, plans, split_layers(model, plans))
        vocabulary = LANGUAGE.embedding_parameters + LANGUAGE.output_parameters
        assert weights.never_cast_on_rank(plans)[0, 0] == pytest.approx(
            TOWER.parameters(2048) + vocabulary / 4.0
        )

    @pytest.mark.parametrize("has_sequence_parallel", [False, True])
    @pytest.mark.parametrize(("images", "summed"), [(IMAGES, "all"), (FROZEN, "projectors")])
    def test_its_gradients_are_added_up_between_tensor_parallel_ranks(
        self, has_sequence_parallel: bool, images: Images, summed: str
    ) -> None:
        whole = changed(TOWER, is_replicated=True)
        workload = on_images(whole, images, has_sequence_parallel=has_sequence_parallel)
        rank = rank_of(workload, plan_of(tensor=4, data=2))
        chunks = split_layers(workload.model, rank.plans)
        trained = StepWeights.of(workload, rank.plans, chunks).trained
        number = {"all": TOWER.parameters(2048), "projectors": TOWER.projector_parameters(2048)}[summed]
        num_bytes = summed_bytes(rank, float(number))
        expected_s = all_reduce_s(num_bytes=num_bytes, **rank.tensor_group) + copies_s(rank, num_bytes)
        assert whole_gradient_s(rank, chunks, trained) == pytest.approx(expected_s)
        shared = on_images(images=images, has_sequence_parallel=has_sequence_parallel)
        alone = rank_of(shared, plan_of(tensor=4, data=2))
        assert whole_gradient_s(alone, chunks, StepWeights.of(shared, alone.plans, chunks).trained) == 0.0

    @pytest.mark.parametrize("zero", [1, 3])
    def test_a_frozen_encoder_has_no_gradients_at_work(self, zero: int) -> None:
        large, plan = (
            changed(TOWER, hidden_size=4096, ffn_hidden_size=16_384, projector_sizes=(16_384, 8)),
            plan_of(data=8, zero=zero),
        )
        unit, layer = large.layer_parameters, LANGUAGE.dense_layer_parameters
        assert unit > layer
        trained, frozen = (weights_of(on_images(large, images), plan) for images in (IMAGES, FROZEN))
        # In 16 bits; ZeRO-3 reduces them as well, in the format of the wire.
        assert trained - frozen == pytest.approx(
            (2.0 + (zero == 3) * on_images().wire_bytes) * (unit - layer)
        )

    def test_a_stage_that_has_the_encoder_alone_gathers_its_layers(self) -> None:
        counted = changed(TOWER, counts_as_layers=8)
        workload = on_images(counted, stage_layers="balanced", weight_prefetch="none")
        plan = plan_of(pipeline=4, data=8, zero=3)
        plans = table_of(plan)
        chunks = split_layers(workload.model, plans, workload.stage_layers)
        stage = StageContent.of(workload, plans, chunks, np.array([0]))
        assert stage.dense_layers[0] == 0
        unit = max(counted.layer_parameters, counted.projector_parameters(2048))
        gathered = float(weights_at_work(workload, plans, stage)[0])
        assert gathered == pytest.approx((2.0 + 2.0 + workload.wire_bytes) * unit)

    def test_the_largest_product_may_be_one_of_the_encoder(self) -> None:
        wide = changed(TOWER, projector_sizes=(4096, 200_000))
        workload = on_images(wide, most_gathered_weights=0.0)
        assert weights_of(workload, plan_of(data=8, zero=3)) == 2 * 2 * 4096 * 200_000


def weights_of(workload: Workload, plan: Plan) -> float:
    plans = table_of(plan)
    stage = StageContent.of(workload, plans, split_layers(workload.model, plans), np.array([0]))
    return float(weights_at_work(workload, plans, stage)[0])
