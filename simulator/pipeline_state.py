"""What do the kernels of `simulator.pipeline` keep of a design? Rows of a batch, and the lanes in which it is played.

Designs of one shape are played side by side, one in each lane: an operation is looked up once for all of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simulator.compiled import compiled
from simulator.pipeline_order import ALWAYS_THERE, NUM_DIRECTIONS, PipelineShape

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

NUM_LANES = 32
"""Designs played side by side."""


class PipelineBatch(NamedTuple):
    """`simulator.pipeline.PipelineColumns` as the kernels read them: of one type each, contiguous."""

    num_stages: IntArray
    num_chunks_per_stage: IntArray
    num_micro_batches: IntArray
    num_overlap_buckets: IntArray
    send_blocks_sender: BoolArray
    send_s: FloatArray
    chunk_forward_s: FloatArray
    chunk_backward_s: FloatArray
    gradient_sync_s: FloatArray
    parameter_gather_s: FloatArray


class PipelineResults(NamedTuple):
    """The arrays of `PipelineTimes`, to be filled."""

    step_s: FloatArray
    exposed_sync_s: FloatArray
    busy_s: FloatArray
    send_busy_s: FloatArray
    stage_end_s: FloatArray
    peak_in_flight: npt.NDArray[np.int32]


class Lanes(NamedTuple):
    """Designs side by side, L of them, while they are played."""

    ends_s: FloatArray
    """Shape (rows, L): ends of operations for which others wait."""
    starts_s: FloatArray
    """Shape (rows, L): starts of the same operations, where they are wanted; otherwise without rows."""
    free_s: FloatArray
    """Shape (P, L): when each stage can begin its next operation."""
    last_end_s: FloatArray
    """Shape (P, L): when each stage ended the last backward of a chunk."""
    network_free_s: FloatArray
    """Shape (P, L): when the gradients that each stage has sent so far are reduced."""
    gathered_s: FloatArray
    """Shape (P, L): when the parameters that each stage has asked for so far are there."""
    duration_s: FloatArray
    """Shape (2 C, L): forwards, then backwards, by chunk; or (2 C m, L) where micro-batches differ."""
    wait_s: FloatArray
    """Shape (2 C, L): how long the stage stands still after it for its send."""
    sync_s: FloatArray
    """Shape (C, L)."""
    gather_s: FloatArray
    """Shape (C, L)."""
    send_s: FloatArray
    """Shape (L,)."""
    num_overlap_buckets: IntArray
    """Shape (L,)."""


@compiled
def new_lanes(shape: PipelineShape, num_rows: int, num_starts: int, num_durations: int) -> Lanes:
    """Returns lanes of zeros for a shape, in which nothing has been played."""
    by_stage = (shape.num_stages, NUM_LANES)
    by_chunk = (shape.num_chunks, NUM_LANES)
    lanes = Lanes(
        np.empty((num_rows, NUM_LANES)),
        np.empty((num_starts, NUM_LANES)),
        np.zeros(by_stage),
        np.zeros(by_stage),
        np.zeros(by_stage),
        np.zeros(by_stage),
        np.zeros((num_durations, NUM_LANES)),
        np.zeros((NUM_DIRECTIONS * shape.num_chunks, NUM_LANES)),
        np.zeros(by_chunk),
        np.zeros(by_chunk),
        np.zeros(NUM_LANES),
        np.zeros(NUM_LANES, np.int64),
    )
    lanes.ends_s[ALWAYS_THERE] = -np.inf
    return lanes


@compiled
def reset(lanes: Lanes) -> None:
    """Puts every clock to the start of the step."""
    lanes.network_free_s[:] = 0.0
    lanes.gathered_s[:] = 0.0
    lanes.free_s[:] = 0.0
    num_stages = lanes.free_s.shape[0]
    for chunk in range(lanes.gather_s.shape[0]):
        for lane in range(NUM_LANES):
            if lanes.num_overlap_buckets[lane] == 0:
                lanes.free_s[chunk % num_stages, lane] += lanes.gather_s[chunk, lane]


@compiled
def shape_of(batch: PipelineBatch, row: int) -> PipelineShape:
    """Returns the shape of one row."""
    num_stages = batch.num_stages[row]
    return PipelineShape(
        num_stages, num_stages * batch.num_chunks_per_stage[row], batch.num_micro_batches[row]
    )


@compiled
def load_lane(batch: PipelineBatch, row: int, lanes: Lanes, lane: int, has_network: bool) -> None:
    """Copies the durations of one row into a lane, with or without its data-parallel traffic; one stage sends nothing."""
    num_stages, num_chunks = lanes.free_s.shape[0], lanes.sync_s.shape[0]
    send_s = batch.send_s[row] if num_stages > 1 else 0.0
    wait_s = send_s if batch.send_blocks_sender[row] else 0.0
    lanes.send_s[lane] = send_s
    lanes.num_overlap_buckets[lane] = batch.num_overlap_buckets[row]
    for chunk in range(num_chunks):
        lanes.duration_s[chunk, lane] = batch.chunk_forward_s[row, chunk]
        lanes.duration_s[num_chunks + chunk, lane] = batch.chunk_backward_s[row, chunk]
        lanes.wait_s[chunk, lane] = wait_s if chunk + 1 < num_chunks else 0.0
        lanes.wait_s[num_chunks + chunk, lane] = wait_s if chunk > 0 else 0.0
        lanes.sync_s[chunk, lane] = batch.gradient_sync_s[row, chunk] if has_network else 0.0
        lanes.gather_s[chunk, lane] = batch.parameter_gather_s[row, chunk] if has_network else 0.0
