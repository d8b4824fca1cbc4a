"""What do the kernels of `simulator.pipeline.schedule` store for a design? Rows of a batch, and the lanes that play it.

Designs of one shape are played in parallel, one per lane, so that an operation is looked up once for all of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simulator.compiled import compiled, compiled_uncounted, inner, inner_uncounted
from simulator.pipeline.order import ALWAYS_THERE
from simulator.pipeline.shape import DUAL_PIPE_V, PipelineShape, num_directions, stage_of

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

NUM_LANES = 32
"""Designs played in parallel,"""
TWO_LANES, FOUR_LANES, EIGHT_LANES, SIXTEEN_LANES = 2, 4, 8, 16
"""and where fewer of a shape remain."""


class PipelineBatch(NamedTuple):
    """`simulator.pipeline.schedule.PipelineColumns` as the kernels read them: of one type each, contiguous."""

    schedule: IntArray
    num_stages: IntArray
    num_chunks_per_stage: IntArray
    num_micro_batches: IntArray
    group_size: IntArray
    num_overlap_buckets: IntArray
    num_gather_buckets: IntArray
    send_blocks_sender: BoolArray
    send_s: FloatArray
    chunk_forward_s: FloatArray
    chunk_backward_s: FloatArray
    chunk_weight_gradient_s: FloatArray
    chunk_hidden_forward_s: FloatArray
    chunk_hidden_backward_s: FloatArray
    gradient_sync_s: FloatArray
    gradient_groups_s: FloatArray
    parameter_gather_s: FloatArray


class PipelineResults(NamedTuple):
    """The arrays of `PipelineTimes`, to be filled."""

    step_s: FloatArray
    exposed_sync_s: FloatArray
    hidden_s: FloatArray
    busy_s: FloatArray
    send_busy_s: FloatArray
    stage_end_s: FloatArray
    peak_in_flight: npt.NDArray[np.int32]


class Lanes(NamedTuple):
    """Designs side by side, L of them, while they are played."""

    stages: IntArray
    """Shape (C,): the stage of each chunk."""
    ends_s: FloatArray
    """Shape (rows, L): ends of operations that others wait for."""
    starts_s: FloatArray
    """Shape (rows, L): starts of the same operations, if wanted; otherwise without rows."""
    free_s: FloatArray
    """Shape (P, L): when each stage can begin its next operation."""
    last_end_s: FloatArray
    """Shape (P, L): when each stage completed the gradients of a chunk."""
    network_free_s: FloatArray
    """Shape (P, L): when the gradients that each stage has sent so far are reduced."""
    gathered_s: FloatArray
    """Shape (P, L): when the parameters that each stage has requested so far are there."""
    duration_s: FloatArray
    """Shape (2 C, L): forwards, then backwards, by chunk; (3 C, L) with weight gradients after them; m times as many rows if
    micro-batches differ. Then a row of zeros, for what takes no time, and under DualPipeV, where they do not differ, the
    forwards and backwards of pairs, (2 C, L)."""
    wait_s: FloatArray
    """Shape (2 C, L) or (3 C, L): how long the stage is blocked by its send afterwards."""
    sync_s: FloatArray
    """Shape (C, L)."""
    groups_s: FloatArray
    """Shape (C, L)."""
    gather_s: FloatArray
    """Shape (C, L)."""
    send_s: FloatArray
    """Shape (L,)."""
    num_overlap_buckets: IntArray
    """Shape (C, L)."""
    num_gather_buckets: IntArray
    """Shape (C, L)."""


@inner
def lanes_for(num_wanted: int) -> int:
    """Returns the number of lanes for this many designs: the fewest that hold them, or else `NUM_LANES` at a time."""
    if num_wanted <= TWO_LANES:
        return TWO_LANES
    if num_wanted <= FOUR_LANES:
        return FOUR_LANES
    if num_wanted <= EIGHT_LANES:
        return EIGHT_LANES
    return SIXTEEN_LANES if num_wanted <= SIXTEEN_LANES else NUM_LANES


@compiled
def new_lanes(
    shape: PipelineShape, num_lanes: int, num_rows: int, num_starts: int, durations_of_kind: int
) -> Lanes:
    """Returns zeroed lanes for a shape, as many as `lanes_for` says."""
    by_stage = (shape.num_stages, num_lanes)
    by_chunk = (shape.num_chunks, num_lanes)
    num_kinds = num_directions(shape.schedule) * shape.num_chunks
    num_durations = num_kinds * durations_of_kind + 1
    if shape.schedule == DUAL_PIPE_V and durations_of_kind == 1:
        num_durations += 2 * shape.num_chunks
    lanes = Lanes(
        np.zeros(shape.num_chunks, np.int64),
        np.empty((num_rows, num_lanes)),
        np.empty((num_starts, num_lanes)),
        np.zeros(by_stage),
        np.zeros(by_stage),
        np.zeros(by_stage),
        np.zeros(by_stage),
        np.zeros((num_durations, num_lanes)),
        np.zeros((num_kinds, num_lanes)),
        np.zeros(by_chunk),
        np.zeros(by_chunk),
        np.zeros(by_chunk),
        np.zeros(num_lanes),
        np.zeros(by_chunk, np.int64),
        np.zeros(by_chunk, np.int64),
    )
    lanes.ends_s[ALWAYS_THERE] = -np.inf
    for chunk in range(shape.num_chunks):
        lanes.stages[chunk] = stage_of(shape, chunk)
    return lanes


@inner_uncounted
def reset(lanes: Lanes) -> None:
    """Resets every clock to the start of the step."""
    lanes.network_free_s[:] = 0.0
    lanes.gathered_s[:] = 0.0
    lanes.free_s[:] = 0.0
    for chunk in range(len(lanes.stages)):
        for lane in range(len(lanes.send_s)):
            if lanes.num_gather_buckets[chunk, lane] == 0:
                lanes.free_s[lanes.stages[chunk], lane] += lanes.gather_s[chunk, lane]


@compiled_uncounted
def shape_of(batch: PipelineBatch, row: int) -> PipelineShape:
    """Returns the shape of one row."""
    num_stages = batch.num_stages[row]
    num_chunks = num_stages * batch.num_chunks_per_stage[row]
    num_micro_batches, group_size = batch.num_micro_batches[row], batch.group_size[row]
    return PipelineShape(batch.schedule[row], num_stages, num_chunks, num_micro_batches, group_size)


@compiled_uncounted
def load_lane(batch: PipelineBatch, row: int, lanes: Lanes, lane: int, has_network: bool) -> None:
    """Copies the durations of one row into a lane, with or without its data-parallel traffic; a single stage sends nothing."""
    c = len(lanes.stages)
    is_split = len(lanes.wait_s) == 3 * c
    send_s = batch.send_s[row] if batch.num_stages[row] > 1 else 0.0
    wait_s = send_s if batch.send_blocks_sender[row] else 0.0
    lanes.send_s[lane] = send_s
    for chunk in range(c):
        lanes.num_overlap_buckets[chunk, lane] = batch.num_overlap_buckets[row, chunk]
        lanes.num_gather_buckets[chunk, lane] = batch.num_gather_buckets[row, chunk]
        lanes.duration_s[chunk, lane] = batch.chunk_forward_s[row, chunk]
        lanes.duration_s[c + chunk, lane] = batch.chunk_backward_s[row, chunk]
        if is_split:
            weight_s = batch.chunk_weight_gradient_s[row, chunk]
            lanes.duration_s[c + chunk, lane] = batch.chunk_backward_s[row, chunk] - weight_s
            lanes.duration_s[2 * c + chunk, lane] = weight_s
        if len(lanes.duration_s) > 3 * c + 1:
            for kind, hidden_s in (
                (chunk, batch.chunk_hidden_forward_s[row, chunk]),
                (c + chunk, batch.chunk_hidden_backward_s[row, chunk]),
            ):
                lanes.duration_s[3 * c + 1 + kind, lane] = lanes.duration_s[kind, lane] - hidden_s
        lanes.wait_s[chunk, lane] = wait_s if chunk + 1 < c else 0.0
        lanes.wait_s[c + chunk, lane] = wait_s if chunk > 0 else 0.0
        lanes.sync_s[chunk, lane] = batch.gradient_sync_s[row, chunk] if has_network else 0.0
        lanes.groups_s[chunk, lane] = batch.gradient_groups_s[row, chunk] if has_network else 0.0
        lanes.gather_s[chunk, lane] = batch.parameter_gather_s[row, chunk] if has_network else 0.0
