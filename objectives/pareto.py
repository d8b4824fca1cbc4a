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


def normalized(values: Floats) -> Floats:
    """Returns values `(n, k)` scaled so that each column runs from 0 (best) to 1 (worst); 0 where all are equal."""
    low, high = values.min(axis=0), values.max(axis=0)
    span = np.where(high > low, high - low, 1.0)
    return np.asarray((values - low) / span)


def hypervolume(values: Floats, reference: Floats) -> float:
    """Returns the volume `(k,)`-space that rows `(n, k)` dominate up to a reference point; rows beyond it add nothing."""
    from moocore import hypervolume as volume

    inside = values[(values <= reference).all(axis=1)]
    return float(volume(inside, ref=reference)) if len(inside) else 0.0


def compromise_row(values: Floats, weights: Floats) -> int:
    """Returns the row nearest to the ideal point: the least largest weighted regret, then the least sum of regrets.

    Regret is the distance from the best value of each objective on the front, as a share of the front's span
    (weighted Chebyshev; Miettinen, Nonlinear Multiobjective Optimization, 1999, section 3.4).

    Args:
        values: `(n, k)` objectives of the front.
        weights: `(k,)` importance of each objective.
    """
    regret = normalized(values) * (weights / weights.sum())
    return int(np.lexsort((regret.sum(axis=1), regret.max(axis=1)))[0])
