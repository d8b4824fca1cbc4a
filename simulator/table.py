"""How are batches of designs passed around? As one table of NumPy columns, one row per design.

A table is a frozen dataclass whose fields are arrays of equal length `(n,)` (or `(n, m)` for a column with several parts).
Evaluating one design is a table of one row.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]

MOST_CODES = 2**62
"""Row codes are below this, so that they fit into 64 bits."""
MOST_DIGITS = 2**24
"""Integers with a wider range are sorted before they become digits."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Base of all column tables; a subclass only declares its columns."""

    def __post_init__(self) -> None:
        num_rows = list(map(len, vars(self).values()))
        if num_rows.count(num_rows[0]) != len(num_rows):
            lengths = {name: len(column) for name, column in self.columns().items()}
            raise ValueError(f"columns of {type(self).__name__} differ in length: {lengths}")

    @classmethod
    @functools.cache
    def names(cls) -> tuple[str, ...]:
        """Column names in the order of their declaration."""
        return tuple(field.name for field in fields(cls))

    def columns(self) -> dict[str, NDArray[np.generic]]:
        """Columns by name; the arrays are shared, not copied."""
        return {name: getattr(self, name) for name in self.names()}

    def __len__(self) -> int:
        return len(getattr(self, self.names()[0]))

    def take(self, rows: NDArray[np.intp] | NDArray[np.bool_] | slice) -> Self:
        """Returns the chosen rows (indices, mask or slice) as a new table."""
        if isinstance(rows, np.ndarray) and rows.dtype == np.bool_:
            assert len(rows) == len(self), "a mask says of each row whether it is chosen"
            rows = np.flatnonzero(rows)  # once, where each column would look through the mask again
        return type(self)(**{name: getattr(self, name)[rows] for name in self.names()})

    @classmethod
    def concatenate(cls, tables: Sequence[Self]) -> Self:
        """Returns the rows of all tables in sequence, or a single table as it is; raises `ValueError` for none at all."""
        if len(tables) == 1:
            return tables[0]
        return cls(
            **{name: np.concatenate([getattr(table, name) for table in tables]) for name in cls.names()}
        )


@dataclass(frozen=True, kw_only=True)
class TableGroup:
    """Base of groups whose tables, or further groups, describe the same rows; a subclass only declares its parts."""

    @classmethod
    def parts(cls) -> tuple[str, ...]:
        """Names of the parts in the order of their declaration."""
        return tuple(field.name for field in fields(cls))

    def __len__(self) -> int:
        return len(getattr(self, self.parts()[0]))

    def take(self, rows: NDArray[np.intp] | NDArray[np.bool_] | slice) -> Self:
        """Returns the chosen rows of every part."""
        return type(self)(**{name: getattr(self, name).take(rows) for name in self.parts()})

    @classmethod
    def concatenate(cls, groups: Sequence[Self]) -> Self:
        """Returns the rows of all groups in sequence; raises `ValueError` for none at all."""
        first, *_ = groups
        return cls(
            **{
                name: type(getattr(first, name)).concatenate([getattr(group, name) for group in groups])
                for name in cls.parts()
            }
        )


def row_blocks(num_rows: int, length: int) -> list[slice]:
    """Returns slices of `length` rows or fewer that follow each other; a single empty one where there are no rows."""
    return [slice(start, start + length) for start in range(0, max(1, num_rows), length)]


def first_of_equals(columns: Sequence[NDArray[np.generic]]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Returns the first row of each set of rows with equal columns, and for every row the number of its set, `(n,)`.

    Each row is encoded as one integer, with a digit per column whose base is the number of values there.

    Args:
        columns: `(n,)` each, at least one, without NaN.
    """
    codes: Integers = np.zeros(len(columns[0]), dtype=np.int64)
    num_codes = 1
    for column in columns:
        digits, num_digits = _digits(column)
        if num_digits == 1:
            continue  # one value tells no rows apart
        if num_codes > MOST_CODES // num_digits:
            codes = np.unique(codes, return_inverse=True)[1]
            num_codes = len(codes)
        codes, num_codes = codes * num_digits + digits, num_codes * num_digits
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    return first, inverse


def _digits(column: NDArray[np.generic]) -> tuple[Integers, int]:
    """Integers from 0 that are equal for equal values, `(n,)`, and their range."""
    if len(column) and column.dtype.kind == "i":
        least = column.min()
        if (num_digits := int(column.max()) - int(least) + 1) <= MOST_DIGITS:
            return np.asarray(column - least, dtype=np.int64), num_digits
    values, digits = np.unique(column, return_inverse=True)
    return np.asarray(digits, dtype=np.int64), max(1, len(values))


def total(columns: Iterable[Floats]) -> Floats:
    """Adds columns `(n,)` or tables of them `(n, m)` in sequence, so that the order does not depend on n.

    NumPy's sum adds in blocks whose size depends on the shape. Here the result for a design is the same to the last bit,
    whatever other designs share its table.
    """
    return functools.reduce(np.add, columns)
