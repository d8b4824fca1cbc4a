"""How are the rows of a table of numbers summed? Separate from `simulator.table`, so that types load without a compiler."""

from __future__ import annotations

import numpy as np

from simulator.compiled import compiled
from simulator.table import Floats


def sum_columns(values: Floats) -> Floats:
    """Adds each row of `(n, m)` from left to right, `(n,)`, independent of trailing columns of zeros; see `table.total`."""
    return _sums_of_rows(np.ascontiguousarray(values, dtype=np.float64))


@compiled
def _sums_of_rows(values: Floats) -> Floats:
    sums = np.zeros(len(values))
    for row in range(len(values)):
        for column in range(values.shape[1]):
            sums[row] += values[row, column]
    return sums
