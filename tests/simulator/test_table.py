"""Do tables keep their columns together?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.row_sums import sum_columns
from simulator.table import Floats, Integers, Table, TableGroup, first_of_equals


@dataclass(frozen=True, kw_only=True)
class Measured(Table):
    """Two columns, one of them with parts."""

    count: Integers
    time_s: Floats


@dataclass(frozen=True, kw_only=True)
class Pair(TableGroup):
    """Two tables about the same rows."""

    once: Measured
    again: Measured


@dataclass(frozen=True, kw_only=True)
class Nested(TableGroup):
    """A table beside a group."""

    alone: Measured
    pair: Pair


def measured(*counts: int) -> Measured:
    return Measured(count=np.array(counts, dtype=np.int64), time_s=np.ones((len(counts), 2)) * 0.5)


def test_a_table_has_as_many_rows_as_its_columns() -> None:
    assert len(measured(1, 2, 3)) == 3
    assert Measured.names() == ("count", "time_s")


def test_columns_of_different_length_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"columns of Measured differ in length: \{'count': 2, 'time_s': 1\}"
    ):
        Measured(count=np.zeros(2, dtype=np.int64), time_s=np.zeros(1))


@pytest.mark.parametrize(
    ("rows", "counts"),
    [
        (np.array([2, 0, 0]), [7, 5, 5]),
        (np.array([True, False, True]), [5, 7]),
        (slice(1, None), [6, 7]),
        (np.array([], dtype=np.intp), []),
    ],
)
def test_rows_are_taken_by_index_mask_and_slice(rows: slice, counts: list[int]) -> None:
    taken = measured(5, 6, 7).take(rows)
    assert taken.count.tolist() == counts
    assert taken.time_s.shape == (len(counts), 2)


def test_tables_follow_one_another() -> None:
    assert Measured.concatenate([measured(1), measured(), measured(2, 3)]).count.tolist() == [1, 2, 3]


def test_nothing_cannot_be_concatenated() -> None:
    with pytest.raises(ValueError, match="at least one array"):
        Measured.concatenate([])
    with pytest.raises(ValueError, match="at least 1"):
        Nested.concatenate([])


def test_a_group_takes_and_joins_the_rows_of_all_its_tables() -> None:
    def nested(*counts: int) -> Nested:
        pair = Pair(once=measured(*counts), again=measured(*(-count for count in counts)))
        return Nested(alone=measured(*(10 * count for count in counts)), pair=pair)

    joined = Nested.concatenate([nested(1, 2), nested(), nested(3)])
    assert (len(joined), joined.parts()) == (3, ("alone", "pair"))
    taken = joined.take(np.array([2, 0]))
    assert taken.alone.count.tolist() == [30, 10]
    assert taken.pair.once.count.tolist() == [3, 1]
    assert taken.pair.again.count.tolist() == [-3, -1]


def test_columns_are_shared_and_not_copied() -> None:
    table = measured(1, 2)
    assert table.columns()["count"] is table.count


def test_columns_of_zeros_do_not_change_the_last_bit_of_a_sum() -> None:
    values = np.random.default_rng(0).random((100, 40))
    wide = np.hstack([values, np.zeros((100, 333))])
    assert (sum_columns(wide) == sum_columns(values)).all()
    assert sum_columns(values) == pytest.approx(values.sum(axis=1), rel=1e-14)


_ROWS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from([-(2**62), 0, 7, 2**62]),  # too far apart to be digits
        st.sampled_from([0.5, 1.0, float("inf")]),
        st.integers(-(2**23), 2**23 - 1),
        st.integers(0, 2**24 - 1),
    ),
    max_size=30,
)


@given(rows=_ROWS)
def test_equal_rows_are_found_at_the_first_of_them(rows: list[tuple[float, ...]]) -> None:
    dtypes = (np.int64, np.int64, np.float64, np.int64, np.int64)
    columns = [np.array([row[k] for row in rows], dtype=dtype) for k, dtype in enumerate(dtypes)]
    first, number = first_of_equals(columns)
    assert first[number].tolist() == [rows.index(row) for row in rows]
    assert len(first) == len(set(rows))
