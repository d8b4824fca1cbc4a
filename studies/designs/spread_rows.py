"""Which of many rows are taken when there is no room for all? Some that are evenly spread, with the first and the last."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def spread_rows(num_rows: int, most: int) -> NDArray[np.intp]:
    """Returns at most `most` of the rows, ascending: all of them, or some that are evenly spread.

    Example:
        >>> spread_rows(9, 3).tolist(), spread_rows(2, 3).tolist()
        ([0, 4, 8], [0, 1])
    """
    return np.linspace(0, num_rows - 1, min(num_rows, most)).astype(np.intp)
