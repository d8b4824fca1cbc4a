"""How are the training steps of many designs played? The compiled event loop behind `simulator.pipeline.schedule`.

Designs of one shape run the same operations in the same order (`simulator.pipeline.order`) and are played in parallel, one per
lane. Every forward and backward of every stage and micro-batch is played: it starts at the later of two times, when its stage
is free and when its input has arrived, and ends a duration later.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from simulator.compiled import compiled, inlined, inner, inner_uncounted
from simulator.pipeline.dual_pipe import num_paired
from simulator.pipeline.order import (
    AWAITED,
    DURATION,
    END,
    FIRST_FORWARD,
    GROUP_GRADIENT,
    KIND,
    OCCASION,
    ROUTINE,
    STAGE,
    PipelineOrder,
    mark_groups,
    pipeline_order,
)
from simulator.pipeline.shape import DUAL_PIPE_V
from simulator.pipeline.state import (
    EIGHT_LANES,
    FOUR_LANES,
    NUM_LANES,
    SIXTEEN_LANES,
    TWO_LANES,
    FloatArray,
    IntArray,
    Lanes,
    PipelineBatch,
    PipelineResults,
    lanes_for,
    load_lane,
    new_lanes,
    reset,
    shape_of,
)


@compiled
def play_rows(batch: PipelineBatch, results: PipelineResults, rows: IntArray) -> None:
    """Plays the designs of these rows; those of one shape must be adjacent."""
    first = 0
    while first < len(rows):
        shape = shape_of(batch, rows[first])
        last = first + 1
        while last < len(rows) and shape_of(batch, rows[last]) == shape:
            last += 1
        _play_alike(batch, results, rows[first:last])
        first = last


@inner
def _play_alike(batch: PipelineBatch, results: PipelineResults, rows: IntArray) -> None:
    """Plays designs of one shape, as many at once as there are lanes.

    Gathered parameters delay the first forwards; a twin without traffic, in the next lane, shows how much longer that makes the
    step. Reductions delay no operation, so a design that gathers nothing is its own twin.
    """
    order = pipeline_order(shape_of(batch, rows[0]), False, False)  # noqa: FBT003  (numba takes no keywords here)
    num_left, is_marked = 0, False
    for row in rows:
        num_left += num_lanes_of(batch, row)
    lanes = new_lanes(order.shape, lanes_for(num_left), order.num_rows, 0, 1)
    first = 0
    while first < len(rows):
        num_lanes = lanes_for(num_left)
        if num_lanes < len(lanes.send_s):  # the last of them fill fewer lanes
            lanes = new_lanes(order.shape, num_lanes, order.num_rows, 0, 1)
        last, num_used = first, 0
        while last < len(rows) and num_used + num_lanes_of(batch, rows[last]) <= num_lanes:
            num_own = num_lanes_of(batch, rows[last])
            for twin in range(num_own):
                load_lane(batch, rows[last], lanes, num_used + twin, twin == 0)
            num_used += num_own
            last += 1
        if not is_marked and lanes.groups_s.any():
            mark_groups(order)
            is_marked = True
        play_lanes(order, lanes)
        num_left -= num_used
        num_used = 0
        for place in range(first, last):
            num_own = num_lanes_of(batch, rows[place])
            _write_results(batch, order, lanes, results, rows[place], num_used, num_used + num_own - 1)
            num_used += num_own
        first = last


@inner_uncounted
def num_lanes_of(batch: PipelineBatch, row: int) -> int:
    """Returns 2 for a design that gathers parameters, else 1."""
    for chunk in range(batch.num_stages[row] * batch.num_chunks_per_stage[row]):
        if batch.parameter_gather_s[row, chunk] != 0.0:
            return 2
    return 1


@compiled
def play_lanes(order: PipelineOrder, lanes: Lanes) -> None:
    """Plays one step in all lanes."""
    reset(lanes)
    _play_operations(order.operations, lanes)


@inner_uncounted
def _play_operations(operations: npt.NDArray[np.int32], lanes: Lanes) -> None:
    """Plays operations in sequence, each in all lanes; the number of lanes is known to the compiler."""
    free_s, ends_s, num_lanes = lanes.free_s, lanes.ends_s, len(lanes.send_s)
    has_starts = lanes.starts_s.shape[0] > 0
    for place in range(len(operations)):
        stage, awaited = np.uint64(operations[place, STAGE]), np.uint64(operations[place, AWAITED])
        end, duration = np.uint64(operations[place, END]), np.uint64(operations[place, DURATION])
        kind, occasion = np.uint64(operations[place, KIND]), operations[place, OCCASION]
        if has_starts:
            for lane in range(num_lanes):
                lanes.starts_s[end, lane] = max(
                    free_s[stage, lane], ends_s[awaited, lane] + lanes.send_s[lane]
                )
        if occasion == FIRST_FORWARD:
            _play_first_forward(lanes, stage, awaited, end, duration, kind)
        elif occasion != ROUTINE:
            sync_s = lanes.groups_s if occasion == GROUP_GRADIENT else lanes.sync_s
            _play_gradient(lanes, sync_s, stage, awaited, end, duration, kind)
        elif num_lanes == TWO_LANES:
            _play_routine(lanes, stage, awaited, end, duration, kind, TWO_LANES)
        elif num_lanes == FOUR_LANES:
            _play_routine(lanes, stage, awaited, end, duration, kind, FOUR_LANES)
        elif num_lanes == EIGHT_LANES:
            _play_routine(lanes, stage, awaited, end, duration, kind, EIGHT_LANES)
        elif num_lanes == SIXTEEN_LANES:
            _play_routine(lanes, stage, awaited, end, duration, kind, SIXTEEN_LANES)
        else:
            _play_routine(lanes, stage, awaited, end, duration, kind, NUM_LANES)


@inlined
def _play_routine(
    lanes: Lanes,
    stage: np.uint64,
    awaited: np.uint64,
    end: np.uint64,
    duration: np.uint64,
    kind: np.uint64,
    num_lanes: int,
) -> None:
    """Plays an operation that is independent of data-parallel traffic."""
    for lane in range(num_lanes):
        start_s = max(lanes.free_s[stage, lane], lanes.ends_s[awaited, lane] + lanes.send_s[lane])
        end_s = start_s + lanes.duration_s[duration, lane]
        lanes.ends_s[end, lane] = end_s
        lanes.free_s[stage, lane] = end_s + lanes.wait_s[kind, lane]


@inner_uncounted
def _play_first_forward(
    lanes: Lanes, stage: np.uint64, awaited: np.uint64, end: np.uint64, duration: np.uint64, kind: np.uint64
) -> None:
    """Plays a chunk's first forward, which receives its parameters piece by piece; without overlap they are already there."""
    for lane in range(len(lanes.send_s)):
        start_s = max(lanes.free_s[stage, lane], lanes.ends_s[awaited, lane] + lanes.send_s[lane])
        duration_s = lanes.duration_s[duration, lane]
        end_s = start_s + duration_s
        num_pieces = lanes.num_gather_buckets[kind, lane]
        if num_pieces > 0:
            gather_start_s, gather_s = lanes.gathered_s[stage, lane], lanes.gather_s[kind, lane]
            lanes.gathered_s[stage, lane] = gather_start_s + gather_s
            end_s = streamed_end_s(gather_start_s, gather_s, start_s, duration_s, num_pieces)
            start_s = max(start_s, gather_start_s + gather_s / num_pieces)
        if lanes.starts_s.shape[0] > 0:
            lanes.starts_s[end, lane] = start_s
        lanes.ends_s[end, lane] = end_s
        lanes.free_s[stage, lane] = end_s + lanes.wait_s[kind, lane]


@inner_uncounted
def _play_gradient(
    lanes: Lanes,
    sync_s: FloatArray,
    stage: np.uint64,
    awaited: np.uint64,
    end: np.uint64,
    duration: np.uint64,
    kind: np.uint64,
) -> None:
    """Plays the operation that completes gradients of a chunk, which are reduced piece by piece as they arrive."""
    chunk = kind % len(lanes.stages)
    for lane in range(len(lanes.send_s)):
        start_s = max(lanes.free_s[stage, lane], lanes.ends_s[awaited, lane] + lanes.send_s[lane])
        duration_s = lanes.duration_s[duration, lane]
        num_pieces = lanes.num_overlap_buckets[chunk, lane]
        if num_pieces > 0:
            lanes.network_free_s[stage, lane] = streamed_end_s(
                start_s, duration_s, lanes.network_free_s[stage, lane], sync_s[chunk, lane], num_pieces
            )
        lanes.ends_s[end, lane] = start_s + duration_s
        lanes.last_end_s[stage, lane] = start_s + duration_s
        lanes.free_s[stage, lane] = start_s + duration_s + lanes.wait_s[kind, lane]


@inlined
def streamed_end_s(
    producer_start_s: float, producer_s: float, consumer_free_s: float, consumer_s: float, num_pieces: int
) -> float:
    """Returns when a consumer of K equal pieces finishes, with each piece taken no sooner than it is produced.

    With a the producer's start, x its duration, u the time from which the consumer is free and y its duration, piece k arrives
    at a + (k+1) x/K and leaves K-k pieces to consume, hence

        end = max(u + y, max_k [a + (k+1) x/K + (K-k) y/K]);

    the inner maximum is linear in k and so at the first or at the last piece.
    """
    first_piece_s = producer_start_s + producer_s / num_pieces + consumer_s
    last_piece_s = producer_start_s + producer_s + consumer_s / num_pieces
    return max(consumer_free_s + consumer_s, first_piece_s, last_piece_s)


@inner_uncounted
def _write_stage_ends(lanes: Lanes, ends_s: FloatArray, lane: int) -> None:
    """Writes when each stage has finished its last backward and all its gradient syncs; chunks are synced in model order."""
    for stage in range(len(lanes.last_end_s)):
        ends_s[stage] = max(lanes.last_end_s[stage, lane], lanes.network_free_s[stage, lane])
    for chunk in range(len(lanes.stages)):
        if lanes.num_overlap_buckets[chunk, lane] == 0:
            ends_s[lanes.stages[chunk]] += lanes.sync_s[chunk, lane]


@inner_uncounted
def _write_results(
    batch: PipelineBatch,
    order: PipelineOrder,
    lanes: Lanes,
    results: PipelineResults,
    row: int,
    lane: int,
    twin: int,
) -> None:
    """Writes a played design into its row of the results; the twin's ends are those without delays by traffic."""
    c, m = order.shape.num_chunks, order.shape.num_micro_batches
    step_s = undelayed_s = 0.0
    _write_stage_ends(lanes, results.stage_end_s[row], lane)
    for stage in range(order.shape.num_stages):
        step_s = max(step_s, results.stage_end_s[row, stage])
        undelayed_s = max(undelayed_s, lanes.last_end_s[stage, twin])
        results.peak_in_flight[row, stage] = order.peak_in_flight[stage]
    results.step_s[row] = step_s
    results.exposed_sync_s[row] = step_s - undelayed_s
    for chunk in range(c):
        stage = lanes.stages[chunk]
        both_s = batch.chunk_forward_s[row, chunk] + batch.chunk_backward_s[row, chunk]
        results.busy_s[row, stage] += m * both_s
        if order.shape.schedule == DUAL_PIPE_V:
            hidden_s = (
                num_paired(order.shape, chunk) * batch.chunk_hidden_forward_s[row, chunk]
                + num_paired(order.shape, c - 1 - chunk) * batch.chunk_hidden_backward_s[row, chunk]
            )
            results.busy_s[row, stage] -= hidden_s
            results.hidden_s[row] += hidden_s
        if batch.send_blocks_sender[row]:
            num_sends = m * (int(chunk > 0) + int(chunk + 1 < c))
            results.send_busy_s[row, stage] += num_sends * lanes.send_s[lane]
