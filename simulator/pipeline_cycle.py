"""When does a pipeline only repeat itself? Then the micro-batches that are left need not be played one by one.

A stage does what its inputs and its own order allow, and every end is the larger of two times plus a duration. So what
comes next depends on differences of times alone: when all clocks, and all results that wait between stages, are as they
were a while ago but for one and the same delay, the pipeline goes on like that until its forwards run out (a periodic
regime of a max-plus linear system; Baccelli, Cohen, Olsder and Quadrat, Synchronization and Linearity, 1992, chapter 3).
Whole periods are then skipped by moving counters and times forward, which is exact up to rounding.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from simulator.compiled import compiled

Records = npt.NDArray[np.void]

TOLERANCE_FRACTION = 1e-12
"""Share of the time played by which equal delays may differ: what rounding does to sums of thousands of durations."""


@compiled
def remember(chunks: Records, stages: Records, num_chunks: int, num_stages: int) -> None:
    """Notes how far each chunk is and when each stage is free; the ends of operations stay in their spans."""
    for chunk in range(num_chunks):
        chunks[chunk].then_forwards = chunks[chunk].num_forwards
        chunks[chunk].then_backwards = chunks[chunk].num_backwards
    for stage in range(num_stages):
        stages[stage].then_free_s = stages[stage].compute_free_s


@compiled
def repeated_micro_batches(
    chunks: Records, stages: Records, spans: Records, num_chunks: int, num_stages: int
) -> int:
    """Returns how many micro-batches after the remembered moment the pipeline is in the same state; 0 if it is not."""
    if (
        chunks[num_chunks - 1].then_forwards == 0
    ):  # the first forwards are special: they wait for their parameters
        return 0
    num = int(chunks[0].num_forwards - chunks[0].then_forwards)
    # The turns of chunks on a stage repeat after p micro-batches of each.
    if num <= 0 or (num_chunks > num_stages and num % num_stages != 0):
        return 0
    have_advanced = _have_advanced(chunks, num_chunks, num)
    if have_advanced and _are_delayed(chunks, stages, spans, num_chunks, num_stages, num):
        return num
    return 0


@compiled
def _have_advanced(chunks: Records, num_chunks: int, num: int) -> bool:
    """Whether every chunk has done so many forwards and backwards since the remembered moment."""
    for chunk in range(num_chunks):
        if chunks[chunk].num_forwards - chunks[chunk].then_forwards != num:
            return False
        if chunks[chunk].num_backwards - chunks[chunk].then_backwards != num:
            return False
    return True


@compiled
def _are_delayed(
    chunks: Records, stages: Records, spans: Records, num_chunks: int, num_stages: int, num: int
) -> bool:
    """Whether all clocks, and the ends of all results that wait for the next chunk, have moved by the same delay."""
    delay_s = stages[0].compute_free_s - stages[0].then_free_s
    largest_s = delay_s
    least_s = delay_s
    for stage in range(num_stages):
        moved_s = stages[stage].compute_free_s - stages[stage].then_free_s
        largest_s, least_s = max(largest_s, moved_s), min(least_s, moved_s)
    for chunk in range(num_chunks - 1):
        for waiting in range(chunks[chunk + 1].num_forwards, chunks[chunk].num_forwards):
            moved_s = spans[chunk, waiting].forward_end_s - spans[chunk, waiting - num].forward_end_s
            largest_s, least_s = max(largest_s, moved_s), min(least_s, moved_s)
        for waiting in range(chunks[chunk].num_backwards, chunks[chunk + 1].num_backwards):
            moved_s = (
                spans[chunk + 1, waiting].backward_end_s - spans[chunk + 1, waiting - num].backward_end_s
            )
            largest_s, least_s = max(largest_s, moved_s), min(least_s, moved_s)
    return bool(largest_s - least_s <= TOLERANCE_FRACTION * stages[0].compute_free_s)


@compiled
def skip(
    chunks: Records, stages: Records, spans: Records, num_chunks: int, num_stages: int, num_periods: int
) -> int:
    """Moves the pipeline forward by whole periods since the remembered moment; returns the operations skipped."""
    num = num_periods * (chunks[0].num_forwards - chunks[0].then_forwards)
    delay_s = num_periods * (stages[0].compute_free_s - stages[0].then_free_s)
    for chunk in range(num_chunks - 1):  # from behind, since a place may be read after another one is written
        for waiting in range(chunks[chunk].num_forwards - 1, chunks[chunk + 1].num_forwards - 1, -1):
            spans[chunk, waiting + num].forward_end_s = spans[chunk, waiting].forward_end_s + delay_s
        for waiting in range(chunks[chunk + 1].num_backwards - 1, chunks[chunk].num_backwards - 1, -1):
            spans[chunk + 1, waiting + num].backward_end_s = (
                spans[chunk + 1, waiting].backward_end_s + delay_s
            )
    for chunk in range(num_chunks):
        chunks[chunk].num_forwards += num
        chunks[chunk].num_backwards += num
    for stage in range(num_stages):
        stages[stage].num_forwards += num * (num_chunks // num_stages)
        stages[stage].num_backwards += num * (num_chunks // num_stages)
        stages[stage].compute_free_s += delay_s
    return int(2 * num * num_chunks)
