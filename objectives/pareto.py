"""Which designs are not beaten by any other? Pareto tools for objective values that are all minimised."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.table import Floats


def front_rows(values: Floats) -> NDArray[np.intp]:
    """Returns the rows that no other row beats, in order of their first objective.

    Args:
        values: `(n, k)` objectives; rows that are not finite never belong to the front.

    Returns:
        Row numbers; only the first of several rows with the same values.
    """
    from moocore import is_nondominated

    candidates = np.flatnonzero(np.isfinite(values).all(axis=1))
    if len(candidates) == 0:
        return candidates
    rows = candidates[is_nondominated(values[candidates], keep_weakly=False)]
    return np.asarray(rows[np.lexsort(values[rows].T[::-1])])


def hypervolume(values: Floats, reference: Floats) -> float:
    """Returns the volume that rows `(n, k)` dominate up to a reference point `(k,)`; rows beyond it add nothing."""
    from moocore import hypervolume as volume

    inside = values[(values <= reference).all(axis=1)]
    return float(volume(inside, ref=reference)) if len(inside) else 0.0


def dominated_share(values: Floats, corner: Floats) -> float:
    """Returns the share of the box between zero and a corner that rows dominate; rows beyond it add nothing.

    Args:
        values: `(n, k)` objectives, none negative.
        corner: `(k,)` far corner. An objective whose corner is zero, such as the cost of a free offer, is ignored.
    """
    inside, wide = values[(values <= corner).all(axis=1)], corner > 0.0
    if not wide.any():
        return float(len(inside) > 0)
    return hypervolume(inside[:, wide] / corner[wide], np.ones(wide.sum()))


def compromise_row(values: Floats, weights: Floats) -> int:
    """Returns the row with the least weighted product of its objectives (the first row in case of ties).

    One per cent more of one objective offsets one per cent less of an equally weighted one, whatever their units and
    whatever else is on the front (weighted product model; Bridgman, Dimensional Analysis, 1922).

    Args:
        values: `(n, k)` objectives of the front, all positive.
        weights: `(k,)` importance of each objective.
    """
    return int(np.argmin(compromise_losses(values, weights)))


def compromise_losses(values: Floats, weights: Floats) -> Floats:
    """Returns the weighted mean of the logarithms of each row's objectives, `(n,)`: the least is the best compromise.

    Args:
        values: `(n, k)` objectives, as of `compromise_row`.
        weights: `(k,)` importance of each objective.
    """
    return np.asarray(logarithms(values) @ (weights / weights.sum()))


def distinct_rows(values: Floats, tolerance_fraction: float) -> NDArray[np.intp]:
    """Returns the rows of a front that remain, in their order, when rows that hardly differ count as one.

    A row is left out if a kept one is worse by at most the tolerance in every objective. The best compromises are kept
    first, so every row that is left out has a stand-in that is as good for all practical purposes.

    Args:
        values: `(n, k)` objectives of the front, all positive.
        tolerance_fraction: relative difference up to which two values count as the same.
    """
    kept: list[int] = []
    for row in np.argsort(logarithms(values).sum(axis=1), kind="stable").tolist():
        limit = values[row] * (1.0 + tolerance_fraction)
        if not (values[kept] <= limit).all(axis=1).any():
            kept.append(row)
    return np.sort(np.array(kept, dtype=np.intp))


def logarithms(values: Floats) -> Floats:
    """Returns logarithms of objectives; a value of 0, such as the cost of a gift, counts as very little."""
    return np.asarray(np.log(np.maximum(values, np.finfo(np.float64).tiny)))
