"""How much longer or shorter would a step be if what its row leaves open of its experts had been chosen otherwise?

How tokens reach their experts, and whether anything hides that, are choices of a recipe that publishers often do not print.
The framework's habit stands in for them (`assumed`), and the step is simulated with the other choice as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from planner.measured_runs import Comparison, Row, compare, reason_against
from simulator.calibration import Calibration
from simulator.table import Floats


def _other_dispatch(row: Row) -> Row:
    is_plain = row["expert_dispatch"] == "all_to_all"
    return {**row, "expert_dispatch": "deduplicated" if is_plain else "all_to_all"}


def _other_overlap(row: Row) -> Row:
    """Only one of the two overlaps is possible (`Workload.overlaps_shared_experts`)."""
    is_hidden = row["overlaps_expert_exchange"] == "true"
    hidden_otherwise = {"overlaps_expert_exchange": "true", "overlaps_shared_experts": "false"}
    return {**row, **({"overlaps_expert_exchange": "false"} if is_hidden else hidden_otherwise)}


OTHER_CHOICES: Mapping[str, Callable[[Row], Row]] = {
    "expert_dispatch": _other_dispatch,
    "expert_overlap": _other_overlap,
}
"""A row with the other choice, by the name under which `assumed` has it."""


def open_log_ratios(
    comparisons: Sequence[Comparison], calibration: Calibration | None = None
) -> list[Floats]:
    """Returns, row by row, ln(step with another choice / step) of each choice that the row leaves open."""
    found: list[list[float]] = [[] for _ in comparisons]
    others = [
        (position, other)
        for position, comparison in enumerate(comparisons)
        for other in _others(comparison.row)
    ]
    simulated = compare([other for _, other in others], calibration)
    for (position, _), other in zip(others, simulated, strict=True):
        found[position].append(float(np.log(other.simulated_s / comparisons[position].simulated_s)))
    return [np.array(ratios) for ratios in found]


def _others(row: Row) -> list[Row]:
    """Returns the row with each open choice made otherwise, as far as it can run so."""
    names = row["assumed"].split() if row["num_experts"] else []
    others = [OTHER_CHOICES[name](row) for name in names if name in OTHER_CHOICES]
    return [other for other in others if not reason_against(other)]
