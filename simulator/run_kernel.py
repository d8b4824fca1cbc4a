"""What happens second by second in one run? The compiled event loop behind `run_events.simulate_runs`.

A run alternates up-times, drawn from an exponential distribution, and restarts, during which nothing fails.
In an up-time four things can happen next: the work until the next save (or the end) is done, a save commits,
a wait for a slot ends, the job fails. Draw i of replication r is a function of (seed, r, i) only: a counter
through the finaliser of SplitMix64 (Steele et al., OOPSLA 2014). So every design meets the same luck, on any
number of threads.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from numba import prange

from simulator.compiled import compiled, compiled_parallel, inlined

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Records = npt.NDArray[np.void]
Cell = tuple[int, int]

SKIP, WAIT = 0, 1
"""Codes of `simulator.run_columns.BackPressure` that the kernel asks for."""

MAX_FAILURES = 200_000
"""A run that has failed this often makes no progress; a year has 175,000 times three minutes."""
TIE_FRACTION = 1e-6
"""A save that is due this share of an interval before a slot is free counts as in time, so that rounding does
not decide whether an interval equal to the commit time can be kept."""

_STATE_FIELDS = ("now_s", "done_s", "committed_s", "due_s", "stall_s", "tax_s", "wait_s", "lost_s")
_STATE = np.dtype(
    [(name, np.float64) for name in _STATE_FIELDS] + [("oldest", np.int64), ("num_uncommitted", np.int64)]
)
"""`RunState` as one record."""
_SAVE = np.dtype([("commit_at_s", np.float64), ("done_s", np.float64)])

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_ONE, _SHIFT_1, _SHIFT_2, _SHIFT_3 = np.uint64(1), np.uint64(30), np.uint64(27), np.uint64(31)
_DROPPED_BITS = np.uint64(11)
_LAST_BIT = 2.0**-53


class RunState(Protocol):
    """One run while it is played; a record to the compiler, these fields to the reader."""

    now_s: float
    """Since the last restart."""
    done_s: float
    """Work done, and not lost since."""
    committed_s: float
    """Work to which a failure would go back."""
    due_s: float
    """Work at which the next save is due."""
    stall_s: float
    tax_s: float
    wait_s: float
    lost_s: float
    oldest: int
    """Place of the oldest uncommitted save in the ring of saves."""
    num_uncommitted: int


class RunBatch(NamedTuple):
    """`simulator.run_columns.RunColumns` as the kernel reads them: `(n,)`, but `work_s` `(n, R)`."""

    work_s: FloatArray
    mtbf_s: FloatArray
    interval_s: FloatArray
    stall_s: FloatArray
    commit_s: FloatArray
    tax_fraction: FloatArray
    slots: IntArray
    policy: IntArray
    restart_s: FloatArray


class RunResults(NamedTuple):
    """The arrays of `simulator.run_events.RunReplications` but `productive_s`, `(n, R)`, to be filled."""

    wall_s: FloatArray
    num_failures: FloatArray
    checkpoint_stall_s: FloatArray
    checkpoint_tax_s: FloatArray
    backpressure_wait_s: FloatArray
    lost_work_s: FloatArray
    restart_s: FloatArray


class RunDesign(NamedTuple):
    """The numbers of one run."""

    work_s: float
    mtbf_s: float
    interval_s: float
    stall_s: float
    commit_s: float
    tax_fraction: float
    slots: int
    policy: int
    restart_s: float


@compiled_parallel
def play_run_blocks(batch: RunBatch, results: RunResults, seed: int, num_blocks: int) -> None:
    """Plays all replications of all designs on several threads; no run sees another one."""
    for block in prange(num_blocks):
        play_run_block(batch, results, seed, block, num_blocks)


@compiled
def play_run_block(batch: RunBatch, results: RunResults, seed: int, first: int, stride: int) -> None:
    """Plays every `stride`-th replication of every design."""
    states = np.zeros(1, dtype=_STATE)
    saves = np.zeros(max(1, batch.slots.max()), dtype=_SAVE)
    num_designs, num_replications = batch.work_s.shape
    for replication in range(first, num_replications, stride):
        for row in range(num_designs):
            design = _design_of(batch, row, replication)
            wall_s, num_failures = _play_run(design, (seed, replication), states, saves)
            _write_ledger(states[0], wall_s, num_failures, results, (row, replication))
            results.restart_s[row, replication] = num_failures * design.restart_s


@inlined
def _design_of(batch: RunBatch, row: int, replication: int) -> RunDesign:
    return RunDesign(
        batch.work_s[row, replication],
        batch.mtbf_s[row],
        batch.interval_s[row],
        batch.stall_s[row],
        batch.commit_s[row],
        batch.tax_fraction[row],
        batch.slots[row],
        batch.policy[row],
        batch.restart_s[row],
    )


@compiled
def _play_run(
    design: RunDesign, luck: tuple[int, int], states: Records, saves: Records
) -> tuple[float, float]:
    """Plays up-times and restarts until the work is done; returns wall time and number of failures."""
    state = states[0]
    _start(state)
    wall_s = 0.0
    for num_failures in range(MAX_FAILURES):
        up_s = design.mtbf_s * unit_exponential(luck[0], luck[1], num_failures)
        is_done = _play_up_time(design, up_s, state, saves)
        wall_s += state.now_s
        if is_done:
            return wall_s, float(num_failures)
        _roll_back(state, saves)
        wall_s += design.restart_s
    return np.inf, np.inf


@inlined
def _start(state: RunState) -> None:
    """Puts every clock and every account to zero."""
    state.committed_s = 0.0
    state.done_s = 0.0
    state.stall_s = 0.0
    state.tax_s = 0.0
    state.wait_s = 0.0
    state.lost_s = 0.0


@compiled
def _play_up_time(design: RunDesign, up_s: float, state: RunState, saves: Records) -> bool:
    """Plays from a restart to the end of the work (True) or to the failure after `up_s` (False)."""
    state.now_s = 0.0
    state.num_uncommitted = 0
    state.due_s = state.done_s + design.interval_s
    while state.done_s < design.work_s:
        _commit(state, saves, TIE_FRACTION * design.interval_s)
        is_due = state.done_s >= state.due_s
        if is_due and state.num_uncommitted < design.slots:
            _save(design, up_s, state, saves)
        elif is_due and design.policy == WAIT:
            _wait(up_s, state, saves)
        else:
            if is_due and design.policy == SKIP:
                state.due_s += design.interval_s
            _work(design, up_s, state, saves)
        # The end of the work wins against a failure at the same instant: nothing is left to lose.
        if state.now_s >= up_s and state.done_s < design.work_s:
            return False
    return True


@inlined
def _commit(state: RunState, saves: Records, tie_s: float) -> None:
    """Makes the saves whose commit is over the ones to go back to."""
    while state.num_uncommitted > 0 and saves[state.oldest].commit_at_s <= state.now_s + tie_s:
        state.committed_s = saves[state.oldest].done_s
        state.oldest = (state.oldest + 1) % saves.shape[0]
        state.num_uncommitted -= 1


@inlined
def _save(design: RunDesign, up_s: float, state: RunState, saves: Records) -> None:
    """Stops the training for the stall, at whose start the state is copied; then the save is under way."""
    end_s = state.now_s + design.stall_s
    state.stall_s += min(end_s, up_s) - state.now_s
    state.now_s = min(end_s, up_s)
    newest = (state.oldest + state.num_uncommitted) % saves.shape[0]
    if end_s <= up_s:
        saves[newest].commit_at_s = end_s + design.commit_s
        saves[newest].done_s = state.done_s
        state.num_uncommitted += 1
        state.due_s = state.done_s + design.interval_s


@inlined
def _wait(up_s: float, state: RunState, saves: Records) -> None:
    """Stands still until the oldest save commits."""
    end_s = min(saves[state.oldest].commit_at_s, up_s)
    state.wait_s += end_s - state.now_s
    state.now_s = end_s


@inlined
def _work(design: RunDesign, up_s: float, state: RunState, saves: Records) -> None:
    """Works until the next save is due, the work is done, a save commits or the job fails."""
    goal_s = design.work_s
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
    state.tax_s += needed_s - work_s


@inlined
def _roll_back(state: RunState, saves: Records) -> None:
    """Goes back to the newest save that had committed at the failure."""
    _commit(state, saves, 0.0)
    state.lost_s += state.done_s - state.committed_s
    state.done_s = state.committed_s


@inlined
def _write_ledger(
    state: RunState, wall_s: float, num_failures: float, results: RunResults, cell: Cell
) -> None:
    """Writes one played run into its place in the results."""
    results.wall_s[cell] = wall_s
    results.num_failures[cell] = num_failures
    results.checkpoint_stall_s[cell] = state.stall_s
    results.checkpoint_tax_s[cell] = state.tax_s
    results.backpressure_wait_s[cell] = state.wait_s
    results.lost_work_s[cell] = state.lost_s


@compiled
def unit_exponential(seed: int, replication: int, index: int) -> float:
    """Returns the up-time before failure `index` of a replication as a multiple of its mean."""
    key = _mixed(_mixed(np.uint64(seed)) + np.uint64(replication))
    # The upper 53 bits make a uniform number in [0, 1).
    uniform = float(_mixed(key + np.uint64(index)) >> _DROPPED_BITS) * _LAST_BIT
    return -math.log1p(-uniform)


@compiled
def _mixed(counter: np.uint64) -> np.uint64:
    """Returns 64 bits without visible relation to those of the neighbouring counters (SplitMix64)."""
    word = (counter + _ONE) * _GOLDEN
    word = (word ^ (word >> _SHIFT_1)) * _MIX_1
    word = (word ^ (word >> _SHIFT_2)) * _MIX_2
    return word ^ (word >> _SHIFT_3)
