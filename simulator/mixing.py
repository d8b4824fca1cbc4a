"""How does one number of 64 bits become another with no visible relation to it? SplitMix64 (Steele, Lea and Flood, 2014).

Numbers that are drawn, ties between paths and the keys of designs rest on it, so it stays as it is.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from simulator.compiled import inner

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""2^64 over the golden ratio, and odd: the distance of SplitMix64's counters."""
_FIRST_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
_SECOND_FACTOR = np.uint64(0x94D049BB133111EB)
_SHIFT_1, _SHIFT_2, _SHIFT_3 = np.uint64(30), np.uint64(27), np.uint64(31)
_Words = TypeVar("_Words", np.uint64, NDArray[np.uint64])


@inner
def mixed(words: _Words) -> _Words:
    """Returns the finaliser of SplitMix64 of a number, or of each one of an array: one to one, every bit depends on all."""
    words = (words ^ (words >> _SHIFT_1)) * _FIRST_FACTOR
    words = (words ^ (words >> _SHIFT_2)) * _SECOND_FACTOR
    return words ^ (words >> _SHIFT_3)
