"""Which keys were seen before, and in what order? A growing hash table, compiled because a search looks up millions of keys.

A sorted array would have to be copied for every added batch.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from simulator.compiled import compiled, inlined
from simulator.mixing import GOLDEN
from studies.designs.plan_keys import Keys

Places = NDArray[np.intp]
Slots = NDArray[np.int32]
_Number = TypeVar("_Number", bound=np.generic)

FEWEST_SLOTS = 1_024
SLOTS_PER_KEY = 2
"""Least number of slots per key: with half of the slots free, a key is found after 1.5 tries on average."""
FREE = -1
"""Value of an empty slot."""
_HALF = np.uint64(32)


class KeyTable(NamedTuple):
    """A hash table as kernels read it."""

    keys: Keys
    """The keys, in the order in which they were added."""
    slots: Slots
    """Positions of keys, `FREE` in empty slots."""


@final
class KeyIndex:
    """Numbers keys in the order in which they are added; takes 16 to 32 bytes per key."""

    def __init__(self) -> None:
        self._slots = free_slots(0)
        self._keys: Keys = np.empty(FEWEST_SLOTS // SLOTS_PER_KEY, dtype=np.uint64)
        self._num_keys = 0

    def __len__(self) -> int:
        return self._num_keys

    def new_rows(self, keys: Keys) -> Places:
        """Returns the rows of keys `(n,)` that were not added before, each key once, in order."""
        unknown = np.flatnonzero(self.places(keys) == FREE)
        slots = free_slots(len(unknown))
        return np.asarray(unknown[_first_rows(keys[unknown], slots)])

    def add(self, keys: Keys) -> None:
        """Adds distinct keys `(n,)`, none of which was added before."""
        num_keys = self._num_keys + len(keys)
        self._keys = with_room(self._keys, num_keys)
        self._keys[self._num_keys : num_keys] = keys
        first = self._num_keys
        if num_keys * SLOTS_PER_KEY > len(self._slots):
            self._slots, first = free_slots(num_keys), 0
        _enter(self._keys, first, num_keys, self._slots)
        self._num_keys = num_keys

    def table(self) -> KeyTable:
        """Returns the table in which kernels look up keys; valid until keys are added."""
        return KeyTable(self._keys, self._slots)

    def places(self, keys: Keys) -> Places:
        """Returns the position at which each key was added, from 0 on, `(n,)`; -1 for unknown keys."""
        return _places(keys, self._keys, self._slots)


def with_room(array: NDArray[_Number], size: int) -> NDArray[_Number]:
    """Returns the array if it has `size` rows, otherwise a copy that is at least twice as long and has room for them."""
    if size <= len(array):
        return array
    longer = np.empty((max(size, 2 * len(array)), *array.shape[1:]), dtype=array.dtype)
    longer[: len(array)] = array
    return longer


def free_slots(num_keys: int) -> Slots:
    """Returns empty slots for `num_keys` keys; their number is a power of two and leaves enough of them free."""
    num_slots = max(FEWEST_SLOTS, 1 << (SLOTS_PER_KEY * num_keys - 1).bit_length())
    return np.full(num_slots, FREE, dtype=np.int32)


@inlined
def slot_of(key: np.uint64, keys: Keys, slots: Slots) -> int:
    """Returns the slot that holds the position of a key, or the empty slot where it belongs."""
    mixed = key * GOLDEN
    mixed ^= mixed >> _HALF
    last = len(slots) - 1
    slot = np.int64(mixed) & last
    while slots[slot] != FREE and keys[slots[slot]] != key:
        slot = (slot + 1) & last
    return int(slot)


@compiled
def _places(wanted: Keys, keys: Keys, slots: Slots) -> Places:
    """Positions of some keys, `(n,)`."""
    places = np.empty(len(wanted), dtype=np.intp)
    for row in range(len(wanted)):
        places[row] = slots[slot_of(wanted[row], keys, slots)]
    return places


@compiled
def _enter(keys: Keys, first: int, end: int, slots: Slots) -> None:
    """Enters the keys from `first` up to `end` into the slots."""
    for place in range(first, end):
        slots[slot_of(keys[place], keys, slots)] = place


@compiled
def _first_rows(keys: Keys, slots: Slots) -> Places:
    """The rows at which each distinct key occurs first; all slots must be empty."""
    rows = np.empty(len(keys), dtype=np.intp)
    num_rows = 0
    for row in range(len(keys)):
        slot = slot_of(keys[row], keys, slots)
        if slots[slot] == FREE:
            slots[slot] = row
            rows[num_rows] = row
            num_rows += 1
    return rows[:num_rows]
