"""Which models with an indexer do the simulator's tests use? DeepSeek-V3.2 and GLM-5 in shape, and a cut one."""

from __future__ import annotations

from simulator import catalog
from simulator.domain.blocks import LatentAttention
from simulator.domain.model import ModelShape
from simulator.domain.token_indexer import TokenIndexer
from tests.simulator.builders import changed, gpt

INDEXER = TokenIndexer(num_heads=64, head_dim=128, chosen_tokens=2048)
"""That of DeepSeek-V3.2."""


def with_indexer(model: ModelShape, indexer: TokenIndexer = INDEXER) -> ModelShape:
    """Returns a model with latent attention whose tokens an indexer chooses."""
    latent = model.latent_attention
    assert latent is not None
    return changed(model, latent_attention=changed(latent, indexer=indexer))


DEEPSEEK_V3 = catalog.model("deepseek-v3")
DEEPSEEK_V3_2 = with_indexer(DEEPSEEK_V3)
LATENTS = LatentAttention(
    query_rank=768, key_value_rank=512, rope_head_dim=64, nope_head_dim=128, value_head_dim=128
)
DENSE = changed(gpt(num_layers=8), is_gated=True, latent_attention=LATENTS)
"""A dense model with latent attention to all tokens."""
SMALL = with_indexer(DENSE, TokenIndexer(num_heads=16, head_dim=128, chosen_tokens=1024))
"""The same with attention to chosen tokens."""
