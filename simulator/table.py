"""How does a batch of designs travel? As one table of NumPy columns, one row per design.

A table is a frozen dataclass whose fields are arrays of equal length `(n,)` (or `(n, m)` for a column
that has parts). Evaluating one design is a table of one row.
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


@dataclass(frozen=True, kw_only=True)
class Table:
    """Base of all column tables; a subclass only declares its columns."""

    def __post_init__(self) -> None:
        lengths = {name: len(column) for name, column in self.columns().items()}
        if len(set(lengths.values())) > 1:
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
        return type(self)(**{name: column[rows] for name, column in self.columns().items()})

    @classmethod
    def concatenate(cls, tables: Sequence[Self]) -> Self:
        """Returns the rows of all tables one after another; raises `ValueError` for none at all."""
        return cls(
            **{name: np.concatenate([getattr(table, name) for table in tables]) for name in cls.names()}
        )


def total(columns: Iterable[Floats]) -> Floats:
    """Adds columns `(n,)` or tables of them `(n, m)` one after another, so that the order does not depend on n.

    NumPy's sum adds in blocks whose size depends on the shape. Here a design comes out the same to the last bit
    whatever other designs share its table.
    """
    return functools.reduce(np.add, columns)


def sum_columns(values: Floats) -> Floats:
    """Adds up each row of `(n, m)` from left to right, `(n,)`: however many columns of zeros follow, see `total`."""
    return total(values.T) if values.shape[1] else np.zeros(len(values))
