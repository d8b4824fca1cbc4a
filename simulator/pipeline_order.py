"""In which order does a pipeline work? All operations of all stages in one row, each behind those that it waits for.

A stage has a fixed order of forwards and backwards, and each of them waits for one operation elsewhere. Times play no
part in that, so designs of one shape share their order, and `simulator.pipeline_kernel` plays many of them at once.

Ends of operations stand in rows of a table while others wait for them. A chunk has as many rows in each direction as it
ever holds micro-batches, rounded up to a power of two, and writes them in turn: a result has been taken when its row is
written again, because the next chunk begins its forward before, and ends its backward after, the chunk that waits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simulator.compiled import compiled

FORWARD, BACKWARD = 0, 1
"""Directions."""
NUM_DIRECTIONS = 2
ROUTINE, FIRST_FORWARD, LAST_BACKWARD = 0, 1, 2
"""Where data-parallel traffic meets the pipeline: at the first forward and at the last backward of a chunk."""
ALWAYS_THERE = 0
"""Row of the ends that stands for no wait at all."""
STAGE, AWAITED, END, DURATION, KIND, OCCASION = range(6)
"""Columns of operations: the stage, the rows of the end that it waits for and of its own, of its duration, and of its
kind, which is direction and chunk; and one of the three occasions."""
NUM_FIELDS = 6


class PipelineShape(NamedTuple):
    """What the order of a pipeline depends on."""

    num_stages: int
    num_chunks: int
    num_micro_batches: int


class PipelineOrder(NamedTuple):
    """The operations of one step, and what they need."""

    shape: PipelineShape
    operations: npt.NDArray[np.int32]
    """Shape (2 C m, 6)."""
    num_rows: int
    """Rows of the ends."""
    peak_in_flight: npt.NDArray[np.int32]
    """Shape (P,): most (micro-batch, chunk) activations that a stage holds at once."""


@compiled
def pipeline_order(shape: PipelineShape, keeps_every_end: bool, has_duration_each: bool) -> PipelineOrder:
    """Returns the order of a shape.

    Args:
        shape: stages, chunks and micro-batches.
        keeps_every_end: whether no row of the ends is written twice; the end of micro-batch i is then in row
            1 + kind m + i, where the kind is the chunk, plus C for backwards.
        has_duration_each: whether micro-batch i has the duration in row `kind` m + i, instead of all in row `kind`.
    """
    c, m = shape.num_chunks, shape.num_micro_batches
    turns, peak_in_flight, peak_of_chunk = _turns_of_stages(shape)
    num_slots = m
    if not keeps_every_end:
        num_slots = 1
        while num_slots < peak_of_chunk:
            num_slots *= 2
    operations = _merged(shape, turns, num_slots, m if has_duration_each else 1)
    return PipelineOrder(shape, operations, 1 + NUM_DIRECTIONS * c * num_slots, peak_in_flight)


@compiled
def _turns_of_stages(
    shape: PipelineShape,
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], int]:
    """Returns the kinds of each stage's operations in its own order, and the most activations of stages and of a chunk.

    A schedule of w warm-up forwards followed by one forward, one backward in turn is the same as: run a
    forward whenever at most w activations are held, else a backward. Stages do p micro-batches on each chunk in turn.
    """
    p, c, m = shape.num_stages, shape.num_chunks, shape.num_micro_batches
    num_each_way = c // p * m
    turns = np.empty((p, NUM_DIRECTIONS * num_each_way), dtype=np.int32)
    peak_in_flight = np.zeros(p, dtype=np.int32)
    held, peak_of_chunk = np.zeros(c, dtype=np.int64), 0
    for stage in range(p):
        num_warm_up = p - 1 - stage if c == p else 2 * (p - 1 - stage) + c - p
        num_forwards = num_backwards = 0
        forward_chunk, backward_chunk = stage, stage + c - p
        num_left_forward = num_left_backward = m if c == p else p
        for place in range(NUM_DIRECTIONS * num_each_way):
            if num_forwards < num_each_way and num_forwards - num_backwards <= num_warm_up:
                turns[stage, place] = forward_chunk
                held[forward_chunk] += 1
                peak_of_chunk = max(peak_of_chunk, held[forward_chunk])
                num_forwards += 1
                peak_in_flight[stage] = max(peak_in_flight[stage], num_forwards - num_backwards)
                num_left_forward -= 1
                if num_left_forward == 0:
                    forward_chunk = forward_chunk + p if forward_chunk + p < c else stage
                    num_left_forward = p
            else:
                turns[stage, place] = c + backward_chunk
                held[backward_chunk] -= 1
                num_backwards += 1
                num_left_backward -= 1
                if num_left_backward == 0:
                    backward_chunk = backward_chunk - p if backward_chunk >= p else stage + c - p
                    num_left_backward = p
    return turns, peak_in_flight, peak_of_chunk


@compiled
def _merged(
    shape: PipelineShape, turns: npt.NDArray[np.int32], num_slots: int, durations_of_kind: int
) -> npt.NDArray[np.int32]:
    """Merges the turns `(P, K)` of the stages, of which each goes on until it waits for another one.

    Activations travel up and gradients down, so that a sweep moves every stage by about p operations.
    """
    p, c, m = shape.num_stages, shape.num_chunks, shape.num_micro_batches
    operations = np.empty((turns.size, NUM_FIELDS), dtype=np.int32)
    num_played = np.zeros(p, dtype=np.int64)
    num_done = np.zeros(NUM_DIRECTIONS * c, dtype=np.int64)
    awaited_kinds = np.arange(-1, NUM_DIRECTIONS * c - 1)
    awaited_kinds[c:] += 2
    awaited_kinds[-1] = -1  # the last chunk goes back behind its own forward
    mask = num_slots - 1 if num_slots != m else -1
    num = 0
    while num < len(operations):
        num_before = num
        for sweep in range(2 * p):
            stage = sweep if sweep < p else 2 * p - 1 - sweep
            while num_played[stage] < turns.shape[1]:
                kind = turns[stage, num_played[stage]]
                micro_batch = num_done[kind]
                awaited = awaited_kinds[kind]
                slot = micro_batch & mask
                operations[num, STAGE] = stage
                operations[num, AWAITED] = ALWAYS_THERE
                if awaited >= 0:
                    if num_done[awaited] <= micro_batch:
                        break
                    operations[num, AWAITED] = 1 + awaited * num_slots + slot
                operations[num, END] = 1 + kind * num_slots + slot
                operations[num, DURATION] = kind if durations_of_kind == 1 else kind * m + micro_batch
                operations[num, KIND] = kind
                operations[num, OCCASION] = ROUTINE
                if kind < c and micro_batch == 0:
                    operations[num, OCCASION] = FIRST_FORWARD
                elif kind >= c and micro_batch + 1 == m:
                    operations[num, OCCASION] = LAST_BACKWARD
                num_done[kind] += 1
                num_played[stage] += 1
                num += 1
        assert num > num_before
    return operations
