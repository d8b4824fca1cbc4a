"""Which models with compressed attention do the simulator's tests use? DeepSeek-V4 in shape, and a small dense one."""

from __future__ import annotations

from simulator.domain.blocks import MixtureOfExperts
from simulator.domain.compressed_attention import CompressedAttention
from simulator.domain.hyper_connections import HyperConnections
from simulator.domain.model import ModelShape
from tests.simulator.builders import changed, gpt

FLASH_ATTENTION = CompressedAttention(
    query_rank=1024,
    rope_head_dim=64,
    window_tokens=128,
    output_groups=8,
    output_rank=1024,
    num_chosen_layers=21,
    num_heavy_layers=20,
    chosen_tokens=512,
    indexer_heads=64,
    indexer_head_dim=128,
)
"""That of DeepSeek-V4-Flash."""
FLASH = ModelShape(
    name="DeepSeek-V4-Flash",
    num_layers=43,
    hidden_size=4096,
    num_heads=64,
    num_kv_heads=1,
    head_dim=512,
    ffn_hidden_size=2048,
    is_gated=True,
    vocabulary_size=129_280,
    experts=MixtureOfExperts(
        num_experts=256, experts_per_token=6, expert_ffn_hidden_size=2048, shared_ffn_hidden_size=2048
    ),
    hyper_connections=HyperConnections(num_streams=4, sinkhorn_iterations=20),
    compressed_attention=FLASH_ATTENTION,
)
SMALL_ATTENTION = changed(
    FLASH_ATTENTION, query_rank=512, num_chosen_layers=4, num_heavy_layers=3, chosen_tokens=256
)
DENSE = changed(
    gpt(num_layers=8),
    is_gated=True,
    num_kv_heads=1,
    head_dim=512,
    compressed_attention=SMALL_ATTENTION,
)
"""A dense model of 8 layers, 4 of which choose, 3 of which see all of what is heavily compressed; 16 heads of 512."""


def of_one_kind(model: ModelShape, *, chosen: bool = False, heavy: bool = False) -> ModelShape:
    """Returns a model whose layers are all of a kind."""
    compressed = model.compressed_attention
    assert compressed is not None
    numbers = {
        "num_chosen_layers": chosen * model.num_layers,
        "num_heavy_layers": heavy * model.num_layers,
    }
    return changed(model, compressed_attention=changed(compressed, **numbers))
