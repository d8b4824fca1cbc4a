"""Is a result worked out once for the same objects, and anew for others?"""

from __future__ import annotations

from simulator.latest import remembering_latest


def test_the_same_objects_are_worked_out_once_and_equal_ones_anew() -> None:
    calls: list[list[int]] = []

    @remembering_latest
    def doubled(values: list[int]) -> list[int]:
        calls.append(values)
        return [2 * value for value in values]

    first, equal = [1, 2], [1, 2]
    assert doubled(first) is doubled(first)
    assert doubled(equal) == [2, 4]
    assert doubled(first) == [2, 4]
    assert [call is first for call in calls] == [True, False, True]


def test_the_same_objects_in_another_order_are_other_arguments() -> None:
    @remembering_latest
    def difference(one: float, other: float) -> float:
        return one - other

    large, small = 1000.5, 0.5
    assert (difference(large, small), difference(small, large)) == (1000.0, -1000.0)
