"""Which designs are the same? A number for every design, equal for equal decisions, whatever table the design is in.

The keys find designs among millions. To be certain, compare the columns of the designs that were found.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.domain.plan import PlanTable
from simulator.mixing import GOLDEN, mixed

Keys = NDArray[np.uint64]


def plan_keys(plans: PlanTable) -> Keys:
    """Returns a key of 64 bits for each design, `(n,)`.

    Two different designs among n share a key with a probability of about n^2 / 2^65: 3e-6 for ten million. The columns
    are mixed into it one after another.
    """
    keys: Keys = np.zeros(len(plans), dtype=np.uint64)
    for column in plans.columns().values():
        numbers = np.asarray(column, dtype=np.float64) + 0.0  # -0 and 0 are one decision
        numbers[np.isnan(numbers)] = np.nan  # so are all ways to write NaN
        keys = mixed(keys + GOLDEN ^ numbers.view(np.uint64))
    return keys


def are_same(first: PlanTable, second: PlanTable) -> NDArray[np.bool_]:
    """Returns which rows of two tables of equal length hold the same decisions, `(n,)`."""
    same = np.ones(len(first), dtype=np.bool_)
    for name, column in first.columns().items():
        other = getattr(second, name)
        same &= (column == other) | (np.isnan(column) & np.isnan(other))
    return same
