"""What do published `config.json` files of hybrid models contain? The fields that determine a shape."""

from __future__ import annotations

from typing import Any

NEMOTRON_H_8B: dict[str, Any] = {
    "model_type": "nemotron_h",
    "attention_head_dim": 128,
    "chunk_size": 128,
    "conv_kernel": 4,
    "hidden_size": 4096,
    "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
    "intermediate_size": 21504,
    "mamba_head_dim": 64,
    "mamba_num_heads": 128,
    "n_groups": 8,
    "num_attention_heads": 32,
    "num_hidden_layers": 52,
    "num_key_value_heads": 8,
    "ssm_state_size": 128,
    "tie_word_embeddings": False,
    "vocab_size": 131072,
}
NEMOTRON_H_47B: dict[str, Any] = {
    **NEMOTRON_H_8B,
    "hidden_size": 8192,
    "hybrid_override_pattern": (
        "M-M-M-M-M-M-M-M-M*-M-M-M-M-M-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-M-M---MM---M-M*-M-M-M-M-M-"
    ),
    "intermediate_size": 30720,
    "mamba_num_heads": 256,
    "num_attention_heads": 64,
    "num_hidden_layers": 98,
    "ssm_state_size": 256,
}
NEMOTRON_H_56B: dict[str, Any] = {
    **NEMOTRON_H_47B,
    "hybrid_override_pattern": (
        "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-"
        "M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-"
    ),
    "intermediate_size": 32768,
    "num_hidden_layers": 118,
}
NEMOTRON_NANO_9B: dict[str, Any] = {
    **NEMOTRON_H_8B,
    "head_dim": 128,
    "hidden_size": 4480,
    "hybrid_override_pattern": "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-",
    "intermediate_size": 15680,
    "mamba_head_dim": 80,
    "num_attention_heads": 40,
    "num_hidden_layers": 56,
}
NEMOTRON_NANO_12B: dict[str, Any] = {
    **NEMOTRON_NANO_9B,
    "hidden_size": 5120,
    "hybrid_override_pattern": "M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M-",
    "intermediate_size": 20480,
    "num_hidden_layers": 62,
}
NEMOTRON_3_NANO: dict[str, Any] = {
    **NEMOTRON_H_8B,
    "head_dim": 128,
    "hidden_size": 2688,
    "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    "intermediate_size": 1856,
    "mamba_num_heads": 64,
    "moe_intermediate_size": 1856,
    "moe_shared_expert_intermediate_size": 3712,
    "n_group": 1,
    "n_routed_experts": 128,
    "n_shared_experts": 1,
    "num_experts_per_tok": 6,
    "num_key_value_heads": 2,
    "topk_group": 1,
}
NEMOTRON_3_SUPER: dict[str, Any] = {
    **NEMOTRON_3_NANO,
    "hidden_size": 4096,
    "hybrid_override_pattern": (
        "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME"
    ),
    "intermediate_size": 2688,
    "mamba_num_heads": 128,
    "moe_intermediate_size": 2688,
    "moe_latent_size": 1024,
    "moe_shared_expert_intermediate_size": 5376,
    "n_routed_experts": 512,
    "num_experts_per_tok": 22,
    "num_hidden_layers": 88,
}
QWEN3_NEXT: dict[str, Any] = {
    "model_type": "qwen3_next",
    "decoder_sparse_step": 1,
    "full_attention_interval": 4,
    "head_dim": 256,
    "hidden_size": 2048,
    "intermediate_size": 5120,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_value_head_dim": 128,
    "mlp_only_layers": [],
    "moe_intermediate_size": 512,
    "num_attention_heads": 16,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "num_hidden_layers": 48,
    "num_key_value_heads": 2,
    "shared_expert_intermediate_size": 512,
    "tie_word_embeddings": False,
    "vocab_size": 151936,
}
QWEN3_5_35B: dict[str, Any] = {
    **{
        key: value for key, value in QWEN3_NEXT.items() if key not in ("intermediate_size", "mlp_only_layers")
    },
    "model_type": "qwen3_5_moe_text",
    "attn_output_gate": True,
    "layer_types": [*["linear_attention"] * 3, "full_attention"] * 10,
    "num_experts": 256,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 40,
    "vocab_size": 248320,
}
_FULL = [4, 8, 12, 16, 20, 24, 27]
KIMI_LINEAR: dict[str, Any] = {
    "model_type": "kimi_linear",
    "first_k_dense_replace": 1,
    "head_dim": 72,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "kv_lora_rank": 512,
    "linear_attn_config": {
        "full_attn_layers": _FULL,
        "head_dim": 128,
        "kda_layers": [layer for layer in range(1, 28) if layer not in _FULL],
        "num_heads": 32,
        "short_conv_kernel_size": 4,
    },
    "mla_use_nope": True,
    "moe_intermediate_size": 1024,
    "moe_layer_freq": 1,
    "num_attention_heads": 32,
    "num_expert_group": 1,
    "num_experts": 256,
    "num_experts_per_token": 8,
    "num_hidden_layers": 27,
    "num_key_value_heads": 32,
    "num_nextn_predict_layers": 0,
    "num_shared_experts": 1,
    "q_lora_rank": None,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "tie_word_embeddings": False,
    "topk_group": 1,
    "v_head_dim": 128,
    "vocab_size": 163840,
}
GRANITE_4_TINY: dict[str, Any] = {
    "model_type": "granitemoehybrid",
    "hidden_size": 1536,
    "intermediate_size": 512,
    "layer_types": [
        *["mamba"] * 5,
        *["attention", *["mamba"] * 9] * 3,
        "attention",
        *["mamba"] * 4,
    ],
    "mamba_chunk_size": 256,
    "mamba_d_conv": 4,
    "mamba_d_head": 64,
    "mamba_d_state": 128,
    "mamba_expand": 2,
    "mamba_n_groups": 1,
    "mamba_n_heads": 48,
    "num_attention_heads": 12,
    "num_experts_per_tok": 6,
    "num_hidden_layers": 40,
    "num_key_value_heads": 4,
    "num_local_experts": 64,
    "shared_intermediate_size": 1024,
    "tie_word_embeddings": True,
    "vocab_size": 100352,
}
GRANITE_4_SMALL: dict[str, Any] = {
    **GRANITE_4_TINY,
    "hidden_size": 4096,
    "intermediate_size": 768,
    "mamba_n_heads": 128,
    "num_attention_heads": 32,
    "num_experts_per_tok": 10,
    "num_key_value_heads": 8,
    "num_local_experts": 72,
    "shared_intermediate_size": 1536,
}
BAMBA_9B: dict[str, Any] = {
    "model_type": "bamba",
    "attn_layer_indices": [9, 18, 27],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "mamba_chunk_size": 256,
    "mamba_d_conv": 4,
    "mamba_d_head": 64,
    "mamba_d_state": 128,
    "mamba_expand": 2,
    "mamba_n_groups": 1,
    "mamba_n_heads": 128,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "tie_word_embeddings": False,
    "vocab_size": 128256,
}
OLMO_HYBRID: dict[str, Any] = {
    "model_type": "olmo_hybrid",
    "hidden_size": 3840,
    "intermediate_size": 11008,
    "layer_types": [*["linear_attention"] * 3, "full_attention"] * 8,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 96,
    "linear_num_key_heads": 30,
    "linear_num_value_heads": 30,
    "linear_value_head_dim": 192,
    "num_attention_heads": 30,
    "num_hidden_layers": 32,
    "num_key_value_heads": 30,
    "tie_word_embeddings": False,
    "vocab_size": 100352,
}
