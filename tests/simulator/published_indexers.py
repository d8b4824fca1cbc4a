"""What do published `config.json` files of models with an indexer contain? The fields that determine a shape."""

from __future__ import annotations

from typing import Any

from tests.simulator.published_configs import DEEPSEEK_V3

DEEPSEEK_V3_2: dict[str, Any] = {
    **DEEPSEEK_V3,
    "model_type": "deepseek_v32",
    "index_head_dim": 128,
    "index_n_heads": 64,
    "index_topk": 2048,
}
GLM_5: dict[str, Any] = {
    **DEEPSEEK_V3_2,
    "model_type": "glm_moe_dsa",
    "hidden_size": 6144,
    "index_n_heads": 32,
    "intermediate_size": 12288,
    "n_group": 1,
    "num_attention_heads": 64,
    "num_hidden_layers": 78,
    "num_key_value_heads": 64,
    "q_lora_rank": 2048,
    "qk_nope_head_dim": 192,
    "topk_group": 1,
    "v_head_dim": 256,
    "vocab_size": 154880,
}
GLM_5_2: dict[str, Any] = {
    **GLM_5,
    "index_skip_topk_offset": 3,
    "index_topk_freq": 4,
    "index_topk_pattern": None,
    "indexer_types": [*["full"] * 3, *["shared", "shared", "shared", "full"] * 18, *["shared"] * 3],
    "mlp_layer_types": [*["dense"] * 3, *["sparse"] * 75],
}
