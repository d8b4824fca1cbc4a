"""Which item has the smallest key? A binary heap in two arrays, for compiled code: keys, and the items that have them.

Equal keys come in the order of their items, so that the order of insertion does not matter.
"""

from __future__ import annotations

import numpy as np

from simulator.compiled import inner_uncounted
from simulator.table import Floats, Integers

NO_ITEM = -1
DENSE = 8
"""If more than one item in this many has a new key, all matches of a tournament are replayed."""


@inner_uncounted
def push(keys: Floats, items: Integers, size: int, key: float, item: int) -> int:
    """Inserts an item; returns the new size. The arrays must have room."""
    place = size
    while place > 0:
        parent = (place - 1) // 2
        if keys[parent] < key or (keys[parent] == key and items[parent] < item):
            break
        keys[place], items[place] = keys[parent], items[parent]
        place = parent
    keys[place], items[place] = key, item
    return size + 1


@inner_uncounted
def pop(keys: Floats, items: Integers, size: int) -> int:
    """Removes the first item, which is at position 0; returns the new size."""
    last = size - 1
    key, item = keys[last], items[last]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= last:
            break
        right = child + 1
        if right < last and (
            keys[right] < keys[child] or (keys[right] == keys[child] and items[right] < items[child])
        ):
            child = right
        if key < keys[child] or (key == keys[child] and item < items[child]):
            break
        keys[place], items[place] = keys[child], items[child]
        place = child
    keys[place], items[place] = key, item
    return last


@inner_uncounted
def set_key(keys: Floats, item: int, key: float) -> None:
    """Sets the key of one of k items in a tournament: k leaves, above them the lesser of each pair, the least at 1."""
    place = item + len(keys) // 2
    keys[place] = key
    while place > 1:
        place //= 2
        least = min(keys[2 * place], keys[2 * place + 1])
        if keys[place] == least:
            break
        keys[place] = least


@inner_uncounted
def first_key(keys: Floats) -> float:
    """Returns the least key of a tournament."""
    return float(keys[1])


@inner_uncounted
def first_item(keys: Floats) -> int:
    """Returns the item of a tournament that has the least key, the first one of equals."""
    half, place = len(keys) // 2, 1
    while place < half:
        place *= 2
        if keys[place] > keys[place + 1]:
            place += 1
    return place - half


@inner_uncounted
def take_due(keys: Floats, until: float, items: Integers) -> int:
    """Writes the items of a tournament whose keys are not above `until` into `items`, in order, and sets their keys to inf.

    Descends only to such keys, and ascends once for all of them, so that many items together cost little each.
    Returns their number.
    """
    if keys[1] > until:
        return 0
    half, num_due, place = len(keys) // 2, 0, 1
    while True:
        if keys[place] <= until and place < half:
            place *= 2
            continue
        if keys[place] <= until:
            items[num_due] = place - half
            num_due += 1
        while place & 1 and place > 1:  # a right child: all below its parent are seen
            place //= 2
        if place <= 1:
            break
        place += 1
    for position in range(num_due):
        keys[half + items[position]] = np.inf
    _replay(keys, items, num_due)
    return num_due


@inner_uncounted
def set_keys(keys: Floats, items: Integers, num_items: int, new: Floats) -> None:
    """Sets the keys of many items, in any order, to those that `new` has for them."""
    half = len(keys) // 2
    if DENSE * num_items < half:
        for position in range(num_items):
            set_key(keys, items[position], new[items[position]])
        return
    for position in range(num_items):
        keys[half + items[position]] = new[items[position]]
    for place in range(half - 1, 0, -1):
        keys[place] = min(keys[2 * place], keys[2 * place + 1])


@inner_uncounted
def _replay(keys: Floats, items: Integers, num_items: int) -> None:
    """Plays a tournament again above items that are in order, each match once."""
    half, level = len(keys) // 2, 1
    if DENSE * num_items >= half:
        for place in range(half - 1, 0, -1):
            keys[place] = min(keys[2 * place], keys[2 * place + 1])
        return
    while half >> level:
        last = 0
        for position in range(num_items):
            place = (half + items[position]) >> level
            if place != last:
                keys[place] = min(keys[2 * place], keys[2 * place + 1])
                last = place
        level += 1


@inner_uncounted
def merged(keys: Floats, left: Integers, right: Integers, one: int, other: int) -> int:
    """Merges two skew heaps (Sleator and Tarjan 1986) along their right spines; returns the root.

    Args:
        keys: `(n,)` of all items.
        left: `(n,)` left child of each item, or `NO_ITEM`.
        right: `(n,)` right child.
        one: root of a heap, or `NO_ITEM`.
        other: root of another one.
    """
    root, parent = NO_ITEM, NO_ITEM
    while min(one, other) > NO_ITEM:
        if keys[other] < keys[one]:
            one, other = other, one
        if parent == NO_ITEM:
            root = one
        else:
            left[parent] = one
        parent = one
        one_right = right[one]
        right[one] = left[one]
        left[one] = NO_ITEM
        one = one_right
    rest = other if one == NO_ITEM else one
    if parent == NO_ITEM:
        return rest
    left[parent] = rest
    return root
