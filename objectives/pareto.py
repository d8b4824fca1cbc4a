"""Which designs are not beaten by any other? Tools on objective values that are all made small."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.table import Floats


def front_rows(values: Floats) -> NDArray[np.intp]:
    """Returns the rows that no other row beats, in order of their first objective.

    Args:
        values: `(n, k)` objectives; rows that are not finite never belong to the front.

    Returns:
        Row numbers; of rows with the same values only the first.
    """
    from moocore import is_nondominated

    candidates = np.flatnonzero(np.isfinite(values).all(axis=1))
    if len(candidates) == 0:
        return candidates
    rows = candidates[is_nondominated(values[candidates], keep_weakly=False)]
    return rows[np.lexsort(values[rows].T[::-1])]


def hypervolume(values: Floats, reference: Floats) -> float:
    """Returns the volume `(k,)`-space that rows `(n, k)` dominate up to a reference point; rows beyond it add nothing."""
    from moocore import hypervolume as volume

    inside = values[(values <= reference).all(axis=1)]
    return float(volume(inside, ref=reference)) if len(inside) else 0.0


def regret_fractions(values: Floats) -> Floats:
    """Returns by which share each row exceeds the best value of each objective, `(n, k)`; 0 is best.

    Args:
        values: `(n, k)` objectives, all positive.
    """
    return np.asarray(values / values.min(axis=0) - 1.0)


def compromise_row(values: Floats, weights: Floats) -> int:
    """Returns the row nearest to the ideal point: the least largest weighted regret, then the least sum of regrets.

    The ideal point has the best value of every objective; regret is a share of it, so that one per cent of time weighs
    as much as one per cent of cost (weighted Chebyshev distance; Miettinen, Nonlinear Multiobjective Optimization, 1999,
    section 3.4).

    Args:
        values: `(n, k)` objectives of the front, all positive.
        weights: `(k,)` importance of each objective.
    """
    regret = regret_fractions(values) * weights
    return int(np.lexsort((regret.sum(axis=1), regret.max(axis=1)))[0])
