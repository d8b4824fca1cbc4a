"""How is the computing of a step told by operator? A finer breakdown of `compute_s`, for the one plan that is shown."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.deep.plans.compute_parts import OperatorTime

RECOMPUTATION = "recomputation"
"""Name of everything that is computed again, in words for readers."""


def seconds_by_operator(operators: Sequence[OperatorTime]) -> dict[str, float]:
    """Returns the seconds of every operator, and of all recomputation together."""
    own_s = {each.name: each.forward_s + each.backward_s for each in operators}
    return {**own_s, RECOMPUTATION: sum(each.recomputed_s for each in operators)}
