"""Which documents stand where in sequences that are filled with them? Drawn, the same ones every time.

The last document of a sequence is cut where the sequence ends, and the next sequence begins with a new one.
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
"""As many where they hold very many documents, and are all alike."""
MOST_DOCUMENTS = 2**20
"""Documents that are drawn, about; where sequences hold more of them, sequences are fewer."""
SEED = 0


@dataclass(frozen=True, kw_only=True)
class PackedSequences:
    """Sequences of equally many tokens, full of documents."""

    lengths: Floats
    """Lengths of documents `(m, k)`; some stand behind the end."""
    starts: Floats
    """Where they begin `(m, k)`."""

    def documents_at(self, places: Floats) -> Integers:
        """Returns which document has each of the places `(p,)` of every sequence, `(m, p)`."""
        return np.array([np.searchsorted(starts, places, side="right") - 1 for starts in self.starts])


@lru_cache(maxsize=8)
def packed_sequences(documents: Documents, sequence_length: float) -> PackedSequences:
    """Returns sequences of so many tokens, filled with documents that are drawn one after the other."""
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
