"""Are the steps that a comparison compares known equally well? What a reader should know where they are not."""

from __future__ import annotations

from collections.abc import Sequence

from planner.compare.sides import Side
from planner.notes.accuracy_notes import step_notes
from planner.notes.step_note import texts
from planner.recommended.recommendation import Design
from planner.text import human
from planner.uncertain.uncertainty import step_time_interval
from simulator.domain.plan import PlanTable

UNEQUAL_FRACTION = 0.1
"""Difference of the upper ends of two intervals, as shares of their steps, from which it is worth a note."""


def certainty_notes(sides: Sequence[Side], designs: Sequence[Design | None]) -> list[str]:
    """Returns why steps of the designs are known less well, and the interval of each, where this is not the same for all."""
    known = [(side, design) for side, design in zip(sides, designs, strict=True) if design is not None]
    told = [texts(step_notes(side.job, design.plan)) for side, design in known]
    intervals = [_interval(side, design) for side, design in known]
    upper = [high_s / design.step_time_s for (_, design), (_, high_s) in zip(known, intervals, strict=True)]
    is_alike = max(upper, default=0.0) - min(upper, default=0.0) < UNEQUAL_FRACTION
    if is_alike and all(notes == told[0] for notes in told):
        return []
    notes = [f"{side.name}: {note}" for (side, _), own in zip(known, told, strict=True) for note in own]
    ends = [
        f"{side.name} {human.duration(low_s)} to {human.duration(high_s)}"
        for (side, _), (low_s, high_s) in zip(known, intervals, strict=True)
    ]
    return [*notes, f"80 % interval of the step time: {'; '.join(ends)}."]


def _interval(side: Side, design: Design) -> tuple[float, float]:
    return step_time_interval(side.job, PlanTable.from_plans([design.plan]), 0, design.step_time_s)
