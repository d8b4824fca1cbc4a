"""Which hybrid models do the simulator's tests use? One of every kind of linear attention, as published, and a small one."""

from __future__ import annotations

from simulator import catalog
from simulator.domain.linear_attention import LinearAttention
from simulator.domain.model import ModelShape
from tests.simulator.builders import changed, gpt

NEMOTRON_H = catalog.model("nemotron-h-8b")
"""24 blocks of Mamba-2, 24 of feed-forward networks and 4 of attention."""
QWEN_3_NEXT = catalog.model("qwen3-next-80b-a3b")
KIMI_LINEAR = catalog.model("kimi-linear-48b-a3b")
NEMOTRON_3_SUPER = catalog.model("nemotron-3-super-120b-a12b")
"""Its experts read a latent of each token."""

HYBRIDS = {
    "mamba": NEMOTRON_H,
    "delta": QWEN_3_NEXT,
    "kimi": KIMI_LINEAR,
    "latents": NEMOTRON_3_SUPER,
}


def small_hybrid(num_attention_blocks: int, num_blocks: int, *, num_key_heads: int = 8) -> ModelShape:
    """Returns a dense model of 8 layers with so many blocks that attend, and blocks with Mamba-2."""
    linear = LinearAttention(
        kind="mamba-2",
        num_blocks=num_blocks,
        num_attention_blocks=num_attention_blocks,
        num_heads=64,
        head_dim=64,
        num_key_heads=num_key_heads,
        key_head_dim=128,
    )
    return changed(gpt(num_layers=8), linear_attention=linear)
