"""What mixes tokens in time proportional to the sequence? State spaces and linear attention, described as attention is.

A head keeps a state of key_head_dim x head_dim values instead of all keys and values. Under state-space duality (Mamba-2, arXiv
2405.21060) B is a key, C a query and x a value; the heads that share one B and C, a group, share a key head. Nomenclature:

    H  heads                 d  width of a value (Mamba-2: head dimension)      v = H d  all values of a token
    G  heads of keys         n  width of a key (Mamba-2: state dimension)       k = G n  all keys of a token

    kind                 enters with                           one token multiplies
    mamba-2              z x B C dt       2 v + 2 k + H        h (2 v + 2 k + H) + v h
    gated-delta-net      q k v z beta a   2 v + 2 k + 2 H      h (2 v + 2 k + 2 H) + v h
    kimi-delta           q k v beta         v + 2 k + H        h (v + 2 k + H + 2 d) + d (H n + v) + v h

Kimi Delta Attention (arXiv 2510.26692) decays every value of a key by itself, and makes these H n decays and the v gates of its
output from d values each. Queries, keys and values pass a short convolution. (Megatron Core: `ssm/mamba_mixer.py`,
`ssm/gated_delta_net`; Flash Linear Attention: `layers/kda.py`.)
"""

from __future__ import annotations

from typing import Literal, Self

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from simulator.record import Record
from simulator.table import Floats, Integers

LinearKind = Literal["mamba-2", "gated-delta-net", "kimi-delta"]
"""`mamba-2`: state-space duality (Nemotron-H, Granite 4); `gated-delta-net`: the gated delta rule (Qwen3-Next, arXiv
2412.06464); `kimi-delta`: the same with a decay for each value of a key (Kimi Linear)."""


class LinearAttention(Record):
    """Blocks of a hybrid model that keep a state of fixed size in the place of attention, and how many there are."""

    kind: LinearKind
    """Rule by which a token changes the state."""
    num_blocks: int = Field(gt=0, le=10_000)
    """Blocks of this kind in the model (Megatron-LM's `--hybrid-layer-pattern`: the number of M or G)."""
    num_attention_blocks: int = Field(ge=0, le=10_000)
    """Blocks in the model that attend to all tokens (the number of * or +)."""
    num_heads: int = Field(gt=0, le=10_000)
    """Heads (H; Megatron Core: `mamba_num_heads`, `linear_num_value_heads`)."""
    head_dim: int = Field(gt=0, le=10_000)
    """Width of a head's values (d; `mamba_head_dim`, `linear_value_head_dim`)."""
    num_key_heads: int = Field(gt=0, le=10_000)
    """Heads of keys and queries (G; `mamba_num_groups`, `linear_num_key_heads`)."""
    key_head_dim: int = Field(gt=0, le=10_000)
    """Width of a key (n; `mamba_state_dim`, `linear_key_head_dim`)."""
    convolution_width: NonNegativeInt = Field(default=4, le=100)
    """Tokens that the short convolution sees; 0: there is none."""
    chunk_tokens: PositiveInt | None = Field(default=None, le=10_000)
    """Tokens that kernels compute as one piece; left out: 128 for Mamba-2 (Megatron Core), 64 for delta rules."""

    @model_validator(mode="after")
    def _shares_keys_equally(self) -> Self:
        if self.num_heads % self.num_key_heads:
            raise ValueError(f"num_key_heads ({self.num_key_heads}) must divide num_heads ({self.num_heads})")
        return self

    @property
    def value_width(self) -> int:
        """Values of a token over all heads (v)."""
        return self.num_heads * self.head_dim

    @property
    def key_width(self) -> int:
        """Values of a token's keys over all of their heads (k)."""
        return self.num_key_heads * self.key_head_dim

    @property
    def convolved_width(self) -> int:
        """Values of a token that pass the convolution: queries, keys and values."""
        return self.value_width + 2 * self.key_width

    @property
    def entering_width(self) -> int:
        """Values of a token that the product into the block makes for the ranks that split its heads."""
        gate = 0 if self.kind == "kimi-delta" else self.value_width
        scalars = 2 if self.kind == "gated-delta-net" else 1
        return self.convolved_width + gate + scalars * self.num_heads

    @property
    def low_rank(self) -> int:
        """Width from which decays and output gates are made, each; 0 if they have no such intermediate width."""
        return self.head_dim if self.kind == "kimi-delta" else 0

    @property
    def raised_width(self) -> int:
        """Values of a token that are made from a low rank: decays and output gates."""
        return self.num_heads * self.key_head_dim + self.value_width if self.low_rank else 0

    @property
    def state_width(self) -> int:
        """Values of the states of all heads."""
        return self.value_width * self.key_head_dim

    @property
    def chunk_length(self) -> int:
        """Tokens that kernels compute as one piece (Q)."""
        return self.chunk_tokens or (128 if self.kind == "mamba-2" else 64)

    @property
    def num_mixers(self) -> int:
        """Blocks that mix tokens, of either kind."""
        return self.num_blocks + self.num_attention_blocks

    def key_heads_over(self, num_ranks: Integers) -> Floats:
        """Returns the heads of keys over so many ranks that split heads: one for each rank where ranks have copies of keys."""
        return np.maximum(float(self.num_key_heads), num_ranks)

    def entering_width_with(self, key_heads: Floats | float) -> Floats | float:
        """Returns the values of a token that enter over all ranks, which have so many heads of keys, copies included."""
        return self.entering_width + 2.0 * self.key_head_dim * (key_heads - self.num_key_heads)

    def matrix_parameters(self, hidden_size: int) -> int:
        """Returns the weights of one block that take part in matrix products; every rank holds those to a low rank whole."""
        products = hidden_size * (self.entering_width + self.value_width + 2 * self.low_rank)
        return products + self.low_rank * self.raised_width

    def other_parameters(self) -> int:
        """Returns the weights of one block beside its matrix products: convolution, decays, and the norm of the output."""
        biases = int(self.kind == "mamba-2")
        convolution = (
            self.convolved_width * (self.convolution_width + biases) if self.convolution_width else 0
        )
        match self.kind:
            case "mamba-2":  # A, D and the bias of dt; a norm over all values
                return convolution + 3 * self.num_heads + self.value_width
            case "gated-delta-net":
                return convolution + 2 * self.num_heads + self.head_dim
            case "kimi-delta":  # a bias for each decay
                decays = self.num_heads * self.key_head_dim
                return convolution + self.num_heads + decays + self.head_dim

    def scan_flop_per_token(self) -> float:
        """Returns the operations of one block forward that are not products with weights, as Megatron-LM counts them.

        The scan of Mamba-2 counts 7 per value of the state; the delta rule multiplies it four times. Chunks of kernels do more.
        """
        convolution = 2.0 * self.convolution_width * self.convolved_width
        if self.kind == "mamba-2":
            return 7.0 * self.state_width
        return 8.0 * self.state_width + convolution
