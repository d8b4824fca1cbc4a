"""How uneven is attention among context-parallel ranks with gathered keys, where each rank has two pieces of a sequence?

Of 2 c pieces, rank r has pieces r and 2c - 1 - r, which is equal work under a plain causal mask (Llama 3, arXiv 2407.21783,
section 3.3.2). Windows and document masks break this balance. With P(x) the number of query-key pairs among the first x tokens
(`attention_span.kernel_pairs`), a piece from x to y is P(y) - P(x): the first piece has few keys to look back at, and a window
leaves the last one no more than those in between. All ranks wait for the one with the most work, since they meet in the next
layer.

    each document    rank r has the pieces r and 2c - 1 - r of every document (Transformer Engine): the mean over lengths
    the sequence     pieces end wherever they do in documents (Llama 3): the mean over micro-batches that are drawn

A rank with few queries reads many keys, whose gradients it adds up (`simulator.layers.context_copies`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, TypeVar

import numpy as np

from simulator.domain.attention_span import (
    ChosenTokens,
    SequenceShape,
    SlidingWindow,
    kernel_pairs,
    layer_spans,
    pieces,
    window_kinds,
)
from simulator.layers.packed_sequences import packed_sequences
from simulator.machine.rank import Rank
from simulator.table import Floats

NUM_PIECES = 2
"""Pieces of a sequence that a rank has, one from either end."""


Value = TypeVar("Value", float, Floats)


@dataclass(frozen=True, kw_only=True)
class SlowestRank(Generic[Value]):
    """What the rank with the most work does in some layers, per query of its own: for one design, or for all, `(n,)`."""

    share: float
    """Share of the layers."""
    kernel_tokens: Value
    """What fused kernels compute per query, expressed as the length of a plain sequence."""
    key_visits: Value
    """Keys that these kernels read, over the rank's queries."""


def slowest_ranks(rank: Rank, shape: SequenceShape | None = None) -> list[SlowestRank[Floats]]:
    """Returns the most loaded context-parallel rank for every kind of layer, where keys are gathered.

    Args:
        rank: Ranks of the designs.
        shape: What a sequence looks like; left out: as it does to attention.
    """
    shape, plans = shape or rank.workload.sequence_shape, rank.plans
    if not len(plans):
        none = np.zeros(0)
        return [
            SlowestRank(share=span.share, kernel_tokens=none, key_visits=none) for span in layer_spans(shape)
        ]
    pairs, rows = np.unique(
        np.stack([plans.context_parallel, plans.micro_batch_size]), axis=1, return_inverse=True
    )
    found = [slowest_rank(shape, int(ranks), int(sequences)) for ranks, sequences in pairs.T]
    return [
        SlowestRank(
            share=kinds[0].share,
            kernel_tokens=np.array([kind.kernel_tokens for kind in kinds])[rows],
            key_visits=np.array([kind.key_visits for kind in kinds])[rows],
        )
        for kinds in zip(*found, strict=True)
    ]


@lru_cache(maxsize=1024)
def slowest_rank(shape: SequenceShape, num_ranks: int, num_sequences: int) -> tuple[SlowestRank[float], ...]:
    """Returns the most loaded rank for every kind of layer.

    Args:
        shape: The sequences.
        num_ranks: Ranks that share each of them.
        num_sequences: Sequences of one micro-batch.
    """
    spans = layer_spans(shape)
    if num_ranks == 1:
        return tuple(
            SlowestRank(share=span.share, kernel_tokens=span.kernel_tokens, key_visits=1.0) for span in spans
        )
    found = [_over_mean(shape, kind, num_ranks, num_sequences) for _, kind in window_kinds(shape)]
    return tuple(
        SlowestRank(share=span.share, kernel_tokens=most * span.kernel_tokens, key_visits=visits)
        for span, (most, visits) in zip(spans, found, strict=True)
    )


def _over_mean(
    shape: SequenceShape, window: SlidingWindow | None, num_ranks: int, num_sequences: int
) -> tuple[float, float]:
    """Work of the most loaded rank over that of the average one, and the keys that it reads over its queries."""
    if shape.documents is None or shape.documents.is_split_each:
        return _of_each_document(*pieces(shape), window, num_ranks)
    return _of_the_sequence(shape, window, num_ranks, num_sequences)


def _of_each_document(
    lengths: Floats, frequencies: Floats, window: SlidingWindow | None, num_ranks: int
) -> tuple[float, float]:
    edges = np.linspace(0.0, 1.0, NUM_PIECES * num_ranks + 1)[:, None] * lengths
    work = _of_ranks(np.diff(kernel_pairs(edges, window), axis=0) @ frequencies)
    keys = _of_ranks((np.diff(edges, axis=0) + _keys_before(edges[:-1], window)) @ frequencies)
    most = int(np.argmax(work))
    return float(work[most] / work.mean()), float(keys[most] * num_ranks / (frequencies @ lengths))


def _of_the_sequence(
    shape: SequenceShape, window: SlidingWindow | None, num_ranks: int, num_sequences: int
) -> tuple[float, float]:
    """Keys are those of the average rank."""
    assert shape.documents is not None
    edges = np.linspace(0.0, float(shape.tokens), NUM_PIECES * num_ranks + 1)
    sequences = packed_sequences(shape.documents, float(shape.tokens))
    documents = sequences.documents_at(edges)
    begun = edges - np.take_along_axis(sequences.starts, documents, axis=1)
    of_documents = kernel_pairs(sequences.lengths, window)
    ahead = np.take_along_axis(np.cumsum(of_documents, axis=1) - of_documents, documents, axis=1)
    of_pieces = np.diff(ahead + kernel_pairs(begun, window), axis=1)
    work = _of_micro_batches(_of_ranks(of_pieces.T).T, num_sequences)
    before = _keys_before(begun[:, :-1], window)
    return (
        float(work.max(axis=1).mean() / work.mean()),
        float(1.0 + before.mean() / (edges[1] - edges[0])),
    )


def _of_ranks(of_pieces: Floats) -> Floats:
    """Sums over the two pieces of each rank, `(2c, ...)` to `(c, ...)`."""
    return np.asarray(of_pieces + of_pieces[::-1])[: len(of_pieces) // NUM_PIECES]


def _of_micro_batches(work: Floats, num_sequences: int) -> Floats:
    """Sums of `(m, c)` over as many sequences, one micro-batch beginning with each of them."""
    rows = np.arange(len(work))
    return np.asarray(sum(work[(rows + shift) % len(rows)] for shift in range(min(num_sequences, len(rows)))))


def _keys_before(starts: Floats, window: SlidingWindow | None) -> Floats:
    """Keys ahead of a piece that its queries see, given how many tokens of its document are ahead of it."""
    if window is None or isinstance(window, ChosenTokens):
        return starts
    size = float(window.window_tokens)
    return np.asarray(np.mod(starts, size) if window.is_chunked else np.minimum(starts, size))
