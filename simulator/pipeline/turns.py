"""In which order does a stage work? Its forwards and backwards under every schedule, independent of other stages.

    1F1B       Narayanan et al., arXiv 2104.04473: warm-up forwards, then one forward, one backward in turn; interleaved
               with several chunks on a stage, each for a group of p micro-batches in turn, or of N (Megatron Core,
               `get_schedule_table`; Llama 3, arXiv 2407.21783, section 3.3.2), of which the last may be smaller
    GPipe      Huang et al., arXiv 1811.06965: all forwards, then all backwards
    ZB-H1      Qi et al., arXiv 2401.10241, section 3: as 1F1B, but a backward only computes the gradient that the stage
               before waits for. Stage r computes weight gradients r micro-batches later, so that every stage holds p
    ZB-V       the same, section 6: two chunks on a stage, the second ones laid out backwards, so that the first stage also
               has the last chunk and no stage idles between its first and its last operation where all three take as long
    DualPipeV  the same chunks, and forwards of one beside backwards of the other (`simulator.pipeline.dual_pipe`)

Kinds of operations are numbered: forwards by chunk, then backwards by chunk, then weight gradients by chunk.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from simulator.compiled import compiled, inner
from simulator.pipeline.dual_pipe import fill_dual_pipe_v
from simulator.pipeline.shape import DUAL_PIPE_V, GPIPE, ZB_H1, ZB_V, PipelineShape, num_directions


@compiled
def turns_of_stages(shape: PipelineShape) -> npt.NDArray[np.int32]:
    """Returns the kinds of each stage's operations in its own order, `(P, K)`."""
    num_each_way = shape.num_chunks // shape.num_stages * shape.num_micro_batches
    turns = np.empty((shape.num_stages, num_directions(shape.schedule) * num_each_way), dtype=np.int32)
    for stage in range(shape.num_stages):
        fill_turns(shape, stage, turns[stage])
    return turns


@compiled
def fill_turns(shape: PipelineShape, stage: int, turns: npt.NDArray[np.int32]) -> None:
    """Writes the kinds of one stage's operations in its order, `(K,)`."""
    if shape.schedule == ZB_H1:
        _fill_zb_h1(shape, stage, turns)
    elif shape.schedule == ZB_V:
        _fill_zb_v(shape, stage, turns)
    elif shape.schedule == DUAL_PIPE_V:
        fill_dual_pipe_v(shape, stage, turns)
    else:
        _fill_in_turn(shape, stage, turns)


@inner
def peaks_in_flight(shape: PipelineShape, turns: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.int32], int]:
    """Returns the most activations that each stage holds until they are no longer needed, `(P,)`, and most results of a chunk.

    A result is counted from the forward to the backward of its chunk.
    """
    c, num_ways = shape.num_chunks, num_directions(shape.schedule)
    peaks, results, most_results = np.zeros(shape.num_stages, np.int32), np.zeros(c, np.int64), 0
    for stage in range(shape.num_stages):
        held = most_held = 0
        for kind in turns[stage]:
            if kind < c:
                held += 1
                most_held = max(most_held, held)
                results[np.uint64(kind)] += 1
                most_results = max(most_results, results[np.uint64(kind)])
            elif kind < 2 * c:
                results[np.uint64(kind - c)] -= 1
            if kind >= (num_ways - 1) * c:
                held -= 1
        peaks[stage] = most_held
    return peaks, most_results


@inner
def _fill_in_turn(shape: PipelineShape, stage: int, turns: npt.NDArray[np.int32]) -> None:
    """Writes the order of 1F1B, plain or interleaved, or of GPipe.

    A schedule of w warm-up forwards followed by alternating forwards and backwards is equivalent to this rule: run a forward
    whenever at most w activations are held, else a backward. GPipe never stops warming up. With v chunks on a stage and groups
    of N, w is 2 (p - 1 - r) + (v - 1) N (Megatron Core, `get_pp_rank_microbatches`).
    """
    p, c = shape.num_stages, shape.num_chunks
    num_each_way, v = len(turns) // 2, c // p
    num_warm_up = p - 1 - stage if c == p else 2 * (p - 1 - stage) + (v - 1) * shape.group_size
    if shape.schedule == GPIPE:
        num_warm_up = num_each_way
    chunks = _chunks_in_groups(shape, stage)
    num_forwards = num_backwards = 0
    for place in range(len(turns)):
        if num_forwards < num_each_way and num_forwards - num_backwards <= num_warm_up:
            turns[place] = chunks[num_forwards]
            num_forwards += 1
        else:
            # Backwards pass the chunks of the stage the other way round, from its last one to its first.
            turns[place] = c + (2 * stage + c - p - chunks[num_backwards])
            num_backwards += 1


@inner
def _chunks_in_groups(shape: PipelineShape, stage: int) -> npt.NDArray[np.int32]:
    """Returns the chunk of every forward of a stage in its order, `(v m,)`: all of it for a group, then for the next one."""
    p, c, m = shape.num_stages, shape.num_chunks, shape.num_micro_batches
    group = m if c == p else shape.group_size
    chunks, place = np.empty(c // p * m, dtype=np.int32), 0
    for first in range(0, m, group):
        num = min(group, m - first)
        for chunk in range(stage, c, p):
            chunks[place : place + num] = chunk
            place += num
    return chunks


@inner
def _fill_zb_h1(shape: PipelineShape, stage: int, turns: npt.NDArray[np.int32]) -> None:
    """Writes the order of ZB-H1: a weight gradient whenever more than `stage` of them are due, else as 1F1B."""
    c, m = shape.num_chunks, shape.num_micro_batches
    num_warm_up = shape.num_stages - 1 - stage
    num_forwards = num_backwards = num_weights = 0
    for place in range(len(turns)):
        if num_backwards - num_weights > stage:
            turns[place] = 2 * c + stage
            num_weights += 1
        elif num_forwards < m and num_forwards - num_backwards <= num_warm_up:
            turns[place] = stage
            num_forwards += 1
        elif num_backwards < m:
            turns[place] = c + stage
            num_backwards += 1
        else:
            turns[place] = 2 * c + stage
            num_weights += 1


@inner
def _fill_zb_v(shape: PipelineShape, stage: int, turns: npt.NDArray[np.int32]) -> None:
    """Writes the order of ZB-V for at least 2p - 1 micro-batches, leaving out those that do not exist.

    With a and b the first and the second chunk of stage r, and every backward (B) but those of the cool-down followed
    by its weight gradient (W): 2 (p - r) - 1 times Fa; r times Fb Fa; p - r times Fb BWb; then Fa BWa Fb BWb in turn
    until forwards run out; r times Ba Bb; p - r times Ba and a W of a; at last the weight gradients that are left.
    """
    p, c, m = shape.num_stages, shape.num_chunks, shape.num_micro_batches
    first, second = stage, c - 1 - stage
    done = np.zeros(3 * c, dtype=np.int64)
    place = 0
    for _ in range(2 * (p - stage) - 1):
        place = _append(turns, place, done, first, m)
    for _ in range(stage):
        place = _append(turns, place, done, second, m)
        place = _append(turns, place, done, first, m)
    for _ in range(p - stage):
        place = _append(turns, place, done, second, m)
        place = _append_backward(turns, place, done, c, second, m)
    num_padded = max(2 * p - 1, m)
    while done[second] < num_padded:
        if done[first] < num_padded:
            place = _append(turns, place, done, first, m)
        place = _append_backward(turns, place, done, c, first, m)
        place = _append(turns, place, done, second, m)
        place = _append_backward(turns, place, done, c, second, m)
    for _ in range(stage):
        place = _append(turns, place, done, c + first, m)
        place = _append(turns, place, done, c + second, m)
    for _ in range(p - stage):
        place = _append(turns, place, done, c + first, m)
        place = _append(turns, place, done, 2 * c + first, m)
    for chunk in (second, first):
        while done[2 * c + chunk] < done[c + chunk]:
            place = _append(turns, place, done, 2 * c + chunk, m)


@inner
def _append_backward(
    turns: npt.NDArray[np.int32],
    place: int,
    done: npt.NDArray[np.int64],
    num_chunks: int,
    chunk: int,
    num_micro_batches: int,
) -> int:
    """Appends a backward and its weight gradient; returns the next place."""
    place = _append(turns, place, done, num_chunks + chunk, num_micro_batches)
    return int(_append(turns, place, done, 2 * num_chunks + chunk, num_micro_batches))


@inner
def _append(
    turns: npt.NDArray[np.int32], place: int, done: npt.NDArray[np.int64], kind: int, num_micro_batches: int
) -> int:
    """Appends the next operation of a kind, unless there is no such micro-batch; returns the next place."""
    if done[kind] < num_micro_batches:
        turns[place] = kind
        place += 1
    done[kind] += 1
    return place
