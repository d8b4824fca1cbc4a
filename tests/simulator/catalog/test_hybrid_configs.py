"""Do published `config.json` files of hybrid models give the published number of parameters, and otherwise one sentence?"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator import catalog
from simulator.domain.linear_attention import LinearAttention
from simulator.errors import InputError
from simulator.huggingface.hybrids import HYBRIDS
from simulator.huggingface.shape import shape_from_config
from tests.simulator.published_hybrids import (
    BAMBA_9B,
    GRANITE_4_SMALL,
    GRANITE_4_TINY,
    KIMI_LINEAR,
    NEMOTRON_3_NANO,
    NEMOTRON_3_SUPER,
    NEMOTRON_H_8B,
    NEMOTRON_H_47B,
    NEMOTRON_H_56B,
    NEMOTRON_NANO_9B,
    NEMOTRON_NANO_12B,
    OLMO_HYBRID,
    QWEN3_5_35B,
    QWEN3_NEXT,
)

Config = dict[str, Any]


@pytest.mark.parametrize(
    ("config", "checkpoint", "left_out"),
    [
        # Weights of published checkpoints, and what a shape leaves out of them, tensor by tensor.
        (NEMOTRON_H_8B, 8_100_852_736, 0),
        (NEMOTRON_NANO_9B, 8_888_227_328, 0),
        (NEMOTRON_3_NANO, 31_577_940_288, 23 * 128),  # the correction of the routers
        (QWEN3_NEXT, 79_674_391_296, 48 * 2048),  # gates of the shared experts
        (GRANITE_4_TINY, 6_939_037_248, 0),
        (GRANITE_4_SMALL, 32_207_337_984, 0),
    ],
    ids=["nemotron-h-8b", "nano-9b-v2", "nemotron-3-nano", "qwen3-next", "granite-4-tiny", "granite-4-small"],
)
def test_every_weight_of_a_hybrid_is_counted_or_named(config: Config, checkpoint: int, left_out: int) -> None:
    assert shape_from_config(config, "a model").num_parameters + left_out == checkpoint


# Published parameters and tolerance: 3 % for counts with two digits, 1 % for those with more.
@pytest.mark.parametrize(
    ("config", "published", "tolerance"),
    [
        (NEMOTRON_H_47B, 47e9, 0.03),
        (NEMOTRON_H_56B, 56e9, 0.03),
        (NEMOTRON_NANO_12B, 12e9, 0.03),
        (QWEN3_5_35B, 35e9, 0.03),
        (KIMI_LINEAR, 48e9, 0.03),
        (BAMBA_9B, 9.78e9, 0.01),
    ],
    ids=["nemotron-h-47b", "nemotron-h-56b", "nano-12b-v2", "qwen3.5", "kimi-linear", "bamba"],
)
def test_a_hybrid_has_the_published_number_of_parameters(
    config: Config, published: float, tolerance: float
) -> None:
    assert shape_from_config(config, "a model").num_parameters == pytest.approx(published, rel=tolerance)


@pytest.mark.parametrize(
    ("config", "published"),
    [
        (NEMOTRON_3_NANO, 3.6e9),  # 3.2e9 without the embedding
        (GRANITE_4_SMALL, 9e9),
    ],
    ids=["nemotron-3-nano", "granite-4-small"],
)
def test_one_token_uses_the_published_number_of_active_parameters(config: Config, published: float) -> None:
    assert shape_from_config(config, "a model").num_active_parameters == pytest.approx(published, rel=0.03)


def test_blocks_of_olmo_hybrid_have_the_weights_of_its_layers() -> None:
    # Products of queries, keys, values, their gates, two scalars a head, and the output; convolutions, decays and a norm.
    h, keys, values, heads = 3840, 30 * 96, 30 * 192, 30
    delta = h * (2 * keys + 2 * values + 2 * heads) + values * h + 4 * (2 * keys + values) + 2 * heads + 192
    attention = 4 * h * h + 2 * h  # with norms of queries and keys
    others = 32 * (3 * h * 11008 + 2 * h) + 2 * 100_352 * h + h
    found = shape_from_config(OLMO_HYBRID, "olmo").num_parameters
    assert found == 24 * delta + 8 * attention + others


@pytest.mark.parametrize(
    ("config", "blocks"),
    [
        (
            NEMOTRON_3_NANO,
            LinearAttention(
                kind="mamba-2",
                num_blocks=23,
                num_attention_blocks=6,
                num_heads=64,
                head_dim=64,
                num_key_heads=8,
                key_head_dim=128,
                chunk_tokens=128,
            ),
        ),
        (
            QWEN3_NEXT,
            LinearAttention(
                kind="gated-delta-net",
                num_blocks=36,
                num_attention_blocks=12,
                num_heads=32,
                head_dim=128,
                num_key_heads=16,
                key_head_dim=128,
            ),
        ),
        (
            KIMI_LINEAR,
            LinearAttention(
                kind="kimi-delta",
                num_blocks=20,
                num_attention_blocks=7,
                num_heads=32,
                head_dim=128,
                num_key_heads=32,
                key_head_dim=128,
            ),
        ),
    ],
    ids=["nemotron-3-nano", "qwen3-next", "kimi-linear"],
)
def test_blocks_with_a_state_are_those_of_the_file(config: Config, blocks: LinearAttention) -> None:
    assert shape_from_config(config, "a model").linear_attention == blocks


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (NEMOTRON_H_8B, "nemotron-h-8b"),
        (NEMOTRON_H_47B, "nemotron-h-47b"),
        (NEMOTRON_H_56B, "nemotron-h-56b"),
        (NEMOTRON_NANO_9B, "nemotron-nano-9b-v2"),
        (NEMOTRON_NANO_12B, "nemotron-nano-12b-v2"),
        (NEMOTRON_3_NANO, "nemotron-3-nano-30b-a3b"),
        (NEMOTRON_3_SUPER, "nemotron-3-super-120b-a12b"),
        (QWEN3_NEXT, "qwen3-next-80b-a3b"),
        (QWEN3_5_35B, "qwen3.5-35b-a3b"),
        (KIMI_LINEAR, "kimi-linear-48b-a3b"),
        (BAMBA_9B, "bamba-9b"),
        (GRANITE_4_TINY, "granite-4.0-h-tiny"),
        (GRANITE_4_SMALL, "granite-4.0-h-small"),
    ],
)
def test_a_config_gives_the_hybrid_that_the_catalogue_has(config: Config, name: str) -> None:
    known = catalog.model(name)
    assert shape_from_config(config, known.name).model_copy(update={"source": known.source}) == known


def test_layers_of_nemotron_are_its_feed_forward_blocks() -> None:
    shape = shape_from_config(NEMOTRON_NANO_9B, "nano")
    assert (shape.num_layers, shape.head_dim, shape.is_gated) == (25, 128, False)


def test_blocks_of_nemotron_may_be_a_list_of_names_old_or_new() -> None:
    names = {"M": "mamba", "*": "attention", "E": "moe"}
    listed = [names[letter] for letter in NEMOTRON_3_NANO["hybrid_override_pattern"]]
    without = {key: value for key, value in NEMOTRON_3_NANO.items() if key != "hybrid_override_pattern"}
    known = shape_from_config(NEMOTRON_3_NANO, "nano")
    today = {"mamba": "linear_attention", "attention": "full_attention", "moe": "moe"}
    for blocks in (listed, [today[name] for name in listed]):
        assert shape_from_config(without | {"layers_block_type": blocks}, "nano") == known
        assert shape_from_config(NEMOTRON_3_NANO | {"layers_block_type": blocks}, "nano") == known


def test_dense_blocks_of_nemotron_come_ahead_of_those_with_experts() -> None:
    pattern = NEMOTRON_3_NANO["hybrid_override_pattern"].replace("E", "-", 2)
    shape = shape_from_config(NEMOTRON_3_NANO | {"hybrid_override_pattern": pattern}, "nano")
    assert (shape.num_dense_layers, shape.num_expert_layers) == (2, 21)


def test_attention_of_qwen_has_a_gate_and_norms_and_that_of_others_has_not() -> None:
    assert [shape_from_config(config, "a model").has_output_gate for config in (QWEN3_NEXT, OLMO_HYBRID)] == [
        True,
        False,
    ]
    assert shape_from_config(QWEN3_NEXT, "next").qk_norm == "per_head"
    assert shape_from_config(OLMO_HYBRID, "olmo").qk_norm == "all_heads"


def test_layers_of_qwen_are_those_named_or_else_every_fourth_attends() -> None:
    named = QWEN3_NEXT | {"layer_types": [*["linear_attention"] * 3, "full_attention"] * 12}
    unsaid = {key: value for key, value in QWEN3_NEXT.items() if key != "full_attention_interval"}
    for config in (named, unsaid):
        assert shape_from_config(config, "next") == shape_from_config(QWEN3_NEXT, "next")


def test_the_language_model_of_qwen3_5_is_read_from_a_file_for_several_media() -> None:
    seeing = {"model_type": "qwen3_5_moe", "vision_config": {"depth": 27}, "text_config": QWEN3_5_35B}
    shape = shape_from_config(seeing, "qwen")
    assert shape == shape_from_config(QWEN3_5_35B, "qwen")
    assert shape.ffn_hidden_size == 512  # no layer is dense: the width of an expert


def test_qwen3_5_without_experts_is_dense() -> None:
    experts = (
        "num_experts",
        "num_experts_per_tok",
        "moe_intermediate_size",
        "shared_expert_intermediate_size",
    )
    dense = {key: value for key, value in QWEN3_NEXT.items() if key not in experts}
    shape = shape_from_config(dense | {"model_type": "qwen3_5_text"}, "dense")
    assert (shape.experts, shape.ffn_hidden_size, shape.has_output_gate) == (None, 5120, True)


def test_granite_without_experts_has_its_shared_one_alone() -> None:
    # Granite 4.0 H 1B: the same layers, and no experts
    shape = shape_from_config(GRANITE_4_TINY | {"num_local_experts": 0, "num_experts_per_tok": 0}, "1b")
    assert (shape.experts, shape.ffn_hidden_size) == (None, 1024)


def test_granite_whose_layers_all_attend_is_a_transformer() -> None:
    shape = shape_from_config(GRANITE_4_TINY | {"layer_types": ["attention"] * 40}, "micro")
    assert shape.linear_attention is None


def test_a_width_of_heads_that_granite_leaves_open_follows_from_the_others() -> None:
    known = shape_from_config(GRANITE_4_TINY, "tiny")
    assert shape_from_config(GRANITE_4_TINY | {"mamba_d_head": "auto"}, "tiny") == known


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            NEMOTRON_H_8B | {"num_hidden_layers": 51},
            r"num_hidden_layers = 51: must be 52, the number of blocks in hybrid_override_pattern$",
        ),
        (
            NEMOTRON_H_8B | {"hybrid_override_pattern": "M-X"},
            r"hybrid_override_pattern = 'M-X': must consist of M, \*, -, E$",
        ),
        (
            NEMOTRON_H_8B | {"hybrid_override_pattern": None},
            r"hybrid_override_pattern: is missing \(or layers_block_type\); a config.json of nemotron_h has it$",
        ),
        (NEMOTRON_H_8B | {"hybrid_override_pattern": "*-" * 26}, "must have blocks of Mamba-2"),
        (NEMOTRON_H_8B | {"hybrid_override_pattern": "M*" * 26}, "and feed-forward blocks"),
        (
            NEMOTRON_H_8B | {"layers_block_type": ["mamba", "mlp"] * 26},
            "layers_block_type = .*: must name the same blocks as",
        ),
        (NEMOTRON_H_8B | {"attention_head_dim": None}, "head_dim: is missing"),
        (NEMOTRON_H_8B | {"n_groups": 3}, r"num_key_heads \(3\) must divide num_heads \(128\)"),
        (
            NEMOTRON_H_8B | {"mamba_num_heads": 0},
            r"linear_attention.num_heads = 0: must be greater than 0",
        ),
        (NEMOTRON_3_NANO | {"moe_latent_size": -1}, "moe_latent_size = -1: must be a whole number"),
        (NEMOTRON_3_NANO | {"n_shared_experts": 2}, "n_shared_experts = 2: must be 1"),
        (
            NEMOTRON_3_NANO | {"hybrid_override_pattern": "ME" * 25 + "M-"},
            "hybrid_override_pattern = .*: must have dense feed-forward blocks only ahead",
        ),
        (
            QWEN3_NEXT | {"layer_types": ["linear_attention"] * 47},
            "layer_types = .*: must name each of the 48 layers",
        ),
        (QWEN3_NEXT | {"layer_types": ["conv"] * 48}, "linear_attention or full_attention$"),
        (QWEN3_NEXT | {"full_attention_interval": 0}, "full_attention_interval = 0: must be at least 1$"),
        (QWEN3_NEXT | {"attn_output_gate": False}, "attn_output_gate = False: must be True"),
        (QWEN3_NEXT | {"head_dim": None}, "head_dim: is missing"),
        (QWEN3_NEXT | {"mlp_only_layers": [3]}, r"mlp_only_layers = \[3\]: must be the leading layers"),
        (
            OLMO_HYBRID | {"layer_types": None},
            "layer_types: is missing; a config.json of olmo_hybrid has it$",
        ),
        (KIMI_LINEAR | {"linear_attn_config": None}, "linear_attn_config: must be a mapping"),
        (
            KIMI_LINEAR | {"num_hidden_layers": 28},
            r"linear_attn_config.kda_layers = .* each of the 28 layers",
        ),
        (KIMI_LINEAR | {"mla_use_output_gate": True}, "mla_use_output_gate = True: must be False"),  # Kimi K3
        (KIMI_LINEAR | {"attn_res_block_size": 12}, "attn_res_block_size = 12: must be 0"),  # Kimi K3
        (
            KIMI_LINEAR | {"routed_expert_hidden_size": 512},
            "routed_expert_hidden_size = 512: must be 2304",
        ),  # Kimi K3
        (GRANITE_4_TINY | {"mamba_d_head": 32}, "mamba_d_head = 32: must be 64"),
        (
            GRANITE_4_TINY | {"mamba_n_heads": 50},
            r"mamba_n_heads = 50: must divide mamba_expand x hidden_size \(3072\)",
        ),
        (
            BAMBA_9B | {"attn_layer_indices": [9, 32]},
            r"attn_layer_indices = \[9, 32\]: must name layers below 32, each once$",
        ),
        (
            BAMBA_9B | {"attn_layer_indices": [9, 9]},
            r"attn_layer_indices = \[9, 9\]: must name layers below 32, each once$",
        ),
        (BAMBA_9B | {"attn_layer_indices": "9"}, "attn_layer_indices = '9': must be a list of whole numbers"),
    ],
)
def test_what_a_shape_cannot_express_is_refused_in_a_sentence(config: Config, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        shape_from_config(config, "broken")
    assert len(caught.value.problems) == 1


def test_keys_that_a_part_of_a_file_lacks_are_named_with_their_place() -> None:
    with pytest.raises(InputError) as caught:
        shape_from_config(KIMI_LINEAR | {"linear_attn_config": {}}, "broken")
    keys = ("kda_layers", "full_attn_layers", "num_heads", "head_dim", "short_conv_kernel_size")
    assert {f"linear_attn_config.{key}" for key in keys} == {
        problem.path for problem in caught.value.problems
    }


@pytest.mark.parametrize(
    ("model_type", "what"),
    [
        ("falcon_h1", "attention and Mamba-2 side by side"),
        ("jamba", "blocks of Mamba-1"),
        ("zamba2", "that share their weights"),
        ("lfm2", "short convolutions"),
        ("minimax", "lightning attention"),
    ],
)
def test_other_hybrids_are_refused_with_those_that_are_known(model_type: str, what: str) -> None:
    known = ", ".join(HYBRIDS)
    with pytest.raises(InputError, match=f"model_type = '{model_type}': has .*{what}.*: {known}$"):
        shape_from_config(NEMOTRON_H_8B | {"model_type": model_type}, "strange")


ALL = (NEMOTRON_3_NANO, QWEN3_NEXT, QWEN3_5_35B, KIMI_LINEAR, GRANITE_4_TINY, BAMBA_9B, OLMO_HYBRID)
VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-2, 10**20)
    | st.floats()
    | st.sampled_from(["", "8", "M", "M*-", [0], [1, "mamba"], [[]], {}, {"kda_layers": [1], "head_dim": 0}])
)


@given(
    config=st.sampled_from(ALL),
    changes=st.dictionaries(st.sampled_from(sorted({key for config in ALL for key in config})), VALUES),
)
def test_no_file_of_a_hybrid_raises_anything_but_an_input_error(config: Config, changes: Config) -> None:
    try:
        shape = shape_from_config({**config, **changes, "model_type": config["model_type"]}, "fuzzed")
    except InputError:
        return
    assert shape.num_parameters > 0
