"""Which tokens does attention see where it compresses what is far away? DeepSeek-V4: windows, and compressed tokens behind.

All heads share one key of d values, which is also the value. Every layer sees a window of w tokens. Some also see compressed
tokens, each a weighed sum of others: of r tokens and the r before them, of which an indexer chooses k for every token
(compressed sparse attention, CSA); or of R, all of which are seen (heavily compressed attention, HCA). Queries come from a
latent of rank q. Outputs of g groups of heads are each projected to o values, and these to the residual stream. Nomenclature:

    a, d       heads and their width                  h           hidden size
    q, d_r     rank of the latent of queries, width of the part of a head with a rotary position
    H_I, d_I   heads of the indexer and their width

(transformers, `modeling_deepseek_v4.py`; Megatron Core, `csa.py` and `deepseek_v4_hybrid_attention.py`.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import Field

from simulator.domain.attention_span import ChosenTokens, SequenceShape
from simulator.domain.documents import Documents
from simulator.record import Record

if TYPE_CHECKING:
    from simulator.domain.model import ModelShape

LayerKind = Literal["window", "chosen", "heavy"]
"""What a layer sees beside its window: nothing, compressed tokens that an indexer chooses, or all compressed tokens."""
KINDS: tuple[LayerKind, ...] = ("window", "chosen", "heavy")
"""All kinds of layers."""
OVERLAPPING_SERIES = 2
"""Keys and weights that a token makes where compressed tokens overlap: for its own group of tokens, and for the next."""


class Pairs(NamedTuple):
    """Tokens that a token sees on average, half of a span each, in one kind of layer or another."""

    window: float
    """In the window of every layer."""
    chosen: float
    """Compressed ones that are chosen."""
    visible: float
    """Compressed ones that an indexer chooses from."""
    heavy: float
    """Compressed ones where all are seen."""


class CompressedAttention(Record):
    """Attention to a window and to compressed tokens, by kind of layer."""

    query_rank: int = Field(gt=0, le=1_000_000)
    """Rank of the latent of queries (q; `config.json`: `q_lora_rank`)."""
    rope_head_dim: int = Field(gt=0, le=10_000)
    """Part of a head with a rotary position (d_r; `qk_rope_head_dim`)."""
    window_tokens: int = Field(gt=0, le=10**9)
    """Tokens that a token sees as they are, itself included, in every layer (w; `sliding_window`)."""
    output_groups: int = Field(gt=0, le=10_000)
    """Groups of heads whose outputs are projected together (g; `o_groups`)."""
    output_rank: int = Field(gt=0, le=1_000_000)
    """Values to which the output of a group is projected (o; `o_lora_rank`)."""
    num_chosen_layers: int = Field(default=0, ge=0, le=10_000)
    """Layers that see compressed tokens which an indexer chooses (`compressed_sparse_attention`)."""
    num_heavy_layers: int = Field(default=0, ge=0, le=10_000)
    """Layers that see all heavily compressed tokens (`heavily_compressed_attention`); the others have a window alone."""
    chosen_ratio: int = Field(default=4, gt=1, le=1_000_000)
    """Tokens for each compressed one in the former (r); it overlaps with the one before it."""
    heavy_ratio: int = Field(default=128, gt=1, le=1_000_000)
    """Tokens for each compressed one in the latter (R)."""
    chosen_tokens: int = Field(gt=0, le=10**9)
    """Compressed tokens that are chosen for every token (k; `index_topk`)."""
    indexer_heads: int = Field(gt=0, le=10_000)
    """Heads of the indexer (H_I; `index_n_heads`)."""
    indexer_head_dim: int = Field(gt=0, le=10_000)
    """Width of a head of the indexer (d_I; `index_head_dim`)."""

    @property
    def indexer_width(self) -> int:
        """Values of a token's queries of the indexer."""
        return self.indexer_heads * self.indexer_head_dim

    def flop_per_scored_pair(self) -> float:
        """Returns the operations of the scores of a token and a compressed one."""
        return 2.0 * self.indexer_width

    def share(self, kind: LayerKind, num_layers: int) -> float:
        """Returns the layers of a kind over all layers."""
        numbers = {"chosen": self.num_chosen_layers, "heavy": self.num_heavy_layers}
        return numbers.get(kind, num_layers - sum(numbers.values())) / num_layers

    def compressing_shares(self, num_layers: int) -> tuple[float, float]:
        """Returns the layers with chosen, and with all compressed tokens over all layers."""
        return self.share("chosen", num_layers), self.share("heavy", num_layers)

    def made_per_token(self, num_layers: int) -> float:
        """Returns the compressed tokens that a layer makes of each token, mean over the layers."""
        chosen, heavy = self.compressing_shares(num_layers)
        return chosen / self.chosen_ratio + heavy / self.heavy_ratio

    def projection_parameters(self, model: ModelShape) -> int:
        """Returns the weights of the projections that every layer has: of queries, of the key, and of the output."""
        h, a, d = model.hidden_size, model.num_heads, model.head_dim
        queries = self.query_rank * (h + a * d)
        return queries + h * d + self.group_parameters(model) + self.output_groups * self.output_rank * h

    def group_parameters(self, model: ModelShape) -> int:
        """Returns the weights that project the outputs of groups of heads."""
        return model.num_heads * model.head_dim * self.output_rank

    def compressor_parameters(self, kind: LayerKind, model: ModelShape) -> int:
        """Returns the weights of the products that make keys, and weights for their sum, of compressed tokens of a layer."""
        series = {"window": 0, "chosen": OVERLAPPING_SERIES, "heavy": 1}[kind]
        return 2 * series * model.hidden_size * model.head_dim

    def indexer_parameters(self, model: ModelShape) -> int:
        """Returns the weights of the products of one indexer: of queries, of the heads' weights, and of compressed keys."""
        keys = 2 * OVERLAPPING_SERIES * model.hidden_size * self.indexer_head_dim
        return self.query_rank * self.indexer_width + model.hidden_size * self.indexer_heads + keys

    def other_parameters(self, model: ModelShape) -> float:
        """Returns the weights of a layer that take part in no product: norms, sinks, positions in a group; mean over layers.

        Compressors have a position for each token of a group and value that they sum, and a norm.
        """
        d, d_i, r = model.head_dim, self.indexer_head_dim, self.chosen_ratio
        chosen = (OVERLAPPING_SERIES * r + 1) * (d + d_i)
        heavy = (self.heavy_ratio + 1) * d
        each = self.query_rank + d + model.num_heads
        shares = self.compressing_shares(model.num_layers)
        return each + sum(share * number for share, number in zip(shares, (chosen, heavy), strict=True))

    def matrix_parameters(self, model: ModelShape) -> float:
        """Returns the weights of the products of a layer, mean over the layers."""
        return (
            self.projection_parameters(model)
            + self.mean_compressor_parameters(model)
            + self.mean_indexer_parameters(model)
        )

    def mean_compressor_parameters(self, model: ModelShape) -> float:
        """Returns the weights of the products of compressors of keys, mean over the layers."""
        return sum(
            self.share(kind, model.num_layers) * self.compressor_parameters(kind, model) for kind in KINDS
        )

    def mean_indexer_parameters(self, model: ModelShape) -> float:
        """Returns the weights of the products of indexers, mean over the layers."""
        return self.share("chosen", model.num_layers) * self.indexer_parameters(model)

    def pair_shapes(
        self, num_layers: int, sequence_length: int, documents: Documents | None
    ) -> tuple[SequenceShape, ...]:
        """Returns sequences whose pairs are those of windows, of chosen tokens times r, and of all tokens.

        A token at place t may see t / r compressed ones, of which it sees at most k: as many as in a window of k r, over r.
        """
        windows = (self.window_tokens, self.chosen_tokens * self.chosen_ratio, None)
        return tuple(
            SequenceShape(
                tokens=sequence_length,
                num_layers=num_layers,
                window=ChosenTokens(window_tokens=window) if window else None,
                documents=documents,
            )
            for window in windows
        )

    def pairs(self, num_layers: int, sequence_length: int, documents: Documents | None) -> Pairs:
        """Returns what a token sees on average."""
        window, chosen, whole = (
            shape.mean_span / 2.0 for shape in self.pair_shapes(num_layers, sequence_length, documents)
        )
        return self.pairs_of(window, chosen, whole)

    def pairs_of(self, window: float, chosen: float, whole: float) -> Pairs:
        """Returns the pairs of tokens and compressed ones from those of `pair_shapes`."""
        return Pairs(window, chosen / self.chosen_ratio, whole / self.chosen_ratio, whole / self.heavy_ratio)

    def num_places(self, kind: LayerKind, sequence_length: float) -> float:
        """Returns the places for tokens that a token of a layer sees, used or not."""
        window = min(self.window_tokens, sequence_length)
        compressed = {
            "window": 0.0,
            "chosen": min(self.chosen_tokens, sequence_length / self.chosen_ratio),
            "heavy": sequence_length / self.heavy_ratio,
        }
        return window + compressed[kind]


def compressed_of(model: ModelShape) -> CompressedAttention:
    """Returns the compressed attention of a model that has it."""
    assert model.compressed_attention is not None
    return model.compressed_attention
