"""May a design that fits by the model be too large after all? One that all but fills its memory has to be tried first."""

from __future__ import annotations

import numpy as np

from constraints.evaluation import Evaluation
from planner.notes.roomier_note import roomier_text
from planner.recommended.recommendation import Design
from planner.recommended.same_accelerators import ROOMY_FRACTION, SameAccelerators
from planner.text import human


def memory_doubt(design: Design) -> str:
    """Returns a warning for a design that barely fits, to show at once; empty for others."""
    return doubt_of_use(design.peak_memory_bytes / design.memory_capacity_bytes)


def doubt_of_use(used_fraction: float) -> str:
    """Returns a warning where so much of the memory is used that a design barely fits; empty otherwise."""
    if not _is_hardly_enough(used_fraction):
        return ""
    used = human.percent(used_fraction)
    return f"It may not fit: {used} of the memory is used, within the error of the memory model."


def full_plan_notes(design: Design) -> list[str]:
    """Returns a note on a plan that barely fits."""
    if not _is_hardly_fitting(design):
        return []
    note = (
        f"{_used_text(design)} of the memory is used, within the error of the memory model "
        "(docs/validation.md): test it before you rely on it."
    )
    return [note]


def full_front_notes(front: Evaluation, best: Design | None, others: SameAccelerators | None) -> list[str]:
    """Returns a note if designs of a front barely fit; it begins with the recommended one, and what a surer one costs.

    Args:
        front: the front.
        best: the recommended design.
        others: the best designs on its accelerators.
    """
    summary = front.outcomes.summary
    num_full = int(np.sum(summary.peak_memory_bytes > ROOMY_FRACTION * summary.memory_capacity_bytes))
    if num_full == 0:
        return []
    own = ""
    if best is not None and _is_hardly_fitting(best):
        roomier = f"{roomier_text(others)} " if others else ""
        own = (
            f"The recommended design {best.design_id} would fill {_used_text(best)} of the memory. {roomier}"
        )
    them = "it" if num_full == 1 else "them"
    note = (
        f"{own}{human.count(num_full)} of {human.designs(len(front))} on the front would fill more than "
        f"{human.whole_percent(ROOMY_FRACTION)} of the memory, within the error of the memory model "
        f"(docs/validation.md): test {them} before you rely on {them}, or reserve memory with "
        "search.memory_headroom_fraction=0.1."
    )
    return [note]


def _is_hardly_fitting(design: Design) -> bool:
    return _is_hardly_enough(design.peak_memory_bytes / design.memory_capacity_bytes)


def _is_hardly_enough(used_fraction: float) -> bool:
    return ROOMY_FRACTION < used_fraction <= 1.0


def _used_text(design: Design) -> str:
    return human.percent(design.peak_memory_bytes / design.memory_capacity_bytes)
