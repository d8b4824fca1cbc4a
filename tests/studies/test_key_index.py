"""Does an index of keys number them as a dictionary does?"""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from studies.designs.key_index import FEWEST_SLOTS, KeyIndex, with_room
from studies.designs.plan_keys import Keys

LARGEST = 2**64 - 1
FEW_KEYS = st.sampled_from([0, 1, 2, LARGEST - 1, LARGEST])  # often the same ones
ANY_KEYS = st.integers(0, LARGEST) | FEW_KEYS
BATCHES = st.lists(st.lists(ANY_KEYS, max_size=30), max_size=6)


def keys_of(numbers: list[int]) -> Keys:
    return np.array(numbers, dtype=np.uint64)


@given(BATCHES)
def test_keys_are_new_once_and_numbered_in_the_order_in_which_they_came(batches: list[list[int]]) -> None:
    index = KeyIndex()
    places: dict[int, int] = {}
    for batch in batches:
        first = [row for row, key in enumerate(batch) if key not in places and key not in batch[:row]]
        keys = keys_of(batch)
        rows = index.new_rows(keys)
        assert rows.tolist() == first
        index.add(keys[rows])
        for row in first:
            places[batch[row]] = len(places)
        assert index.places(keys).tolist() == [places[key] for key in batch]
        assert len(index) == len(places)


def test_keys_keep_their_places_while_the_index_grows() -> None:
    # Multiples of a power of two are what hash tables like least: here the mixing must spread them.
    keys = np.arange(20 * FEWEST_SLOTS, dtype=np.uint64) << np.uint64(40)
    index = KeyIndex()
    for part in np.split(keys, 40):
        assert len(index.new_rows(part)) == len(part)
        index.add(part)
    np.testing.assert_array_equal(index.places(keys), np.arange(len(keys)))
    np.testing.assert_array_equal(index.places(keys + np.uint64(1)), np.full(len(keys), -1))


def test_an_array_gets_room_without_losing_its_rows() -> None:
    array = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert with_room(array, 2) is array
    assert with_room(array, 3).shape == (4, 2)
    assert with_room(array, 9).shape == (9, 2)
    assert with_room(array, 9)[:2].tolist() == array.tolist()
    assert with_room(np.zeros((0, 2)), 1).shape == (1, 2)
