"""What should a reader doubt before reading on? What stands directly below the first line of an answer."""

from __future__ import annotations

from planner.notes.accuracy_notes import step_time_doubt
from planner.notes.memory_note import memory_doubt
from planner.notes.purchase_note import purchase_doubt
from planner.notes.sharding_note import sharding_doubt
from planner.recommended.recommendation import Design, Uncertainty


def doubts(design: Design | None, uncertainty: Uncertainty | None = None, notes: str = "Notes") -> list[str]:
    """Returns warnings about a design to show at once; none without a design.

    Args:
        design: the design.
        uncertainty: that of the design, where it is known.
        notes: heading of the notes, which say more.
    """
    if design is None:
        return []
    found = (
        memory_doubt(design),
        sharding_doubt(design.plan, notes),
        step_time_doubt(design, uncertainty, notes) if uncertainty else "",
        purchase_doubt(design, notes),
    )
    return [doubt for doubt in found if doubt]
