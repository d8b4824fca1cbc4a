"""Why does the interval between saves differ from the requested one?"""

from __future__ import annotations

import math

from constraints.evaluation import Evaluation
from planner.text.human import typed
from simulator.checkpoints.schemes import IntervalReason
from simulator.domain.plan import Plan

WHY_NOT_SHORTER = {
    IntervalReason.NEVER: "nothing is ever saved",
    IntervalReason.STEP_TIME: "the state changes only once per step",
    IntervalReason.COMMIT_TIME: "a save must be written before its slot is free",
    IntervalReason.WINDOW: "one save is spread over checkpointing.window_steps steps",
}


def interval_notes(plan: Plan, used_s: float | None, evaluation: Evaluation) -> list[str]:
    """Returns a note if the interval of a plan, evaluated in one row, was not used."""
    asked_s = plan.checkpoint_interval_s
    if asked_s is None:
        return []
    if used_s is None or not math.isfinite(used_s):
        return [f"checkpoint_interval_s = {typed(asked_s)} is ignored: scheme none never saves."]
    if used_s <= asked_s:
        return []
    reason = IntervalReason.from_code(int(evaluation.outcomes.checkpoints.why_minimum_interval[0]))
    return [
        f"checkpoint_interval_s = {typed(asked_s)} is too short: {WHY_NOT_SHORTER[reason]}; {typed(used_s)} was used."
    ]
