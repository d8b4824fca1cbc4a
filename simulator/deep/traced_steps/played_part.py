"""Which part of a traced step is played, and with which algorithms, so that the graph does not get too large?"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.deep.collectives.chosen_collectives import CANDIDATES, ChosenCollectives
from simulator.deep.traced_steps.fold import Fold, find_fold
from simulator.deep.traced_steps.step_request import StepRequest
from simulator.deep.traced_steps.step_sketch import StepSketch, sketch_step

MANY_TASKS = 12_000_000
"""Tasks above which it is tried whether algorithms whose accelerators are alike make fewer."""


@dataclass(frozen=True, kw_only=True)
class PlayedPart:
    """What is played of a step."""

    sketch: StepSketch
    fold: Fold | None
    """What stands for what; None: all is played."""
    traffic: ChosenCollectives
    """What chooses the algorithms that are in the sketch."""
    num_tasks: int
    """Of the part."""


def played_part(asked: StepRequest, traffic: ChosenCollectives, *, is_folded: bool) -> PlayedPart:
    """Returns the part of a step that is played.

    Where it is large, and algorithms are chosen, and choosing only what is alike leaves less of it, that is chosen.
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
