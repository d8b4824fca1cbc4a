"""Which comes first? A binary heap in two arrays, for compiled code: keys, and the items that have them.

Equal keys come in the order of their items, so that nothing depends on the order in which they were put in.
"""

from __future__ import annotations

from simulator.compiled import compiled_uncounted
from simulator.table import Floats, Integers

NO_ITEM = -1


@compiled_uncounted
def push(keys: Floats, items: Integers, size: int, key: float, item: int) -> int:
    """Puts an item in; returns the new size. The arrays must have room."""
    place = size
    while place > 0:
        parent = (place - 1) // 2
        if keys[parent] < key or (keys[parent] == key and items[parent] < item):
            break
        keys[place], items[place] = keys[parent], items[parent]
        place = parent
    keys[place], items[place] = key, item
    return size + 1


@compiled_uncounted
def pop(keys: Floats, items: Integers, size: int) -> int:
    """Takes the first item out, which stood at position 0; returns the new size."""
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


@compiled_uncounted
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


@compiled_uncounted
def first_key(keys: Floats) -> float:
    """Returns the least key of a tournament."""
    return float(keys[1])


@compiled_uncounted
def first_item(keys: Floats) -> int:
    """Returns the first item with the least key."""
    place = 1
    while 2 * place < len(keys):
        place *= 2
        if keys[place] != keys[1]:
            place += 1
    return place - len(keys) // 2


@compiled_uncounted
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
