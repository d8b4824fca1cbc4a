"""Do published `config.json` files give models with the published number of parameters?"""

from __future__ import annotations

import json
from pathlib import PurePath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator import catalog
from simulator.domain.attention_span import SlidingWindow
from simulator.errors import InputError
from simulator.huggingface.naming import model_name
from simulator.huggingface.shape import FAMILIES, shape_from_config
from tests.simulator.published_configs import (
    BLOOM,
    COMMAND_R7B,
    DBRX,
    DEEPSEEK_V2_LITE,
    DEEPSEEK_V3,
    DOTS_1,
    ERNIE_21B,
    FALCON_7B,
    FALCON_40B,
    GEMMA_2_27B,
    GEMMA_3_27B,
    GLM_4_5,
    GPT2_XL,
    GPT_J_6B,
    GPT_OSS_120B,
    GRANITE_3B_A800M,
    GROK_1,
    LLAMA_4_MAVERICK,
    LLAMA_4_SCOUT,
    LLAMA_8B,
    MINIMAX_M2,
    MISTRAL_7B,
    MIXTRAL_8X7B,
    NEMOTRON_340B,
    NEOX_20B,
    OLMO_2_7B,
    OLMOE,
    OPT_66B,
    PHI_2,
    PHI_3_5_MOE,
    QWEN2_5_7B,
    QWEN3_30B,
)

# Configuration, published parameters, tolerance: 0.2 % for biases and extra norms, 1 % for rounded counts.
PUBLISHED = [
    (LLAMA_8B, 8_030_261_248, 1e-6),
    (MIXTRAL_8X7B, 46_702_792_704, 1e-6),
    (DEEPSEEK_V3, 671_026_419_200, 0.002),
    (DEEPSEEK_V2_LITE, 15.7e9, 0.002),
    (QWEN3_30B, 30_532_122_624, 0.002),
    (QWEN2_5_7B, 7_615_616_512, 0.002),
    (FALCON_7B, 6_921_720_704, 0.002),
    (FALCON_40B, 41_303_293_952, 0.002),
    (BLOOM, 176_247_271_424, 0.002),
    (OPT_66B, 65.7e9, 0.002),
    (GPT2_XL, 1_557_611_200, 0.002),
    (NEOX_20B, 20_554_567_680, 0.002),
    (COMMAND_R7B, 8.03e9, 0.002),
    (GLM_4_5, 355e9, 0.01),
    (NEMOTRON_340B, 341e9, 0.002),
    (GROK_1, 314e9, 0.01),
    (GPT_OSS_120B, 116.83e9, 0.002),
    (GEMMA_2_27B, 27_227_128_320, 0.002),
    (MISTRAL_7B, 7_241_732_096, 1e-6),
    (
        GEMMA_3_27B,
        27_009_346_304,
        0.002,
    ),  # the text part: 27,432,406,640 less 423,060,336 of the vision tower
    (LLAMA_4_SCOUT, 109e9, 0.02),  # with the images' part
    (LLAMA_4_MAVERICK, 400e9, 0.01),  # the same
    (GRANITE_3B_A800M, 3.3e9, 0.01),
    (DOTS_1, 142e9, 0.01),
    (ERNIE_21B, 21.8e9, 0.01),
    (MINIMAX_M2, 229e9, 0.01),
]


@pytest.mark.parametrize(
    ("config", "published", "tolerance"), PUBLISHED, ids=[str(row[0]["model_type"]) for row in PUBLISHED]
)
def test_a_published_config_has_the_published_number_of_parameters(
    config: dict[str, object], published: float, tolerance: float
) -> None:
    shape = shape_from_config(config, "a model")
    assert shape.num_parameters == pytest.approx(published, rel=tolerance)
    assert (shape.name, shape.source) == ("a model", f"config.json ({config['model_type']})")


@pytest.mark.parametrize(
    ("config", "checkpoint", "left_out"),
    [
        # Published checkpoints, and what a shape leaves out of them, tensor by tensor.
        (LLAMA_8B, 8_030_261_248, 0),
        (MIXTRAL_8X7B, 46_702_792_704, 0),
        (MISTRAL_7B, 7_241_732_096, 0),
        (FALCON_7B, 6_921_720_704, 33 * 4544),  # biases of the norms, one in each layer
        (FALCON_40B, 41_303_293_952, 121 * 8192),  # of two in each
        # Biases of norms, of the feed-forward block and of the output layer; of all products of attention, too.
        (GPT_J_6B, 6_050_882_784, 29 * 4096 + 28 * 5 * 4096 + 50_400),
        (PHI_2, 2_779_683_840, 33 * 2560 + 32 * (5 + 4) * 2560 + 51_200),
        (QWEN2_5_7B, 7_615_616_512, 28 * (3584 + 2 * 512)),  # biases of queries, keys and values
        (QWEN3_30B, 30_532_122_624, 0),
        (OLMO_2_7B, 7_298_617_344, 0),
        (GEMMA_2_27B, 27_227_128_320, 46 * 2 * 4608),  # two norms more in each layer
        (GEMMA_3_27B, 27_009_346_304, 62 * 2 * 5376),  # the same; the text part of the model
        (OLMOE, 6_919_161_856, 0),
        (DBRX, 131_596_523_520, 0),
        # Biases of norms, of all products of attention and of the output layer.
        (PHI_3_5_MOE, 41_873_153_344, 65 * 4096 + 32 * (2 * 4096 + 2 * 1024) + 32_064),
        (DEEPSEEK_V2_LITE, 15_706_484_224, 27 * 512),  # norms of the latents
        (
            DEEPSEEK_V3,
            671_026_419_200,
            61 * (1536 + 512) + 58 * 256,
        ),  # the same, and the correction of the routers
        # Biases of queries, keys, values and output, sinks, and those of the router.
        (GPT_OSS_120B, 116_829_156_672, 36 * (4096 + 2 * 512 + 2880 + 64 + 128)),
    ],
    ids=lambda value: value["model_type"] if isinstance(value, dict) else None,
)
def test_every_weight_of_a_checkpoint_is_counted_or_named(
    config: dict[str, object], checkpoint: int, left_out: int
) -> None:
    assert shape_from_config(config, "a model").num_parameters + left_out == checkpoint


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (LLAMA_8B, "llama-3.1-8b"),
        (MIXTRAL_8X7B, "mixtral-8x7b"),
        (DEEPSEEK_V3, "deepseek-v3"),
        (DEEPSEEK_V2_LITE, "deepseek-v2-lite"),
        (QWEN3_30B, "qwen3-30b-a3b"),
        (FALCON_40B, "falcon-40b"),
        (BLOOM, "bloom-176b"),
        (OPT_66B, "opt-66b"),
        (GROK_1, "grok-1"),
        (GPT_OSS_120B, "gpt-oss-120b"),
        (MISTRAL_7B, "mistral-7b"),
        (GEMMA_2_27B | {"sliding_window": 4096}, "gemma-2-27b"),
        (GEMMA_3_27B, "gemma-3-27b"),
    ],
)
def test_a_config_gives_the_shape_that_the_catalogue_has(config: dict[str, object], name: str) -> None:
    known = catalog.model(name)
    assert shape_from_config(config, known.name).model_copy(update={"source": known.source}) == known


def test_the_language_model_of_a_file_for_several_media_is_read() -> None:
    defaults = ("vocab_size",)  # which the published file leaves out
    text = {key: value for key, value in GEMMA_3_27B.items() if key not in defaults}
    seeing = {"model_type": "gemma3", "vision_config": {"hidden_size": 1152}, "text_config": text}
    assert shape_from_config(seeing, "a model") == shape_from_config(GEMMA_3_27B, "a model")


def test_ties_beside_the_language_model_are_its_own_and_its_problems_are_told_from_where_they_are() -> None:
    own = {key: value for key, value in LLAMA_8B.items() if key != "tie_word_embeddings"}
    llava = {"model_type": "llava", "tie_word_embeddings": True}
    assert shape_from_config({**llava, "text_config": own}, "tied").has_tied_embeddings
    with pytest.raises(InputError, match=r"model.text_config.vocab_size = -1: must be a whole"):
        shape_from_config({**llava, "text_config": {**LLAMA_8B, "vocab_size": -1}}, "broken", "model")


def test_active_parameters_of_deepseek_v3_are_the_published_37_billion() -> None:
    # 37e9 is published with two digits; the input embedding (0.9e9) is counted here
    assert shape_from_config(DEEPSEEK_V3, "v3").num_active_parameters == pytest.approx(37e9, rel=0.03)


def test_tied_embeddings_of_the_file_win_over_the_usage_of_the_family() -> None:
    assert shape_from_config(LLAMA_8B | {"tie_word_embeddings": True}, "tied").has_tied_embeddings
    assert not shape_from_config(FALCON_7B | {"tie_word_embeddings": False}, "untied").has_tied_embeddings


def test_key_value_heads_left_out_are_as_many_as_heads() -> None:
    config = {key: value for key, value in LLAMA_8B.items() if key != "num_key_value_heads"}
    assert shape_from_config(config, "old").num_kv_heads == 32


def test_leading_dense_layers_of_qwen_are_kept() -> None:
    shape = shape_from_config(QWEN3_30B | {"mlp_only_layers": [0, 1]}, "qwen")
    assert (shape.num_dense_layers, shape.num_expert_layers) == (2, 46)


@pytest.mark.parametrize("model_type", ["mamba", "", None])
def test_an_unknown_family_is_refused_with_the_known_ones(model_type: str | None) -> None:
    with pytest.raises(InputError, match=r"model_type.*: must be one of the known families: llama, mistral"):
        shape_from_config(LLAMA_8B | {"model_type": model_type}, "strange")


def test_all_missing_keys_are_named_at_once_with_their_place() -> None:
    with pytest.raises(InputError) as caught:
        shape_from_config({"model_type": "deepseek_v3", "hidden_size": 7168}, "v3", "workload.model")
    paths = {problem.path for problem in caught.value.problems}
    assert {f"workload.model.{key}" for key in ("num_hidden_layers", "vocab_size", "kv_lora_rank")} <= paths
    assert len(paths) == len(caught.value.problems)
    assert "num_hidden_layers: is missing (or n_layer, n_layers); a config.json of deepseek_v3 has it" in str(
        caught.value
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": "4096"}, r"hidden_size = '4096': must be a whole number"),
        ({"hidden_size": True}, r"hidden_size = True: must be a whole number"),
        ({"vocab_size": -1}, r"vocab_size = -1: must be a whole number of at least 0"),
        ({"vocab_size": 0}, r"vocabulary_size = 0: must be greater than 0"),
        ({"num_attention_heads": 0}, r"num_attention_heads = 0: must divide the hidden size"),
        ({"num_attention_heads": 33}, r"num_attention_heads = 33: must divide the hidden size \(4096\)"),
        ({"num_key_value_heads": 0}, r"num_kv_heads = 0: must be greater than 0"),
        ({"num_key_value_heads": 5}, r"num_kv_heads \(5\) must divide num_heads \(32\)"),
        ({"tie_word_embeddings": "yes"}, r"tie_word_embeddings = 'yes': must be true or false"),
        ({"num_hidden_layers": 10**30}, r"num_layers = 1"),
    ],
)
def test_an_unusable_value_is_named_with_its_rule(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        shape_from_config(LLAMA_8B | change, "broken")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (QWEN3_30B | {"decoder_sparse_step": 0}, "experts.layer_step = 0"),
        (QWEN3_30B | {"mlp_only_layers": [3]}, r"mlp_only_layers = \[3\]: must be the leading layers"),
        (DEEPSEEK_V3 | {"moe_layer_freq": 2}, "moe_layer_freq = 2: must be 1"),
        (ERNIE_21B | {"moe_layer_end_index": 26}, "moe_layer_end_index = 26: must be 27"),
        (LLAMA_4_MAVERICK | {"moe_layers": [1, 2, 3]}, r"moe_layers = \[1, 2, 3\]: must be \[1, 3, 5, "),
        (DBRX | {"ffn_config": None}, "ffn_config: must be a mapping; a config.json of dbrx has one"),
        (DBRX | {"ffn_config": {"moe_top_k": 4}}, "ffn_config.moe_num_experts: is missing"),
        ({**DBRX, "attn_config": {"kv_n_heads": -1}}, "attn_config.kv_n_heads = -1: must be a whole number"),
        (
            MIXTRAL_8X7B | {"num_experts_per_tok": 9},
            r"experts_per_token \(9\) must not exceed num_experts \(8\)",
        ),
        (MIXTRAL_8X7B | {"num_local_experts": 0}, "experts.num_experts = 0"),
    ],
)
def test_experts_that_a_shape_cannot_express_are_refused(config: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        shape_from_config(config, "broken")


def test_layers_with_experts_may_be_listed_beside_the_step_that_says_the_same() -> None:
    listed = LLAMA_4_MAVERICK | {"moe_layers": list(range(1, 48, 2))}
    assert shape_from_config(listed, "maverick") == shape_from_config(LLAMA_4_MAVERICK, "maverick")


def test_the_last_layers_of_ernie_may_be_said_to_have_experts() -> None:
    assert shape_from_config(ERNIE_21B | {"moe_layer_end_index": 27}, "ernie") == shape_from_config(
        ERNIE_21B, "ernie"
    )


def test_groups_count_only_where_routing_is_limited_to_them() -> None:
    experts = shape_from_config(DEEPSEEK_V3 | {"topk_method": "greedy"}, "v3").experts
    assert experts
    assert (experts.num_groups, experts.groups_per_token) == (1, 1)


@pytest.mark.parametrize(
    ("config", "block"),
    [
        (NEOX_20B, "two_norms"),
        (NEOX_20B | {"use_parallel_residual": False}, None),
        (FALCON_7B | {"parallel_attn": False}, None),
        (FALCON_40B | {"num_ln_in_parallel_attn": 1}, "one_norm"),  # Falcon 2 11B
        (COMMAND_R7B | {"model_type": "cohere"}, "one_norm"),
        (GPT_J_6B | {"model_type": "codegen"}, "one_norm"),
        (BLOOM, None),
    ],
)
def test_blocks_stand_side_by_side_where_the_file_or_its_family_says_so(
    config: dict[str, object], block: str | None
) -> None:
    assert shape_from_config(config, "a model").parallel_block == block


@pytest.mark.parametrize(
    ("config", "norm"),
    [
        (QWEN2_5_7B, None),
        (QWEN2_5_7B | {"model_type": "qwen3"}, "per_head"),
        (OLMO_2_7B | {"model_type": "olmo3", "sliding_window": 4096}, "all_heads"),
        (GLM_4_5, "per_head"),
        (GLM_4_5 | {"use_qk_norm": False}, None),  # GLM-4.5-Air
        (LLAMA_4_SCOUT, "unweighted"),
        (LLAMA_4_SCOUT | {"use_qk_norm": False}, None),
        (COMMAND_R7B, None),
        (COMMAND_R7B | {"model_type": "cohere", "use_qk_norm": True}, "all_heads"),
    ],
)
def test_queries_and_keys_have_norms_where_the_file_or_its_family_says_so(
    config: dict[str, object], norm: str | None
) -> None:
    assert shape_from_config(config, "a model").qk_norm == norm


@pytest.mark.parametrize(
    ("config", "window"),
    [
        (MISTRAL_7B, SlidingWindow(window_tokens=4096)),  # arXiv 2310.06825
        (MISTRAL_7B | {"sliding_window": None}, None),  # as from version 0.2 on
        (GPT_OSS_120B, SlidingWindow(window_tokens=128, full_every=2)),  # arXiv 2508.10925
        (
            GEMMA_2_27B | {"sliding_window": 4096},
            SlidingWindow(window_tokens=4096, full_every=2),
        ),  # arXiv 2408.00118
        (GEMMA_3_27B, SlidingWindow(window_tokens=1024, full_every=6)),  # arXiv 2503.19786
        (GEMMA_3_27B | {"sliding_window_pattern": 5}, SlidingWindow(window_tokens=1024, full_every=5)),
        (LLAMA_4_SCOUT, SlidingWindow(window_tokens=8192, full_every=4, is_chunked=True)),
        (COMMAND_R7B, SlidingWindow(window_tokens=4096, full_every=4)),
        (QWEN2_5_7B | {"sliding_window": 131072, "use_sliding_window": False}, None),
        (QWEN2_5_7B | {"sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 28}, None),
        (
            QWEN2_5_7B | {"sliding_window": 4096, "use_sliding_window": True},
            SlidingWindow(window_tokens=4096),
        ),
        (GPT_OSS_120B | {"layer_types": ["full_attention"] * 36}, None),
        (GPT_OSS_120B | {"layer_types": ["sliding_attention"] * 36}, SlidingWindow(window_tokens=128)),
    ],
)
def test_a_window_is_that_of_the_published_file(
    config: dict[str, object], window: SlidingWindow | None
) -> None:
    assert shape_from_config(config, "a model").sliding_window == window


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (GPT_OSS_120B | {"layer_types": ["full_attention", "sliding_attention"] * 18}, "layer_types"),
        (GPT_OSS_120B | {"layer_types": ["sliding_attention"] * 7}, "layer_types"),
        (GPT_OSS_120B | {"layer_types": "sliding_attention"}, "layer_types"),
        (MISTRAL_7B | {"sliding_window": 0}, r"sliding_window.window_tokens = 0"),
        (QWEN2_5_7B | {"use_sliding_window": True, "max_window_layers": 7}, "max_window_layers = 7"),
        (LLAMA_4_SCOUT | {"interleave_moe_layer_step": 0}, r"experts.layer_step = 0"),
        (LLAMA_4_SCOUT | {"interleave_moe_layer_step": 49}, r"layer_step \(49\) must not exceed num_layers"),
    ],
)
def test_windows_that_a_shape_cannot_express_are_refused(config: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        shape_from_config(config, "broken")


VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-2, 10**20)
    | st.floats()
    | st.sampled_from(["", "8", [0], [1], {}])
)


@given(
    model_type=st.sampled_from(sorted(FAMILIES)),
    changes=st.dictionaries(st.sampled_from(sorted(DEEPSEEK_V3 | QWEN3_30B | GPT2_XL | OPT_66B)), VALUES),
)
def test_no_file_raises_anything_but_an_input_error(model_type: str, changes: dict[str, object]) -> None:
    config = {**DEEPSEEK_V3, **QWEN3_30B, **GPT2_XL, **OPT_66B, **changes, "model_type": model_type}
    try:
        shape = shape_from_config(config, "fuzzed")
    except InputError:
        return
    assert shape.num_parameters > 0
    assert json.loads(shape.model_dump_json())["name"] == "fuzzed"


@pytest.mark.parametrize(
    ("file", "origin", "name"),
    [
        ("config.json", None, "llama"),
        ("hf/config.json", None, "llama"),
        ("hf/config.json", "meta-llama/Llama-3.1-8B", "Llama-3.1-8B"),
        ("hf/config.json", "/runs/own-8b/checkpoint-500", "own-8b"),
        ("own-8b/hf/config.json", "./", "own-8b"),
        ("own-8b/config.json", "meta-llama/Llama-3.1-8B", "own-8b"),
        ("models/own-8b.v1.json", "meta-llama/Llama-3.1-8B", "own-8b.v1"),
        (f"hub/models--Qwen--Qwen3-8B/snapshots/{'c0ffee' * 6}/config.json", None, "Qwen3-8B"),
        (f"{'long' * 26}/config.json", 8, "8"),
    ],
)
def test_a_model_is_called_by_what_says_something(file: str, origin: object, name: str) -> None:
    assert model_name(LLAMA_8B | {"_name_or_path": origin}, PurePath(file)) == name
