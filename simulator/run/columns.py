"""Which numbers describe a run? Its columns as people write them, and as checked arrays of equal length."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Self, TypedDict, cast

import numpy as np
import numpy.typing as npt

from simulator.errors import InputError, Problem
from simulator.row_sums import sum_columns
from simulator.table import Booleans, Floats, Table, total

FOREVER_S = 1e18
"""Thirty billion years: anything longer never ends, and a job that fails less often never fails."""


class BackPressure(IntEnum):
    """What happens when a save is due while `slots` saves are uncommitted."""

    SKIP = 0
    """The save is left out; the next is due one interval later."""
    WAIT = 1
    """Training stands still until a slot is free."""
    WIDEN = 2
    """Training goes on, and the save starts as soon as a slot is free."""


class Interruption(IntEnum):
    """What interrupts a run: the columns of `kind_share` and similar, `(n, 4)`."""

    PROCESS_FAULT = 0
    """The nodes stay in service."""
    NODE_FAULT = 1
    DOMAIN_FAULT = 2
    """Several nodes fail at once, such as those of a rack or behind a switch."""
    PLANNED = 3
    """Announced: a run that uses saves saves first, and loses no work. The expected run assumes that this save commits."""


NUM_KINDS = len(Interruption)
PLANNED = int(Interruption.PLANNED)
"""The column of announced interruptions, for compiled code; the last one."""
MAX_NODES_IN_REPAIR = 4096
"""Limit of what the event loop tracks: with more nodes in repair, the one that has been there longest returns."""

_TINY_S = float(np.finfo(np.float64).tiny)
_MAX_SLOTS = 1000
_MAX_EVERY = 10**9
_RANGES = {
    "mtbf_s": (_TINY_S, np.inf, "must be above 0"),
    "interval_s": (_TINY_S, np.inf, "must be above 0; inf for a run without saves"),
    "slots": (1.0, _MAX_SLOTS, f"must be from 1 to {_MAX_SLOTS}"),
    "policy": (
        min(BackPressure),
        max(BackPressure),
        f"must be one of {', '.join(f'{member.value} ({member.name})' for member in BackPressure)}",
    ),
    "weibull_shape": (0.1, 10.0, "must be from 0.1 to 10; 1 for failures without memory"),
    "fails_during_restart": (0.0, 1.0, "must be 0 (no) or 1 (yes)"),
    "restart_log_deviation": (0.0, 3.0, "must be from 0 to 3"),
    "kind_share": (0.0, 1.0, "must be from 0 to 1"),
    "kind_nodes": (0.0, MAX_NODES_IN_REPAIR, f"must be from 0 to {MAX_NODES_IN_REPAIR}"),
    "kind_fast_survival": (0.0, 1.0, "must be from 0 to 1"),
    "durable_every": (1.0, _MAX_EVERY, f"must be from 1 to {_MAX_EVERY:,}"),
}
"""Least and largest value and the rule shown to the user; every other column is at least 0."""
_WHOLE = ("slots", "policy", "fails_during_restart", "kind_nodes", "durable_every", "num_spares", "max_loans")
_SAME_AS = {"kind_restart_s": "restart_s", "durable_commit_s": "commit_s"}
"""Columns that default to another column."""
_DEFAULTS: dict[str, npt.ArrayLike] = {
    "weibull_shape": 1.0,
    "fails_during_restart": False,
    "restart_log_deviation": 0.0,
    "kind_share": (1.0, 0.0, 0.0, 0.0),
    "kind_nodes": (0.0, 0.0, 0.0, 0.0),
    "kind_fast_survival": (1.0, 1.0, 1.0, 1.0),
    "durable_every": 1,
    "fast_load_s": 0.0,
    "durable_load_s": 0.0,
    "live_lag_s": np.inf,
    "reduced_capacity_s": 0.0,
    "num_spares": np.inf,
    "repair_s": 0.0,
    "spare_wait_s": 0.0,
    "queue_wait_s": 0.0,
    "max_loans": np.inf,
}
_SUM_TOLERANCE = 1e-9
"""Rounding tolerance for shares that were computed."""


class RunOptions(TypedDict, total=False):
    """Further properties of a run, beyond its saves and failures; every column is a scalar or `(n,)`.

    Columns that start with `kind_` have shape `(4,)` or `(n, 4)`: one value for each `Interruption`.
    """

    weibull_shape: npt.ArrayLike
    """Up-times are Weibull with this shape and mean `mtbf_s`; the clock restarts with the run. Default 1: memoryless."""
    fails_during_restart: npt.ArrayLike
    """Whether a restart can be interrupted. It then begins anew and takes as long as the longest of the kinds that have struck
    since training stopped; planned interruptions do not strike then. Default no."""
    restart_log_deviation: npt.ArrayLike
    """Every restart is multiplied by a lognormal factor of mean 1 with this sigma. Default 0."""
    kind_share: npt.ArrayLike
    """Shares of the interruptions; sum to 1. Default: process faults only."""
    kind_restart_s: npt.ArrayLike
    """From the interruption to the next work, without replacement and load. Default `restart_s`."""
    kind_nodes: npt.ArrayLike
    """Nodes that go to repair and must be replaced, unless their cost is in `reduced_capacity_s`. Default 0."""
    kind_fast_survival: npt.ArrayLike
    """Probability that the fast level of saves, or a live replica, survives. Default 1. No live replica survives a planned
    interruption of a run that saves."""
    durable_every: npt.ArrayLike
    """One save in this many is also written to the durable level, >= 1. Default 1."""
    durable_commit_s: npt.ArrayLike
    """From the end of that save's stall until it is durable, >= `commit_s`. One is written at a time, and the first save after
    it follows; a fast level that survives an interruption continues writing. Default `commit_s`."""
    fast_load_s: npt.ArrayLike
    """Loading a save of the fast level. Default 0."""
    durable_load_s: npt.ArrayLike
    """Loading a save of the durable level. Default 0."""
    live_lag_s: npt.ArrayLike
    """With live replicas, an interruption that the fast level survives loses at most this much work. Default inf: none."""
    reduced_capacity_s: npt.ArrayLike
    """Up-time without work after a recovery from a live replica: the missing capacity until it is back. If above 0, the run
    then waits for no nodes, and they do not go to repair. Default 0."""
    num_spares: npt.ArrayLike
    """Standby nodes. Default inf: spares never run out."""
    repair_s: npt.ArrayLike
    """Time after which a failed node is on standby again. Default 0."""
    spare_wait_s: npt.ArrayLike
    """Time to bring in a standby node. Default 0."""
    queue_wait_s: npt.ArrayLike
    """Time to get a node on loan when no spare is left; a repaired node that comes earlier ends the wait. Default 0."""
    max_loans: npt.ArrayLike
    """Most nodes on loan at once; without more of them, only a repaired node ends a wait. Default inf."""


class RunColumns(RunOptions):
    """The runs, one row each; every column is a scalar or of shape (n,)."""

    work_s: npt.ArrayLike
    """Time of all steps without saves and failures; inf: the limit of long runs, for the goodput."""
    mtbf_s: npt.ArrayLike
    """Mean up-time between interruptions, > 0; inf: none."""
    interval_s: npt.ArrayLike
    """Work between saves, > 0; inf: no saves."""
    stall_s: npt.ArrayLike
    """Training stopped per save."""
    commit_s: npt.ArrayLike
    """From the stall's end until the save can be restored from the fast level."""
    tax_fraction: npt.ArrayLike
    """Extra time per second of work while a save is on its way from its stall's end to its commit."""
    slots: npt.ArrayLike
    """Maximum number of uncommitted saves, >= 1; a save counts from the start of its stall."""
    policy: npt.ArrayLike
    """Codes of `BackPressure`."""
    restart_s: npt.ArrayLike
    """From a failure to the next useful work."""


@dataclass(frozen=True, kw_only=True)
class Runs(Table):
    """`RunColumns` as checked columns `(n,)`, or `(n, 4)`, with values up to `FOREVER_S`."""

    work_s: Floats
    mtbf_s: Floats
    interval_s: Floats
    stall_s: Floats
    commit_s: Floats
    tax_fraction: Floats
    slots: Floats
    policy: Floats
    restart_s: Floats
    weibull_shape: Floats
    fails_during_restart: Floats
    restart_log_deviation: Floats
    kind_share: Floats
    kind_restart_s: Floats
    kind_nodes: Floats
    kind_fast_survival: Floats
    durable_every: Floats
    durable_commit_s: Floats
    fast_load_s: Floats
    durable_load_s: Floats
    live_lag_s: Floats
    reduced_capacity_s: Floats
    num_spares: Floats
    repair_s: Floats
    spare_wait_s: Floats
    queue_wait_s: Floats
    max_loans: Floats
    is_unknown: Booleans
    """Whether an input is nan."""

    @classmethod
    def of(cls, columns: RunColumns) -> Self:
        """Returns the columns, scalars repeated; raises `InputError` for a wrong value or length."""
        values = _DEFAULTS | cast(dict[str, npt.ArrayLike], columns)
        given = {name: _array(name, values[name]) for name in cls.names() if name in values}
        problems = _range_problems(given) + _shape_problems(given)
        if problems:
            raise InputError(problems)
        rows = max((len(array) for array in given.values() if len(array) != 1), default=1)
        bounded = {name: np.minimum(array, FOREVER_S) for name, array in given.items()}
        for name, source in _SAME_AS.items():
            bounded.setdefault(name, _as_wide_as(name, bounded[source]))
        arrays = {
            name: array if len(array) == rows else np.broadcast_to(array, (rows, *array.shape[1:]))
            for name, array in bounded.items()
        }
        arrays["kind_fast_survival"] = _survival_of_saves(arrays)
        return cls(**arrays, is_unknown=np.broadcast_to(_is_unknown(bounded), (rows,)))

    @property
    def tax_share(self) -> Floats:
        """Share of the time during a save that the tax takes."""
        return self.tax_fraction / (1.0 + self.tax_fraction)

    @property
    def first_commit_s(self) -> Floats:
        """Time from a restart to the first commit, without interruptions."""
        return self.interval_s + self.stall_s + self.commit_s

    @property
    def has_saves(self) -> Booleans:
        """Whether anything is ever saved."""
        has_saves: Booleans = self.interval_s < FOREVER_S
        return has_saves

    @property
    def has_live_replicas(self) -> Booleans:
        """Whether a working replica takes the place of the fast level of saves."""
        has_live_replicas: Booleans = self.live_lag_s < FOREVER_S
        return has_live_replicas

    @property
    def kind_goes_on(self) -> Booleans:
        """Whether a live replica continues without the nodes that a kind of interruption takes, `(n, 4)`.

        After a planned interruption that the run saves for, all of them return together.
        """
        goes_on = (self.has_live_replicas & (self.reduced_capacity_s > 0.0))[:, None]
        is_saved_ahead = np.zeros(self.kind_share.shape, dtype=np.bool_)
        is_saved_ahead[:, Interruption.PLANNED] = self.has_saves
        return np.asarray(goes_on & ~is_saved_ahead)

    @property
    def node_share(self) -> Floats:
        """Share of the interruptions that are of a kind and wait for replacement nodes, `(n, 4)`."""
        if not np.any(self.has_live_replicas):
            return self.kind_share
        return np.where(self.kind_goes_on, self.kind_share * (1.0 - self.kind_fast_survival), self.kind_share)

    @property
    def has_one_level(self) -> Booleans:
        """Whether every save is durable as soon as it commits, and no replica stands in for saves."""
        is_same: Booleans = (self.durable_every == 1.0) & (self.durable_commit_s == self.commit_s)
        return is_same & ~self.has_live_replicas

    @property
    def planned_share(self) -> Floats:
        """Share of the interruptions that are announced to a run that can save, `(n,)`."""
        return np.where(self.has_saves, self.kind_share[:, Interruption.PLANNED], 0.0)


def over_kinds(share: Floats, values: Floats) -> Floats:
    """Returns the mean over the kinds of interruption, `(n,)`, of values `(n, k)` with shares `(n, k)`.

    Kinds that no run has cost nothing; the usual run has one kind and costs a fourth of four.
    """
    used = [kind for kind in range(share.shape[1]) if share[:, kind].any()]
    return total(share[:, kind] * values[:, kind] for kind in used or (0,))


def _array(name: str, value: npt.ArrayLike) -> Floats:
    """Returns `(1,)` or `(n,)`, for kinds of interruption `(1, 4)` or `(n, 4)`."""
    array = np.asarray(value, dtype=np.float64)
    return np.atleast_2d(array) if name.startswith("kind_") and array.ndim > 0 else np.atleast_1d(array)


def _as_wide_as(name: str, column: Floats) -> Floats:
    return np.repeat(column[:, None], NUM_KINDS, axis=1) if name.startswith("kind_") else column


def _survival_of_saves(arrays: Mapping[str, Floats]) -> Floats:
    """Returns how likely the fast level survives, `(n, 4)`; at a planned interruption all replicas stop, after a save."""
    are_stopped = (arrays["live_lag_s"] < FOREVER_S) & (arrays["interval_s"] < FOREVER_S)
    if not np.any(are_stopped):
        return arrays["kind_fast_survival"]
    survival = np.array(arrays["kind_fast_survival"])
    survival[are_stopped, Interruption.PLANNED] = 0.0
    return survival


def _is_unknown(arrays: Mapping[str, Floats]) -> Booleans:
    """Returns which rows hold a nan, `(1,)` or `(n,)`: columns are finite otherwise, and so is their sum."""
    sums = total(array if array.ndim == 1 else sum_columns(array) for array in arrays.values())
    return np.asarray(np.isnan(sums))


def _range_problems(given: Mapping[str, Floats]) -> list[Problem]:
    """Returns a problem for every column with a value out of its range; nan is in any range."""
    problems = []
    for name, column in given.items():
        least, most, rule = _RANGES.get(name, (0.0, np.inf, "must be at least 0"))
        wrong = column[(column < least) | (column > most)]
        if wrong.size == 0 and name in _WHOLE:
            rule = "must be a whole number"
            wrong = column[column != np.round(column)]
            wrong = wrong[~np.isnan(wrong)]
        if wrong.size > 0:
            problems.append(Problem(path=name, value=f"{wrong.flat[0]:g}", rule=rule))
    return problems


def _shape_problems(given: Mapping[str, Floats]) -> list[Problem]:
    """Returns a problem for every column that is neither a scalar nor as long as the longest, or not as wide."""
    lengths = {len(column) for column in given.values()}
    rows = max(lengths - {1}, default=1)
    problems = []
    for name, column in given.items():
        is_wide = name.startswith("kind_")
        shape = "have the shape (4,)" if is_wide else "be a scalar"
        if len(column) not in {1, rows} or column.shape[1:] != ((NUM_KINDS,) if is_wide else ()):
            rule = f"must {shape} or have {rows} rows" + (" of 4" if is_wide else "")
            problems.append(Problem(path=name, value=f"shape {column.shape}", rule=rule))
    return problems or _share_problems(given["kind_share"]) + _level_problems(given)


def _level_problems(given: Mapping[str, Floats]) -> list[Problem]:
    """Returns a problem if a save is durable before it commits to the fast level, from which it is written."""
    if "durable_commit_s" not in given:
        return []
    durable_s, commit_s = np.broadcast_arrays(given["durable_commit_s"], given["commit_s"])
    is_wrong = durable_s < commit_s
    rule = f"must be at least commit_s ({commit_s[is_wrong][0]:g})" if is_wrong.any() else ""
    return [Problem(path="durable_commit_s", value=f"{durable_s[is_wrong][0]:g}", rule=rule)] if rule else []


def _share_problems(kind_share: Floats) -> list[Problem]:
    sums = sum_columns(kind_share)
    wrong = sums[np.abs(sums - 1.0) > _SUM_TOLERANCE]
    rule = "must sum to 1 over the four kinds of interruption"
    return [Problem(path="kind_share", value=f"sum {wrong[0]:g}", rule=rule)] if wrong.size else []
