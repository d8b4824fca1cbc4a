"""Which layout of a space is nearest to one that the space does not have? Knob by knob, compiled.

Layouts are numbers whose digits are the indices of their knobs, sorted. Those that share their first digits lie side by
side, so that each knob in turn takes the nearest value with which the space has a layout, and the knobs behind it keep
theirs wherever they can.
"""

from __future__ import annotations

from simulator.compiled import compiled, inlined
from simulator.table import Integers


@compiled
def repair(row: Integers, codes: Integers, worths: Integers) -> int:
    """Gives an index row the nearest layout that a space has, and returns the place of its code.

    Args:
        row: indices of the knobs, `(m,)`, those of a layout first; these are changed in place.
        codes: of the layouts of the space, rising, at least one.
        worths: what a unit of each digit of a code is worth, falling, `(k,)`; the last one is 1.
    """
    prefix, first, end = 0, 0, len(codes)  # the layouts that share the digits so far
    for knob in range(len(worths)):
        worth = worths[knob]
        wanted = row[knob]
        place = first
        if end - first > 1:  # a layout that is alone has the last say
            place = first_from(codes, first, end, prefix + wanted * worth)
        above = (codes[place] - prefix) // worth if place < end else -1
        below = (codes[place - 1] - prefix) // worth if place > first else -1
        if above < 0 or (below >= 0 and wanted - below < above - wanted):
            prefix += below * worth
            row[knob] = below
            first, end = first_from(codes, first, place, prefix), place
        else:
            prefix += above * worth
            row[knob] = above
            first, end = place, first_from(codes, place, end, prefix + worth)
    return first


@inlined
def first_from(codes: Integers, first: int, end: int, code: int) -> int:
    """Place of the first code of at least `code` from `first` on; `end` where there is none before it."""
    while first < end:
        middle = (first + end) // 2
        if codes[middle] < code:
            first = middle + 1
        else:
            end = middle
    return first
