"""Which parts of a measured run does the simulator not have? What a row names of them is remarked."""

from __future__ import annotations

import re
from collections.abc import Mapping

from planner.measured.told import Told
from planner.measured.words import affirmed

_WINDOW = re.compile(r"sliding[- _]?window|\bswa\b", re.IGNORECASE)
_PARTITIONED = re.compile(
    r"partition(?:ed|s|ing)?[-_ ](?:activations?|(?:activation[- ])?checkpoints?)\b|activations?[- ]partition"
    r"|zero[- ]?r\b",
    re.IGNORECASE,
)
"""ZeRO-R shares out checkpoints among tensor-parallel ranks (`partition_activations`; arXiv 1910.02054, section 6.1)."""


def remark_window(told: Told, *, has_window: bool) -> None:
    """Says of windows of unknown width that they are simulated without."""
    if not has_window and "window" not in told.cells.numbers and affirmed(_WINDOW, told.text("notes")):
        told.remark("notes", "a window without its tokens is left out; give them in the column window")


def simulates_checkpoints(told: Told, cells: Mapping[str, object]) -> bool:
    """Returns whether ranks keep what they are simulated to keep for recomputation; says so where they do not.

    Args:
        told: the row.
        cells: fields of its plan and workload.
    """
    is_whole = cells["tensor_parallel"] != 1 and not cells["has_sequence_parallel"]
    columns = [
        name for name in ("recompute", "notes", "framework") if affirmed(_PARTITIONED, told.text(name))
    ]
    if not columns or not is_whole or cells["recompute"] == "none":
        return True
    told.remark(columns[0], "every rank is simulated to keep whole checkpoints: memory is not judged")
    return False
