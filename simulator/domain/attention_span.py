"""How far does a token look back? Sliding windows, chunks and packed documents.

Every answer is the length of a plain sequence in which a token sees as much on average under a causal mask: s if nothing
shortens it. The equations of causal attention then hold unchanged: 4 T a d operations for each of the span/2 keys. For a
document of l tokens and a window of w, twice the number of query-key pairs is

    plain      l^2
    sliding    w (2 l - w)                 where l > w, else l^2
    chunked    q w^2 + r^2                 q chunks of w tokens and one of r

and a span is the mean of this over the mean length.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from pydantic import Field

from simulator.domain.documents import Documents, slowest_replica, spread_of_work
from simulator.record import Record
from simulator.table import Floats, Integers, total

WINDOW_EDGE_TOKENS = 64.0
"""Keys that kernels compute and mask for each query at the far edge of a window: half of a tile of 128."""


class SlidingWindow(Record):
    """Attention of layers with a limited window."""

    window_tokens: int = Field(gt=0, le=10**12)
    """Tokens that a token of such a layer sees, itself included."""
    full_every: int | None = Field(default=None, gt=0, le=10_000)
    """The last of every n layers sees everything (Gemma 2 and gpt-oss: 2, Gemma 3: 6); left out: none does."""
    is_chunked: bool = False
    """Whether the window moves in steps of its size (Llama 4) instead of with each token."""

    def num_full_layers(self, num_layers: int) -> int:
        """Returns how many of the layers see everything."""
        return num_layers // self.full_every if self.full_every else 0


class ChosenTokens(SlidingWindow):
    """Tokens that an indexer chooses, wherever they are: as many as in a window of that size, but no tile of them is masked."""


@dataclass(frozen=True, kw_only=True)
class Span:
    """How far the tokens of some layers look back."""

    share: float
    """Share of the layers."""
    tokens: float
    """Tokens that a token sees."""
    kernel_tokens: float
    """Tokens that fused kernels compute per token."""


@dataclass(frozen=True, kw_only=True)
class SequenceShape:
    """What a sequence looks like to the attention of a model."""

    tokens: int
    """Length of the sequence (s)."""
    num_layers: int
    """Layers of the model (L)."""
    window: SlidingWindow | None = None
    """Window of some or all layers."""
    documents: Documents | None = None
    """Documents that are packed into the sequence; left out: one."""

    @property
    def mean_span(self) -> float:
        """What a token sees on average over the layers."""
        return sum(span.share * span.tokens for span in layer_spans(self))

    @property
    def has_unlike_replicas(self) -> bool:
        """Whether replicas have different documents, so that `imbalance` depends on their number."""
        return self.documents is not None and self.documents.imbalance is None

    def imbalance(self, num_replicas: Integers, num_sequences: Integers) -> Floats:
        """Returns the attention work of the most loaded replica over that of the average one, `(n,)`.

        Args:
            num_replicas: Replicas, `(n,)`.
            num_sequences: Sequences of one replica in one step, `(n,)`.
        """
        if not self.has_unlike_replicas:
            given = self.documents and self.documents.imbalance
            return np.full(len(num_replicas), given or 1.0)
        return slowest_replica(*_spread(self), num_replicas, num_sequences)


@lru_cache(maxsize=256)
def layer_spans(shape: SequenceShape) -> tuple[Span, ...]:
    """Returns the span of every kind of layer: full ones, and those with a window where there are any."""
    lengths, frequencies = pieces(shape)
    tokens = float(frequencies @ lengths)
    return tuple(
        Span(
            share=share,
            tokens=float(frequencies @ _pairs(lengths, kind)) / tokens,
            kernel_tokens=float(frequencies @ kernel_pairs(lengths, kind)) / tokens,
        )
        for share, kind in window_kinds(shape)
    )


@lru_cache(maxsize=256)
def _spread(shape: SequenceShape) -> tuple[float, float, float]:
    """Standard deviation of the work of a sequence over the mean, its skewness, and the heaviest one over the mean."""
    lengths, frequencies = pieces(shape)
    work = total(share * _pairs(lengths, kind) for share, kind in window_kinds(shape))
    per_token = np.divide(work, lengths, out=np.zeros_like(work), where=lengths > 0.0)
    most = float(per_token.max() * (frequencies @ lengths) / (frequencies @ work))
    return *spread_of_work(lengths, frequencies, work, float(shape.tokens)), most


def window_kinds(shape: SequenceShape) -> list[tuple[float, SlidingWindow | None]]:
    """Returns share of the layers, and the window, of every kind of layer."""
    if shape.window is None:
        return [(1.0, None)]
    full = shape.window.num_full_layers(shape.num_layers) / shape.num_layers
    return [(share, kind) for share, kind in ((full, None), (1.0 - full, shape.window)) if share > 0.0]


def pieces(shape: SequenceShape) -> tuple[Floats, Floats]:
    """Returns lengths of the pieces that attend to themselves, and how often each occurs."""
    if shape.documents is None:
        return np.array([float(shape.tokens)]), np.ones(1)
    return shape.documents.pieces(float(shape.tokens))


def _pairs(lengths: Floats, window: SlidingWindow | None) -> Floats:
    """Twice the pairs of a query and a key that it sees, in documents `(k,)`."""
    if window is None:
        return lengths * lengths
    if window.is_chunked:
        whole, rest = np.divmod(lengths, float(window.window_tokens))
        return np.asarray(whole * float(window.window_tokens) ** 2 + rest * rest)
    near = np.minimum(lengths, float(window.window_tokens))
    return np.asarray(near * (2.0 * lengths - near))


def kernel_pairs(lengths: Floats, window: SlidingWindow | None) -> Floats:
    """Returns twice the pairs that kernels compute, in documents `(k,)`."""
    return np.asarray(_pairs(lengths, window) + _masked_pairs(lengths, window))


def _masked_pairs(lengths: Floats, window: SlidingWindow | None) -> Floats:
    """Twice the pairs that kernels compute at the far edge of a window; that at the diagonal is in their own law."""
    if window is None or window.is_chunked or isinstance(window, ChosenTokens):
        return np.zeros_like(lengths)
    return 2.0 * WINDOW_EDGE_TOKENS * np.maximum(0.0, lengths - float(window.window_tokens))
