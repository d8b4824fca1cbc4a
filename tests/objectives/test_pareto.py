from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from objectives.pareto import compromise_row, distinct_rows, dominated_share, front_rows, hypervolume
from simulator.table import Floats

TABLES = st.integers(1, 4).flatmap(
    lambda width: arrays(
        np.float64, st.tuples(st.integers(0, 12), st.just(width)), elements=st.integers(0, 4)
    )
)
"""Small whole numbers, so that ties and repeated rows are common."""


def beats(first: Floats, second: Floats) -> bool:
    """The definition: nowhere worse and somewhere better."""
    return bool((first <= second).all() and (first < second).any())


@given(values=TABLES)
def test_the_front_is_what_brute_force_finds(values: Floats) -> None:
    unbeaten = [row for row in values if not any(beats(other, row) for other in values)]
    front = values[front_rows(values)]
    assert sorted(map(tuple, front)) == sorted(set(map(tuple, unbeaten)))


@given(values=TABLES)
def test_the_front_comes_by_rising_first_objective_and_names_first_rows(values: Floats) -> None:
    rows = front_rows(values)
    assert values[rows].tolist() == sorted(values[rows].tolist())
    for row in rows:
        assert not (values[:row] == values[row]).all(axis=1).any()


def test_rows_that_are_not_finite_never_belong_to_the_front() -> None:
    values = np.array([[np.inf, 0.0], [2.0, 2.0], [np.nan, 0.0], [-np.inf, 0.0]])
    assert front_rows(values).tolist() == [1]
    assert front_rows(values[[0, 2]]).tolist() == []


def test_the_hypervolume_of_one_row_is_a_box() -> None:
    assert hypervolume(np.array([[1.0, 2.0, 3.0]]), np.array([4.0, 4.0, 4.0])) == pytest.approx(3 * 2 * 1)


def test_the_share_of_a_box_is_that_of_the_objectives_that_tell_something() -> None:
    values, corner = np.array([[1.0, 0.0, 3.0], [2.0, 0.0, 1.0]]), np.array([4.0, 0.0, 4.0])
    # (4 - 1) (4 - 3) + (4 - 2) (4 - 1) - (4 - 2) (4 - 3) = 7 of 16 unit cells
    assert dominated_share(values, corner) == pytest.approx(7 / 16)
    assert dominated_share(values + np.array([0.0, 0.1, 0.0]), corner) == 0.0
    assert dominated_share(np.zeros((1, 2)), np.zeros(2)) == 1.0
    assert dominated_share(np.zeros((0, 2)), np.zeros(2)) == 0.0


@pytest.mark.parametrize("steps", [1, 2, 7, 100])
def test_the_hypervolume_of_a_staircase_is_a_triangular_number(steps: int) -> None:
    # Rows (i, n - 1 - i) up to (n, n): columns of height 1, 2, ... n.
    values = np.array([(i, steps - 1 - i) for i in range(steps)], dtype=np.float64)
    volume = hypervolume(values, np.array([steps, steps], dtype=np.float64))
    assert volume == pytest.approx(steps * (steps + 1) / 2)


def test_the_hypervolume_of_a_simplex_of_points_is_a_tetrahedral_number() -> None:
    # Whole points of x + y + z = n - 1 up to (n, n, n) leave free the unit cells with x + y + z < n - 1.
    n = 6
    points = [point for point in itertools.product(range(n), repeat=3) if sum(point) == n - 1]
    free = (n - 1) * n * (n + 1) / 6
    assert hypervolume(np.array(points, dtype=np.float64), np.full(3, float(n))) == pytest.approx(n**3 - free)


@given(values=TABLES)
def test_the_hypervolume_counts_unit_cells(values: Floats) -> None:
    width = values.shape[1]
    cells = itertools.product(range(5), repeat=width)
    covered = sum(any((row <= np.array(cell)).all() for row in values) for cell in cells)
    assert hypervolume(values, np.full(width, 5.0)) == pytest.approx(float(covered))


def test_rows_beyond_the_reference_point_add_nothing() -> None:
    reference = np.array([2.0, 2.0])
    inside = np.array([[1.0, 1.0]])
    assert hypervolume(np.array([[1.0, 1.0], [0.0, 3.0]]), reference) == hypervolume(inside, reference) == 1.0
    assert hypervolume(np.array([[3.0, 0.0]]), reference) == 0.0
    assert hypervolume(np.zeros((0, 2)), reference) == 0.0


def test_the_compromise_has_the_least_product_when_weights_are_equal() -> None:
    values = np.array([[1.0, 9.0], [2.0, 4.0], [4.0, 3.0], [10.0, 1.0]])  # products 9, 8, 12, 10
    assert compromise_row(values, np.ones(2)) == 1


def test_a_weight_counts_an_objective_as_often_as_it_says() -> None:
    values = np.array([[1.0, 9.0], [2.0, 4.0], [4.0, 3.0], [10.0, 1.0]])
    assert compromise_row(values, np.array([2.0, 1.0])) == 0  # x^2 y: 9, 16, 48, 100
    assert compromise_row(values, np.array([1.0, 2.0])) == 3  # x y^2: 81, 32, 36, 10


POSITIVE = arrays(np.float64, st.tuples(st.integers(1, 8), st.just(3)), elements=st.floats(0.1, 10.0))


@given(values=POSITIVE, units=st.tuples(*[st.sampled_from([1e-6, 1e-3, 1.0, 3600.0, 1e9])] * 3))
def test_the_compromise_does_not_depend_on_units(values: Floats, units: tuple[float, float, float]) -> None:
    weights = np.array([1.0, 2.0, 0.5])
    rows = [compromise_row(table, weights) for table in (values, values * np.array(units))]
    products = [math.prod(values[row] ** weights) for row in rows]
    assert products[0] == pytest.approx(products[1])  # rows may differ where rounding decides between equals


@given(values=POSITIVE)
def test_the_compromise_is_beaten_by_no_row(values: Floats) -> None:
    row = compromise_row(values, np.array([1.0, 1.0, 3.0]))
    assert not any((other < values[row] * (1 - 1e-9)).all() for other in values)


def test_of_equal_rows_the_first_is_the_compromise() -> None:
    assert compromise_row(np.array([[3.0, 3.0], [1.0, 4.0], [1.0, 4.0], [4.0, 1.0]]), np.ones(2)) == 1


def test_a_row_that_gains_less_than_the_tolerance_over_a_better_compromise_is_left_out() -> None:
    values = np.array([[1.0, 1.0], [1.0005, 0.9996], [1.1, 0.9]])
    assert distinct_rows(values, 0.001).tolist() == [0, 2]
    assert distinct_rows(values, 0.0003).tolist() == [0, 1, 2]
