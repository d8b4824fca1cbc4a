"""Which children are new designs? A whole generation is checked in one compiled loop.

Nine of ten children of a late population are already known, so a generation needs many tries. With array operations for
each child, a single one of its few steps would take longer than all of them do here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.compiled import compiled, inlined
from simulator.table import Booleans, Integers
from studies.designs.key_index import FREE, KeyTable, free_slots, slot_of
from studies.designs.repair import first_from, repair


class DesignCodes(NamedTuple):
    """The designs of a space as numbers, whose digits are the indices of knobs."""

    layouts: Integers
    """One number for each layout of the space, ascending, `(n,)`."""
    worths: Integers
    """Place value of each digit of a layout, descending, `(k,)`; the last one is 1."""
    can_save: Booleans
    """Which layouts can save by which schemes, `(n, s)`; a scheme's index is the first digit after those of a layout."""
    run_sizes: Integers
    """Number of values of each knob after those of the layout."""


def admitted(
    children: Integers, known: KeyTable, designs: DesignCodes, most: int, *, is_repaired: bool
) -> Integers:
    """Returns the first `most` children that are new designs of the space, each once, `(m, k)`.

    Args:
        children: index rows `(n, k)`; those that are repaired are changed in place.
        known: keys of the designs that were tried before.
        designs: the designs of the space.
        most: how many are wanted.
        is_repaired: whether children whose layout is not in the space get the nearest one that is.
    """
    own = KeyTable(np.empty(most, dtype=np.uint64), free_slots(most))
    return np.asarray(children[_admitted_rows(children, known, designs, own, is_repaired)])


@compiled
def _admitted_rows(
    children: Integers, known: KeyTable, designs: DesignCodes, own: KeyTable, is_repaired: bool
) -> NDArray[np.intp]:
    """The rows of these children; `own`, initially empty and large enough, receives their keys."""
    keys, slots = own.keys, own.slots
    rows = np.empty(len(keys), dtype=np.intp)
    num_rows = 0
    for row in range(len(children)):
        if num_rows == len(rows):
            break
        child = children[row]
        key = _key(child, designs)
        if _is_in(key, known.keys, known.slots):
            continue
        place = _place(child, designs)
        if place < 0 and is_repaired:
            place = repair(child, designs.layouts, designs.worths)
            key = _key(child, designs)
            if _is_in(key, known.keys, known.slots):
                continue
        if place < 0 or not designs.can_save[place, child[len(designs.worths)]]:
            continue
        slot = slot_of(key, keys, slots)
        if slots[slot] == FREE:
            slots[slot] = num_rows
            keys[num_rows], rows[num_rows] = key, row
            num_rows += 1
    return rows[:num_rows]


@inlined
def _is_in(key: np.uint64, keys: NDArray[np.uint64], slots: NDArray[np.int32]) -> bool:
    return bool(slots[slot_of(key, keys, slots)] != FREE)


@inlined
def _key(child: Integers, designs: DesignCodes) -> np.uint64:
    """The number of a design among all designs."""
    code = _layout_code(child, designs.worths)
    for knob in range(len(designs.run_sizes)):
        code = code * designs.run_sizes[knob] + child[len(designs.worths) + knob]
    return np.uint64(code)


@inlined
def _layout_code(child: Integers, worths: Integers) -> int:
    code = 0
    for knob in range(len(worths)):
        code += worths[knob] * child[knob]
    return code


@inlined
def _place(child: Integers, designs: DesignCodes) -> int:
    """Index of a child's layout among those of the space; -1 if it is not there."""
    code = _layout_code(child, designs.worths)
    place = first_from(designs.layouts, 0, len(designs.layouts), code)
    return place if place < len(designs.layouts) and designs.layouts[place] == code else -1
