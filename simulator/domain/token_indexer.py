"""Which tokens does attention see where an indexer chooses them? DeepSeek Sparse Attention (DeepSeek-V3.2, GLM-5).

A small attention of its own, the indexer, scores all tokens that a token may see: heads of queries from the latent of queries,
one key from the residual stream, and a weight for each head. Latent attention then sees only the k tokens with the highest
scores. Nomenclature:

    H_I, d_I   heads and width of a head of the indexer        k   tokens that are chosen for every token
    q, h       rank of the latent of queries, hidden size

(DeepSeek-V3.2, arXiv 2512.02556, section 2.1; Megatron Core: `experimental_attention_variant/dsa.py`.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field, NonNegativeInt, PositiveInt

from simulator.record import Record

if TYPE_CHECKING:
    from simulator.domain.blocks import LatentAttention
    from simulator.domain.model import ModelShape


class TokenIndexer(Record):
    """What chooses the tokens that latent attention sees."""

    num_heads: int = Field(gt=0, le=10_000)
    """Heads of the indexer (H_I; `config.json`: `index_n_heads`)."""
    head_dim: int = Field(gt=0, le=10_000)
    """Width of a head of the indexer (d_I; `index_head_dim`)."""
    chosen_tokens: int = Field(gt=0, le=10**12)
    """Tokens that are chosen for every token (k; `index_topk`); where it may see fewer, it sees them all."""
    layer_step: PositiveInt = Field(default=1, le=10_000)
    """Behind the leading layers, one of every n has an indexer; the others see what the layer before them saw (GLM-5.2: 4;
    `index_topk_freq`)."""
    num_leading_layers: NonNegativeInt = Field(default=0, le=10_000)
    """Leading layers that have an indexer each, where others share one (GLM-5.2: 3; Megatron Core:
    `dsa_indexer_skip_topk_offset`); the first layer always has one."""

    def num_among(self, num_layers: int) -> int:
        """Returns how many of the first so many layers have an indexer."""
        leading = min(max(self.num_leading_layers, 1), num_layers)
        return leading + (num_layers - leading) // self.layer_step

    def most_chunks(self, num_layers: int) -> int | None:
        """Returns the most chunks of a pipeline where layers share an indexer, with which each begins; `None` if none shares.

        (`_validate_dsa_index_share_pipeline_split` of Megatron Core.)
        """
        number = self.num_among(num_layers)
        return number if number < num_layers else None

    def num_places(self, sequence_length: int) -> int:
        """Returns the places for chosen tokens of every token, used or not."""
        return min(self.chosen_tokens, sequence_length)

    @property
    def query_width(self) -> int:
        """Values of a token's queries over all heads."""
        return self.num_heads * self.head_dim

    def matrix_parameters(self, hidden_size: int, query_rank: int) -> int:
        """Returns the weights of one indexer that take part in products: of queries, of the key, and of the heads' weights.

        Args:
            hidden_size: Width of the residual stream.
            query_rank: Rank of the latent of queries; 0: queries come from the residual stream.
        """
        return (query_rank or hidden_size) * self.query_width + hidden_size * (self.head_dim + self.num_heads)

    @property
    def norm_parameters(self) -> int:
        """Weights and biases of the norm of the key."""
        return 2 * self.head_dim

    def flop_per_pair(self) -> float:
        """Returns the operations of the scores of a token and one that it may see."""
        return 2.0 * self.query_width


def latent_and_indexer(model: ModelShape) -> tuple[LatentAttention, TokenIndexer]:
    """Returns the latent attention of a model that has an indexer, and the indexer."""
    latent, indexer = model.latent_attention, model.indexer
    assert latent is not None
    assert indexer is not None
    return latent, indexer
