"""Do layers keep what the papers' formulas say, in every number format, with latents, experts and imbalance?"""

from __future__ import annotations

import numpy as np
import pytest

from simulator.domain.hardware import Precision
from simulator.domain.plan import Plan, Recompute
from simulator.domain.workload import Workload
from simulator.layout.chunks import split_layers
from simulator.memory.activations import Activations, activations_of_layers, activations_of_stage
from simulator.memory.layer_widths import gradient_widths
from tests.simulator.builders import changed, gpt, plan_of, table_of, training
from tests.simulator.compressed import FLASH


def activations_of(workload: Workload, plan: Plan) -> Activations:
    """Activations of the first stage."""
    table = table_of(plan)
    chunks, first = split_layers(workload.model, table), np.array([0])
    return activations_of_layers(
        workload,
        table,
        stage=first,
        dense_layers=chunks.on_stage(chunks.num_dense_layers, first),
        expert_layers=chunks.on_stage(chunks.num_expert_layers, first),
    )


# One stage and one micro-batch, so that every layer is held once.
LAYERS, S, B, H, A = 24, 2048, 2, 2048, 16
UNFUSED = training(gpt(), sequence_length=S, global_batch_size=B).model_copy(update={"attention": "unfused"})
PLAIN = UNFUSED.model_copy(update={"has_sequence_parallel": False})
SBH, SCORES = S * B * H, 5 * A * S / H


class TestActivations:
    """Korthikanti et al., arXiv 2205.05198, table 2, less the dropout masks of 2 s b h outside of attention."""

    @pytest.mark.parametrize("t", [1, 2, 4, 8])
    def test_tensor_and_sequence_parallelism_split_all_of_a_layer(self, t: int) -> None:
        found = activations_of(UNFUSED, plan_of(tensor=t, micro_batch=B))
        assert found.kept_bytes == pytest.approx(LAYERS * SBH / t * (34 - 2 + SCORES), rel=1e-12)

    @pytest.mark.parametrize("t", [1, 2, 4, 8])
    def test_tensor_parallelism_alone_leaves_norms_and_residuals_whole(self, t: int) -> None:
        found = activations_of(PLAIN, plan_of(tensor=t, micro_batch=B))
        assert found.kept_bytes == pytest.approx(LAYERS * SBH * (10 - 2 + 24 / t + SCORES / t), rel=1e-12)

    @pytest.mark.parametrize(("precision", "product"), [(Precision.BF16, 2), (Precision.FP8, 1)])
    def test_gates_of_the_attention_output_are_kept_with_the_gated_output(
        self, precision: Precision, product: int
    ) -> None:
        gated = UNFUSED.model_copy(update={"model": changed(gpt(), has_output_gate=True)})
        plan = plan_of(tensor=4, micro_batch=B, precision=precision)
        with_gates, without = (activations_of(workload, plan).kept_bytes for workload in (gated, UNFUSED))
        assert with_gates - without == pytest.approx(LAYERS * SBH / 4 * (2 + product), rel=1e-12)

    @pytest.mark.parametrize(("block", "num_kept"), [("one_norm", 2), ("two_norms", 3)])
    def test_blocks_side_by_side_keep_one_input_of_their_norms_and_one_output_of_each(
        self, block: str, num_kept: int
    ) -> None:
        model = UNFUSED.model.model_copy(update={"parallel_block": block})
        workload = UNFUSED.model_copy(update={"model": model})
        found = activations_of(workload, plan_of(tensor=4, micro_batch=B))
        # Two inputs and two outputs of 2 s b h each where one block follows the other.
        assert found.kept_bytes == pytest.approx(LAYERS * SBH / 4 * (34 - 2 - 2 * (4 - num_kept) + SCORES))

    def test_norms_of_queries_and_keys_keep_their_inputs(self) -> None:
        model = UNFUSED.model.model_copy(update={"qk_norm": "per_head"})
        found = activations_of(UNFUSED.model_copy(update={"model": model}), plan_of(tensor=4, micro_batch=B))
        assert found.kept_bytes == pytest.approx(LAYERS * SBH / 4 * (34 - 2 + 2 * 2 + SCORES))

    def test_selective_recomputation_keeps_no_scores(self) -> None:
        found = activations_of(UNFUSED, plan_of(tensor=4, micro_batch=B, recompute=Recompute.SELECTIVE))
        assert found.kept_bytes == pytest.approx(SBH / 4 * LAYERS * 32, rel=1e-12)
        # The layer at work computes its scores again. When 16-bit gradients of them stand before and after the softmax, the
        # feed-forward block is done with: input and output of its activation function, 2 x 4 h each. Besides, the residual
        # stream has a gradient.
        assert found.at_work_bytes == pytest.approx(SBH / 4 * (SCORES + 4 / 5 * SCORES - 16 + 2), rel=1e-12)

    def test_full_recomputation_keeps_layer_inputs(self) -> None:
        found = activations_of(PLAIN, plan_of(tensor=4, micro_batch=B, recompute=Recompute.FULL))
        assert found.kept_bytes == pytest.approx(SBH * 2 * LAYERS, rel=1e-12)
        again = 8 + 24 / 4 + SCORES / 4
        of_attention = 4 / 5 * SCORES / 4 - 16 / 4  # without the feed-forward block
        assert found.at_work_bytes == pytest.approx(SBH * (again + 2 + of_attention), rel=1e-12)

    def test_eager_attention_has_scores_in_32_bits_and_no_dropout(self) -> None:
        # For each score 4 bytes of the softmax and 2 of the factor, and as many for their gradients; 2 + 1 + 2 and 2 + 2 else.
        eager = UNFUSED.model_copy(update={"attention": "eager"})
        one = A * S * S * B / 4
        kept, again = (
            plan_of(tensor=4, micro_batch=B, recompute=way) for way in (Recompute.NONE, Recompute.SELECTIVE)
        )
        more = activations_of(eager, kept).kept_bytes - activations_of(UNFUSED, kept).kept_bytes
        assert more == pytest.approx(LAYERS * (6 - 5) * one)
        more = activations_of(eager, again).at_work_bytes - activations_of(UNFUSED, again).at_work_bytes
        assert more == pytest.approx((6 - 5 + 6 - 4) * one)

    def test_layers_that_are_recomputed_together_keep_one_input_and_all_else_at_once(self) -> None:
        workload = UNFUSED.model_copy(update={"attention": "flash", "recompute_method": "uniform"})
        alone, together = (
            activations_of(workload, plan_of(micro_batch=B, recompute=Recompute.FULL, recompute_num_layers=n))
            for n in (1, 3)
        )
        assert alone.kept_bytes == pytest.approx(LAYERS * 2 * SBH)
        assert together.kept_bytes == pytest.approx(LAYERS / 3 * 2 * SBH)
        assert together.at_work_bytes - alone.at_work_bytes == pytest.approx(2 * 32 * SBH)

    def test_the_widest_gradient_counts_where_scores_are_few(self) -> None:
        few = UNFUSED.model_copy(update={"attention": "flash"})
        found = activations_of(few, plan_of(micro_batch=B, recompute=Recompute.FULL))
        assert found.at_work_bytes == pytest.approx(SBH * (32 + 2 + 8), rel=1e-12)

    def test_fused_attention_keeps_no_scores(self) -> None:
        fused = UNFUSED.model_copy(update={"attention": "flash"})
        found = activations_of(fused, plan_of(micro_batch=B))
        assert found.kept_bytes == pytest.approx(LAYERS * SBH * 32, rel=1e-12)

    def test_a_gated_block_with_grouped_heads_keeps_three_wide_tensors_and_few_keys(self) -> None:
        # Llama 3.1 8B: 4 h of inputs, h of queries, 2 h/4 of keys and values, h before the output, 3 f; 2 bytes each.
        workload = training("llama-3.1-8b", sequence_length=4096, global_batch_size=1)
        width = 4 * 4096 + 4096 + 2 * 1024 + 4096 + 3 * 14336
        assert activations_of(workload, plan_of()).kept_bytes == pytest.approx(32 * 4096 * 2 * width)

    def test_more_ranks_than_key_value_heads_hold_copies_of_them(self) -> None:
        workload = training("llama-3.1-8b", sequence_length=4096, global_batch_size=1)
        eight, sixteen = (
            activations_of(workload, plan_of(tensor=t)).kept_bytes[0] * t / (32 * 4096 * 2) for t in (8, 16)
        )
        assert sixteen - eight == pytest.approx(2 * 1024)  # 16 instead of 8 heads of keys and values

    def test_context_parallelism_splits_everything_by_sequence(self) -> None:
        workload = training("llama-3.1-8b", sequence_length=4096, global_batch_size=1)
        one, four = (activations_of(workload, plan_of(context=c)) for c in (1, 4))
        assert four.kept_bytes == pytest.approx(one.kept_bytes / 4)
        assert four.at_work_bytes == pytest.approx(one.at_work_bytes / 4)

    def test_each_token_is_kept_once_for_each_of_its_experts(self) -> None:
        workload = training("mixtral-8x7b", sequence_length=4096, global_batch_size=1)
        dense = activations_of(
            workload.model_copy(update={"model": workload.model.model_copy(update={"experts": None})}),
            plan_of(),
        )
        routed = activations_of(workload, plan_of())
        # Top 2: a second feed-forward block of 3 f, and for both experts a copy of h that they work on.
        extra = 3 * 14336 + 2 * 4096
        assert (routed.kept_bytes - dense.kept_bytes)[0] == pytest.approx(32 * 4096 * 2 * extra)

    def test_an_imbalance_fills_the_most_loaded_rank_up_to_its_capacity(self) -> None:
        workload = training("mixtral-8x7b", sequence_length=4096, global_batch_size=2)

        def kept(**changes: float) -> float:
            return float(
                activations_of(workload.model_copy(update=changes), plan_of(expert=2, data=2)).kept_bytes[0]
            )

        copies = 32 * 4096 * 2 * 2 * (3 * 14336 + 4096)
        assert kept(expert_imbalance=1.5) - kept() == pytest.approx(copies / 2)
        assert kept(expert_imbalance=1.5, expert_capacity_factor=1.25) - kept() == pytest.approx(copies / 4)
        assert kept(expert_capacity_factor=1.25) == kept()

    def test_latent_attention_keeps_its_latents_before_and_after_their_norms(self) -> None:
        workload = training("deepseek-v3", sequence_length=4096, global_batch_size=1)
        full = workload.model.model_copy(update={"experts": None, "num_layers": 1})
        kept = activations_of(workload.model_copy(update={"model": full}), plan_of()).kept_bytes[0]
        # DeepSeek-V3: 128 heads of 192 for queries and keys, of 128 for values and the output; ranks 1536 and 512.
        width = 4 * 7168 + 2 * (1536 + 512) + 128 * (2 * 192 + 2 * 128) + 3 * 18432
        assert kept == pytest.approx(4096 * 2 * width)

    @pytest.mark.parametrize("t", [2, 8])
    def test_sequence_parallelism_splits_latents_too(self, t: int) -> None:
        # Products down to latents read what their rank has of the sequence (`parallel_mode` "duplicated" in Megatron Core).
        workload = training("deepseek-v3", sequence_length=4096, global_batch_size=1)
        dense = workload.model.model_copy(update={"experts": None, "num_layers": 1})
        alone, split = (
            activations_of(workload.model_copy(update={"model": dense}), plan_of(tensor=ranks)).kept_bytes
            for ranks in (1, t)
        )
        assert split == pytest.approx(alone / t)

    def test_inputs_of_8_bit_products_are_kept_in_8_bits(self) -> None:
        workload = training("llama-3.1-8b", sequence_length=4096, global_batch_size=1)
        eight = activations_of(workload, plan_of(precision=Precision.FP8)).kept_bytes[0]
        # 16 bits: both inputs of norms, queries, keys, values, the output (for attention) and both inputs of the
        # activation; 8 bits: what enters the products, but for the attention's output, which is there in 16.
        wide = 2 * 4096 + 4096 + 2 * 1024 + 4096 + 2 * 14336
        assert eight == pytest.approx(32 * 4096 * (2 * wide + 4096 + 4096 + 14336))

    def test_delayed_scaling_keeps_a_copy_of_the_output_of_attention(self) -> None:
        # Megatron Core sets `save_original_input` of `linear_proj` unless `fp8_recipe` is delayed.
        workload = training("llama-3.1-8b", sequence_length=4096, global_batch_size=1)
        delayed = workload.model_copy(update={"fp8_recipe": "delayed"})
        plan = plan_of(precision=Precision.FP8)
        more = activations_of(delayed, plan).kept_bytes - activations_of(workload, plan).kept_bytes
        assert more == pytest.approx(32 * 4096 * 4096)

    @pytest.mark.parametrize(("recipe", "of_shared_experts"), [("tensorwise", 0), ("delayed", 7168)])
    def test_what_norms_of_experts_and_latents_give_is_kept_for_every_product(
        self, recipe: str, of_shared_experts: int
    ) -> None:
        # In 8 bits the two products down to latents have a copy each; the router keeps 16 bits, and shared experts read
        # those unless scaling is delayed.
        shape = training("deepseek-v3").model
        experts = shape.experts and shape.experts.model_copy(update={"num_dense_layers": 0})
        workload = training(
            shape.model_copy(update={"num_layers": 1, "experts": experts}),
            sequence_length=4096,
            global_batch_size=1,
        ).model_copy(update={"fp8_recipe": recipe})
        kept = activations_of(workload, plan_of(precision=Precision.FP8)).kept_bytes[0]
        norms = 2 * 2 * 7168 + 2 * 7168 + 2 * 7168 + of_shared_experts
        heads = 2 * 128 * (2 * 192 + 2 * 128) + (128 * 128 if of_shared_experts else 0)
        rest = 3 * (1536 + 512) + 8 * 7168 + 9 * 5 * 2048
        assert kept == pytest.approx(4096 * (norms + heads + rest))

    @pytest.mark.parametrize("exchange", ["all_to_all", "hybrid"])
    def test_an_output_that_comes_back_for_heads_is_another_tensor_than_attention_keeps(
        self, exchange: str
    ) -> None:
        # DeepSpeed Ulysses; Transformer Engine 2.8 keeps what its core gave before the exchange (SimuMax, release 1.2).
        workload = training("llama-3.1-8b", sequence_length=4096, global_batch_size=1)
        exchanging = workload.model_copy(update={"context_exchange": exchange})
        for c, width in ((1, 0), (4, 4096)):
            plan = plan_of(context=c)
            more = activations_of(exchanging, plan).kept_bytes - activations_of(workload, plan).kept_bytes
            assert more == pytest.approx(32 * 4096 / c * 2 * width)

    @pytest.mark.parametrize(
        ("t", "width"),
        # Llama 3.1 8B, f = 3.5 h. On one and two ranks gradients of both inputs of the activation, 2 x 2 f/t; on four h of
        # the output's gradient and f/4 before the activation; on eight h of the input and of its gradient, less the f/8
        # that is gone.
        [
            (1, 2 * 2 * 14336),
            (2, 2 * 2 * 14336 / 2),
            (4, 2 * 4096 + 2 * 14336 / 4),
            (8, 2 * 2 * 4096 - 2 * 14336 / 8),
        ],
    )
    def test_sequence_parallelism_gathers_what_products_read(self, t: int, width: float) -> None:
        workload = training("llama-3.1-8b", sequence_length=4096, global_batch_size=1)
        found = activations_of(workload, plan_of(tensor=t)).at_work_bytes
        assert found == pytest.approx(4096 * (2 * 4096 / t + width))

    @pytest.mark.parametrize(("t", "expert_tensor"), [(1, 1), (2, 1), (4, 1), (4, 2)])
    def test_gradients_of_routed_tokens_are_split_by_tensor_parallel_ranks(
        self, t: int, expert_tensor: int
    ) -> None:
        # Mixtral 8x7B: two copies of a token, its input of 4,096 values on every rank of an expert, and two wide tensors of
        # 14,336 that they share; in 16 bits.
        workload = training("mixtral-8x7b").model_copy(update={"expert_tensor_parallel": expert_tensor})
        _, block = gradient_widths(workload, table_of(plan_of(tensor=t)), is_expert=True)
        assert block == pytest.approx(2 * 2 * (expert_tensor * 4096 + 2 * 14_336) / t)

    def test_operator_wise_checkpointing_keeps_the_output_of_every_other_product(self) -> None:
        workload = training("llama-3.1-8b", sequence_length=8192, global_batch_size=8)
        operator_wise = workload.model_copy(update={"selective_recompute": "every_other_product"})
        found = activations_of(operator_wise, plan_of(recompute=Recompute.SELECTIVE))
        # torchtitan, policy of selective checkpointing: the input of the layer; products 1, 3, 5 and 7 (queries, values,
        # gate, output of the block); the output of attention.
        width = 4096 + 4096 + 1024 + 14336 + 4096 + 4096
        assert found.kept_bytes == pytest.approx(32 * 8192 * 2 * width)
        full = activations_of(workload, plan_of(recompute=Recompute.FULL))
        assert found.at_work_bytes == full.at_work_bytes

    def test_without_a_gate_there_is_no_seventh_product(self) -> None:
        workload = UNFUSED.model_copy(update={"selective_recompute": "every_other_product"})
        found = activations_of(workload, plan_of(micro_batch=B, recompute=Recompute.SELECTIVE))
        # The layer's input, queries, values and the output of attention, h each; the wide tensor, 4 h.
        assert found.kept_bytes == pytest.approx(LAYERS * 2 * SBH * (1 + 1 + 1 + 1 + 4))

    def test_values_that_are_narrower_than_queries_are_kept_as_they_are(self) -> None:
        workload = training("deepseek-v3", sequence_length=4096, global_batch_size=1)
        dense = workload.model.model_copy(update={"experts": None, "num_layers": 1})
        operator_wise = {"model": dense, "selective_recompute": "every_other_product"}
        found = activations_of(
            workload.model_copy(update=operator_wise), plan_of(recompute=Recompute.SELECTIVE)
        )
        # DeepSeek-V3: 128 heads of 192 for queries, of 128 for values and for the output of attention.
        width = 7168 + 128 * (192 + 128 + 128) + 18_432 + 7168
        assert found.kept_bytes == pytest.approx(4096 * 2 * width)

    @pytest.mark.parametrize("parts", [1, 2])
    def test_every_part_of_an_expert_has_an_output_that_is_kept(self, parts: int) -> None:
        workload = training("mixtral-8x7b", sequence_length=4096, global_batch_size=1).model_copy(
            update={"selective_recompute": "every_other_product", "expert_tensor_parallel": parts}
        )
        found = activations_of(workload, plan_of(recompute=Recompute.SELECTIVE))
        # Mixtral 8x7B, top 2: the layer's input, queries, values of 8 of 32 heads, the output of attention; for both experts
        # the gate of 14,336 and outputs of 4,096.
        width = 4096 + 4096 + 1024 + 4096 + 2 * (14_336 + parts * 4096)
        assert found.kept_bytes == pytest.approx(32 * 4096 * 2 * width)

    def test_stages_that_keep_what_they_sent_hold_one_tensor_more_for_each_micro_batch(self) -> None:
        workload = training(gpt(), sequence_length=S, global_batch_size=16)
        keeping = workload.model_copy(update={"keeps_stage_outputs": True})
        plan = plan_of(pipeline=4, data=2)
        more = activations_of(keeping, plan).kept_bytes - activations_of(workload, plan).kept_bytes
        assert more == pytest.approx(4 * 2 * S * H)  # four micro-batches of 16-bit s h
        alone = plan_of(data=2)
        assert activations_of(keeping, alone).kept_bytes == activations_of(workload, alone).kept_bytes

    @pytest.mark.parametrize(
        ("recompute", "operator_wise", "num_freed"),
        [
            (Recompute.NONE, False, 1),
            (Recompute.SELECTIVE, False, 1),
            (Recompute.SELECTIVE, True, 0),
            (Recompute.FULL, False, 0),
            (Recompute.FULL, True, 0),
        ],
    )
    def test_stages_that_free_what_they_received_hold_one_tensor_less_unless_they_start_again_from_it(
        self, recompute: Recompute, operator_wise: bool, num_freed: int
    ) -> None:
        fields = {"selective_recompute": "every_other_product"} if operator_wise else {}
        workload = training(gpt(), sequence_length=S, global_batch_size=16).model_copy(update=fields)
        freeing = workload.model_copy(update={"frees_stage_inputs": True})
        for plan, num_held in (
            (plan_of(pipeline=4, data=2, recompute=recompute), 4),  # four micro-batches of 16-bit s h
            (plan_of(pipeline=4, data=2, virtual=2, recompute=recompute), 2 * 3 + 4 + 1),  # eleven chunks
            (plan_of(data=2, recompute=recompute), 0),
        ):
            less = activations_of(workload, plan).kept_bytes - activations_of(freeing, plan).kept_bytes
            assert less == pytest.approx(num_freed * num_held * 2 * S * H)


def test_stages_at_once_have_the_activations_of_each() -> None:
    plans = table_of(
        plan_of(pipeline=4, virtual=2, recompute=Recompute.FULL, recompute_num_layers=1),
        plan_of(pipeline=3, virtual=4),
    )
    workload = training("mixtral-8x7b", global_batch_size=48)
    chunks, stages = split_layers(workload.model, plans), np.array([[0, 0], [1, 1], [2, 2], [3, 2], [2, 1]])
    together = activations_of_stage(workload, plans, chunks, stages)
    for row, stage in enumerate(stages):
        alone = activations_of_stage(workload, plans, chunks, stage)
        for name, value in vars(alone).items():
            found = np.broadcast_to(getattr(together, name), stages.shape)[row]
            assert np.array_equal(found, np.broadcast_to(value, stage.shape)), name


@pytest.mark.parametrize("recipe", ["delayed", "tensorwise", "mxfp8"])
def test_norms_in_front_of_recomputed_experts_are_freed_once(recipe: str) -> None:
    plan = plan_of(data=8, expert=8, recompute=Recompute.SELECTIVE, precision=Precision.FP8)
    # Hyper-connections that are computed again take norms with them, so that naming these says no more.
    with_norms, alone = (
        activations_of(
            changed(training(FLASH), fp8_recipe=recipe, recompute_modules=modules), plan
        ).kept_bytes
        for modules in (("moe", "mhc", "layernorm"), ("moe", "mhc"))
    )
    assert alone == pytest.approx(with_norms)
