"""Which part of a traced step is played, and with which algorithms, so that the graph does not get too large?"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.deep.collectives.chosen_collectives import CANDIDATES, ChosenCollectives
from simulator.deep.traced_steps.fold import Fold, find_fold
from simulator.deep.traced_steps.step_request import StepRequest
from simulator.deep.traced_steps.step_sketch import StepSketch, sketch_step

MANY_TASKS = 12_000_000
"""Number of tasks above which algorithms whose accelerators are alike are tried, which may need fewer."""


@dataclass(frozen=True, kw_only=True)
class PlayedPart:
    """The part of a step that is played."""

    sketch: StepSketch
    fold: Fold | None
    """Which accelerators stand for which; None: all are played."""
    traffic: ChosenCollectives
    """The collectives that choose the algorithms of the sketch."""
    num_tasks: int
    """Number of tasks of the part."""


def played_part(asked: StepRequest, traffic: ChosenCollectives, *, is_folded: bool) -> PlayedPart:
    """Returns the part of a step that is played.

    If the part is large and algorithms may be chosen, only algorithms whose nodes are alike are chosen where that makes the
    part smaller.
    """
    part = _part(asked, traffic, is_folded=is_folded)
    if not is_folded or part.num_tasks <= MANY_TASKS or traffic.algorithm not in CANDIDATES:
        return part
    return min(
        part, _part(asked, traffic.taking_what_is_alike(), is_folded=True), key=lambda each: each.num_tasks
    )


def _part(asked: StepRequest, traffic: ChosenCollectives, *, is_folded: bool) -> PlayedPart:
    sketch, fold = sketch_step(asked, traffic), None
    if is_folded and sketch.patterns is not None:
        fold = find_fold(asked.parallelism, traffic.collectives.router, asked.speeds, sketch.patterns)
    _, num_replicas, num_parts = (asked.parallelism.ranks() if fold is None else fold.played).shape
    return PlayedPart(
        sketch=sketch, fold=fold, traffic=traffic, num_tasks=sketch.num_tasks * num_replicas * num_parts
    )
