"""Which limits contradict each other? A proof by CP-SAT over what the designs need at least.

Every limit is an upper bound on one quantity of a design, so a set of limits can be kept together exactly when some
design keeps them all, and only designs that are not beaten in all quantities matter. CP-SAT chooses one of these
designs; each limit stands under an assumption, and when there is no choice it names assumptions that suffice for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from objectives.pareto import front_rows
from simulator.table import Floats

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

STEPS = 1_000_000_000
"""CP-SAT counts in whole numbers: a limit is cut into this many steps, a need is rounded down to them."""
LARGEST_SHARE = 1_000.0
"""Needs beyond this many times the limit are all alike: they break it."""


def conflicting_limits(needs: Mapping[str, Floats], limits: Mapping[str, float]) -> tuple[str, ...]:
    """Returns the fewest limits that no design keeps together; empty when some design keeps all.

    Args:
        needs: `(n,)` least quantity of each design, by the name of the limit on it.
        limits: the limits that are set.

    Returns:
        A minimal conflict: without any one of its limits, some design keeps the others of it. Without designs, all.
    """
    names = tuple(limits)
    shares = np.column_stack([needs[name] / limits[name] for name in names]) if names else np.zeros((0, 0))
    rows = front_rows(shares) if len(shares) else np.zeros(0, dtype=np.intp)
    if len(rows) == 0:
        return names
    scaled = np.floor(np.minimum(shares[rows], LARGEST_SHARE) * STEPS * (1.0 - 1e-12)).astype(np.int64)
    conflict = _conflict(scaled, names, names)
    for name in conflict:  # CP-SAT's conflict suffices but need not be the smallest
        rest = tuple(other for other in conflict if other != name)
        if name in conflict and (smaller := _conflict(scaled, names, rest)):
            conflict = smaller
    return conflict


def satisfying_rows(needs: Mapping[str, Floats], limits: Mapping[str, float]) -> NDArray[np.intp]:
    """Returns the designs that keep all limits."""
    size = len(next(iter(needs.values())))
    kept = np.ones(size, dtype=np.bool_)
    for name, limit in limits.items():
        kept &= needs[name] <= limit
    return np.flatnonzero(kept)


def _conflict(scaled: NDArray[np.int64], names: tuple[str, ...], assumed: tuple[str, ...]) -> tuple[str, ...]:
    """Limits among the assumed ones that suffice for a contradiction, in the order of `names`; empty for none."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    design = model.new_int_var(0, len(scaled) - 1, "design")
    literals = {name: _limit_literal(model, design, scaled[:, names.index(name)], name) for name in assumed}
    model.add_assumptions(list(literals.values()))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    if solver.solve(model) != cp_model.INFEASIBLE:
        return ()
    core = set(solver.sufficient_assumptions_for_infeasibility())
    return tuple(name for name in names if name in literals and literals[name].index in core)


def _limit_literal(
    model: cp_model.CpModel, design: cp_model.IntVar, column: NDArray[np.int64], name: str
) -> cp_model.IntVar:
    """A truth value that, when true, keeps the need of the chosen design within the limit."""
    need = model.new_int_var(int(column.min()), int(column.max()), name)
    model.add_element(design, [int(value) for value in column], need)
    literal = model.new_bool_var(f"keeps {name}")
    model.add(need <= STEPS).only_enforce_if(literal)
    return literal
