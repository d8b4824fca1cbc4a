"""Does memory follow what a workload asks for: offloading, modules, adapters, parts of experts, empty chunks? By hand."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.domain.blocks import LatentAttention, MixtureOfExperts
from simulator.domain.hardware import Precision
from simulator.domain.lora import AdaptedProduct, Lora
from simulator.domain.model import ModelShape
from simulator.domain.plan import Plan, Recompute
from simulator.domain.workload import Workload
from simulator.layout.chunks import split_layers
from simulator.memory.activations import Activations, activations_of_stage, kept_per_module
from simulator.memory.peak import memory_by_stage
from tests.simulator.builders import changed, gpt, memory_of, plan_of, table_of, training

H, S = 2048, 2048
ONE = 2 * S * H
"""A hidden state of one sequence in 16 bits."""
LAYER = 12 * H**2 + 2 * H
"""Weights of a layer of `gpt`."""
EXPERTS = MixtureOfExperts(num_experts=8, experts_per_token=2, expert_ffn_hidden_size=4096)


def trained(model: ModelShape | None = None, *, batch: int = 16, **choices: object) -> Workload:
    workload = training(model or gpt(vocabulary_size=8), sequence_length=S, global_batch_size=batch)
    return Workload.model_validate({**dict(workload), **choices})


def held(workload: Workload, plan: Plan, stage: int = 0) -> Activations:
    plans, stages = table_of(plan), np.array([stage])
    chunks = split_layers(workload.model, plans, workload.stage_layers)
    return activations_of_stage(workload, plans, chunks, stages)


class TestChunks:
    def test_stages_that_keep_what_they_sent_keep_it_for_every_chunk_in_flight(self) -> None:
        plan = plan_of(pipeline=4, virtual=2, data=2)
        keeping, freeing = (held(trained(keeps_stage_outputs=keeps), plan) for keeps in (True, False))
        assert keeping.kept_bytes - freeing.kept_bytes == pytest.approx((2 * 3 + 4 + 1) * ONE)

    def test_a_stage_without_layers_has_no_input_to_free(self) -> None:
        workload = trained(frees_stage_inputs=True, stage_layers=(24, 0))
        assert held(workload, plan_of(pipeline=2), stage=1).kept_bytes == 0

    @pytest.mark.parametrize(("layers", "num_held"), [((12, 11, 1, 0), 3)])
    def test_an_empty_chunk_has_no_input_to_free_either(self, layers: tuple[int, ...], num_held: int) -> None:
        plan = plan_of(pipeline=2, virtual=2)
        kept, freed = (
            held(trained(frees_stage_inputs=frees, stage_layers=layers), plan, stage=1).kept_bytes
            for frees in (False, True)
        )
        # All three chunks in flight are first ones when the next round begins; a layer keeps 16 tensors of s h.
        assert kept == pytest.approx(num_held * 11 * 16 * ONE)
        assert kept - freed == pytest.approx(num_held * ONE)

    def test_a_micro_batch_releases_one_chunk_at_a_time(self) -> None:
        released = held(trained(), plan_of(pipeline=4, virtual=2)).released_bytes
        assert released == pytest.approx(24 / 4 / 2 * 16 * ONE)


class TestOffload:
    def test_half_of_unlike_chunks_is_on_the_host(self) -> None:
        workload = trained(stage_layers=(9, 6, 6, 3), activation_offload_fraction=0.5)
        found = held(workload, plan_of(pipeline=2, virtual=2))
        # Of five chunks in flight the first stage holds four first ones when the next round begins.
        assert found.on_host_bytes == pytest.approx(0.5 * (4 * 9 + 6) * 16 * ONE)
        assert found.on_host_bytes == found.kept_bytes

    @pytest.mark.parametrize("fraction", [0.25, 1.0])
    def test_a_layer_on_its_way_needs_room_and_only_what_stayed_is_released(self, fraction: float) -> None:
        # One micro-batch on one stage, in whose 24 layers 16 tensors of s h are kept.
        here, away = (
            held(trained(batch=1, activation_offload_fraction=share), plan_of()) for share in (0.0, fraction)
        )
        assert away.at_work_bytes - here.at_work_bytes == pytest.approx(fraction * 16 * ONE)
        assert away.released_bytes == away.kept_bytes == pytest.approx((1 - fraction) * 24 * 16 * ONE)
        assert away.on_host_bytes == pytest.approx(fraction * 24 * 16 * ONE)

    def test_layers_that_keep_everything_free_nothing_for_recomputed_ones_if_they_are_on_the_host(
        self,
    ) -> None:
        plan = plan_of(recompute=Recompute.FULL, recompute_num_layers=12)
        here, away = (
            held(trained(activation_offload_fraction=fraction), plan).at_work_bytes for fraction in (0.0, 1.0)
        )
        # Residual and the widest gradient, 4 h; away also a layer's input on its way, and all 16 h that it computes again.
        assert here == pytest.approx((1 + 4) * ONE)
        assert away == pytest.approx((1 + 4 + 1 + 16) * ONE)

    def test_a_module_of_token_prediction_on_its_way_takes_more_room_than_a_layer(self) -> None:
        model = changed(gpt(vocabulary_size=8), num_mtp_layers=1)
        here, away = (
            held(trained(model, activation_offload_fraction=fraction), plan_of()) for fraction in (0.0, 1.0)
        )
        # Beside its layer: hidden state and embedding, the projection's 2 h, and inputs of its norm and of the output layer.
        assert away.at_work_bytes - here.at_work_bytes == pytest.approx((16 + 6) * ONE)
        assert here.of_modules_bytes == pytest.approx((16 + 6) * ONE)
        assert away.of_modules_bytes == 0

    def test_copies_of_gradients_are_where_the_optimizer_is(self) -> None:
        workload = trained(gradient_bytes=2, optimizer_offload_fraction=0.75)
        found = memory_of(workload, plan_of(data=8)).update_bytes
        assert found == pytest.approx(0.25 * 4 * workload.model.num_parameters / 8)


class TestAdapterActivations:
    def test_every_adapter_keeps_what_its_first_product_gives(self) -> None:
        targets = (AdaptedProduct.QKV, AdaptedProduct.FC1, AdaptedProduct.FC2)
        small, large = (
            held(trained(batch=1, lora=Lora(rank=rank, targets=targets)), plan_of()).kept_bytes
            for rank in (8, 24)
        )
        assert large - small == pytest.approx(24 * 3 * 2 * S * (24 - 8))


class TestExperts:
    MODEL = changed(gpt(vocabulary_size=8), experts=EXPERTS)

    def test_ranks_with_parts_of_an_expert_have_its_tokens_each(self) -> None:
        plan = plan_of(expert=2, data=8)
        whole, parts = (held(trained(self.MODEL, expert_tensor_parallel=n), plan) for n in (1, 2))
        assert parts.kept_bytes - whole.kept_bytes == pytest.approx(24 * 2 * ONE)
        assert parts.at_work_bytes - whole.at_work_bytes == pytest.approx(2 * ONE)  # their gradients

    def test_one_gradient_of_an_expert_exists_at_a_time_however_many_there_are(self) -> None:
        few, many = (
            memory_by_stage(
                trained(
                    gpt(vocabulary_size=8).model_copy(
                        update={"experts": changed(EXPERTS, num_experts=number)}
                    )
                ),
                plan_of(),
            ).workspace_bytes[0]
            for number in (8, 16)
        )
        assert many - few == pytest.approx(2 * 8 * H)  # only the router is larger

    def test_one_rank_with_all_experts_has_no_more_than_all_tokens(self) -> None:
        even, uneven = (trained(self.MODEL, expert_imbalance=most) for most in (1.0, 1.5))
        alone, shared = plan_of(data=2), plan_of(expert=2, data=2)
        assert held(uneven, alone).kept_bytes == held(even, alone).kept_bytes
        assert held(uneven, shared).kept_bytes > held(even, shared).kept_bytes

    def test_operator_wise_checkpointing_keeps_a_wide_tensor_of_shared_experts(self) -> None:
        plan = plan_of(recompute=Recompute.SELECTIVE)
        none, some = (
            held(
                trained(
                    changed(self.MODEL, experts=changed(EXPERTS, shared_ffn_hidden_size=width)),
                    selective_recompute="every_other_product",
                ),
                plan,
            ).kept_bytes
            for width in (0, 1024)
        )
        assert some - none == pytest.approx(24 * 2 * S * 1024)


class TestAdapters:
    def test_frozen_ends_keep_one_input_and_have_no_gradient_of_weights(self) -> None:
        workload = trained(gpt(), lora=Lora(rank=1), logit_bytes=2)
        logits = memory_of(workload, plan_of(tensor=4, data=2)).logits_bytes
        # Gradients of the logits and of the output layer's input, which is not gathered; the input of the final norm.
        assert logits == pytest.approx(2 * S * 51_200 / 4 + ONE + ONE / 4)
        small, large = (
            memory_of(trained(gpt(vocabulary_size=rows), lora=Lora(rank=1), stage_layers=(1, 23)), plan)
            for plan in (plan_of(pipeline=2),)
            for rows in (8, 512_000)
        )
        first_small, first_large = (
            memory_by_stage(
                trained(gpt(vocabulary_size=rows), lora=Lora(rank=1), stage_layers=(1, 23)),
                plan_of(pipeline=2),
            ).workspace_bytes[0]
            for rows in (8, 512_000)
        )
        assert first_small == first_large
        assert large.weights_bytes > small.weights_bytes

    def test_an_input_that_no_adapter_reads_frees_nothing(self) -> None:
        plan = plan_of(tensor=16)
        few = trained(lora=Lora(rank=1, targets=(AdaptedProduct.FC1,)))
        all_ = trained(lora=Lora(rank=1))
        # On 16 ranks most is needed behind the first product: its input and the gradient of that, less the input of the
        # second product where that was kept.
        assert held(few, plan).at_work_bytes == pytest.approx(ONE / 16 + 2 * ONE)
        assert held(all_, plan).at_work_bytes == pytest.approx(ONE / 16 + 2 * ONE - 4 * ONE / 16)

    def test_frozen_projections_of_modules_keep_no_input(self) -> None:
        model = changed(gpt(vocabulary_size=8), num_mtp_layers=1)
        lora = Lora(rank=1)
        module = held(trained(model, lora=lora), plan_of()).of_modules_bytes
        layer = held(trained(changed(model, num_layers=1, num_mtp_layers=0), lora=lora), plan_of()).kept_bytes
        # The hidden state and the input of the final norm.
        assert module - layer == pytest.approx(2 * ONE)


class TestModules:
    @pytest.mark.parametrize("method", ["block", "uniform"])
    def test_a_module_is_kept_beside_layers_of_which_some_are_computed_again(self, method: str) -> None:
        plan = plan_of(recompute=Recompute.FULL, recompute_num_layers=3)
        bare, one = (
            trained(
                gpt(vocabulary_size=8).model_copy(update={"num_mtp_layers": number}), recompute_method=method
            )
            for number in (0, 1)
        )
        more = held(one, plan).kept_bytes - held(bare, plan).kept_bytes
        assert more == pytest.approx(kept_per_module(one, table_of(plan)))

    def test_look_ups_of_modules_have_two_gradients_that_are_added_up(self) -> None:
        # So many rows, and so few tokens, that the last stage has next to nothing else at work.
        model, gradient = gpt(vocabulary_size=2**21), 2 * 2**21 * H
        one, two, three = (
            memory_by_stage(
                trained(model.model_copy(update={"num_mtp_layers": number}), sequence_length=16),
                plan_of(pipeline=2),
            ).workspace_bytes[1]
            for number in (1, 2, 3)
        )
        assert two - one == pytest.approx(gradient, rel=0.03)
        assert three == pytest.approx(two, rel=0.03)  # the sum so far, and the one that is added to it


class TestAttention:
    def test_gathered_keys_are_copied_where_ranks_outnumber_heads(self) -> None:
        # A narrow feed-forward block, and keys and values of one head for each of 16 ranks.
        model = changed(gpt(vocabulary_size=8), num_kv_heads=4, ffn_hidden_size=64)
        workload = trained(model, batch=8, context_exchange="all_gather", has_sequence_parallel=False)
        eight, sixteen = (held(workload, plan_of(tensor=t, context=8)).at_work_bytes for t in (8, 16))
        tokens, block = S / 8, 2 * 2 * 64
        # Seven eighths of keys and values come from others, and have gradients; of the block 2 x 64 are gone.
        for found, t in ((eight, 8), (sixteen, 16)):
            assert found == pytest.approx(tokens * (2 * H + 7 * 2 * (2 + 2) * 128 - block / t))

    def test_gradients_that_go_round_a_ring_are_in_32_bits_three_times(self) -> None:
        model = changed(gpt(vocabulary_size=8), ffn_hidden_size=64)
        gathered, ring = (
            held(trained(model, context_exchange=exchange), plan_of(context=8)).at_work_bytes
            for exchange in ("all_gather", "gathered_ring")
        )
        assert ring - gathered == pytest.approx(S / 8 * 2 * H * (3 * 4 - 7 * 2))

    def test_what_latent_attention_computes_again_takes_room_where_it_is_more_than_the_block(self) -> None:
        latents = LatentAttention(
            query_rank=64, key_value_rank=32, rope_head_dim=32, nope_head_dim=64, value_head_dim=64
        )
        model = changed(gpt(vocabulary_size=8), latent_attention=latents, ffn_hidden_size=64)
        workload = trained(model, recompute_modules=("mla_up_proj",))
        found = held(workload, plan_of(recompute=Recompute.SELECTIVE)).at_work_bytes
        heads, block = 16 * (2 * 96 + 64) + 64 + 32, 2 * 64
        assert found == pytest.approx(2 * S * (H + heads - block))


class TestShards:
    def test_gradients_of_a_sharded_layer_are_gone_when_that_of_the_embedding_comes(self) -> None:
        workload = trained(gpt(vocabulary_size=512_000))
        found = memory_by_stage(workload, plan_of(pipeline=4, data=8, recompute=Recompute.FULL, zero=3))
        # 512,000 rows, less six inputs of layers of one micro-batch.
        assert found.workspace_bytes[0] == pytest.approx(2 * 512_000 * H - 6 * ONE)

    @pytest.mark.parametrize(
        ("prefetch", "num_layers"), [("both", 2), ("backward", 2), ("forward", 1), ("none", 1)]
    )
    def test_the_backward_pass_decides_how_many_layers_are_gathered(
        self, prefetch: str, num_layers: int
    ) -> None:
        two, three = (
            memory_of(trained(weight_prefetch=prefetch), plan_of(data=8, zero=zero)).workspace_bytes
            for zero in (2, 3)
        )
        output = 8 * H
        assert three - two == pytest.approx((2 * num_layers + 4) * LAYER + 2 * output)

    @pytest.mark.parametrize(("zero", "is_late"), [(1, False), (2, True), (3, True)])
    def test_gradients_of_the_only_micro_batch_come_as_activations_go(self, zero: int, is_late: bool) -> None:
        workload = trained(batch=8, sharded_copies="fsdp-2")
        found = memory_of(workload, plan_of(data=8, zero=zero))
        late, early = float(found.late_gradients_bytes[0]), float(found.gradients_bytes[0])
        share = workload.model.num_parameters / (8 if zero >= 2 else 1)
        assert (late if is_late else early) == pytest.approx(4 * share)
        assert (early if is_late else late) == 0

    def test_projections_of_modules_have_copies_in_8_bits(self) -> None:
        plan = plan_of(precision=Precision.FP8)
        none, one = (
            memory_of(
                trained(changed(gpt(vocabulary_size=8), num_mtp_layers=n), keeps_cast_weights=True), plan
            )
            for n in (0, 1)
        )
        # 2 bytes of a weight and two copies of one, in the module and in its layer.
        added = LAYER + 2 * H**2 + 3 * H
        assert one.weights_bytes - none.weights_bytes == pytest.approx((2 + 2) * added)
