"""How many weights and FLOPs do hybrid models have, and what is refused? Published counts, and Megatron-LM's formulas."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from simulator.domain.attention_span import SlidingWindow
from simulator.domain.linear_attention import LinearAttention
from simulator.domain.model import ModelShape
from tests.simulator.builders import changed, gpt
from tests.simulator.hybrids import HYBRIDS, KIMI_LINEAR, NEMOTRON_H, QWEN_3_NEXT, small_hybrid

FIELDS: dict[str, object] = {
    "kind": "mamba-2",
    "num_blocks": 4,
    "num_attention_blocks": 4,
    "num_heads": 8,
    "head_dim": 64,
    "num_key_heads": 4,
    "key_head_dim": 128,
}


def remade(model: ModelShape, **fields: object) -> ModelShape:
    return ModelShape.model_validate({**dict(model), **fields})


class TestParameters:
    @pytest.mark.parametrize(
        ("model", "published", "active"),
        [(NEMOTRON_H, 8.1e9, 8.1e9), (QWEN_3_NEXT, 80e9, 3.9e9), (KIMI_LINEAR, 49.1e9, 3.5e9)],
        ids=["Nemotron-H 8B", "Qwen3-Next 80B-A3B", "Kimi Linear 48B-A3B"],
    )
    def test_they_are_those_that_are_published(
        self, model: ModelShape, published: float, active: float
    ) -> None:
        assert model.num_parameters == pytest.approx(published, rel=0.006)
        assert model.num_active_parameters == pytest.approx(active, rel=0.01)

    def test_blocks_of_mamba_2_have_those_of_its_module(self) -> None:
        linear = NEMOTRON_H.linear_attention
        assert linear is not None
        inner, groups, state, heads = 8192, 8, 128, 128
        into = 4096 * (2 * inner + 2 * groups * state + heads)
        convolution = (inner + 2 * groups * state) * (4 + 1)
        assert linear.matrix_parameters(4096) == into + inner * 4096
        assert linear.other_parameters() == convolution + 3 * heads + inner

    def test_blocks_of_the_gated_delta_rule_have_those_of_its_module(self) -> None:
        linear = QWEN_3_NEXT.linear_attention
        assert linear is not None
        keys, values = 16 * 128, 32 * 128
        assert linear.matrix_parameters(2048) == 2048 * (2 * keys + 2 * values + 2 * 32) + values * 2048
        assert linear.other_parameters() == 4 * (2 * keys + values) + 2 * 32 + 128

    def test_kimi_delta_makes_decays_and_gates_from_a_low_rank(self) -> None:
        linear = KIMI_LINEAR.linear_attention
        assert linear is not None
        values, rank = 32 * 128, 128
        to_heads, low = 3 * values + 32, 2 * (2304 * rank + rank * values)
        assert linear.matrix_parameters(2304) == 2304 * to_heads + low + values * 2304
        # convolutions of queries, keys and values; A; biases of decays; the norm of a head
        assert linear.other_parameters() == 4 * 3 * values + 32 + values + 128

    def test_a_gate_of_the_core_is_as_wide_as_its_output(self) -> None:
        plain = changed(gpt(), has_output_gate=False)
        gated = changed(plain, has_output_gate=True)
        added = plain.num_layers * plain.hidden_size * plain.num_heads * plain.head_dim
        assert gated.num_parameters - plain.num_parameters == added

    @pytest.mark.parametrize("name", HYBRIDS)
    def test_they_are_the_sum_over_blocks(self, name: str) -> None:
        model = HYBRIDS[name]
        linear = model.linear_attention
        assert linear is not None
        of_block = linear.matrix_parameters(model.hidden_size) + linear.other_parameters() + model.hidden_size
        more = changed(model, linear_attention=changed(linear, num_blocks=linear.num_blocks + 1))
        assert more.num_parameters - model.num_parameters == of_block

    def test_what_every_rank_holds_whole_includes_products_to_a_low_rank(self) -> None:
        latents, low = 512 + 64, 2 * 128
        whole = 2304 * (7 * latents + 20 * low) / 27
        assert KIMI_LINEAR.dense_layer_whole_parameters == pytest.approx(whole)


class TestFlop:
    def test_mamba_2_counts_as_in_megatron_lm(self) -> None:
        h, s = 4096, 8192
        mamba = 2 * h * (2 * 8192 + 2 * 8 * 128 + 128) + 7 * 8192 * 128 + 2 * 8192 * h
        attention = 4 * h * (h + h * 8 // 32) + 2 * s * h
        feed_forward = 4 * h * 21_504
        logits = 2 * h * 131_072
        forward = 24 * mamba + 4 * attention + 24 * feed_forward + logits
        assert NEMOTRON_H.model_flop_per_token(s) == pytest.approx(3 * forward, rel=1e-9)

    def test_the_delta_rule_counts_as_in_megatron_lm(self) -> None:
        h, keys, values = 2048, 16 * 128, 32 * 128
        block = 2 * (h * (2 * keys + 2 * values + 2 * 32) + 4 * (2 * keys + values) + 32 * 128**2 * 4)
        block += 2 * h * values
        linear, moved = QWEN_3_NEXT.linear_attention, 1
        assert linear is not None
        more = changed(QWEN_3_NEXT, linear_attention=changed(linear, num_blocks=linear.num_blocks + moved))
        added = more.model_flop_per_token(4096) - QWEN_3_NEXT.model_flop_per_token(4096)
        assert added == pytest.approx(3 * block, rel=1e-9)

    def test_only_attention_grows_with_the_sequence(self) -> None:
        def growth(model: ModelShape) -> float:
            return model.model_flop_per_token(65_536) - model.model_flop_per_token(8192)

        half, whole = small_hybrid(4, 4), gpt(num_layers=8)
        assert growth(half) == pytest.approx(growth(whole) / 2, rel=1e-9)
        assert growth(small_hybrid(0, 8)) == 0.0


class TestRules:
    @pytest.mark.parametrize(
        ("fields", "rule"),
        [
            ({"num_key_heads": 3}, r"num_key_heads \(3\) must divide num_heads \(8\)"),
            ({"num_blocks": 0}, "greater than 0"),
            ({"kind": "mamba"}, "mamba-2"),
        ],
    )
    def test_blocks_that_do_not_exist_are_refused(self, fields: dict[str, object], rule: str) -> None:
        with pytest.raises(ValidationError, match=rule):
            LinearAttention.model_validate({**FIELDS, **fields})

    def test_layers_need_as_many_blocks_that_mix_tokens(self) -> None:
        linear = LinearAttention.model_validate({**FIELDS, "num_attention_blocks": 3})
        with pytest.raises(ValidationError, match=r"must add up to at least num_layers \(8\)"):
            remade(gpt(num_layers=8), linear_attention=linear)

    def test_blocks_side_by_side_are_refused(self) -> None:
        with pytest.raises(ValidationError, match="linear_attention excludes parallel_block"):
            remade(small_hybrid(4, 4), parallel_block="one_norm")

    def test_a_window_without_attention_is_refused(self) -> None:
        with pytest.raises(ValidationError, match="num_attention_blocks is 0"):
            remade(small_hybrid(0, 8), sliding_window=SlidingWindow(window_tokens=1024))

    def test_latent_attention_has_no_gate(self) -> None:
        with pytest.raises(ValidationError, match="has_output_gate excludes latent_attention"):
            remade(KIMI_LINEAR, has_output_gate=True)

    def test_windows_count_the_blocks_that_attend(self) -> None:
        window = SlidingWindow(window_tokens=1024, full_every=4)
        shape = changed(small_hybrid(4, 4), sliding_window=window).sequence_shape(8192, None)
        assert shape.num_layers == 4
