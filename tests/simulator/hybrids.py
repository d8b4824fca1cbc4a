"""Which hybrid models do the simulator's tests use? One of every kind of linear attention, as published, and a small one."""

from __future__ import annotations

from simulator.domain.blocks import LatentAttention, MixtureOfExperts
from simulator.domain.linear_attention import LinearAttention
from simulator.domain.model import ModelShape
from tests.simulator.builders import changed, gpt

NEMOTRON_H = ModelShape(
    name="Nemotron-H 8B",
    num_layers=24,
    hidden_size=4096,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    ffn_hidden_size=21_504,
    is_gated=False,
    vocabulary_size=131_072,
    linear_attention=LinearAttention(
        kind="mamba-2",
        num_blocks=24,
        num_attention_blocks=4,
        num_heads=128,
        head_dim=64,
        num_key_heads=8,
        key_head_dim=128,
    ),
)
"""M-M-M-M*-..., 52 letters: 24 blocks of Mamba-2, 24 of feed-forward networks and 4 of attention (arXiv 2504.03624)."""

QWEN_3_NEXT = ModelShape(
    name="Qwen3-Next 80B-A3B",
    num_layers=48,
    hidden_size=2048,
    num_heads=16,
    num_kv_heads=2,
    head_dim=256,
    ffn_hidden_size=5120,
    is_gated=True,
    vocabulary_size=151_936,
    qk_norm="per_head",
    has_output_gate=True,
    experts=MixtureOfExperts(
        num_experts=512, experts_per_token=10, expert_ffn_hidden_size=512, shared_ffn_hidden_size=512
    ),
    linear_attention=LinearAttention(
        kind="gated-delta-net",
        num_blocks=36,
        num_attention_blocks=12,
        num_heads=32,
        head_dim=128,
        num_key_heads=16,
        key_head_dim=128,
    ),
)

KIMI_LINEAR = ModelShape(
    name="Kimi Linear 48B-A3B",
    num_layers=27,
    hidden_size=2304,
    num_heads=32,
    num_kv_heads=32,
    head_dim=192,
    ffn_hidden_size=9216,
    is_gated=True,
    vocabulary_size=163_840,
    experts=MixtureOfExperts(
        num_experts=256,
        experts_per_token=8,
        expert_ffn_hidden_size=1024,
        shared_ffn_hidden_size=1024,
        num_dense_layers=1,
    ),
    latent_attention=LatentAttention(
        query_rank=0, key_value_rank=512, rope_head_dim=64, nope_head_dim=128, value_head_dim=128
    ),
    linear_attention=LinearAttention(
        kind="kimi-delta",
        num_blocks=20,
        num_attention_blocks=7,
        num_heads=32,
        head_dim=128,
        num_key_heads=32,
        key_head_dim=128,
    ),
)

NEMOTRON_3_SUPER = ModelShape(
    name="Nemotron 3 Super 120B-A12B",
    num_layers=40,
    hidden_size=4096,
    num_heads=32,
    num_kv_heads=2,
    head_dim=128,
    ffn_hidden_size=2688,
    is_gated=False,
    vocabulary_size=131_072,
    experts=MixtureOfExperts(
        num_experts=512,
        experts_per_token=22,
        expert_ffn_hidden_size=2688,
        shared_ffn_hidden_size=5376,
        latent_size=1024,
    ),
    linear_attention=LinearAttention(
        kind="mamba-2",
        num_blocks=40,
        num_attention_blocks=8,
        num_heads=128,
        head_dim=64,
        num_key_heads=8,
        key_head_dim=128,
    ),
)
"""Its experts read a latent of each token."""

HYBRIDS = {
    "mamba": NEMOTRON_H,
    "delta": QWEN_3_NEXT,
    "kimi": KIMI_LINEAR,
    "latents": NEMOTRON_3_SUPER,
}


def small_hybrid(num_attention_blocks: int, num_blocks: int) -> ModelShape:
    """Returns a dense model of 8 layers with so many blocks that attend, and blocks with Mamba-2."""
    linear = LinearAttention(
        kind="mamba-2",
        num_blocks=num_blocks,
        num_attention_blocks=num_attention_blocks,
        num_heads=64,
        head_dim=64,
        num_key_heads=8,
        key_head_dim=128,
    )
    return changed(gpt(num_layers=8), linear_attention=linear)
