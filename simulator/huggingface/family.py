"""What do the published files of one family of models have in common, and what do several families?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from simulator.domain.choices import ParallelBlock, QueryKeyNorm
from simulator.huggingface.reader import ConfigReader
from simulator.huggingface.windows import Window

Counts = dict[str, int]
"""Fields of a domain type by name, not yet validated."""
Blocks = dict[str, int | str]
"""Fields of `LinearAttention`, not yet validated."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """Conventions of the files of one family."""

    is_gated: bool = True
    """Whether the feed-forward block has a gate."""
    is_tied: bool = False
    """Whether embeddings are tied if the file does not say."""
    num_kv_heads: Callable[[ConfigReader], int | None]
    """Returns the key-value heads; `None`: as many as attention heads."""
    ffn_hidden_size: Callable[[ConfigReader], int | None]
    """Returns the feed-forward size of the dense layers; `None`: four times the hidden size."""
    num_positions: Callable[[ConfigReader], int] | None = None
    """Returns the rows of a learned position embedding; left out where positions are not learned."""
    experts: Callable[[ConfigReader], Counts | None] | None = None
    """Returns the fields of `MixtureOfExperts`; left out for dense families, and `None` for a dense model."""
    latent_attention: Callable[[ConfigReader], Counts] | None = None
    """Returns the fields of `LatentAttention`; left out for ordinary or grouped-query attention."""
    indexer: Callable[[ConfigReader], Counts] | None = None
    """Returns the fields of `TokenIndexer`; left out where attention does not choose among the tokens before."""
    compressed_attention: Callable[[ConfigReader], Counts] | None = None
    """Returns the fields of `CompressedAttention`; left out for any other attention."""
    hyper_connections: Callable[[ConfigReader], Counts] | None = None
    """Returns the fields of `HyperConnections`; left out where blocks add to the residual."""
    sliding_window: Callable[[ConfigReader], Window | None] | None = None
    """Returns the fields of `SlidingWindow`, if the file has one; left out where tokens always see everything before them."""
    parallel_block: Callable[[ConfigReader], ParallelBlock | None] | None = None
    """Returns whether attention and feed-forward block read the same input; left out if they never do."""
    qk_norm: Callable[[ConfigReader], QueryKeyNorm | None] | None = None
    """Returns the norms of queries and keys; left out if there never are any."""
    num_layers: Callable[[ConfigReader], int] | None = None
    """Returns the feed-forward blocks; left out where every layer of the file has one."""
    linear_attention: Callable[[ConfigReader], Blocks | None] | None = None
    """Returns the fields of `LinearAttention`; left out where all blocks attend."""
    has_output_gate: bool = False
    """Whether attention makes a gate for its output."""


def all_heads(_: ConfigReader) -> None:
    """As many key-value heads as attention heads: `None`."""


def grouped_heads(reader: ConfigReader) -> int | None:
    """Key-value heads where the file has them."""
    return reader.whole("num_key_value_heads") if reader.has("num_key_value_heads") else None


def head_norm(_: ConfigReader) -> QueryKeyNorm:
    """Norms with weights for one head."""
    return "per_head"


def wide_norm(_: ConfigReader) -> QueryKeyNorm:
    """Norms with weights for all heads."""
    return "all_heads"


def intermediate(reader: ConfigReader) -> int:
    """The feed-forward size by its usual name."""
    return reader.whole("intermediate_size")


def deepseek_attention(reader: ConfigReader) -> Counts:
    """DeepSeek-V2 and V3, Kimi: latent attention."""
    return {
        "query_rank": reader.whole("q_lora_rank", default=0),
        "key_value_rank": reader.whole("kv_lora_rank"),
        "rope_head_dim": reader.whole("qk_rope_head_dim"),
        "nope_head_dim": reader.whole("qk_nope_head_dim"),
        "value_head_dim": reader.whole("v_head_dim"),
    }
