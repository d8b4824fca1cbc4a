"""What happened in one run, event by event? The event loop of `simulator.run.kernel` with a log.

The same functions play the run with the same luck; only the loop over the saves of an up-time is written anew, since
that of `simulator.run.up_time` adds up the saves that pass without disturbance.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from simulator.compiled import compiled, inlined
from simulator.run.columns import MAX_NODES_IN_REPAIR
from simulator.run.draws import UP_TIME, exponential, luck_of
from simulator.run.kernel import (
    MAX_FAILURES,
    _come_back,
    _fast_survives,
    _num_interruptions,
    _pause,
    _power,
    _roll_back,
    kind_of,
)
from simulator.run.state import SAVE, STATE, FloatArray, Records, RunDesign, RunState
from simulator.run.up_time import (
    SKIP,
    TIE_FRACTION,
    WAIT,
    _save,
    _skip,
    _wait,
    _work,
    commit,
    first_due_s,
    play_up_time,
    save_is_due,
)

FIRST_INTERRUPTION = 0
"""Code of the first kind of `simulator.run.columns.Interruption`; what else is logged follows those four."""
SAVE_STALL, BACKPRESSURE, COMMIT, DURABLE_WRITE, REDUCED, SAVE_AHEAD, REPLACEMENT, RESTART, RESTORE = range(
    4, 13
)
"""Codes of `simulator.run.timeline.RunEventKind`."""


class LoggedEvent(Protocol):
    """One line of the log; a record to the compiler."""

    kind: int
    start_s: float
    end_s: float
    value_s: float
    """Of an interruption the work that it loses; of a save the work that it holds."""


LOGGED = np.dtype(
    [("kind", np.int64), ("start_s", np.float64), ("end_s", np.float64), ("value_s", np.float64)]
)
"""`LoggedEvent` as one record."""


@compiled
def log_run(
    designs: Records, work_s: float, seed: int, replication: int, logs_saves: bool, log: Records
) -> int:
    """Plays a run into a log and returns how many events there were; those that do not fit are only counted.

    Returns -1 for a run that is interrupted too often to end.
    """
    design, states = designs[0], np.zeros(1, dtype=STATE)
    luck = luck_of(seed, replication)
    saves = np.zeros(max(1, design.slots), dtype=SAVE)
    returns_s = np.zeros(MAX_NODES_IN_REPAIR)
    state, num = states[0], 0
    state.work_s, state.spares_left, state.written_at_s = work_s, design.num_spares, np.inf
    for index in range(MAX_FAILURES):
        up_s = design.up_scale_s * _power(exponential(luck, UP_TIME, index), design.inverse_shape)
        _pause(design, up_s, state)
        num = _note(log, num, REDUCED, state.wall_s, state.wall_s + state.now_s, 0.0)
        if logs_saves:
            is_done, num = _log_up_time(design, up_s, state, saves, log, num)
        else:
            is_done = play_up_time(design, up_s, state, saves)
        state.wall_s += state.now_s
        if is_done:
            return num
        serial = _num_interruptions(state)
        kind = kind_of(design, luck, serial, 1.0)
        is_fast_alive = _fast_survives(design, luck, serial, kind)
        num = _log_roll_back(design, kind, is_fast_alive, state, saves, log, num)
        num = _log_way_back(design, luck, kind, is_fast_alive, state, returns_s, log, num)
        if _num_interruptions(state) >= MAX_FAILURES:
            break
    return -1


@compiled
def _log_up_time(
    design: RunDesign, up_s: float, state: RunState, saves: Records, log: Records, num: int
) -> tuple[bool, int]:
    """As `play_up_time`, save by save."""
    state.num_uncommitted = 0
    state.due_s = first_due_s(design, state)
    while state.done_s < state.work_s:
        if state.now_s >= up_s:
            return False, num
        is_due = save_is_due(design, state)
        commit(design, state, saves, TIE_FRACTION * design.interval_s if is_due else 0.0)
        if is_due and state.num_uncommitted < design.slots:
            num = _log_save(design, up_s, state, saves, log, num)
        elif is_due and design.policy == WAIT:
            start_s = state.wall_s + state.now_s
            _wait(up_s, state, saves)
            num = _note(log, num, BACKPRESSURE, start_s, state.wall_s + state.now_s, 0.0)
        else:
            if is_due and design.policy == SKIP:
                _skip(design, state, saves)
            _work(design, up_s, state, saves)
    return True, num


@inlined
def _log_save(design: RunDesign, up_s: float, state: RunState, saves: Records, log: Records, num: int) -> int:
    """Saves; a stall that is interrupted leaves no save."""
    start_s, num_saved, num_writing = state.wall_s + state.now_s, state.num_saved, state.num_saved_writing
    _save(design, up_s, state, saves)
    end_s = state.wall_s + state.now_s
    num = _note(log, num, SAVE_STALL, start_s, end_s, state.done_s)
    if state.num_saved > num_saved:
        num = _note(log, num, COMMIT, end_s, end_s + design.commit_s, state.done_s)
    if state.num_saved_writing > num_writing:
        num = _note(log, num, DURABLE_WRITE, end_s, state.wall_s + state.written_at_s, state.done_s)
    return num


@inlined
def _log_roll_back(
    design: RunDesign,
    kind: int,
    is_fast_alive: bool,
    state: RunState,
    saves: Records,
    log: Records,
    num: int,
) -> int:
    at_s, lost_s, was_writing = state.wall_s, state.lost_work_s, state.written_at_s < np.inf
    _roll_back(design, kind, is_fast_alive, state, saves)
    _cut_write(log, num, at_s, state, was_writing)
    num = _note_always(log, num, FIRST_INTERRUPTION + kind, at_s, at_s, state.lost_work_s - lost_s)
    return _note(log, num, SAVE_AHEAD, at_s, state.wall_s, state.done_s)


@inlined
def _log_way_back(
    design: RunDesign,
    luck: np.uint64,
    kind: int,
    is_fast_alive: bool,
    state: RunState,
    returns_s: FloatArray,
    log: Records,
    num: int,
) -> int:
    """The parts of the way back one after another; of one that failed and began anew, each part in sum."""
    at_s, wait_s, restart_s = state.wall_s, state.replacement_wait_s, state.restart_s
    lost_s, was_writing = state.lost_work_s, state.written_at_s < np.inf
    _come_back(design, luck, kind, is_fast_alive, state, returns_s)
    _cut_write(log, num, at_s, state, was_writing)
    waited_s = at_s + (state.replacement_wait_s - wait_s)
    restarted_s = waited_s + (state.restart_s - restart_s)
    num = _note(log, num, REPLACEMENT, at_s, waited_s, 0.0)
    num = _note(log, num, RESTART, waited_s, restarted_s, state.lost_work_s - lost_s)
    return _note(log, num, RESTORE, restarted_s, state.wall_s, 0.0)


@inlined
def _cut_write(log: Records, num: int, at_s: float, state: RunState, was_writing: bool) -> None:
    """Ends a write to the durable level that an interruption has ended."""
    if was_writing and state.written_at_s == np.inf and state.durable_s != state.writing_s:
        row = min(num, len(log)) - 1
        while row >= 0 and log[row].kind != DURABLE_WRITE:
            row -= 1
        if row >= 0:
            log[row].end_s = min(log[row].end_s, at_s)


@inlined
def _note(log: Records, num: int, kind: int, start_s: float, end_s: float, value_s: float) -> int:
    """Writes what takes any time."""
    return _note_always(log, num, kind, start_s, end_s, value_s) if end_s > start_s else num


@inlined
def _note_always(log: Records, num: int, kind: int, start_s: float, end_s: float, value_s: float) -> int:
    if num < len(log):
        log[num].kind = kind
        log[num].start_s = start_s
        log[num].end_s = end_s
        log[num].value_s = value_s
    return num + 1
