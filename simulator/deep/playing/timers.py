"""Which duration ends next? A queue of those that were begun in the order in which they end, and a heap of the others.

Most durations of a step are latencies with few different values: of equal ones, a later one ends later, and joins the end of
the queue at no cost. Equal times come in the order of their tasks, as from one heap.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simulator.compiled import inner_uncounted
from simulator.deep.networks.heap import pop, push
from simulator.table import Floats, Integers

BEGIN, END, HEAP = 0, 1, 2


class Timers(NamedTuple):
    """Durations that run, at most one for each of n tasks in the whole."""

    line_s: Floats
    """`(n,)` when they end, in order."""
    line_task: Integers
    heap_s: Floats
    """`(n,)`."""
    heap_task: Integers
    sizes: Integers
    """`(3,)` first position of the line, the position after its last, number of entries in the heap."""


def new_timers(num_tasks: int) -> Timers:
    """Returns timers, none of which runs; arrays of zeros take no memory until something is written there."""
    return Timers(
        line_s=np.zeros(num_tasks),
        line_task=np.zeros(num_tasks, dtype=np.int64),
        heap_s=np.zeros(num_tasks),
        heap_task=np.zeros(num_tasks, dtype=np.int64),
        sizes=np.zeros(3, dtype=np.int64),
    )


@inner_uncounted
def set_timer(timers: Timers, task: int, end_s: float) -> None:
    """Records when the duration of a task ends."""
    place = timers.sizes[END]
    is_last = place == timers.sizes[BEGIN]
    if not is_last:
        last_s = timers.line_s[place - 1]
        is_last = end_s > last_s or (end_s == last_s and task > timers.line_task[place - 1])
    if is_last:
        timers.line_s[place] = end_s
        timers.line_task[place] = task
        timers.sizes[END] = place + 1
    else:
        timers.sizes[HEAP] = push(timers.heap_s, timers.heap_task, timers.sizes[HEAP], end_s, task)


@inner_uncounted
def next_timer_s(timers: Timers) -> float:
    """When the next duration ends; `inf` if none runs."""
    heap_s = timers.heap_s[0] if timers.sizes[HEAP] > 0 else np.inf
    place = timers.sizes[BEGIN]
    line_s = timers.line_s[place] if place < timers.sizes[END] else np.inf
    return float(min(heap_s, line_s))


@inner_uncounted
def next_timer(timers: Timers) -> int:
    """Removes the duration that ends next; returns its task, of equal ones the one with the lower number."""
    place = timers.sizes[BEGIN]
    is_heap = timers.sizes[HEAP] > 0
    if is_heap and place < timers.sizes[END]:
        heap_s, line_s = timers.heap_s[0], timers.line_s[place]
        is_heap = heap_s < line_s or (heap_s == line_s and timers.heap_task[0] < timers.line_task[place])
    if not is_heap:
        timers.sizes[BEGIN] = place + 1
        return int(timers.line_task[place])
    task = timers.heap_task[0]
    timers.sizes[HEAP] = pop(timers.heap_s, timers.heap_task, timers.sizes[HEAP])
    return int(task)
