"""What determines the order of a pipeline, and which stage does each chunk run on?"""

from __future__ import annotations

from typing import NamedTuple

from simulator.compiled import compiled
from simulator.domain.plan import SPLIT_BACKWARD, TO_AND_FRO, Schedule

ONE_F_ONE_B, GPIPE, ZB_H1, ZB_V, DUAL_PIPE_V = (schedule.code for schedule in Schedule)
_SPLIT_BACKWARD, _TO_AND_FRO = (
    tuple(schedule.code for schedule in some) for some in (SPLIT_BACKWARD, TO_AND_FRO)
)
"""Schedules by their codes, as compiled functions read them."""


class PipelineShape(NamedTuple):
    """What determines the order of a pipeline."""

    schedule: int
    num_stages: int
    num_chunks: int
    num_micro_batches: int
    group_size: int
    """Micro-batches that interleaved 1F1B takes through one chunk before the next, N."""


@compiled
def num_directions(schedule: int) -> int:
    """Returns 3 where weight gradients are separate operations, else 2."""
    return 3 if schedule in _SPLIT_BACKWARD else 2


@compiled
def turns_back(schedule: int) -> bool:
    """Returns whether each stage has two chunks, the second ones in reverse from the last stage to the first."""
    return schedule in _TO_AND_FRO


@compiled
def stage_of(shape: PipelineShape, chunk: int) -> int:
    """Returns the stage of a chunk: round-robin, or in a V."""
    if turns_back(shape.schedule) and chunk >= shape.num_stages:
        return shape.num_chunks - 1 - chunk
    return chunk % shape.num_stages
