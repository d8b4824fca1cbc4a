"""What determines the order of a pipeline, and which stage does each chunk run on?"""

from __future__ import annotations

from typing import NamedTuple

from simulator.compiled import compiled

ONE_F_ONE_B, GPIPE, ZB_H1, ZB_V, DUAL_PIPE_V = range(5)
"""Schedules, by the codes of `simulator.domain.plan.Schedule`."""


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
    return 3 if schedule in (ZB_H1, ZB_V, DUAL_PIPE_V) else 2


@compiled
def turns_back(schedule: int) -> bool:
    """Returns whether each stage has two chunks, the second ones in reverse from the last stage to the first."""
    return schedule in (ZB_V, DUAL_PIPE_V)


@compiled
def stage_of(shape: PipelineShape, chunk: int) -> int:
    """Returns the stage of a chunk: round-robin, or in a V."""
    if turns_back(shape.schedule) and chunk >= shape.num_stages:
        return shape.num_chunks - 1 - chunk
    return chunk % shape.num_stages
