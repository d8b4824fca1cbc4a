"""Which limits contradict each other? A CP-SAT proof over the least that designs need.

Every limit is an upper bound on one quantity of a design, so a set of limits is satisfiable exactly when some design keeps
them all. CP-SAT chooses a design by the limits that it keeps. Each limit is guarded by an assumption literal; if there is
no choice, CP-SAT names a set of assumptions that suffices for the contradiction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from simulator.table import Booleans, Floats, Integers

if TYPE_CHECKING:
    from ortools.sat.python import cp_model


def conflicting_limits(needs: Mapping[str, Floats], limits: Mapping[str, float]) -> tuple[str, ...]:
    """Returns a set of limits that no design keeps together; empty if some design keeps all.

    Args:
        needs: `(n,)` least quantity of each design, by the name of the limit on it.
        limits: the limits that are set.

    Returns:
        A minimal conflict, in the order of `limits`: if any one of its limits is dropped, some design keeps the rest.
        All limits, if there are no designs.
    """
    names = tuple(limits)
    if not names:
        return ()
    keeps = np.column_stack([needs[name] <= limits[name] for name in names])
    patterns = np.unique(keeps, axis=0)  # designs that keep the same limits are one choice
    if len(patterns) == 0:
        return names
    return minimal_conflict(names, lambda assumed: _conflict(patterns, names, assumed))


def least_value(values: Floats, needs: Mapping[str, Floats], limits: Mapping[str, float]) -> float | None:
    """Returns the least value of any design that keeps all limits, proven by CP-SAT; `None` where no design does.

    Args:
        values: `(n,)` the quantity of each design to minimise.
        needs: `(n,)` least quantity of each design, by the name of the limit on it.
        limits: the limits that are set.
    """
    from ortools.sat.python import cp_model

    # CP-SAT knows only integers: the rank of a value among all values preserves their order to the last bit.
    distinct, places = np.unique(values, return_inverse=True)
    keeps = [needs[name] <= limit for name, limit in limits.items()]
    rows = np.unique(np.column_stack([places, *keeps]).astype(np.int64), axis=0)
    if len(rows) == 0:
        return None
    model = cp_model.CpModel()
    place = model.new_int_var(0, len(distinct), "value")
    is_kept = [model.new_bool_var(f"keeps {name}") for name in limits]
    model.add_allowed_assignments([place, *is_kept], rows.tolist())
    model.add_bool_and(is_kept)
    model.minimize(place)
    solver = exact_solver()
    return float(distinct[solver.value(place)]) if solver.solve(model) == cp_model.OPTIMAL else None


def fewest_accelerators(
    num_gpus: Integers, needs: Mapping[str, Floats], limits: Mapping[str, float]
) -> int | None:
    """Returns the fewest accelerators of any design that keeps all limits; see `least_value`."""
    least = least_value(num_gpus.astype(np.float64), needs, limits)
    return None if least is None else int(least)


def _conflict(patterns: Booleans, names: tuple[str, ...], assumed: tuple[str, ...]) -> tuple[str, ...]:
    """The assumed limits that suffice for a contradiction; empty if there is none."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    keeps = {name: model.new_bool_var(f"keeps {name}") for name in names}
    model.add_allowed_assignments(list(keeps.values()), patterns.astype(int).tolist())
    return sufficient_conflict(model, keeps, assumed)


def minimal_conflict(
    names: tuple[str, ...], conflict_among: Callable[[tuple[str, ...]], tuple[str, ...]]
) -> tuple[str, ...]:
    """Returns assumptions that cannot hold together, but can if any one of them is dropped; empty if all of them can.

    Args:
        names: the assumptions.
        conflict_among: returns some assumptions that suffice for a contradiction, however many; none if all can hold.
    """
    conflict = conflict_among(names)
    for name in conflict:
        rest = tuple(other for other in conflict if other != name)
        if name in conflict and rest and (smaller := conflict_among(rest)):
            conflict = smaller
    return conflict


def sufficient_conflict(
    model: cp_model.CpModel, literals: Mapping[str, cp_model.IntVar], assumed: tuple[str, ...]
) -> tuple[str, ...]:
    """Returns the assumptions that suffice for a contradiction in a model, in their order; empty if there is none."""
    from ortools.sat.python import cp_model

    model.add_assumptions([literals[name] for name in assumed])
    solver = exact_solver()
    if solver.solve(model) != cp_model.INFEASIBLE:
        return ()
    core = set(solver.sufficient_assumptions_for_infeasibility())
    return tuple(name for name in assumed if literals[name].index in core)


def exact_solver() -> cp_model.CpSolver:
    """A deterministic solver: it gives the same answer every time."""
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    return solver
