"""Are `config.json` files of DeepSeek-V4 read as the catalogue's models, and what in them is reported?"""

from __future__ import annotations

from typing import Any

import pytest

from simulator import catalog
from simulator.catalog import Kind
from simulator.errors import InputError
from simulator.huggingface.shape import shape_from_config

FLASH: dict[str, Any] = {
    "model_type": "deepseek_v4",
    "compress_ratios": [0, 0, 4, *[128, 4] * 20, 0],
    "hc_mult": 4,
    "hc_sinkhorn_iters": 20,
    "head_dim": 512,
    "hidden_size": 4096,
    "index_head_dim": 128,
    "index_n_heads": 64,
    "index_topk": 512,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_attention_heads": 64,
    "num_experts_per_tok": 6,
    "num_hash_layers": 3,
    "num_hidden_layers": 43,
    "num_key_value_heads": 1,
    "num_nextn_predict_layers": 1,
    "o_groups": 8,
    "o_lora_rank": 1024,
    "q_lora_rank": 1024,
    "qk_rope_head_dim": 64,
    "sliding_window": 128,
    "tie_word_embeddings": False,
    "vocab_size": 129_280,
}
PRO: dict[str, Any] = {
    **FLASH,
    "compress_ratios": [128, 128, 4, *[128, 4] * 29, 0],
    "hidden_size": 7168,
    "index_topk": 1024,
    "moe_intermediate_size": 3072,
    "n_routed_experts": 384,
    "num_attention_heads": 128,
    "num_hidden_layers": 61,
    "o_groups": 16,
    "q_lora_rank": 1536,
}
NAMES = {0: "sliding_attention", 4: "compressed_sparse_attention", 128: "heavily_compressed_attention"}


@pytest.mark.parametrize(("config", "name"), [(FLASH, "deepseek-v4-flash"), (PRO, "deepseek-v4-pro")])
def test_a_published_file_is_a_model_of_the_catalogue(config: dict[str, Any], name: str) -> None:
    known = catalog.model(name)
    found = shape_from_config(config, known.name)
    assert found.model_dump(exclude={"source"}) == known.model_dump(exclude={"source"})
    assert found.source.startswith("config.json (deepseek_v4; num_nextn_predict_layers 1")


def test_layers_may_have_names_and_positions_a_fraction() -> None:
    """As transformers writes the file (`layer_types`, `compress_rates`, `partial_rotary_factor`)."""
    config = {
        key: value for key, value in FLASH.items() if key not in {"compress_ratios", "qk_rope_head_dim"}
    }
    config["layer_types"] = [NAMES[ratio] for ratio in FLASH["compress_ratios"][:43]]
    config["compress_rates"] = {NAMES[4]: 4, NAMES[128]: 128}
    for more in ({}, {"partial_rotary_factor": 0.125}):
        found = shape_from_config({**config, **more}, "DeepSeek-V4-Flash")
        assert found.compressed_attention == catalog.model("deepseek-v4-flash").compressed_attention


@pytest.mark.parametrize(("num_layers", "kinds"), [(43, (21, 20)), (42, (20, 20)), (5, (2, 1)), (2, (0, 0))])
def test_entries_behind_the_last_layer_are_of_no_layer_of_the_model(
    num_layers: int, kinds: tuple[int, int]
) -> None:
    """`DeepseekV4Config.__post_init__` keeps the first `num_hidden_layers` entries of either list before it checks them."""
    ratios = FLASH["compress_ratios"]
    assert len(ratios) == 44  # one module of multi-token prediction
    named = {key: value for key, value in FLASH.items() if key != "compress_ratios"}
    named["layer_types"] = [*(NAMES[ratio] for ratio in ratios), "of_a_module"]
    for config in (FLASH, named):
        found = shape_from_config({**config, "num_hidden_layers": num_layers}, "cut").compressed_attention
        assert found is not None
        assert (found.num_chosen_layers, found.num_heavy_layers) == kinds


def test_other_ratios_are_read() -> None:
    config = {
        **FLASH,
        "compress_rates": {NAMES[4]: 8, NAMES[128]: 64},
        "compress_ratios": [0, 0, 8, *[64, 8] * 20],
    }
    found = shape_from_config(config, "other").compressed_attention
    assert found is not None
    assert (found.chosen_ratio, found.heavy_ratio, found.num_heavy_layers) == (8, 64, 20)


def test_ratios_of_older_files_are_read() -> None:
    """`DeepseekV4Config` folds these keys into `compress_rates`."""
    config = {key: value for key, value in FLASH.items() if key != "compress_ratios"}
    older = {"compress_rate_csa": 8, "compress_rate_hca": 64}
    found = shape_from_config({**config, **older}, "other").compressed_attention
    assert found is not None
    assert (found.chosen_ratio, found.heavy_ratio) == (8, 64)


def test_a_file_without_kinds_of_layers_means_what_transformers_takes() -> None:
    """`DeepseekV4Config`: two heavily compressed layers, and then these and chosen ones in turn, beginning with the former."""
    config = {key: value for key, value in FLASH.items() if key != "compress_ratios"}
    found = shape_from_config(config, "other").compressed_attention
    assert found is not None
    assert (found.num_chosen_layers, found.num_heavy_layers) == (20, 23)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"compress_ratios": [0, 16] * 30},
            "compress_ratios .* must give each layer one of 0, 4, 128, 43 in all",
        ),
        ({"compress_ratios": [0, 4]}, "compress_ratios .* 43 in all"),
        ({"layer_types": ["sliding_attention"] * 42}, "layer_types .* must name each layer: .*, 43 in all"),
        ({"layer_types": ["full_attention"] * 43}, "layer_types .* must name each layer: sliding_attention"),
        ({"qk_rope_head_dim": None, "partial_rotary_factor": 2}, "partial_rotary_factor .* at most 1"),
        ({"o_groups": None}, "o_groups.* is missing"),
        ({"o_groups": 7}, r"output_groups \(7\) must divide num_heads \(64\)"),
    ],
)
def test_what_cannot_be_read_is_reported(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        shape_from_config({**FLASH, **changes}, "other")


def test_sizes_of_compressed_attention_are_told_from_others() -> None:
    found = {figure.quantity: figure.value for figure in catalog.figures(Kind.MODELS, "deepseek-v4-flash")}
    assert (found["num_heads"], found["compressed_indexer_heads"]) == (64, 64)
    assert (found["compressed_query_rank"], found["compressed_num_heavy_layers"]) == (1024, 20)
    assert (found["hyper_num_streams"], found["hyper_sinkhorn_iterations"]) == (4, 20)
