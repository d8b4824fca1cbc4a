"""Which layout of a space is nearest to one that the space does not have? Knob by knob, compiled.

Layouts are numbers whose digits are the indices of their knobs, sorted. Those that share their first digits lie side by
side, so that each knob in turn takes the nearest value with which the space has a layout, and the knobs behind it keep
theirs wherever they can.
"""

from __future__ import annotations

from simulator.compiled import compiled, inlined
from simulator.table import Integers


@compiled
def repaired(rows: Integers, codes: Integers, worths: Integers) -> Integers:
    """Returns the nearest layouts that a space has, as index rows `(n, k)`.

    Args:
        rows: indices of the knobs of any layouts, `(n, k)`.
        codes: of the layouts of the space, rising, at least one.
        worths: what a unit of each digit of a code is worth, falling, `(k,)`; the last one is 1.
    """
    nearest = rows.copy()
    for row in range(rows.shape[0]):
        prefix, first, end = 0, 0, len(codes)  # the layouts that share the digits so far
        for knob in range(rows.shape[1]):
            worth = worths[knob]
            wanted = rows[row, knob]
            place = first
            if end - first > 1:  # a layout that is alone has the last say
                place = _first_from(codes, first, end, prefix + wanted * worth)
            above = (codes[place] - prefix) // worth if place < end else -1
            below = (codes[place - 1] - prefix) // worth if place > first else -1
            if above < 0 or (below >= 0 and wanted - below < above - wanted):
                prefix += below * worth
                nearest[row, knob] = below
                first, end = _first_from(codes, first, place, prefix), place
            else:
                prefix += above * worth
                nearest[row, knob] = above
                first, end = place, _first_from(codes, place, end, prefix + worth)
    return nearest


@inlined
def _first_from(codes: Integers, first: int, end: int, code: int) -> int:
    """Place of the first code of at least `code` from `first` on; `end` where there is none before it."""
    while first < end:
        middle = (first + end) // 2
        if codes[middle] < code:
            first = middle + 1
        else:
            end = middle
    return first
