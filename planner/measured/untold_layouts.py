"""Which layout did a run on several nodes use that does not state it? The fastest that fits, as its owner would have wanted.

Degrees of tensor, pipeline and expert parallelism, micro-batch and recomputation, as far as they are not stated, are taken from
the shortest simulated step that fits. So are chunks per stage, where users of the framework pick them.
`python -m benchmarks.untold_choices` shows how far published layouts are from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from planner.measured.fitting_choices import fastest, said_of, untold_designs
from planner.measured.limits import reason_of_most
from planner.measured.row_reasons import reasons_against
from planner.measured.rows import Unmodelled
from planner.measured.runs import Row, compare, is_untold
from simulator.domain.calibration import Calibration

SLOWER_LOG_RATIO: Final = 0.13
"""ln(step of a published layout / step of the fastest one): its 90th percentile over the 235 published configurations on more
than one node that state their layout (`python -m benchmarks.untold_choices`). One in ten is as fast as the fastest or slightly
faster."""
LAYOUT: Final = "layout"
"""Entry in `assumed` for a row whose layout was chosen here."""


def with_fastest_layouts(
    rows: Sequence[Row | Unmodelled], calibration: Calibration | None = None
) -> list[Row | Unmodelled]:
    """Returns the rows, giving the fastest layout to those that lack only a layout; unchanged if none fits, or none did."""
    return [_with_fastest(row, calibration) if isinstance(row, Unmodelled) else row for row in rows]


def has_told_layout(row: Row) -> bool:
    """Returns whether the layout of a run is its own, not one chosen here."""
    return not is_untold(row, LAYOUT)


def _with_fastest(row: Unmodelled, calibration: Calibration | None) -> Row | Unmodelled:
    if row.possible is None or row.possible[0]["left_out_because"]:
        return row
    designs = [design for possible in row.possible for design in untold_designs(possible)]
    simulated = compare(designs, calibration)
    fitting = [known for known in simulated if not known.is_too_large]
    if not fitting and not (simulated and _differ_by_experts_alone(row.possible)):
        return replace(row, reason=f"{row.reason}; {_reason_against_all(row.possible, len(designs))}")
    least = min(simulated, key=lambda design: design.simulated_memory_bytes)
    chosen = (fastest(fitting) if fitting else least).row
    how = f"the fastest of {len(fitting)} that fit" if fitting else "which needs least memory, as none fits"
    return {
        **chosen,
        "assumed": f"{chosen['assumed']} {LAYOUT}".strip(),
        "remarks": "\n".join(filter(None, [chosen["remarks"], _remark(chosen, how)])),
        "has_memory_verdict": "false",
    }


def _differ_by_experts_alone(possible: Sequence[Row]) -> bool:
    degrees = {(row["tensor_parallel"], row["pipeline_parallel"]) for row in possible}
    return len(degrees) == 1 and bool(possible[0]["num_experts"])


def _reason_against_all(possible: Sequence[Row], num_designs: int) -> str:
    """Returns why a run has no layout: none can be simulated, with the commonest reason, or none fits."""
    reasons = list(filter(None, reasons_against(possible)))
    if reasons and not num_designs:
        return reason_of_most(reasons)
    return f"of {num_designs} layouts that it may have had none fits"


def _remark(row: Row, how: str) -> str:
    layout = f"TP {row['tensor_parallel']} x PP {row['pipeline_parallel']} x DP {row['data_parallel']}"
    layout += f", EP {row['expert_parallel']}" if row["num_experts"] else ""
    return f"the layout is not given: taken as {layout}, {said_of(row)}, {how}"
