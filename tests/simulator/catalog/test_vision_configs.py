"""Are vision encoders of `config.json` files read as the catalogue's, with the published numbers of weights?"""

from __future__ import annotations

from typing import Any

import pytest

from simulator import catalog
from simulator.catalog import Kind
from simulator.domain.model import ModelShape
from simulator.errors import InputError
from simulator.huggingface.shape import shape_from_config

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "intermediate_size": 11_008,
    "vocab_size": 32_064,
}
QWEN_2_5: dict[str, Any] = {
    "depth": 32,
    "fullatt_block_indexes": [7, 15, 23, 31],
    "hidden_size": 1280,
    "intermediate_size": 3420,
    "num_heads": 16,
    "patch_size": 14,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "window_size": 112,
}
QWEN_3: dict[str, Any] = {
    "deepstack_visual_indexes": [8, 16, 24],
    "depth": 27,
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_heads": 16,
    "num_position_embeddings": 2304,
    "patch_size": 16,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}
SIGLIP: dict[str, Any] = {
    "hidden_size": 1152,
    "image_size": 896,
    "intermediate_size": 4304,
    "model_type": "siglip_vision_model",
    "num_attention_heads": 16,
    "num_hidden_layers": 27,
    "patch_size": 14,
}
CLIP: dict[str, Any] = {
    "hidden_size": 1024,
    "image_size": 336,
    "intermediate_size": 4096,
    "model_type": "clip_vision_model",
    "num_attention_heads": 16,
    "num_hidden_layers": 24,
    "patch_size": 14,
}
LLAMA_4: dict[str, Any] = {
    "hidden_size": 1408,
    "image_size": 336,
    "intermediate_size": 5632,
    "num_attention_heads": 16,
    "num_hidden_layers": 34,
    "patch_size": 14,
    "pixel_shuffle_ratio": 0.5,
    "projector_input_dim": 4096,
    "projector_output_dim": 4096,
}
PIXTRAL: dict[str, Any] = {
    "hidden_size": 1024,
    "image_size": 1540,
    "intermediate_size": 4096,
    "num_attention_heads": 16,
    "num_hidden_layers": 24,
    "patch_size": 14,
}
INTERN: dict[str, Any] = {
    "attention_bias": False,
    "hidden_size": 3200,
    "image_size": [448, 448],
    "intermediate_size": 12_800,
    "norm_type": "rms_norm",
    "num_attention_heads": 25,
    "num_hidden_layers": 45,
    "patch_size": [14, 14],
    "use_qk_norm": True,
}
SMALL_INTERN: dict[str, Any] = {
    "attention_bias": True,
    "hidden_size": 1024,
    "image_size": 448,
    "intermediate_size": 4096,
    "norm_type": "layer_norm",
    "num_attention_heads": 16,
    "num_hidden_layers": 24,
    "patch_size": 14,
}
MOON: dict[str, Any] = {
    "init_pos_emb_height": 64,
    "init_pos_emb_width": 64,
    "merge_kernel_size": [2, 2],
    "patch_size": 14,
    "vt_hidden_size": 1152,
    "vt_intermediate_size": 4304,
    "vt_num_attention_heads": 16,
    "vt_num_hidden_layers": 27,
}


def read(model_type: str, vision: object, **others: object) -> ModelShape:
    """The model of a file whose language model is that of LLaVA-1.5."""
    config = {"model_type": model_type, "text_config": LLAMA, "vision_config": vision, **others}
    return shape_from_config(config, "test", has_vision=True)


FILES: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("gemma-3-27b", "gemma3", SIGLIP, {"mm_tokens_per_image": 256}),
    ("llama-4-scout", "llama4", LLAMA_4, {}),
    ("llama-4-maverick", "llama4", LLAMA_4, {}),
    ("qwen3.5-397b-a17b", "qwen3_5_moe", {**QWEN_3, "deepstack_visual_indexes": []}, {}),
    ("qwen2.5-vl-7b", "qwen2_5_vl", QWEN_2_5, {}),
    ("qwen2.5-vl-72b", "qwen2_5_vl", {**QWEN_2_5, "intermediate_size": 3456}, {}),
    ("qwen3-vl-8b", "qwen3_vl", QWEN_3, {}),
    ("qwen3-vl-235b-a22b", "qwen3_vl_moe", QWEN_3, {}),
    ("mistral-small-3.1-24b", "mistral3", PIXTRAL, {"spatial_merge_size": 2}),
    ("internvl3-78b", "internvl", INTERN, {}),
    ("kimi-k2.5", "kimi_k25", MOON, {}),
]


@pytest.mark.parametrize(("name", "model_type", "vision", "others"), FILES)
def test_an_encoder_of_a_file_is_that_of_the_catalogue(
    name: str, model_type: str, vision: dict[str, Any], others: dict[str, Any]
) -> None:
    known = catalog.model(name, has_vision=True)
    config = {**LLAMA, "hidden_size": known.hidden_size}
    found = read(model_type, vision, text_config=config, **others)
    assert found.vision == known.vision


@pytest.mark.parametrize(
    ("model_type", "vision", "language_size", "published"),
    [
        ("qwen2_5_vl", QWEN_2_5, 3584, 676_550_144),
        ("qwen3_vl", QWEN_3, 4096, 576_388_336),
        ("internvl", SMALL_INTERN, 3584, 304_012_288 + 27_540_480),
        ("internvl", INTERN, 8192, 5_536_496_000 + 172_008_448),
        ("kimi_vl", MOON, 2048, 416_866_032 + 30_679_808),
        ("llava", CLIP, 4096, 303_507_456 + 20_979_712),
    ],
)
def test_encoders_have_their_published_number_of_weights(
    model_type: str, vision: dict[str, Any], language_size: int, published: int
) -> None:
    found = read(model_type, vision, text_config={**LLAMA, "hidden_size": language_size})
    assert found.vision is not None
    assert found.vision.parameters(language_size) == published


def test_llava_1_5_has_all_of_its_weights() -> None:
    assert read("llava", CLIP).num_parameters == 7_063_427_072


def test_an_encoder_is_read_only_where_it_is_asked_for() -> None:
    config = {"model_type": "llava", "text_config": LLAMA, "vision_config": CLIP}
    assert shape_from_config(config, "test").vision is None
    assert shape_from_config(LLAMA, "test", has_vision=True).vision is None


def test_the_old_form_of_a_file_has_its_language_model_beside_the_encoder() -> None:
    config = {**LLAMA, "model_type": "qwen2_5_vl", "num_key_value_heads": 4, "vision_config": QWEN_2_5}
    assert shape_from_config(config, "test", has_vision=True).vision is not None


@pytest.mark.parametrize(
    ("model_type", "vision", "others", "path", "rule"),
    [
        ("fuyu", CLIP, {}, "model_type", "must be one whose vision_config is known: qwen2_5_vl,"),
        (
            "llava",
            {**CLIP, "model_type": "other"},
            {},
            "vision_config.model_type",
            "must be clip_vision_model",
        ),
        ("llava", {**CLIP, "hidden_size": 1000}, {}, "vision_config.num_attention_heads", "must divide"),
        (
            "llava",
            {**CLIP, "num_hidden_layers": 0},
            {},
            "vision_config.num_hidden_layers",
            "must be at least 1",
        ),
        ("llava", {}, {}, "vision_config.hidden_size", "is missing"),
        ("llava", "none", {}, "vision_config", "must be a mapping"),
        (
            "gemma3",
            SIGLIP,
            {"mm_tokens_per_image": 255},
            "mm_tokens_per_image",
            "must divide the 4096 patches",
        ),
        (
            "qwen2_5_vl",
            {**QWEN_2_5, "fullatt_block_indexes": [7, 16]},
            {},
            "vision_config.fullatt_block_indexes",
            "must list the last of every n layers",
        ),
        (
            "qwen3_vl",
            {**QWEN_3, "deepstack_visual_indexes": 3},
            {},
            "vision_config.deepstack_visual_indexes",
            "list",
        ),
        (
            "llama4",
            {**LLAMA_4, "pixel_shuffle_ratio": 2.0},
            {},
            "vision_config.pixel_shuffle_ratio",
            "share of 1",
        ),
        (
            "internvl",
            {**INTERN, "image_size": [448, 224]},
            {},
            "vision_config.image_size",
            "equal for both edges",
        ),
        (
            "kimi_k25",
            {**MOON, "vt_hidden_size": 1000},
            {},
            "vision_config.vt_num_attention_heads",
            "must divide vt_hidden_size (1000)",
        ),
        ("kimi_k25", {**MOON, "merge_kernel_size": 2}, {}, "vision_config.merge_kernel_size", "list of two"),
        (
            "kimi_k25",
            {**MOON, "merge_kernel_size": [2, True]},
            {},
            "vision_config.merge_kernel_size",
            "list of two",
        ),
        ("gemma3", SIGLIP, {"mm_tokens_per_image": 0}, "mm_tokens_per_image", "must be at least 1"),
        ("gemma3", {**SIGLIP, "image_size": 0}, {}, "vision_config.image_size", "must be at least 1"),
        (
            "qwen3_vl",
            {**QWEN_3, "deepstack_visual_indexes": 0},
            {},
            "vision_config.deepstack_visual_indexes",
            "list",
        ),
    ],
)
def test_what_cannot_be_read_is_reported_where_it_stands(
    model_type: str, vision: object, others: dict[str, Any], path: str, rule: str
) -> None:
    with pytest.raises(InputError) as error:
        read(model_type, vision, **others)
    problems = {problem.path: problem.rule for problem in error.value.problems}
    assert rule in problems[path]


def test_the_catalogue_shows_an_encoder_and_uses_it_where_it_is_asked_for() -> None:
    figures = {figure.quantity: figure for figure in catalog.figures(Kind.MODELS, "gemma-3-27b")}
    assert figures["vision_num_layers"].value == 27.0
    assert figures["vision_projector_sizes"].value == "1152"
    assert figures["vision_parameters"].value == 423_060_336.0
    assert catalog.model("gemma-3-27b").vision is None
    assert catalog.model("gemma-3-27b").name == "Gemma 3 27B (text)"
    assert catalog.model("gemma-3-27b", has_vision=True).name == "Gemma 3 27B"
    assert catalog.model("qwen3-8b", has_vision=True).vision is None
