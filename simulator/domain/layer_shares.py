"""How many layers of each kind has a model with more or fewer layers? As large a share of them as before.

Some kinds are counted over the whole model: blocks of a hybrid, layers that see compressed tokens. Others follow from the place
of a layer, and stay what they are: leading dense layers, one of every n layers with experts or without a window, layers with an
indexer.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import gcd

MOST_LAYERS = 10_000
"""Most layers of a model."""


def whole_step(num_layers: int, counts: Sequence[int]) -> int:
    """Returns the number of layers of whose multiples every kind has its share in whole layers.

    Args:
        num_layers: Layers of the known model.
        counts: How many of them, or how many blocks over all of them, are of each kind.

    Example:
        >>> whole_step(48, [36, 12])
        4
    """
    return num_layers // gcd(num_layers, *counts)


def kept_shares(counts: Sequence[int], num_layers: int, other_num_layers: float) -> list[int]:
    """Returns how many of another number of layers are of each kind; rounded so that all kinds together have their share, too.

    Args:
        counts: How many of the known model's layers, or blocks over all of them, are of each kind.
        num_layers: Layers of the known model.
        other_num_layers: Layers of the other one.

    Example:
        >>> kept_shares([36, 12], 48, 24), kept_shares([21, 20], 43, 20)
        ([18, 6], [10, 9])
    """
    totals = (round(total * other_num_layers / num_layers) for total in accumulate(counts))
    return [total - below for below, total in pairwise([0, *totals])]
