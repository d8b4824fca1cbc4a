"""In which order does a stage work under DualPipeV, and which of its operations run as pairs?

DualPipeV is the half of DualPipe (DeepSeek-V3, arXiv 2412.19437, section 3.2.1) that remains after cutting it in the middle and
folding it, as published by its authors (deepseek-ai/DualPipe, `dualpipev.py`; PyTorch, `ScheduleDualPipeV`): each stage has two
chunks, laid out in a V. With a and b the first and the second chunk of stage r, m >= 2 p micro-batches, F a forward, B a whole
backward, I the part of it that another stage waits for, W the gradients of its weights, and (F B) a pair:

    2 (p - 1 - r) times Fa; r + 1 times Fa Fb; p - 1 - r times Ib Wb Fb; m - 2 p + r + 1 times (Fa Bb) (Fb Ba);
    p - 1 - r times Bb (Fb Ba); r + 1 times Bb Ba, from the middle on Ib Ia; p - 1 - r times W Ia; at last the W that are left

DualPipe itself has p stages on p devices, and half of the micro-batches begin on the last one, where stage p - 1 - r sits next
to stage r of the other half. So devices r and p - 1 - r do the same, and together they do what one of p/2 DualPipeV devices
does for two replicas: DualPipe with p stages and m micro-batches is DualPipeV with p/2 and m/2 on twice the replicas. Both have
the bubble (p/2 - 1)(F&B + B - 3 W) of p stages and two of them on a device (deepseek-ai/DualPipe, README.md: p devices and
p/2).

The last stage omits its first (Fa Bb), which leaves a smaller bubble. A pair begins when both operations have their inputs, and
both results leave when it ends. The result of a whole backward leaves after its weight gradients.

Counting operations shows that on every stage, micro-batch j of a forward pairs with micro-batch j - p of the other chunk's
backward.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from simulator.compiled import compiled, inner
from simulator.pipeline.shape import PipelineShape


@inner
def is_paired(shape: PipelineShape, chunk: int, micro_batch: int) -> bool:
    """Returns whether a forward is paired with a backward: that of micro-batch j - p through the other chunk of its stage."""
    p = shape.num_stages
    if chunk >= p:
        return micro_batch >= p
    return micro_batch >= max(2 * p - 1 - chunk, p + 1)


@inner
def is_whole(shape: PipelineShape, chunk: int, micro_batch: int) -> bool:
    """Returns whether the result of a backward leaves after its weight gradients, which follow immediately."""
    p, m = shape.num_stages, shape.num_micro_batches
    if chunk < p:
        return micro_batch < m - p + (chunk + 1) // 2
    stage = shape.num_chunks - 1 - chunk
    return p - 1 - stage <= micro_batch < m - stage - 1 + (stage + 2) // 2


@compiled
def leaves_with(shape: PipelineShape, kind: int, micro_batch: int) -> tuple[int, int]:
    """Returns the operation, by kind and micro-batch, at whose end the result of a forward or backward leaves its stage."""
    c = shape.num_chunks
    if kind < c and is_paired(shape, kind, micro_batch):
        return 3 * c - 1 - kind, micro_batch - shape.num_stages
    if c <= kind < 2 * c and is_whole(shape, kind - c, micro_batch):
        return kind + c, micro_batch
    return kind, micro_batch


@inner
def num_paired(shape: PipelineShape, chunk: int) -> int:
    """Returns how many forwards of a chunk are paired with a backward of the other chunk."""
    p = shape.num_stages
    return shape.num_micro_batches - (p if chunk >= p else max(2 * p - 1 - chunk, p + 1))


@compiled
def is_of_pair(shape: PipelineShape, kind: int, micro_batch: int) -> bool:
    """Returns whether an operation is the forward or the backward of a pair; the weight gradients after it are not."""
    c, p = shape.num_chunks, shape.num_stages
    if kind < c:
        return is_paired(shape, kind, micro_batch)
    other = 2 * c - 1 - kind
    return (
        kind < 2 * c
        and micro_batch + p < shape.num_micro_batches
        and is_paired(shape, other, micro_batch + p)
    )


@inner
def fill_dual_pipe_v(shape: PipelineShape, stage: int, turns: npt.NDArray[np.int32]) -> None:
    """Writes the order of a stage; the two operations of a pair are adjacent."""
    p, c, m = shape.num_stages, shape.num_chunks, shape.num_micro_batches
    a, b, behind = stage, c - 1 - stage, p - 1 - stage
    there, back = np.array([a, c + b, 2 * c + b]), np.array([b, c + a, 2 * c + a])
    place = _repeat(turns, 0, 2 * behind, np.array([a]))
    place = _repeat(turns, place, stage + 1, np.array([a, b]))
    place = _repeat(turns, place, behind, np.array([c + b, 2 * c + b, b]))
    place = _repeat(turns, place, m - 2 * p + stage + 1, np.concatenate((there, back)))
    place = _repeat(turns, place, behind, np.concatenate((there[1:], back)))
    owed, num_owed = np.empty(p, np.int64), 0
    for number in range(stage + 1):
        for chunk, micro_batch in ((b, m - stage - 1 + number), (a, m - p + number)):
            turns[place] = c + chunk
            place += 1
            if is_whole(shape, chunk, micro_batch):
                turns[place] = 2 * c + chunk
                place += 1
            else:
                owed[num_owed] = chunk
                num_owed += 1
    owed[num_owed:] = a
    for number in range(p):
        turns[place] = 2 * c + owed[number]
        place += 1
        if number < behind:
            turns[place] = c + a
            place += 1


@inner
def _repeat(turns: npt.NDArray[np.int32], place: int, number: int, kinds: npt.NDArray[np.int64]) -> int:
    """Writes a sequence of kinds repeatedly; returns the next place."""
    for _ in range(number):
        turns[place : place + len(kinds)] = kinds
        place += len(kinds)
    return place
