"""What happened in one run, event by event? The event loop of `simulator.run.kernel` with a log.

The same functions play the run with the same luck. Only the loop over the saves of an up-time is written separately, because
that of `simulator.run.up_time` sums undisturbed saves without visiting each.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from simulator.compiled import compiled, inlined
from simulator.run.columns import MAX_NODES_IN_REPAIR
from simulator.run.draws import luck_of
from simulator.run.kernel import (
    MAX_FAILURES,
    begin_up_time,
    come_back,
    most_slots,
    next_interruption,
    num_interruptions,
    roll_back,
    start,
)
from simulator.run.state import SAVE, STATE, FloatArray, Records, RunDesign, RunState, record_type
from simulator.run.up_time import (
    SKIP,
    TIE_FRACTION,
    WAIT,
    commit,
    first_due_s,
    play_up_time,
    save,
    save_is_due,
    skip,
    wait,
    work,
)
from simulator.table import Integers

FIRST_INTERRUPTION = 0
"""Code of the first kind of `simulator.run.columns.Interruption`; other logged events follow those four."""
SAVE_STALL, BACKPRESSURE, COMMIT, DURABLE_WRITE, REDUCED, SAVE_AHEAD, REPLACEMENT, RESTART, RESTORE = range(
    4, 13
)
"""Codes of `simulator.run_timeline.RunEventKind`."""


class LoggedEvent(Protocol):
    """One line of the log; a record to the compiler."""

    kind: int
    start_s: float
    end_s: float
    value_s: float
    """Of an interruption, the work that it loses; of a save, the work that it holds."""


LOGGED = record_type(LoggedEvent)
"""`LoggedEvent` as one record."""


class RunLog(NamedTuple):
    """The log that is written while a run is played."""

    events: Records
    """`LOGGED`, `(m,)`."""
    num: Integers
    """`(1,)` number of events, including those that did not fit."""


@compiled
def log_run(
    designs: Records, work_s: float, seed: int, replication: int, logs_saves: bool, events: Records
) -> int:
    """Plays a run into a log and returns the number of events, including those that did not fit.

    Returns -1 for a run that is interrupted too often to end.
    """
    design, luck, log = designs[0], luck_of(seed, replication), RunLog(events, np.zeros(1, dtype=np.int64))
    states, saves = np.zeros(1, dtype=STATE), np.zeros(most_slots(designs), dtype=SAVE)
    state, returns_s = states[0], np.zeros(MAX_NODES_IN_REPAIR)
    start(state, work_s, design.num_spares)
    for index in range(MAX_FAILURES):
        up_s = begin_up_time(design, luck, index, state)
        _note(log, REDUCED, state.wall_s, state.wall_s + state.now_s, 0.0)
        is_done = (
            _log_up_time(design, up_s, state, saves, log)
            if logs_saves
            else play_up_time(design, up_s, state, saves)
        )
        state.wall_s += state.now_s
        if is_done:
            return int(log.num[0])
        kind, is_fast_alive = next_interruption(design, luck, state)
        _log_roll_back(design, kind, is_fast_alive, state, saves, log)
        _log_way_back(design, luck, kind, is_fast_alive, state, returns_s, log)
        if num_interruptions(state) >= MAX_FAILURES:
            break
    return -1


@compiled
def _log_up_time(design: RunDesign, up_s: float, state: RunState, saves: Records, log: RunLog) -> bool:
    """As `play_up_time`, save by save."""
    state.num_uncommitted = 0
    state.due_s = first_due_s(design, state)
    while state.done_s < state.work_s:
        if state.now_s >= up_s:
            return False
        is_due = save_is_due(design, state)
        commit(design, state, saves, TIE_FRACTION * design.interval_s if is_due else 0.0)
        if is_due and state.num_uncommitted < design.slots:
            _log_save(design, up_s, state, saves, log)
        elif is_due and design.policy == WAIT:
            start_s = state.wall_s + state.now_s
            wait(up_s, state, saves)
            _note(log, BACKPRESSURE, start_s, state.wall_s + state.now_s, 0.0)
        else:
            if is_due and design.policy == SKIP:
                skip(design, state, saves)
            work(design, up_s, state, saves)
    return True


@inlined
def _log_save(design: RunDesign, up_s: float, state: RunState, saves: Records, log: RunLog) -> None:
    """Saves; an interrupted stall leaves no save."""
    start_s, num_saved, num_writing = state.wall_s + state.now_s, state.num_saved, state.num_saved_writing
    save(design, up_s, state, saves)
    end_s = state.wall_s + state.now_s
    _note(log, SAVE_STALL, start_s, end_s, state.done_s)
    if state.num_saved > num_saved:
        _note(log, COMMIT, end_s, end_s + design.commit_s, state.done_s)
    if state.num_saved_writing > num_writing:
        _note(log, DURABLE_WRITE, end_s, state.wall_s + state.written_at_s, state.done_s)


@inlined
def _log_roll_back(
    design: RunDesign, kind: int, is_fast_alive: bool, state: RunState, saves: Records, log: RunLog
) -> None:
    at_s, lost_s, was_writing = state.wall_s, state.lost_work_s, state.written_at_s < np.inf
    roll_back(design, kind, is_fast_alive, state, saves)
    _cut_write(log, at_s, state, was_writing)
    _note_always(log, FIRST_INTERRUPTION + kind, at_s, at_s, state.lost_work_s - lost_s)
    _note(log, SAVE_AHEAD, at_s, state.wall_s, state.done_s)


@inlined
def _log_way_back(
    design: RunDesign,
    luck: np.uint64,
    kind: int,
    is_fast_alive: bool,
    state: RunState,
    returns_s: FloatArray,
    log: RunLog,
) -> None:
    """The parts of the recovery in sequence; for one that failed and began anew, the sum of each part."""
    at_s, wait_s, restart_s = state.wall_s, state.replacement_wait_s, state.restart_s
    lost_s, was_writing = state.lost_work_s, state.written_at_s < np.inf
    come_back(design, luck, kind, is_fast_alive, state, returns_s)
    _cut_write(log, at_s, state, was_writing)
    waited_s = at_s + (state.replacement_wait_s - wait_s)
    restarted_s = waited_s + (state.restart_s - restart_s)
    _note(log, REPLACEMENT, at_s, waited_s, 0.0)
    _note(log, RESTART, waited_s, restarted_s, state.lost_work_s - lost_s)
    _note(log, RESTORE, restarted_s, state.wall_s, 0.0)


@inlined
def _cut_write(log: RunLog, at_s: float, state: RunState, was_writing: bool) -> None:
    """Ends a write to the durable level that an interruption has cut off."""
    if was_writing and state.written_at_s == np.inf and state.durable_s != state.writing_s:
        row = min(log.num[0], len(log.events)) - 1
        while row >= 0 and log.events[row].kind != DURABLE_WRITE:
            row -= 1
        if row >= 0:
            log.events[row].end_s = min(log.events[row].end_s, at_s)


@inlined
def _note(log: RunLog, kind: int, start_s: float, end_s: float, value_s: float) -> None:
    """Logs an event, unless it takes no time."""
    if end_s > start_s:
        _note_always(log, kind, start_s, end_s, value_s)


@inlined
def _note_always(log: RunLog, kind: int, start_s: float, end_s: float, value_s: float) -> None:
    if log.num[0] < len(log.events):
        event = log.events[log.num[0]]
        event.kind = kind
        event.start_s = start_s
        event.end_s = end_s
        event.value_s = value_s
    log.num[0] += 1
