"""Which keys were met before, and as how many-eth? A hash table that grows, compiled: a search looks up millions of keys.

A sorted array would have to be copied for every batch that is added to it.
"""

from __future__ import annotations

from typing import TypeVar, final

import numpy as np
from numpy.typing import NDArray

from simulator.compiled import compiled, inlined
from studies.plan_keys import Keys

Places = NDArray[np.intp]
_Slots = NDArray[np.int32]
_Number = TypeVar("_Number", bound=np.generic)

FEWEST_SLOTS = 1_024
SLOTS_PER_KEY = 2
"""At least: with half of the slots free a key is found after one and a half tries on average."""
_FREE = -1
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)


@final
class KeyIndex:
    """Numbers keys in the order in which they are added; takes 16 to 32 bytes for each."""

    def __init__(self) -> None:
        self._slots = _free_slots(FEWEST_SLOTS)
        self._keys: Keys = np.empty(FEWEST_SLOTS // SLOTS_PER_KEY, dtype=np.uint64)
        self._num_keys = 0

    def __len__(self) -> int:
        return self._num_keys

    def new_rows(self, keys: Keys) -> Places:
        """Returns the rows of keys `(n,)` that were not added, each key once, in their order."""
        unknown = np.flatnonzero(self.places(keys) == _FREE)
        slots = _free_slots(_num_slots(len(unknown)))
        return np.asarray(unknown[_first_rows(keys[unknown], slots)])

    def add(self, keys: Keys) -> None:
        """Takes in keys `(n,)` of which none was added before, each of them once."""
        num_keys = self._num_keys + len(keys)
        self._keys = with_room(self._keys, num_keys)
        self._keys[self._num_keys : num_keys] = keys
        first = self._num_keys
        if num_keys * SLOTS_PER_KEY > len(self._slots):
            self._slots, first = _free_slots(_num_slots(num_keys)), 0
        _enter(self._keys, first, num_keys, self._slots)
        self._num_keys = num_keys

    def places(self, keys: Keys) -> Places:
        """Returns as how many-eth each key was added, from 0 on, `(n,)`; -1 for those that were not."""
        return _places(keys, self._keys, self._slots)


def with_room(array: NDArray[_Number], size: int) -> NDArray[_Number]:
    """Returns an array, or a copy that is at least twice as long, so that it has so many rows."""
    if size <= len(array):
        return array
    longer = np.empty((max(size, 2 * len(array)), *array.shape[1:]), dtype=array.dtype)
    longer[: len(array)] = array
    return longer


def _num_slots(num_keys: int) -> int:
    """A power of two with which so many keys leave enough slots free."""
    return max(FEWEST_SLOTS, 1 << (SLOTS_PER_KEY * num_keys - 1).bit_length())


def _free_slots(num_slots: int) -> _Slots:
    return np.full(num_slots, _FREE, dtype=np.int32)


@inlined
def _slot(key: np.uint64, keys: Keys, slots: _Slots) -> int:
    """The slot that holds the place of a key, or the free one where that belongs."""
    mixed = key * _FACTOR
    mixed ^= mixed >> _HALF
    last = len(slots) - 1
    slot = np.int64(mixed) & last
    while slots[slot] != _FREE and keys[slots[slot]] != key:
        slot = (slot + 1) & last
    return int(slot)


@compiled
def _places(wanted: Keys, keys: Keys, slots: _Slots) -> Places:
    """What the slots hold of some keys, `(n,)`."""
    places = np.empty(len(wanted), dtype=np.intp)
    for row in range(len(wanted)):
        places[row] = slots[_slot(wanted[row], keys, slots)]
    return places


@compiled
def _enter(keys: Keys, first: int, end: int, slots: _Slots) -> None:
    """Gives slots to the keys from `first` on."""
    for place in range(first, end):
        slots[_slot(keys[place], keys, slots)] = place


@compiled
def _first_rows(keys: Keys, slots: _Slots) -> Places:
    """The rows of the first ones of equal keys; all slots are free."""
    rows = np.empty(len(keys), dtype=np.intp)
    num_rows = 0
    for row in range(len(keys)):
        slot = _slot(keys[row], keys, slots)
        if slots[slot] == _FREE:
            slots[slot] = row
            rows[num_rows] = row
            num_rows += 1
    return rows[:num_rows]
