"""Which layout of a space is nearest to one that the space does not have? Determined knob by knob, compiled.

Layouts are sorted numbers whose digits are the indices of their knobs, so layouts with equal leading digits are adjacent.
Each knob in turn takes the nearest value for which the space has a layout, and later knobs keep theirs where possible.
"""

from __future__ import annotations

from simulator.compiled import compiled, inlined
from simulator.table import Integers


@compiled
def repair(row: Integers, codes: Integers, worths: Integers) -> int:
    """Changes an index row to the nearest layout of a space, and returns the position of its code.

    Args:
        row: indices of the knobs, `(m,)`, those of the layout first; these are changed in place.
        codes: codes of the layouts of the space, ascending, at least one.
        worths: place value of each digit of a code, descending, `(k,)`; the last one is 1.
    """
    prefix, first, end = 0, 0, len(codes)  # the layouts that share the digits so far
    for knob in range(len(worths)):
        worth = worths[knob]
        wanted = row[knob]
        place = first
        if end - first > 1:  # a single remaining layout decides all further digits
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
    """Position of the first code not below `code`, from `first` on; `end` if there is none before it."""
    while first < end:
        middle = (first + end) // 2
        if codes[middle] < code:
            first = middle + 1
        else:
            end = middle
    return first
