"""What do casts of weights take, and in which bytes are cast weights gathered?"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from pydantic import ValidationError

from simulator import catalog
from simulator.deep.plans.plan_items import seconds_of
from simulator.deep.plans.plan_step import parts_and_shape
from simulator.domain.choices import CastRecipe
from simulator.domain.hardware import Precision
from simulator.domain.lora import ATTENTION_PRODUCTS, Lora
from simulator.domain.model import ModelShape
from simulator.domain.plan import Plan
from simulator.domain.workload import Workload
from simulator.layout.casts import one_layout_shares
from simulator.layout.chunks import chunk_weights, split_layers
from simulator.layout.trained_weights import StepWeights
from simulator.machine.rank import Rank
from simulator.replicas.cast_weights import casts_in_passes_s, gathered_weight_bytes, once_per_step_cast_bytes
from simulator.replicas.replica_sync import ReplicaTraffic
from simulator.step.model_parts import ModelParts, part_times
from simulator.step.parts import Part
from tests.simulator.builders import changed, job_of, memory_of, plan_of, rank_of, table_of, training
from tests.simulator.sparse import DEEPSEEK_V3_2

MODEL = catalog.model("llama-3.1-8b")
LAYERS = 32 * (2 * 4096 * 128 * (32 + 8) + 3 * 4096 * 14_336 + 2 * 4096)
ENDS = 2 * 128_256 * 4096 + 4096


def in_8_bits(recipe: CastRecipe = "tensorwise", /, **choices: object) -> Workload:
    return changed(training(MODEL, global_batch_size=64), fp8_recipe=recipe, **choices)


fp8 = partial(plan_of, precision=Precision.FP8)


@pytest.mark.parametrize("recipe", ["tensorwise", "delayed"])
def test_each_pass_casts_what_it_gathers_to_the_layout_that_it_needs(recipe: CastRecipe) -> None:
    rank = rank_of(in_8_bits(recipe, sharded_copies="none"), fp8(data=8, zero=3))
    parts = ModelParts.of(rank, split_layers(MODEL, rank.plans))
    plain, cast = part_times(rank, Part.DENSE), parts.times[Part.DENSE]
    forward_s, backward_s = casts_in_passes_s(rank, parts.weights.together)
    kind = parts.kinds.index(Part.DENSE)
    assert cast.forward_s - plain.forward_s == pytest.approx(forward_s[kind])
    assert cast.backward_s - plain.backward_s == pytest.approx(backward_s[kind])
    assert forward_s[kind] > 0.0


class TestGathers:
    @pytest.mark.parametrize(
        ("recipe", "zero", "value_bytes"),
        [
            ("tensorwise", 1, 1),
            ("delayed", 2, 1),
            ("blockwise", 3, 1 + 4 / 128),
            ("mxfp8", 1, 2),
            ("mxfp8", 3, 1 + 1 / 32),
        ],
    )
    @pytest.mark.parametrize("tensor", [1, 2])
    def test_layers_are_gathered_in_8_bits_and_ends_in_16(
        self, recipe: CastRecipe, zero: int, value_bytes: float, tensor: int
    ) -> None:
        workload = in_8_bits(recipe, gathers_cast_weights=True)
        plans = table_of(fp8(tensor=tensor, data=8, zero=zero))
        weights = chunk_weights(MODEL, plans, split_layers(MODEL, plans))
        shared, routed = gathered_weight_bytes(workload, plans, weights)
        assert shared[0, 0] == pytest.approx((value_bytes * LAYERS + 2 * ENDS) / tensor)
        assert routed[0, 0] == 0

    @pytest.mark.parametrize(("asked", "precision"), [(False, "fp8"), (True, "bf16"), (True, "fp4")])
    def test_in_16_bits_unless_they_are_cast_to_8_before(self, precision: str, *, asked: bool) -> None:
        workload = in_8_bits(gathers_cast_weights=asked)
        plans = table_of(plan_of(data=8, precision=Precision(precision)))
        weights = chunk_weights(MODEL, plans, split_layers(MODEL, plans))
        assert gathered_weight_bytes(workload, plans, weights)[0][0, 0] == pytest.approx(2 * (LAYERS + ENDS))

    def test_routed_experts_travel_so_in_their_own_groups(self) -> None:
        model = catalog.model("mixtral-8x7b")
        workload = training(model).model_copy(update={"gathers_cast_weights": True})
        plans = table_of(fp8(tensor=2, expert=4, data=8))
        weights = chunk_weights(model, plans, split_layers(model, plans))
        routed = gathered_weight_bytes(workload, plans, weights)[1][0, 0]
        assert routed == pytest.approx(32 * 8 * 3 * 4096 * 14_336 / 4)

    def test_traffic_of_both_depths_follows(self) -> None:
        plan = fp8(data=8, zero=3)
        wide, narrow = (rank_of(in_8_bits(gathers_cast_weights=each), plan) for each in (False, True))

        def fast_s(rank: Rank) -> float:
            parts = ModelParts.of(rank, split_layers(MODEL, rank.plans))
            return float(ReplicaTraffic.of(rank, parts.weights).forward_s[0, 1])

        def deep_bytes(rank: Rank) -> float:
            job = job_of(rank.workload)
            parts, _ = parts_and_shape(job, plan)
            return sum(
                each.far_bytes + each.near_bytes
                for each in parts.gathers(parts.weights_of(Part.DENSE).trained)
            )

        assert 0.5 < fast_s(narrow) / fast_s(wide) < 0.6  # start-ups remain
        assert deep_bytes(narrow) / deep_bytes(wide) == pytest.approx(0.5)

    def test_what_is_gathered_at_work_takes_half(self) -> None:
        plan = fp8(data=8, zero=3)
        wide, narrow = (
            memory_of(in_8_bits(gathers_cast_weights=each), plan).workspace_bytes[0] for each in (False, True)
        )
        # Of two layers a byte each.
        assert wide - narrow == pytest.approx(2 * LAYERS / 32)

    def test_weights_are_in_8_bits_themselves_or_have_copies(self) -> None:
        fields = in_8_bits().model_dump() | {"gathers_cast_weights": True, "keeps_cast_weights": True}
        with pytest.raises(ValidationError, match="gathers_cast_weights excludes keeps_cast_weights"):
            Workload.model_validate(fields)


class TestCasts:
    @pytest.mark.parametrize(
        ("recipe", "family", "one", "turned"),
        # Of 6 bytes: two reads and a byte, or a read and a write of a byte; of 4 and 2 x 4/128: a read, a byte and a scale.
        [
            ("tensorwise", "hopper", 5 / 6, 2 / 6),
            ("tensorwise", "blackwell", 1, 0),
            ("blockwise", "hopper", (3 + 4 / 128) / (4 + 8 / 128), (2 + 8 / 128) / (4 + 8 / 128)),
            ("mxfp8", "blackwell", (3 + 1 / 32) / (4 + 2 / 32), 0),
        ],
    )
    def test_one_layout_and_its_transposition(
        self, recipe: CastRecipe, family: str, one: float, turned: float
    ) -> None:
        assert one_layout_shares(recipe, Precision.FP8, family) == pytest.approx((one, turned))

    def once(self, plan: Plan, **choices: object) -> float:
        """Weights that a rank casts once per step, those to one layout and turned ones counting as what they move."""
        rank = rank_of(in_8_bits(**choices), plan)
        weights = StepWeights.of(rank.workload, rank.plans, split_layers(MODEL, rank.plans)).together
        reference = rank_of(in_8_bits(), fp8()).cast_bytes[0]
        return float(once_per_step_cast_bytes(rank, weights)[0, 0] / reference)

    def test_whole_weights_are_cast_once_per_step(self) -> None:
        assert self.once(fp8(tensor=2, data=8, zero=1)) == pytest.approx(LAYERS / 2)
        assert self.once(plan_of(data=8)) == 0
        assert self.once(fp8(data=8, zero=3)) == 0

    def test_frozen_ones_too_but_no_adapters(self) -> None:
        lora = Lora(rank=16, targets=ATTENTION_PRODUCTS)
        assert self.once(fp8(data=8, zero=1), lora=lora) == pytest.approx(LAYERS)

    def test_those_that_are_gathered_behind_it_by_shares(self) -> None:
        # A share of an eighth to one layout, and all of it turned.
        expected = LAYERS * (5 / 6 / 8 + 2 / 6)
        assert self.once(fp8(data=8, zero=1), gathers_cast_weights=True) == pytest.approx(expected)

    @pytest.mark.parametrize("gathers_cast", [False, True])
    def test_passes_of_fully_sharded_weights_cast_what_they_gathered(self, *, gathers_cast: bool) -> None:
        rank = rank_of(in_8_bits(gathers_cast_weights=gathers_cast), fp8(data=8, zero=3))
        parts = ModelParts.of(rank, split_layers(MODEL, rank.plans))
        forward_s, backward_s = casts_in_passes_s(rank, parts.weights.together)
        bandwidth = 3.35e12 * rank.kernels.memory_fraction[0]
        launches_s = 4 * rank.kernels_per_cast[0] * rank.kernels.launch_s[0]
        of_one = rank.cast_bytes[0] * 5 / 6 * LAYERS / 32
        turned = rank.cast_bytes[0] * 2 / 6 * LAYERS / 32
        bytes_ = (of_one / 8, of_one / 8 + turned) if gathers_cast else (of_one, of_one)
        assert forward_s[1, 0] == pytest.approx(bytes_[0] / bandwidth + launches_s)
        assert backward_s[1, 0] == pytest.approx(bytes_[1] / bandwidth + launches_s)
        assert forward_s[[0, 2]] == pytest.approx(0)  # embedding and output layer

    @pytest.mark.parametrize(
        ("model", "num_products"),
        [
            ("mixtral-8x7b", {Part.EXPERT: 4}),
            # Latents of keys and values, and in V3 of queries, have a product down to them and one up.
            ("deepseek-v2-lite", {Part.DENSE: 4 + 2, Part.EXPERT: 4 + 2}),
            ("deepseek-v3", {Part.DENSE: 5 + 2, Part.EXPERT: 5 + 2}),
            # An indexer has three; products of each head with latents stay in 16 bits.
            (DEEPSEEK_V3_2, {Part.DENSE: 4 + 3 + 2, Part.EXPERT: 4 + 3 + 2}),
            # 24 M, 4 * and 24 - (docs/model/hybrids.md).
            ("nemotron-h-8b", {Part.DENSE: 2 + 2 * 4 / 24 + 2}),
            # 40 M, 8 * and 40 E, whose experts read a latent; every layer has experts.
            ("nemotron-3-super-120b-a12b", {Part.EXPERT: 2 + 2 * 8 / 40 + 2 + 2}),
            # 20 blocks of Kimi Delta Attention with a low rank, and 7 with latents of keys and values, in 27 layers.
            ("kimi-linear-48b-a3b", {Part.DENSE: 4 + 2, Part.EXPERT: 4 + 2}),
        ],
    )
    def test_every_product_of_a_layer_has_its_own_launches(
        self, model: str | ModelShape, num_products: dict[Part, float]
    ) -> None:
        workload = changed(training(model, global_batch_size=64), fp8_recipe="tensorwise")
        rank = rank_of(workload, fp8(data=8, expert=1, zero=3))
        free = replace(rank, kernels=replace(rank.kernels, launch_s=0.0 * rank.kernels.launch_s))
        parts = ModelParts.of(rank, split_layers(workload.model, rank.plans))
        weights = parts.weights.together
        for with_s, without_s in zip(
            casts_in_passes_s(rank, weights), casts_in_passes_s(free, weights), strict=True
        ):
            num_kernels = (with_s - without_s)[:, 0] / rank.kernels.launch_s[0]
            assert num_kernels[[0, -1]] == pytest.approx(0)  # embedding and output layer
            for kind, expected in num_products.items():
                # Tensor-wise scales take 4 kernels a product.
                assert num_kernels[parts.kinds.index(kind)] == pytest.approx(4 * expected), kind

    def test_columns_of_mxfp8_are_gathered_and_not_made_of_rows(self) -> None:
        workload = in_8_bits("mxfp8", gathers_cast_weights=True)
        rank = rank_of(workload, fp8(data=8, zero=3), accelerator="b200-sxm-180gb")
        parts = ModelParts.of(rank, split_layers(MODEL, rank.plans))
        forward_s, backward_s = casts_in_passes_s(rank, parts.weights.together)
        assert backward_s == pytest.approx(forward_s)

    def test_the_deep_depth_has_them_as_operators(self) -> None:
        plan = fp8(data=8, zero=3)
        rank = rank_of(in_8_bits(), plan)
        parts, _ = parts_and_shape(job_of(rank.workload), plan)
        fast = ModelParts.of(rank, split_layers(MODEL, rank.plans)).times[Part.DENSE]
        assert seconds_of(parts.passes[Part.DENSE].forward) == pytest.approx(float(fast.forward_compute_s[0]))
        assert seconds_of(parts.passes[Part.DENSE].backward) == pytest.approx(
            float(fast.backward_compute_s[0])
        )
