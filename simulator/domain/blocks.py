"""What can replace ordinary attention and an ordinary feed-forward block? Latent attention, and experts."""

from __future__ import annotations

from typing import NamedTuple, Self

from pydantic import Field, model_validator

from simulator.domain.token_indexer import TokenIndexer
from simulator.record import Record


class PartWeights(NamedTuple):
    """Weights of one part of a model, over all ranks that share one copy; `simulator.layout.chunks.ChunkWeights` has many."""

    shared: float
    """Weights that every token uses."""
    routed: int = 0
    """Weights of routed experts."""
    whole: float = 0
    """Weights that every token uses and that tensor-parallel ranks do not split."""
    never_cast: int = 0
    """Weights whose products stay in 16 bits in any format."""


class MixtureOfExperts(Record):
    """The routed part of a mixture-of-experts model."""

    num_experts: int = Field(gt=0, le=1_000_000)
    """Routed experts per layer."""
    experts_per_token: int = Field(gt=0, le=1_000_000)
    """Experts that each token is routed to (top-k)."""
    expert_ffn_hidden_size: int = Field(gt=0, le=10_000_000)
    """Feed-forward hidden size of one routed expert."""
    shared_ffn_hidden_size: int = Field(default=0, ge=0, le=10_000_000)
    """Feed-forward hidden size of all shared experts together; 0: none."""
    num_dense_layers: int = Field(default=0, ge=0, le=10_000)
    """Leading layers that have an ordinary feed-forward block instead of experts."""
    layer_step: int = Field(default=1, gt=0, le=10_000)
    """One of every n layers has experts, the last of them, unless it is a leading dense one (Llama 4 Maverick: 2)."""
    num_groups: int = Field(default=1, gt=0, le=1_000_000)
    """Equal groups of experts, such as those of one node (DeepSeek: `n_group`)."""
    groups_per_token: int = Field(default=1, gt=0, le=1_000_000)
    """Groups that a token's experts are chosen from, which limits the nodes that it travels to (DeepSeek: `topk_group`)."""
    latent_size: int = Field(default=0, ge=0, le=1_000_000)
    """Width of the latent to which tokens are projected before they travel to routed experts, and from which they are projected
    back (Nemotron 3 Super; Megatron Core: `moe_latent_size`); 0: experts read the residual stream."""
    has_biases: bool = False
    """Whether the products of routed experts have biases (gpt-oss; Megatron Core: `add_bias_linear`)."""

    @model_validator(mode="after")
    def _routes_to_existing_experts(self) -> Self:
        if self.experts_per_token > self.num_experts:
            raise ValueError(
                f"experts_per_token ({self.experts_per_token}) must not exceed num_experts ({self.num_experts})"
            )
        return self

    @model_validator(mode="after")
    def _groups_are_equal_and_enough(self) -> Self:
        if self.num_experts % self.num_groups:
            raise ValueError(f"num_groups ({self.num_groups}) must divide num_experts ({self.num_experts})")
        if self.groups_per_token > self.num_groups:
            raise ValueError(
                f"groups_per_token ({self.groups_per_token}) must not exceed num_groups ({self.num_groups})"
            )
        reachable = self.num_experts // self.num_groups * self.groups_per_token
        if self.experts_per_token > reachable:
            raise ValueError(
                f"experts_per_token ({self.experts_per_token}) must not exceed the {reachable} experts "
                f"of groups_per_token ({self.groups_per_token}) groups"
            )
        return self


class LatentAttention(Record):
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): low-rank queries, keys and values."""

    query_rank: int = Field(ge=0, le=1_000_000)
    """Rank of the query projection; 0: queries are projected directly."""
    key_value_rank: int = Field(gt=0, le=1_000_000)
    """Rank of the joint key-value projection."""
    rope_head_dim: int = Field(gt=0, le=10_000)
    """Part of a query or key head that carries the rotary position."""
    nope_head_dim: int = Field(gt=0, le=10_000)
    """Part of a query or key head without position."""
    value_head_dim: int = Field(gt=0, le=10_000)
    """Dimension of a value head."""
    indexer: TokenIndexer | None = None
    """What chooses the tokens that attention sees (DeepSeek Sparse Attention); left out: it sees all before it."""

    @property
    def key_width(self) -> int:
        """Values of a token's key where heads attend to latents: the latent and the rotary key, which all of them share."""
        return self.key_value_rank + self.rope_head_dim

    @property
    def head_dims(self) -> tuple[int, int]:
        """Dimensions of a query-key head and of a value head."""
        return self.nope_head_dim + self.rope_head_dim, self.value_head_dim

    def projection_parameters(self, hidden_size: int, num_heads: int) -> int:
        """Returns the weights of the projections of queries, of keys and values, and of the output.

        Args:
            hidden_size: Width of the residual stream.
            num_heads: Attention heads.
        """
        heads = num_heads * self.head_dims[0]
        query = self.query_rank * (hidden_size + heads) if self.query_rank else hidden_size * heads
        key_value = hidden_size * self.key_width
        expanded = self.key_value_rank * num_heads * (self.nope_head_dim + self.value_head_dim)
        return query + key_value + expanded + num_heads * self.value_head_dim * hidden_size
