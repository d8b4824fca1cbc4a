"""How long are the documents packed into a sequence, and how unequal is the work of ranks as a result?

Attention stays inside a document, so its work is that of shorter sequences; everything else is as without packing. All replicas
wait for the one with the longest documents. Nomenclature as in `simulator.domain.model`; l is the length of a document.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Self

import numpy as np
from pydantic import Field, model_validator

from simulator.record import Record
from simulator.table import Floats, Integers

NUM_NODES = 256
"""Points at which an exponential distribution of lengths is summed up (Gauss and Legendre)."""
MOST_SKEWNESS = 0.5
"""Skewness of a replica's work above which the first term of its expansion would overstate the maximum."""
LONGEST_OVER_MEAN = 40.0
"""Lengths beyond this multiple of the mean have a share of e^-40."""


class Documents(Record):
    """Contents of packed sequences: documents that do not attend to each other."""

    mean_tokens: float | None = Field(default=None, ge=1, le=1e12)
    """Mean length of a document, where lengths follow an exponential distribution; or give `lengths_tokens`."""
    lengths_tokens: tuple[Annotated[int, Field(gt=0, le=10**12)], ...] = Field(default=(), max_length=1000)
    """Lengths that occur, in tokens: a histogram; or give `mean_tokens`. A document longer than a sequence is cut."""
    frequencies: tuple[Annotated[float, Field(ge=1e-12, le=1e12)], ...] = ()
    """How often each of `lengths_tokens` occurs, in any unit; left out: all equally often."""
    filled_fraction: float = Field(default=1.0, ge=0.001, le=1)
    """Tokens of documents over tokens of a sequence; the rest is padding, which is computed and trains nothing."""
    imbalance: float | None = Field(default=None, ge=1, le=1e6)
    """Attention work of the most loaded replica over that of the average one. 1: documents are distributed so that all have the
    same (WLB-LLM, arXiv 2503.17924); left out: the result of random lengths."""
    is_split_each: bool = False
    """Whether context-parallel ranks that gather keys split every document (packed sequences of Transformer Engine, WLB-LLM),
    or the sequence regardless of documents (Llama 3), where all wait for the most loaded rank. In a ring every document is
    split, and ranks that exchange heads have the whole sequence."""

    @model_validator(mode="after")
    def _lengths_are_given_once(self) -> Self:
        if (self.mean_tokens is None) == (not self.lengths_tokens):
            raise ValueError("documents need either mean_tokens or lengths_tokens")
        if self.frequencies and len(self.frequencies) != len(self.lengths_tokens):
            raise ValueError(
                f"frequencies ({len(self.frequencies)}) must be as many as lengths_tokens ({len(self.lengths_tokens)})"
            )
        return self

    def pieces(self, sequence_length: float) -> tuple[Floats, Floats]:
        """Returns lengths of documents, cut into pieces of at most a sequence, and how often each occurs, `(k,)`."""
        if self.mean_tokens is not None:
            return _exponential(self.mean_tokens, sequence_length)
        lengths = np.array(self.lengths_tokens, dtype=np.float64)
        frequencies = np.array(self.frequencies or (1.0,) * len(lengths))
        whole, rest = np.divmod(lengths, sequence_length)
        return (
            np.append(rest, sequence_length),
            np.append(np.where(rest > 0.0, frequencies, 0.0), np.sum(whole * frequencies)),
        )


def longest_piece(sequence_length: int, documents: Documents | None) -> float:
    """Returns the tokens of the longest document, or piece of one, of a packed sequence; without documents all of it."""
    if documents is None or documents.mean_tokens is not None:
        return float(sequence_length)
    return float(min(max(documents.lengths_tokens), sequence_length))


def spread_of_work(
    lengths: Floats, frequencies: Floats, work: Floats, sequence_length: float
) -> tuple[float, float]:
    """Returns the standard deviation of the work of a packed sequence over its mean, and its skewness.

    Documents are drawn until a sequence of s tokens is full. With r = E[w]/E[l], the work of a token, the variance of the
    sum is s Var[w - r l] / E[l]: that of a renewal-reward process (Smith, 1955), which holds for many documents; the third
    moment likewise.

    Args:
        lengths: Lengths of documents `(k,)`.
        frequencies: How often each occurs `(k,)`, in any unit.
        work: Work in each `(k,)`, in any unit.
        sequence_length: Tokens of a sequence.
    """
    shares = frequencies / frequencies.sum()
    mean_length, mean_work = float(shares @ lengths), float(shares @ work)
    per_token = mean_work / mean_length
    excess, num_documents = work - per_token * lengths, sequence_length / mean_length
    deviation = float(np.sqrt(shares @ np.square(excess) * num_documents))
    skewness = float(shares @ excess**3 * num_documents) / deviation**3 if deviation else 0.0
    return deviation / (per_token * sequence_length), skewness


def slowest_replica(
    spread: float, skewness: float, most: float, num_replicas: Integers, num_sequences: Integers
) -> Floats:
    """Returns the work of the replica that has most over that of the average one, `(n,)`.

    1 + spread M / sqrt(n): the largest of D sums over n sequences each; at most what a sequence holds that is full of the
    heaviest documents. M = z + g/6 (z^2 + 1/(1 + z^2) - 1) is the expected maximum of D normals z with the first term of
    Cornish and Fisher (1938) for their skewness g, 1/(1 + z^2) being about the variance of that maximum.

    Args:
        spread: Standard deviation of one sequence over the mean.
        skewness: That of one sequence.
        most: Work of the heaviest sequence over the mean.
        num_replicas: Replicas D, `(n,)`.
        num_sequences: Sequences of a replica in one step, `(n,)`.
    """
    from simulator.order_statistics import expected_maximum  # SciPy is not loaded with the catalogue

    normal, roots = expected_maximum(num_replicas), np.sqrt(np.maximum(num_sequences, 1))
    bent = np.clip(skewness / roots, 0.0, MOST_SKEWNESS) / 6.0 * (normal**2 + 1.0 / (1.0 + normal**2) - 1.0)
    excess = spread * (normal + bent) / roots
    return np.asarray(np.minimum(1.0 + excess, most))


def _exponential(mean: float, sequence_length: float) -> tuple[Floats, Floats]:
    """Lengths of exponentially distributed documents that are cut at s, and their weights.

    What is left of a document after a cut is as long as a new one, so that pieces are min(X, s): a density below s, and
    pieces of s itself with a share of e^(-s/mean).
    """
    nodes, weights = _nodes()
    longest = min(sequence_length, LONGEST_OVER_MEAN * mean)
    lengths = longest / 2.0 * (nodes + 1.0)
    densities = longest / 2.0 * weights * np.exp(-lengths / mean) / mean
    return np.append(lengths, sequence_length), np.append(densities, np.exp(-sequence_length / mean))


@cache
def _nodes() -> tuple[Floats, Floats]:
    nodes, weights = np.polynomial.legendre.leggauss(NUM_NODES)
    return nodes, weights
