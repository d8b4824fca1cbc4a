"""Why does the interval between saves differ from the requested one, and what would the best one gain?"""

from __future__ import annotations

import math
from collections.abc import Iterator

from constraints.evaluation import Evaluation, evaluate
from planner.job.free_interval import without_interval
from planner.text.human import duration, percent, typed
from simulator.checkpoints.schemes import IntervalReason
from simulator.domain.job import Job
from simulator.domain.plan import Plan, PlanTable

LEAST_LOSS_FRACTION = 0.005
"""Time that an interval must cost before the best one is told."""

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


def better_interval_notes(job: Job, evaluation: Evaluation) -> Iterator[str]:
    """Yields a note if the only design, which ends, takes longer than with the interval that its scheme loses least with."""
    plan, saves = evaluation.plans.plan(0), job.checkpointing
    if plan.checkpoint_interval_s is None and saves.interval_s is None and saves.interval_steps is None:
        return
    free = plan.model_copy(update={"checkpoint_interval_s": None})
    best = evaluate(without_interval(job), PlanTable.from_plans([free]))
    loss = float(evaluation.scores.time_to_train_s[0] / best.scores.time_to_train_s[0]) - 1.0
    if loss >= LEAST_LOSS_FRACTION:
        used_s, best_s = (float(each.outcomes.run.checkpoint_interval_s[0]) for each in (evaluation, best))
        yield (
            f"Saves every {duration(used_s)} of training make the run {percent(loss)} longer than saves every "
            f"{duration(best_s)}, which lose least."
        )
