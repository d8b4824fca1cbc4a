"""What happens between two interruptions of a run? The up-time in the compiled event loop, with its saves.

Four things can happen next: the work until the next save (or the end) is done, a save commits, a wait for a slot ends, or the
job is interrupted. Two saves that begin with no other under way bound a cycle that repeats until the job is interrupted. After
the first cycle the loop adds all further cycles but the last at once, so an up-time of a million saves costs no more than one
of three.
"""

from __future__ import annotations

import numpy as np

from simulator.compiled import compiled, inlined
from simulator.run.state import Records, RunDesign, RunState

SKIP, WAIT = 0, 1
"""Codes of `simulator.run.columns.BackPressure` that the kernel needs."""
TIE_FRACTION = 1e-6
"""A save due up to this share of an interval before a slot is free counts as in time, so that rounding does not decide whether
an interval equal to the commit time can be kept."""
LAST_FRACTION = 1e-9
"""A save due up to this share of an interval before the end of the work is left out, so that rounding does not decide whether
work of a whole number of intervals ends with an unneeded save."""
_ROUNDING = 2.0**-50
"""Minimum distance between saves as a share of the work done, so that rounding never stops the work."""


@compiled
def play_up_time(design: RunDesign, up_s: float, state: RunState, saves: Records) -> bool:
    """Plays from a restart to the end of the work (True) or to the interruption after `up_s` (False)."""
    state.num_uncommitted = 0
    state.mark_now_s = -1.0
    state.due_s = first_due_s(design, state)
    while state.done_s < state.work_s:
        # At the same instant a failure precedes a save, but the end of the work precedes a failure: nothing is left to lose.
        if state.now_s >= up_s:
            return False
        is_due = save_is_due(design, state)
        commit(design, state, saves, TIE_FRACTION * design.interval_s if is_due else 0.0)
        if is_due and state.num_uncommitted < design.slots:
            _repeat_cycle(design, up_s, state)
            save(design, up_s, state, saves)
        elif is_due and design.policy == WAIT:
            wait(up_s, state, saves)
        else:
            if is_due and design.policy == SKIP:
                skip(design, state, saves)
            work(design, up_s, state, saves)
    return True


@inlined
def save_is_due(design: RunDesign, state: RunState) -> bool:
    """Whether a save is due; none is due at the end of the work."""
    return state.done_s >= state.due_s and state.work_s - state.done_s > LAST_FRACTION * design.interval_s


@inlined
def first_due_s(design: RunDesign, state: RunState) -> float:
    """Work done at which the first save after a restart is due."""
    if not state.is_live:
        return _next_due_s(design, state)
    # Saves skipped because of one that the interruption has ended are due again.
    ahead = (state.due_s - state.done_s) / design.interval_s
    num_too_late: float = max(0.0, np.ceil(ahead - 1.0 - TIE_FRACTION))
    return state.due_s - design.interval_s * num_too_late


@inlined
def _next_due_s(design: RunDesign, state: RunState) -> float:
    return state.done_s + max(design.interval_s, _ROUNDING * state.done_s)


@inlined
def commit(design: RunDesign, state: RunState, saves: Records, tie_s: float) -> None:
    """Makes finished commits the saves to go back to."""
    while state.num_uncommitted > 0 and saves[state.oldest].commit_at_s <= state.now_s + tie_s:
        state.fast_s = saves[state.oldest].done_s
        state.num_saved_fast = saves[state.oldest].num_saved
        state.oldest = (state.oldest + 1) % saves.shape[0]
        state.num_uncommitted -= 1
        if design.has_one_level:
            state.durable_s = state.fast_s
    finish_writing(state, tie_s)


@inlined
def finish_writing(state: RunState, tie_s: float) -> None:
    """Makes a save durable when its write is finished."""
    if state.written_at_s <= state.now_s + tie_s:
        state.durable_s = state.writing_s
        state.num_saved_durable = state.num_saved_writing
        state.written_at_s = np.inf


@inlined
def save(design: RunDesign, up_s: float, state: RunState, saves: Records) -> None:
    """Stops training for the stall, at whose start the state is copied; then the save is under way."""
    end_s = state.now_s + design.stall_s
    state.checkpoint_stall_s += min(end_s, up_s) - state.now_s
    state.now_s = min(end_s, up_s)
    newest = (state.oldest + state.num_uncommitted) % saves.shape[0]
    if end_s <= up_s:
        state.num_saved += 1.0
        saves[newest].commit_at_s = end_s + design.commit_s
        saves[newest].done_s = state.done_s
        saves[newest].num_saved = state.num_saved
        state.num_uncommitted += 1
        state.due_s = _next_due_s(design, state)
        num_since = state.num_saved - state.num_saved_writing
        if not design.has_one_level and state.written_at_s == np.inf and num_since >= design.durable_every:
            state.writing_s = state.done_s
            state.num_saved_writing = state.num_saved
            state.written_at_s = end_s + design.durable_commit_s


@inlined
def _repeat_cycle(design: RunDesign, up_s: float, state: RunState) -> None:
    """Adds the cycles that pass like the last one; the one that may be disturbed is left to be played."""
    if state.num_uncommitted > 0:
        return
    cycle_s, gain_s = state.now_s - state.mark_now_s, state.done_s - state.mark_done_s
    if state.mark_now_s >= 0.0 and cycle_s > 0.0 and state.num_saved == state.mark_num_saved + 1.0:
        num = np.floor(min((up_s - state.now_s) / cycle_s, (state.work_s - state.done_s) / gain_s)) - 1.0
        if num >= 1.0:
            if not design.has_one_level:
                _repeat_writing(design, num, cycle_s, gain_s, state)
            state.checkpoint_stall_s += num * (state.checkpoint_stall_s - state.mark_stall_s)
            state.checkpoint_tax_s += num * (state.checkpoint_tax_s - state.mark_tax_s)
            state.backpressure_wait_s += num * (state.backpressure_wait_s - state.mark_wait_s)
            state.now_s += num * cycle_s
            state.done_s += num * gain_s
            state.num_saved += num
            state.fast_s = state.done_s - gain_s
            state.num_saved_fast = state.num_saved
            if design.has_one_level:
                state.durable_s = state.fast_s
            finish_writing(state, TIE_FRACTION * design.interval_s)
    state.mark_now_s, state.mark_done_s = state.now_s, state.done_s
    state.mark_stall_s, state.mark_tax_s = state.checkpoint_stall_s, state.checkpoint_tax_s
    state.mark_wait_s, state.mark_num_saved = state.backpressure_wait_s, state.num_saved


@inlined
def _repeat_writing(design: RunDesign, num: float, cycle_s: float, gain_s: float, state: RunState) -> None:
    """Advances the durable level by `num` cycles, the first of which begins with a save now."""
    tie_s = TIE_FRACTION * design.interval_s
    first = max(0.0, design.durable_every - (state.num_saved + 1.0 - state.num_saved_writing))
    if state.written_at_s < np.inf:
        first = max(first, np.ceil((state.written_at_s - tie_s - state.now_s) / cycle_s))
    if first >= num:
        return
    under_way_s = design.stall_s + design.durable_commit_s
    apart = max(design.durable_every, np.ceil((under_way_s - tie_s) / cycle_s))
    last = first + apart * np.floor((num - 1.0 - first) / apart)
    if last > first:
        state.durable_s = state.done_s + (last - apart) * gain_s
        state.num_saved_durable = state.num_saved + 1.0 + last - apart
    elif state.written_at_s < np.inf:
        state.durable_s = state.writing_s
        state.num_saved_durable = state.num_saved_writing
    state.writing_s = state.done_s + last * gain_s
    state.num_saved_writing = state.num_saved + 1.0 + last
    state.written_at_s = state.now_s + last * cycle_s + under_way_s


@inlined
def wait(up_s: float, state: RunState, saves: Records) -> None:
    """Waits until the oldest save commits."""
    end_s = min(saves[state.oldest].commit_at_s, up_s)
    state.backpressure_wait_s += end_s - state.now_s
    state.now_s = end_s


@inlined
def skip(design: RunDesign, state: RunState, saves: Records) -> None:
    """Skips this save and all that become due before the oldest one has committed."""
    taxed_interval_s = design.interval_s * (1.0 + design.tax_fraction)
    until_s = saves[state.oldest].commit_at_s - TIE_FRACTION * design.interval_s - state.now_s
    state.due_s += design.interval_s * max(1.0, np.ceil(until_s / taxed_interval_s))


@inlined
def work(design: RunDesign, up_s: float, state: RunState, saves: Records) -> None:
    """Works until the next save is due, the work is done, a save commits or the job is interrupted."""
    goal_s = state.work_s
    if state.due_s > state.done_s:  # Not so when `widen` works on although a save is due.
        goal_s = min(goal_s, state.due_s)
    slowdown, stop_s = 1.0, up_s
    if state.num_uncommitted > 0:
        slowdown = 1.0 + design.tax_fraction
        stop_s = min(up_s, saves[state.oldest].commit_at_s)
    needed_s = (goal_s - state.done_s) * slowdown
    if state.now_s + needed_s <= stop_s:
        work_s, state.now_s = goal_s - state.done_s, state.now_s + needed_s
        state.done_s = goal_s
    else:
        work_s, needed_s = (stop_s - state.now_s) / slowdown, stop_s - state.now_s
        state.now_s = stop_s
        state.done_s += work_s
    state.checkpoint_tax_s += needed_s - work_s
