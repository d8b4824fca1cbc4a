"""Which documents stand where in packed sequences? They are drawn at random, the same ones every time.

The last document of a sequence is cut at its end; the next sequence begins with a new document.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from simulator.domain.documents import Documents
from simulator.table import Floats, Integers

NUM_SEQUENCES = 512
"""Sequences that are drawn: the mean over them is known within 1 to 2 %."""
FEWEST_SEQUENCES = 16
"""Sequences that are drawn at least, where each holds very many documents and all are alike."""
MOST_DOCUMENTS = 2**20
"""Approximate limit on the documents drawn; where sequences hold more of them, fewer sequences are drawn."""
SEED = 0


@dataclass(frozen=True, kw_only=True)
class PackedSequences:
    """Sequences of equal length, packed with documents."""

    lengths: Floats
    """Lengths of documents `(m, k)`; some lie beyond the end."""
    starts: Floats
    """Where they begin `(m, k)`."""

    def documents_at(self, places: Floats) -> Integers:
        """Returns the document at each of the places `(p,)` of every sequence, `(m, p)`."""
        return np.array([np.searchsorted(starts, places, side="right") - 1 for starts in self.starts])


@lru_cache(maxsize=8)
def packed_sequences(documents: Documents, sequence_length: float) -> PackedSequences:
    """Returns sequences of this length, packed with documents drawn one after another."""
    lengths, frequencies = documents.pieces(sequence_length)
    shares = frequencies / frequencies.sum()
    expected = sequence_length / float(shares @ lengths)
    num_sequences = int(np.clip(MOST_DOCUMENTS / expected, FEWEST_SEQUENCES, NUM_SEQUENCES))
    random = np.random.default_rng(SEED)
    drawn = random.choice(lengths, (num_sequences, int(expected) + 1), p=shares)
    while drawn.sum(axis=1).min() <= sequence_length:
        more = random.choice(lengths, (num_sequences, int(expected) // 8 + 1), p=shares)
        drawn = np.concatenate([drawn, more], axis=1)
    return PackedSequences(lengths=drawn, starts=np.cumsum(drawn, axis=1) - drawn)
