"""Which numbers make a run? Its columns as people write them, and as checked arrays of equal length."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Self, TypedDict, cast

import numpy as np
import numpy.typing as npt

from simulator.errors import InputError, Problem
from simulator.table import Booleans, Floats, Table

FOREVER_S = 1e18
"""Thirty billion years: what takes longer never ends, and a job that fails less often never fails."""


class BackPressure(IntEnum):
    """What happens when a save is due while `slots` saves are uncommitted."""

    SKIP = 0
    """It is left out; the next is due one interval later."""
    WAIT = 1
    """Training stands still until a slot is free."""
    WIDEN = 2
    """Training goes on, and the save starts as soon as a slot is free."""


_TINY_S = float(np.finfo(np.float64).tiny)
_MAX_SLOTS = 1000
_RANGES = {
    "mtbf_s": (_TINY_S, np.inf, "must be above 0"),
    "interval_s": (_TINY_S, np.inf, "must be above 0; inf for a run without saves"),
    "slots": (1.0, _MAX_SLOTS, f"must be from 1 to {_MAX_SLOTS}"),
    "policy": (
        min(BackPressure),
        max(BackPressure),
        f"must be one of {', '.join(f'{member.value} ({member.name})' for member in BackPressure)}",
    ),
}
"""Least and largest value and the rule to show; every other column is at least 0."""


class RunColumns(TypedDict):
    """The runs, one row each; every column is a scalar or of shape (n,)."""

    work_s: npt.ArrayLike
    """Time of all steps without saves and failures; inf: the limit of long runs, for the goodput."""
    mtbf_s: npt.ArrayLike
    """Mean up-time between failures, > 0; inf: none."""
    interval_s: npt.ArrayLike
    """Work between saves, > 0; inf: no saves."""
    stall_s: npt.ArrayLike
    """Training stopped per save."""
    commit_s: npt.ArrayLike
    """From the stall's end until the save can be restored."""
    tax_fraction: npt.ArrayLike
    """Extra time per second of work while a save is on its way from its stall's end to its commit."""
    slots: npt.ArrayLike
    """Saves that may be uncommitted at once, >= 1; one is so from the start of its stall."""
    policy: npt.ArrayLike
    """Codes of `BackPressure`."""
    restart_s: npt.ArrayLike
    """From a failure to the next useful work."""


@dataclass(frozen=True, kw_only=True)
class Runs(Table):
    """`RunColumns` as checked columns `(n,)` of numbers, no longer than `FOREVER_S`."""

    work_s: Floats
    mtbf_s: Floats
    interval_s: Floats
    stall_s: Floats
    commit_s: Floats
    tax_fraction: Floats
    slots: Floats
    policy: Floats
    restart_s: Floats

    @classmethod
    def of(cls, columns: RunColumns) -> Self:
        """Returns the columns, scalars repeated; raises `InputError` for a wrong value or length."""
        values: Mapping[str, object] = cast(Mapping[str, object], columns)
        given = {name: np.atleast_1d(np.asarray(values[name], dtype=np.float64)) for name in cls.names()}
        problems = _range_problems(given) + _length_problems(given)
        if problems:
            raise InputError(problems)
        arrays = np.broadcast_arrays(*given.values())
        return cls(**{name: np.minimum(array, FOREVER_S) for name, array in zip(given, arrays, strict=True)})

    @property
    def tax_share(self) -> Floats:
        """Share of the time under a save that the tax takes."""
        return self.tax_fraction / (1.0 + self.tax_fraction)

    @property
    def is_unknown(self) -> Booleans:
        """Whether an input is nan."""
        is_unknown: Booleans = np.any([np.isnan(column) for column in self.columns().values()], axis=0)
        return is_unknown


def _range_problems(given: Mapping[str, Floats]) -> list[Problem]:
    """Returns a problem for every column with a value out of its range; nan is in any range."""
    problems = []
    for name, column in given.items():
        least, most, rule = _RANGES.get(name, (0.0, np.inf, "must be at least 0"))
        wrong = column[(column < least) | (column > most)]
        if wrong.size > 0:
            problems.append(Problem(path=name, value=f"{wrong[0]:g}", rule=rule))
    return problems


def _length_problems(given: Mapping[str, Floats]) -> list[Problem]:
    """Returns a problem for every column that is neither a scalar nor as long as the longest."""
    shapes = {column.shape for column in given.values()}
    rows = max(shapes - {(1,)}, default=(1,))
    return [
        Problem(path=name, value=f"shape {column.shape}", rule=f"must be a scalar or have {rows[0]} rows")
        for name, column in given.items()
        if column.shape not in {(1,), rows} or column.ndim != 1
    ]
