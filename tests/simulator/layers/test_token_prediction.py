"""What do modules of multi-token prediction add to weights, FLOPs, time, memory and traffic? Megatron Core's rules, by hand."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from constraints.plan_costs import plan_costs
from constraints.step_bound import bound_step
from simulator import catalog
from simulator.deep.plans.plan_items import Items, collectives_of, works_of
from simulator.deep.plans.plan_step import parts_and_shape, plan_step
from simulator.domain.blocks import MixtureOfExperts
from simulator.domain.hardware import Precision
from simulator.domain.lora import Lora
from simulator.domain.model import ModelShape
from simulator.domain.plan import Plan, Recompute, Schedule
from simulator.domain.workload import Workload
from simulator.huggingface.shape import shape_from_config
from simulator.layers.layer_costs import expert_layer
from simulator.layers.model_ends import look_up_of_module, output_layer
from simulator.layers.token_prediction import (
    JOINT,
    module,
    projection,
    projection_collectives_s,
    projection_operators,
)
from simulator.layout.chunks import can_cut, chunk_weights, split_layers
from simulator.layout.trained_weights import num_trained_parameters
from simulator.memory.activations import kept_per_module
from simulator.memory.layer_activations import kept_per_layer
from simulator.memory.loss_memory import logits_bytes
from simulator.memory.peak import memory_by_stage
from simulator.memory.predicted_tokens import kept_and_again_bytes
from simulator.replicas.replica_sync import tied_gradient_s
from simulator.step.parts import Part
from tests.simulator.builders import gpt, job_of, memory_of, plan_of, rank_of, step_of, table_of, training

ROUNDING = 1e-12
DEEPSEEK = catalog.model("deepseek-v3")
DENSE = gpt(num_layers=8)
MIXTURE = DENSE.model_copy(
    update={
        "experts": MixtureOfExperts(
            num_experts=8, experts_per_token=2, expert_ffn_hidden_size=4096, num_dense_layers=1
        )
    }
)


def predicting(model: ModelShape, modules: int = 1) -> ModelShape:
    return model.model_copy(update={"num_mtp_layers": modules})


def trained(model: ModelShape, modules: int, **choices: object) -> Workload:
    workload = training(predicting(model, modules), sequence_length=2048, global_batch_size=32)
    return Workload.model_validate({**dict(workload), **choices})


class TestModel:
    def test_a_module_of_deepseek_v3_has_the_weights_that_are_published(self) -> None:
        # README_WEIGHTS.md of deepseek-ai/DeepSeek-V3: 11.5 B, embedding and output layer not counted.
        added = predicting(DEEPSEEK).num_parameters - DEEPSEEK.num_parameters
        assert added == pytest.approx(11.5e9, rel=0.011)

    def test_a_module_has_a_layer_like_the_last_one_a_projection_and_three_norms(self) -> None:
        h, e, f, heads = 7168, 256, 2048, 128
        latents = h * 1536 + 1536 * heads * 192 + h * 576 + 512 * heads * 256 + heads * 128 * h
        layer = latents + 3 * h * f * (e + 1) + h * e + 2 * h
        added = predicting(DEEPSEEK, 2).num_parameters - predicting(DEEPSEEK, 1).num_parameters
        assert added == layer + 2 * h * h + 3 * h

    def test_flop_of_a_token_are_those_that_megatron_bridge_logs(self) -> None:
        # Performance summary of 25.11: TFLOP/s over tokens/s, with and without multi-token prediction; rounded to 1 in 500.
        for modules, flop in ((0, 1088e12 / 4357), (1, 557e12 / 2139)):
            assert predicting(DEEPSEEK, modules).model_flop_per_token(4096) == pytest.approx(flop, rel=0.004)

    def test_behind_a_last_layer_without_experts_modules_have_none(self) -> None:
        experts = MixtureOfExperts(
            num_experts=4, experts_per_token=1, expert_ffn_hidden_size=512, layer_step=2
        )
        odd, even = (predicting(gpt(num_layers=n).model_copy(update={"experts": experts})) for n in (5, 6))
        assert (odd.mtp_weights.routed, odd.has_expert_modules) == (0, False)
        assert even.mtp_weights.routed == 4 * even.expert_parameters

    def test_a_config_that_tells_of_modules_names_them_and_leaves_the_model_as_it_was(self) -> None:
        config = {
            "model_type": "glm4_moe",
            "num_hidden_layers": 4,
            "hidden_size": 64,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "intermediate_size": 256,
            "vocab_size": 1000,
            "n_routed_experts": 8,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "n_shared_experts": 1,
            "first_k_dense_replace": 1,
        }
        bare = shape_from_config(config, "m")
        told = shape_from_config({**config, "num_nextn_predict_layers": 1}, "m")
        assert told.model_copy(update={"source": bare.source}) == bare
        assert told.num_mtp_layers == 0
        assert "num_nextn_predict_layers 1" in told.source


class TestCuts:
    @pytest.mark.parametrize(("pipeline", "virtual"), [(4, 1), (8, 1), (16, 1)])
    def test_modules_stand_on_the_last_chunk_beside_its_layers(self, pipeline: int, virtual: int) -> None:
        plans = table_of(plan_of(pipeline=pipeline, virtual=virtual))
        bare, chunks = (split_layers(predicting(DEEPSEEK, number), plans) for number in (0, 1))
        assert chunks.num_layers.tolist() == bare.num_layers.tolist()
        assert chunks.num_mtp_layers[0].tolist() == [0.0] * (pipeline * virtual - 1) + [1.0]

    def test_balanced_they_count_as_two_layers_and_stand_alone_where_that_is_more_than_a_share(self) -> None:
        def cut(pipeline: int, virtual: int = 1) -> list[float]:
            plans = table_of(plan_of(pipeline=pipeline, virtual=virtual))
            assert can_cut(predicting(DEEPSEEK), "balanced", plans.pipeline_parallel * plans.virtual_pipeline)
            layers: list[float] = split_layers(predicting(DEEPSEEK), plans, "balanced").num_layers[0].tolist()
            return layers

        # Megatron-Bridge: `Et|(tt|)*30mL`.
        assert cut(8, 4) == [1.0, *[2.0] * 30, 0.0]
        # 61 layers, both ends and two for the module are 65, 4 on each of 16 stages and one more.
        assert cut(16) == [3.0, *[4.0] * 13, 5.0, 1.0]
        assert cut(1) == [61.0]

    @pytest.mark.parametrize("modules", [0, 1, 2, 3])
    def test_no_layer_is_lost_however_many_modules_there_are(self, modules: int) -> None:
        model = predicting(gpt(num_layers=20), modules)
        for pipeline in range(1, 23):
            for virtual in (1, 2, 3):
                plans = table_of(plan_of(pipeline=pipeline, virtual=virtual))
                if can_cut(model, "balanced", plans.pipeline_parallel * plans.virtual_pipeline)[0]:
                    layers = split_layers(model, plans, "balanced").num_layers
                    assert layers.sum() == 20
                    assert layers.min() >= 0

    @pytest.mark.parametrize("is_tied", [False, True])
    def test_the_last_stage_has_the_embedding_too(self, *, is_tied: bool) -> None:
        model = DENSE.model_copy(update={"has_tied_embeddings": is_tied})
        plans = table_of(plan_of(pipeline=2))
        bare, chunks = (
            chunk_weights(shape, plans, split_layers(shape, plans)).shared[0]
            for shape in (model, predicting(model))
        )
        embedded = 0 if is_tied else model.embedding_parameters
        assert chunks.tolist() == [bare[0], bare[1] + embedded + predicting(model).mtp_weights.shared]

    def test_its_gradients_are_added_up_between_first_and_last_stage(self) -> None:
        plan = plan_of(pipeline=2, data=4)
        tied = DENSE.model_copy(update={"has_tied_embeddings": True})
        of_tied, of_module, without = (
            tied_gradient_s(rank_of(trained(model, modules), plan))[0]
            for model, modules in ((tied, 0), (DENSE, 1), (DENSE, 0))
        )
        assert (of_module, without) == (of_tied, 0.0)
        on_one = plan_of(pipeline=2, virtual=2, data=4, schedule=Schedule.ZB_V)
        assert tied_gradient_s(rank_of(trained(DENSE, 1), on_one))[0] == 0.0


class TestTimes:
    def test_a_module_is_a_layer_behind_a_look_up_and_a_product_of_twice_the_inputs(self) -> None:
        rank = rank_of(trained(MIXTURE, 1), plan_of(data=8, expert=8))
        hidden = np.full(1, 2048.0)
        product_s = rank.gemm_s(rank.tokens, hidden, 2.0 * hidden)
        found, own = projection(rank), look_up_of_module(rank)
        for way, product in zip(("forward", "backward"), product_s, strict=True):
            more_s = getattr(found, f"{way}_compute_s") - getattr(own, f"{way}_compute_s") - product
            # Three norms and four copied values, read and written with 16 bits at no more than 3.35 TB/s.
            assert more_s[0] > (3.0 + 4.0) * 4.0 * 2048 * 2048 / 3.35e12
            whole_s = getattr(module(rank), f"{way}_compute_s")
            layer_s = getattr(expert_layer(rank), f"{way}_compute_s")
            assert whole_s == pytest.approx(getattr(found, f"{way}_compute_s") + layer_s)

    def test_the_output_layer_works_once_for_each_token_that_is_predicted(self) -> None:
        one, three = (output_layer(rank_of(trained(DENSE, n), plan_of(tensor=2))) for n in (0, 2))
        for name in one.names():
            assert getattr(three, name) == pytest.approx(3.0 * getattr(one, name))

    @pytest.mark.parametrize("is_split", [True, False])
    def test_what_enters_the_projection_is_twice_as_wide_as_what_enters_a_block(
        self, *, is_split: bool
    ) -> None:
        rank = rank_of(trained(DENSE, 1, has_sequence_parallel=is_split), plan_of(tensor=8))
        forward_s, backward_s = projection_collectives_s(rank)
        gather_s, reduce_s = rank.hidden_gather_s, rank.hidden_all_reduce_s
        if is_split:  # 2 h and h gathered; 2 h scattered and h gathered
            assert 2.0 * gather_s < forward_s <= 3.0 * gather_s
            assert 2.0 * gather_s < backward_s <= 3.0 * gather_s
        else:
            assert forward_s == gather_s
            assert reduce_s < backward_s <= 2.0 * reduce_s

    def test_norms_and_what_is_joined_are_read_and_written_once(self) -> None:
        rank = rank_of(trained(DENSE, 1), plan_of())
        # Three norms; copies of both inputs, and of two hidden states for the output layer. 2,048 tokens of 2,048 values.
        moved_s = rank.memory_bound_s(np.array([(3 + 4) * 2.0 * 2.0 * 2048 * 2048]), 5.0)
        assert projection_operators(rank)[JOINT][0] == pytest.approx(moved_s)

    @pytest.mark.parametrize(("method", "layers", "is_again"), [("uniform", 1, True), ("block", 1, False)])
    def test_full_recomputation_of_some_layers_leaves_modules_out(
        self, method: str, layers: int, *, is_again: bool
    ) -> None:
        workload = trained(DENSE, 1, recompute_method=method)
        kept, again = (
            module(rank_of(workload, plan_of(recompute=choice, recompute_num_layers=number)))
            for choice, number in ((Recompute.NONE, None), (Recompute.FULL, layers))
        )
        assert (again.backward_s > kept.backward_s)[0] == is_again
        assert again.forward_s == kept.forward_s

    def test_frozen_modules_have_no_gradients_of_weights_and_one_more_layer_of_adapters(self) -> None:
        lora = Lora(rank=16)
        bare, frozen = trained(DENSE, 0, lora=lora), trained(DENSE, 1, lora=lora)
        assert num_trained_parameters(frozen) == num_trained_parameters(bare) * 9 // 8
        whole_s, frozen_s = (projection(rank_of(each, plan_of())) for each in (trained(DENSE, 1), frozen))
        assert frozen_s.backward_compute_s < whole_s.backward_compute_s
        assert frozen_s.forward_compute_s == whole_s.forward_compute_s


class TestMemory:
    def test_a_module_keeps_six_values_beside_its_layer(self) -> None:
        # Inputs of three norms, two values that the projection reads, and what the output layer reads, 16 bits each.
        plans = table_of(plan_of(tensor=2))
        workload = trained(DENSE, 1, has_sequence_parallel=True)
        value = 2.0 * 2048 * 2048 / 2
        assert kept_and_again_bytes(workload, plans)[0] == 6.0 * value
        assert kept_per_module(workload, plans) == 6.0 * value + kept_per_layer(workload, plans)[0]
        again = table_of(plan_of(tensor=2, recompute=Recompute.FULL))
        assert kept_per_module(workload, again) == 3.0 * value  # hidden value, embedding, and for the logits

    def test_losses_of_modules_wait_beside_that_of_the_model(self) -> None:
        plans = table_of(plan_of())
        logits = 2048.0 * 51_200
        bare, two = (logits_bytes(trained(DENSE, n, logit_bytes=6), plans)[0] for n in (0, 2))
        assert two - bare == 2 * 4.0 * logits

    @pytest.mark.parametrize("schedule", [Schedule.ONE_F_ONE_B, Schedule.GPIPE, Schedule.ZB_H1])
    def test_only_the_last_stage_holds_modules(self, schedule: Schedule) -> None:
        plan = plan_of(pipeline=4, data=2, schedule=schedule)
        bare, one = (memory_by_stage(trained(MIXTURE, n), plan).peak_bytes for n in (0, 1))
        assert one[:-1].tolist() == bare[:-1].tolist()
        assert one[-1] > bare[-1]


GRID: list[tuple[ModelShape, Plan, dict[str, object]]] = [
    (DENSE, plan_of(), {}),
    (DENSE, plan_of(tensor=2, pipeline=4), {"has_sequence_parallel": False}),
    (DENSE, plan_of(pipeline=4, virtual=2, recompute=Recompute.FULL), {}),
    (
        DENSE,
        plan_of(pipeline=2, recompute=Recompute.FULL, recompute_num_layers=2),
        {"recompute_method": "block"},
    ),
    (DENSE, plan_of(data=8, zero=3), {}),
    (DENSE, plan_of(pipeline=2, data=4, zero=3), {"gradient_bytes": 2}),
    (DENSE, plan_of(pipeline=2, virtual=2, schedule=Schedule.ZB_V), {}),
    (DENSE, plan_of(pipeline=2, virtual=2, schedule=Schedule.DUAL_PIPE_V), {}),
    (
        MIXTURE,
        plan_of(tensor=2, pipeline=2, virtual=2, data=2, expert=2, schedule=Schedule.DUAL_PIPE_V),
        {"overlaps_expert_exchange": True},
    ),
    (MIXTURE, plan_of(pipeline=2, expert=4, data=4, precision=Precision.FP8), {}),
    (MIXTURE, plan_of(expert=8, data=8, recompute=Recompute.SELECTIVE), {"activation_offload_fraction": 0.5}),
    (MIXTURE, plan_of(tensor=2, pipeline=4, data=2, schedule=Schedule.ZB_H1), {}),
    (MIXTURE, plan_of(tensor=4, pipeline=2, data=16), {"kernel_launch": "graph"}),
]


class TestSteps:
    @pytest.mark.short(5)
    @pytest.mark.parametrize(("model", "plan", "choices"), GRID)
    def test_one_module_more_is_never_faster_or_smaller(
        self, model: ModelShape, plan: Plan, choices: dict[str, object]
    ) -> None:
        workloads = [trained(model, modules, **choices) for modules in range(4)]
        steps = [float(step_of(each, plan).step_time_s[0]) for each in workloads]
        peaks = [float(memory_of(each, plan).peak_bytes[0]) for each in workloads]
        for values in (steps, peaks):
            assert all(more > less for less, more in pairwise(values))

    @pytest.mark.parametrize(("model", "plan", "choices"), GRID)
    def test_parts_sum_to_the_step_and_bounds_hold(
        self, model: ModelShape, plan: Plan, choices: dict[str, object]
    ) -> None:
        workload = trained(model, 2, **choices)
        step, bound = step_of(workload, plan), bound_step(job_of(workload), table_of(plan))
        parts = sum(float(getattr(step, name)[0]) for name in step.names() if name != "step_time_s")
        assert parts == pytest.approx(float(step.step_time_s[0]))
        assert bound.step_time_s <= step.step_time_s * (1.0 + ROUNDING)
        assert bound.compute_s == pytest.approx(step.compute_s)

    def test_the_costs_of_a_cut_have_modules_at_the_end_of_the_model(self) -> None:
        plan = plan_of(pipeline=4)
        bare, one = (plan_costs(job_of(trained(DENSE, n)), plan).layers for n in (0, 1))
        rank = rank_of(trained(DENSE, 1), plan)
        both_s = float((module(rank).forward_s + module(rank).backward_s)[0])
        assert one.output_s == pytest.approx(2.0 * bare.output_s + both_s)
        assert one.output_bytes > bare.output_bytes
        assert (one.embedding_s, one.layer_s.tolist()) == (bare.embedding_s, bare.layer_s.tolist())


class TestDeepDepth:
    @pytest.mark.parametrize("model", [DENSE, MIXTURE])
    @pytest.mark.parametrize("recompute", [Recompute.NONE, Recompute.FULL])
    @pytest.mark.parametrize("is_split", [True, False])
    def test_operators_and_traffic_of_a_module_are_those_of_the_fast_depth(
        self, model: ModelShape, recompute: Recompute, *, is_split: bool
    ) -> None:
        workload = trained(model, 1, has_sequence_parallel=is_split, overlaps_input_gradients=False)
        plan = plan_of(tensor=2, expert=4 if model.experts else 1, data=4, recompute=recompute)
        parts, _ = parts_and_shape(job_of(workload), plan)
        times, passes = module(parts.rank), parts.passes[Part.MODULE]
        for items, way in ((passes.forward, "forward"), (passes.backward, "backward")):
            assert sum(_seconds(items)) == pytest.approx(float(getattr(times, f"{way}_s")[0]))

    @pytest.mark.short(2)
    @pytest.mark.parametrize(
        "plan",
        [
            plan_of(),
            plan_of(data=8, zero=3),
            plan_of(pipeline=2, data=8, zero=3),
            plan_of(pipeline=2, virtual=2, data=4),
            plan_of(pipeline=4, zero=0, schedule=Schedule.ZB_H1),
        ],
    )
    def test_steps_are_as_far_apart_as_without_modules(self, plan: Plan) -> None:
        bare, one = (plan_step(job_of(trained(DENSE, n)), plan) for n in (0, 1))
        bare_apart, apart = (
            abs(each.step_time_s / float(each.fast.step_time_s[0]) - 1.0) for each in (bare, one)
        )
        assert apart < bare_apart + 0.01


def _seconds(items: Items) -> list[float]:
    return [*(each.duration_s for each in works_of(items)), *(each.alone_s for each in collectives_of(items))]
