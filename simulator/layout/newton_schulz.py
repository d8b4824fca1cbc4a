"""What shape has a matrix while Muon makes it orthogonal? Each step of the Newton-Schulz iteration multiplies X three times.

X has its short side first, m x n on a rank: A = X X', B = b A + c A A, X = a X + B X. Where tensor-parallel ranks share the
matrix (`Muon.tensor_mode`), X is

    duplicated     the whole matrix, gathered in 32 bits; every rank does all of it
    distributed    a rank's part, with the split side as n, even if it is the shorter one; ranks add up A in every step
    blockwise      a rank's part, by itself

(`newton_schulz_tp` of `muon_utils.py`, Emerging-Optimizers; `orthogonalize` of `emerging_optimizers.py`, Megatron Core.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.domain.muon import TensorMode
from simulator.layout.matrices import Matrix, Split
from simulator.table import Booleans, Floats, Integers

WORK_BYTES = 12.0
"""Most bytes that a weight of X takes at work beside its momentum: in 16 bits, in 32, and scaled twice."""
GATHERED_BYTES = 14.0
"""The same of a gathered matrix: the parts, what they are joined to, and X in 16 and 32 bits."""
SQUARE_BYTES = 4.0
"""Bytes of A and B in 16 bits."""


@dataclass(frozen=True, kw_only=True)
class Iterated:
    """One piece of a matrix at work, `(n,)` each."""

    short: Floats
    """First side of X (m)."""
    long: Floats
    """Second side on a rank (n)."""
    gathered: Booleans
    """Whether ranks gather it."""
    summed: Booleans
    """Whether ranks add up A."""

    @property
    def weights(self) -> Floats:
        """Weights of X on a rank."""
        return self.short * self.long

    @property
    def work_bytes(self) -> Floats:
        """Bytes that are taken at most while it is made orthogonal."""
        return (
            np.where(self.gathered, GATHERED_BYTES, WORK_BYTES) * self.weights + SQUARE_BYTES * self.short**2
        )


def iterated(matrix: Matrix, parts: Integers, mode: TensorMode) -> list[Iterated]:
    """Returns the pieces of a matrix that `(n,)` ranks split."""
    is_shared = (parts > 1) & (matrix.split is not Split.NONE)
    is_gathered, is_summed = is_shared & (mode == "duplicated"), is_shared & (mode == "distributed")
    of_rows, of_columns = (
        np.where(is_gathered | (matrix.split is not side), 1, parts) for side in (Split.ROWS, Split.COLUMNS)
    )
    pieces = []
    for piece in matrix.pieces:
        rows, columns = piece / of_rows, matrix.columns / of_columns
        split, other = (rows, columns) if matrix.split is Split.ROWS else (columns, rows)
        pieces.append(
            Iterated(
                short=np.where(is_summed, other, np.minimum(rows, columns)),
                long=np.where(is_summed, split, np.maximum(rows, columns)),
                gathered=is_gathered,
                summed=is_summed,
            )
        )
    return pieces
