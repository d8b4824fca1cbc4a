"""In which order does a pipeline work? All operations of all stages in one sequence, each after those that it waits for.

Each stage has a fixed order of its own (`simulator.pipeline.turns`), and each operation waits for one elsewhere. Times do not
affect that order, so designs of one shape share it, and `simulator.pipeline.kernel` plays many of them at once.

Ends of operations are stored in rows of a table while others wait for them. In each direction a chunk has as many rows as it
ever has results in flight, rounded up to a power of two, and reuses them in turn. A result has always been consumed when its
row is rewritten, because the next chunk begins its forward before, and ends its backward after, the waiting chunk.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simulator.compiled import compiled, inlined_uncounted, inner
from simulator.pipeline.dual_pipe import is_of_pair, is_paired, leaves_with, num_paired
from simulator.pipeline.shape import DUAL_PIPE_V, PipelineShape, num_directions, stage_of
from simulator.pipeline.turns import peaks_in_flight, turns_of_stages

ROUTINE, FIRST_FORWARD, LAST_GRADIENT, GROUP_GRADIENT = 0, 1, 2, 3
"""Where data-parallel traffic meets the pipeline: at the first forward of a chunk, when its gradients are complete, and when
those of a group are. The last is marked only on request (`mark_groups`)."""
ALWAYS_THERE = 0
"""Row of ends for operations that wait for nothing."""
NOT_YET = -1
STAGE, AWAITED, END, DURATION, KIND, OCCASION = range(6)
"""Columns of operations: the stage; the rows of the end that it waits for, of its own end and of its duration; its kind, which
is direction and chunk; and one of the four occasions."""
NUM_FIELDS = 6


class PipelineOrder(NamedTuple):
    """The operations of one step and the sizes that playing them requires."""

    shape: PipelineShape
    operations: npt.NDArray[np.int32]
    """Shape (2 C m, 6), or (3 C m, 6) where weight gradients are separate operations; one more precedes each pair, which takes
    no time and waits for the input of its backward."""
    num_rows: int
    """Number of rows for ends."""
    peak_in_flight: npt.NDArray[np.int32]
    """Shape (P,): maximum number of (micro-batch, chunk) activations that a stage holds."""


@compiled
def pipeline_order(shape: PipelineShape, keeps_every_end: bool, has_duration_each: bool) -> PipelineOrder:
    """Returns the order of a shape.

    Args:
        shape: schedule, stages, chunks and micro-batches.
        keeps_every_end: whether no row of the ends is reused; the end of micro-batch i is then in row
            1 + kind m + i, where the kind is the chunk, plus C for backwards and 2 C for weight gradients.
        has_duration_each: whether micro-batch i has its duration in row `kind` m + i, instead of all in row `kind`.
    """
    m = shape.num_micro_batches
    turns = turns_of_stages(shape)
    peak_in_flight, most_results = peaks_in_flight(shape, turns)
    num_slots = m
    if not keeps_every_end:
        num_slots = 1
        while num_slots < most_results:
            num_slots *= 2
    operations = _merged(shape, turns, num_slots, m if has_duration_each else 1)
    # The last one is written where pairs meet, and never read.
    num_rows = 2 + num_directions(shape.schedule) * shape.num_chunks * num_slots
    return PipelineOrder(shape, operations, num_rows, peak_in_flight)


@inner
def mark_groups(order: PipelineOrder) -> None:
    """Marks the last backward of each chunk and group of micro-batches; the order is that of interleaved stages."""
    c, group_size, operations = order.shape.num_chunks, order.shape.group_size, order.operations
    num_left = np.full(2 * c, group_size)
    for place in range(len(operations)):
        kind = operations[place, KIND]
        num_left[kind] -= 1
        if num_left[kind] == 0:
            num_left[kind] = group_size
            if kind >= c and operations[place, OCCASION] == ROUTINE:
                operations[place, OCCASION] = GROUP_GRADIENT


class _Merging(NamedTuple):
    """The operations of all stages while they become one sequence; K is the number of kinds."""

    shape: PipelineShape
    num_slots: int
    """Rows for the ends of each kind."""
    mask: int
    """Turns a micro-batch into one of these rows by a bitwise and."""
    durations_of_kind: int
    """Rows for the durations of each kind."""
    awaited_kinds: npt.NDArray[np.int64]
    """Shape (K,): the kind that each kind waits for."""
    is_elsewhere: npt.NDArray[np.bool_]
    """Shape (K,): whether that runs on another stage."""
    num_done: npt.NDArray[np.int64]
    """Shape (K + 1,): how many operations of each kind are in the sequence; the last is m, for those without an input."""
    operations: npt.NDArray[np.int32]
    """The sequence so far, in the columns `STAGE` and so on; later rows are not yet written."""


@inner
def _merged(
    shape: PipelineShape, turns: npt.NDArray[np.int32], num_slots: int, durations_of_kind: int
) -> npt.NDArray[np.int32]:
    """Merges the turns `(P, K m)` of the stages; each stage proceeds until it waits for another one.

    Activations travel up and gradients down, so a sweep advances every stage by about p operations.
    """
    p, num_kinds = shape.num_stages, num_directions(shape.schedule) * shape.num_chunks
    operations = np.empty((turns.size + _num_meetings(shape), NUM_FIELDS), dtype=np.int32)
    num_played = np.zeros(p, dtype=np.int64)
    num_done = np.zeros(num_kinds + 1, dtype=np.int64)
    num_done[num_kinds] = shape.num_micro_batches
    awaited_kinds, is_elsewhere = _awaited_kinds(shape)
    mask = num_slots - 1 if num_slots != shape.num_micro_batches else -1
    merging = _Merging(
        shape, num_slots, mask, durations_of_kind, awaited_kinds, is_elsewhere, num_done, operations
    )
    num = 0
    while num < len(operations):
        num_before = num
        for sweep in range(2 * p):
            stage = sweep if sweep < p else 2 * p - 1 - sweep
            num_played[stage], num = _proceed(merging, turns[stage], stage, num_played[stage], num)
        assert num > num_before
    return operations


@inlined_uncounted
def _proceed(
    merging: _Merging, turns: npt.NDArray[np.int32], stage: int, place: int, num: int
) -> tuple[int, int]:
    """Writes the operations of a stage from a place in its turns on until one has to wait; returns the next place and row."""
    shape, c = merging.shape, merging.shape.num_chunks
    has_pairs = shape.schedule == DUAL_PIPE_V
    while place < len(turns):
        kind = turns[place]
        awaited = _awaited_row(merging, kind)
        if awaited == NOT_YET:
            break
        if has_pairs and kind < c and is_paired(shape, int(kind), merging.num_done[kind]):
            other = 2 * c - 1 - kind
            met = _awaited_row(merging, other)
            if met == NOT_YET:
                break
            _write_meeting(merging, num, stage, met, c + other)
            num += 1
        _write_pass(merging, num, stage, awaited, kind)
        merging.num_done[np.uint64(kind)] += 1
        num += 1
        place += 1
    return place, num


@inner
def _num_meetings(shape: PipelineShape) -> int:
    """Returns the number of operations other than passes, one for each pair."""
    number = 0
    for chunk in range(shape.num_chunks if shape.schedule == DUAL_PIPE_V else 0):
        number += num_paired(shape, chunk)
    return number


@inlined_uncounted
def _awaited_row(merging: _Merging, kind: int) -> int:
    """Returns the row of the end that the next operation of a kind waits for; `NOT_YET` if that has not been played."""
    own = np.uint64(kind)  # an index without a sign needs no look at whether it counts from the end
    micro_batch, awaited = merging.num_done[own], merging.awaited_kinds[own]
    if merging.shape.schedule == DUAL_PIPE_V and merging.is_elsewhere[own]:
        awaited, micro_batch = leaves_with(merging.shape, int(awaited), micro_batch)
    if merging.num_done[np.uint64(awaited)] <= micro_batch:
        return NOT_YET
    if not merging.is_elsewhere[own]:
        return ALWAYS_THERE
    return int(1 + awaited * merging.num_slots + (micro_batch & merging.mask))


@inlined_uncounted
def _write_pass(merging: _Merging, num: int, stage: int, awaited: int, kind: int) -> None:
    """Writes the next forward, backward or weight gradient of a kind."""
    shape, operations = merging.shape, merging.operations
    c, m, micro_batch = shape.num_chunks, shape.num_micro_batches, merging.num_done[np.uint64(kind)]
    num_kinds = num_directions(shape.schedule) * c
    has_one_duration = merging.durations_of_kind == 1
    duration = kind if has_one_duration else kind * m + micro_batch
    if shape.schedule == DUAL_PIPE_V and has_one_duration and is_of_pair(shape, int(kind), micro_batch):
        duration = num_kinds + 1 + kind
    end = 1 + kind * merging.num_slots + (micro_batch & merging.mask)
    _write(operations, num, stage, awaited, end, duration, kind)
    if micro_batch == 0 and kind < c:
        operations[num, OCCASION] = FIRST_FORWARD
    elif micro_batch + 1 == m and kind >= num_kinds - c:
        operations[num, OCCASION] = LAST_GRADIENT


@inlined_uncounted
def _write_meeting(merging: _Merging, num: int, stage: int, awaited: int, kind: int) -> None:
    """Writes the wait of a pair for the input of its backward, which is of this kind: it takes no time, and sends nothing."""
    num_kinds = num_directions(merging.shape.schedule) * merging.shape.num_chunks
    end, duration = 1 + num_kinds * merging.num_slots, num_kinds * merging.durations_of_kind
    _write(merging.operations, num, stage, awaited, end, duration, kind)


@inlined_uncounted
def _write(
    operations: npt.NDArray[np.int32],
    num: int,
    stage: int,
    awaited: int,
    end: int,
    duration: int,
    kind: int,
) -> None:
    row = np.uint64(num)
    operations[row, STAGE], operations[row, AWAITED], operations[row, END] = stage, awaited, end
    operations[row, DURATION], operations[row, KIND], operations[row, OCCASION] = duration, kind, ROUTINE


@inner
def _awaited_kinds(shape: PipelineShape) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Returns, for every kind of operation, the kind that it waits for and whether that runs on another stage.

    The backward of the last chunk follows its own forward, and a weight gradient follows its backward. Both wait for an
    operation of their own stage, which comes earlier in its turns. The first forward waits for nothing: a kind beyond all
    others.
    """
    c = shape.num_chunks
    num_kinds = num_directions(shape.schedule) * c
    awaited, is_elsewhere = np.empty(num_kinds, dtype=np.int64), np.zeros(num_kinds, dtype=np.bool_)
    for kind in range(num_kinds):
        if kind == 0:
            awaited[kind] = num_kinds
        elif kind < c:
            awaited[kind] = kind - 1
        elif kind == 2 * c - 1:
            awaited[kind] = c - 1
        elif kind < 2 * c:
            awaited[kind] = kind + 1
        else:
            awaited[kind] = kind - c
        if awaited[kind] < num_kinds:
            is_elsewhere[kind] = stage_of(shape, kind % c) != stage_of(shape, int(awaited[kind]) % c)
    return awaited, is_elsewhere
