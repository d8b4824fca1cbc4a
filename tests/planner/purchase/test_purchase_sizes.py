"""Which sizes of a job are considered? A few, close to all others, and never one that the limits exclude."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from constraints.purchase_problem import Way
from planner.purchase.sizes import MOST_SIZES, thinned


def ways_of(*sizes: tuple[int, int]) -> list[Way]:
    return [Way(job=0, pool=0, num_nodes=nodes, duration_h=hours, usd=0) for nodes, hours in sizes]


def test_few_sizes_are_all_kept() -> None:
    assert thinned([]) == []
    assert thinned(ways_of((1, 9), (2, 5)), most=2) == [0, 1]


def test_spare_nodes_that_save_little_go_first() -> None:
    # Each cluster also with a spare or two, which saves less than one hour in a hundred.
    sizes = ways_of((8, 1000), (9, 995), (16, 500), (17, 496), (18, 495), (32, 250), (34, 248))
    assert [sizes[place].num_nodes for place in thinned(sizes, most=4)] == [8, 16, 32, 34]


@pytest.mark.parametrize(
    ("sizes", "left_out"),
    [
        # 10 nodes: the smaller run takes 1.5 times as long with 1.35 times the node-hours. 30 nodes: the larger run takes 1.8
        # times the nodes, but the smaller one only two thirds of the node-hours.
        (((9, 150), (10, 100), (30, 50), (54, 48)), 30),
        # 10 nodes: the smaller run takes 1 % longer with half the node-hours. 20 nodes: 11 % longer with 5/9 of them.
        (((5, 101), (10, 100), (20, 90), (80, 30)), 10),
        # 20 nodes: the smaller run takes a ninth longer with 5/9 of the node-hours. 100 nodes: the larger run takes 1.2 times
        # the nodes, and the smaller one a quarter of the node-hours.
        (((10, 100), (20, 90), (100, 70), (120, 30)), 100),
        # All have the same node-hours. 110 nodes: the smaller run takes a tenth longer, however much the larger one takes.
        (((100, 792), (110, 720), (330, 240), (495, 160), (792, 100)), 110),
    ],
)
def test_the_size_is_left_out_for_which_a_neighbour_stands_in_best(
    sizes: tuple[tuple[int, int], ...], left_out: int
) -> None:
    kept = [sizes[place][0] for place in thinned(ways_of(*sizes), most=len(sizes) - 1)]
    assert kept == [nodes for nodes, _ in sizes if nodes != left_out]


@given(st.sets(st.integers(1, 500), min_size=MOST_SIZES + 1))
def test_the_smallest_and_the_largest_are_kept(nodes: set[int]) -> None:
    sizes = ways_of(*((size, 1_000_000 // size) for size in sorted(nodes)))
    kept = thinned(sizes)
    assert (kept[0], kept[-1], len(kept)) == (0, len(sizes) - 1, MOST_SIZES)
    assert kept == sorted(set(kept))
