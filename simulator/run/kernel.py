"""What happens second by second in one run? The compiled event loop behind `simulator.run.events.simulate_runs`.

A run alternates between up-times, played by `simulator.run.up_time`, and recoveries: rolling back to a surviving save, waiting
for other nodes, restarting, loading.
"""

from __future__ import annotations

import numpy as np

from simulator.compiled import compiled, inlined
from simulator.run.columns import FOREVER_S, MAX_NODES_IN_REPAIR, PLANNED
from simulator.run.draws import (
    KIND,
    RESTART_TIME,
    SURVIVAL,
    UP_TIME,
    exponential,
    lognormal,
    luck_of,
    uniform,
)
from simulator.run.pool import replacement_wait_s
from simulator.run.state import SAVE, STATE, Cell, FloatArray, Records, RunDesign, RunResults, RunState
from simulator.run.up_time import commit, finish_writing, play_up_time

MAX_FAILURES = 200_000
"""A run that is interrupted this often makes no progress; a year has 175,000 periods of three minutes."""


@compiled
def play_run_block(
    designs: Records, work_s: FloatArray, results: RunResults, seed: int, first: int, stride: int
) -> None:
    """Plays every `stride`-th replication of every design."""
    states, unplayed = np.zeros(1, dtype=STATE), np.zeros(1, dtype=STATE)
    saves = np.zeros(most_slots(designs), dtype=SAVE)
    returns_s = np.zeros(MAX_NODES_IN_REPAIR)
    num_designs, num_replications = work_s.shape
    for replication in range(first, num_replications, stride):
        luck = luck_of(seed, replication)
        for row in range(num_designs):
            states[0] = unplayed[0]
            start(states[0], work_s[row, replication], designs[row].num_spares)
            _play_run(designs[row], luck, states[0], saves, returns_s)
            _write_ledger(states[0], results, (row, replication))


@inlined
def most_slots(designs: Records) -> int:
    """Returns the maximum number of saves under way at once, at least 1."""
    most = 1
    for row in range(len(designs)):
        most = max(most, int(designs[row].slots))
    return most


@inlined
def start(state: RunState, work_s: float, num_spares: float) -> None:
    """Prepares a run with all clocks and accounts at zero."""
    state.work_s = work_s
    state.spares_left = num_spares
    state.written_at_s = np.inf


@compiled
def _play_run(
    design: RunDesign, luck: np.uint64, state: RunState, saves: Records, returns_s: FloatArray
) -> None:
    """Plays up-times and ways back until the work is done, or has been interrupted too often."""
    for index in range(MAX_FAILURES):
        up_s = begin_up_time(design, luck, index, state)
        is_done = play_up_time(design, up_s, state, saves)
        state.wall_s += state.now_s
        if is_done:
            return
        kind, is_fast_alive = next_interruption(design, luck, state)
        roll_back(design, kind, is_fast_alive, state, saves)
        come_back(design, luck, kind, is_fast_alive, state, returns_s)
        if num_interruptions(state) >= MAX_FAILURES:
            break
    state.wall_s = np.inf


@inlined
def begin_up_time(design: RunDesign, luck: np.uint64, index: int, state: RunState) -> float:
    """Returns how long the run stays up; after recovery from a live replica, capacity is missing at first."""
    up_s = design.up_scale_s * _power(exponential(luck, UP_TIME, index), design.inverse_shape)
    state.now_s = min(design.reduced_capacity_s, up_s) if state.is_live else 0.0
    state.reduced_capacity_s += state.now_s
    return up_s


@inlined
def _power(unit: float, exponent: float) -> float:
    return unit if exponent == 1.0 else unit**exponent


@inlined
def num_interruptions(state: RunState) -> int:
    """Returns the number of interruptions so far, including planned ones."""
    return int(state.num_failures + state.num_planned)


@inlined
def next_interruption(design: RunDesign, luck: np.uint64, state: RunState) -> tuple[int, bool]:
    """Returns what ends this up-time, and whether the fast level of saves survives it."""
    serial = num_interruptions(state)
    kind = kind_of(design, uniform(luck, KIND, serial), 1.0)
    return kind, fast_survives(design, uniform(luck, SURVIVAL, serial), kind)


@inlined
def kind_of(design: RunDesign, unit: float, most_share: float) -> int:
    """Returns what interrupts the run; planned interruptions have the uppermost share, which `most_share` can exclude."""
    if design.kind_share[0] >= most_share:
        return 0
    left = most_share * unit - design.kind_share[0]
    kind = 0
    while left >= 0.0 and kind < PLANNED:
        kind += 1
        left -= design.kind_share[kind]
    return kind if most_share == 1.0 else min(kind, PLANNED - 1)


@inlined
def fast_survives(design: RunDesign, unit: float, kind: int) -> bool:
    """Returns whether the fast level of saves, or a replica, survives an interruption, by a number drawn from 0 to 1."""
    return unit < design.kind_fast_survival[kind]


@inlined
def roll_back(design: RunDesign, kind: int, is_fast_alive: bool, state: RunState, saves: Records) -> None:
    """Goes back to the newest state that survives the interruption, and restarts the clock."""
    commit(design, state, saves, 0.0)
    state.written_at_s -= state.now_s
    state.now_s = 0.0
    state.is_live = False
    commit_s = design.commit_s if is_fast_alive else design.durable_commit_s
    if kind == PLANNED:
        state.num_planned += 1.0
    else:
        state.num_failures += 1.0
    if kind == PLANNED and design.interval_s < FOREVER_S and commit_s < FOREVER_S:
        _save_ahead(design, commit_s, is_fast_alive, state)
    elif is_fast_alive and design.has_live_replicas:
        state.is_live = True
        held_s = max(state.restored_s, state.durable_s)
        _restore(max(held_s, state.done_s - design.live_lag_s), state.num_saved, state)
    elif is_fast_alive:
        _restore(state.fast_s, state.num_saved_fast, state)
    else:
        _lose_writing(state)
        _restore(state.durable_s, state.num_saved_durable, state)


@inlined
def _save_ahead(design: RunDesign, commit_s: float, is_fast_alive: bool, state: RunState) -> None:
    """Saves before a planned interruption, on the level that survives it."""
    state.checkpoint_stall_s += design.stall_s + commit_s
    _pass(design.stall_s + commit_s, state)
    if design.has_one_level or not is_fast_alive:
        state.durable_s = state.done_s
        state.num_saved_durable = state.num_saved
        _lose_writing(state)
    _restore(state.done_s, state.num_saved, state)


@inlined
def _restore(back_s: float, num_saved: float, state: RunState) -> None:
    """Loses the work after `back_s`, and a save of that work if it is on its way to the durable level."""
    if state.writing_s > back_s:
        _lose_writing(state)
    state.lost_work_s += state.done_s - back_s
    state.done_s = state.fast_s = state.restored_s = back_s
    state.num_saved = state.num_saved_fast = num_saved


@inlined
def _lose_writing(state: RunState) -> None:
    """Gives up the save on its way to the durable level."""
    state.written_at_s = np.inf
    state.num_saved_writing = state.num_saved_durable


@inlined
def _pass(time_s: float, state: RunState) -> None:
    """Lets time pass without work; a surviving fast level continues writing to the durable one."""
    state.wall_s += time_s
    state.written_at_s -= time_s
    finish_writing(state, 0.0)


@compiled
def come_back(
    design: RunDesign,
    luck: np.uint64,
    kind: int,
    is_fast_alive: bool,
    state: RunState,
    returns_s: FloatArray,
) -> None:
    """Plays the recovery: nodes, restart, load; a failure during it begins it anew, and never makes it shorter."""
    nodes_at_s = mean_restart_s = state.num_awaited = 0.0
    while True:
        serial = num_interruptions(state) - 1
        # Other replicas continue without the nodes, whose capacity is missing instead, unless they went back to a save.
        goes_on = state.is_live and design.kind_goes_on[kind] > 0.0
        num_nodes = 0.0 if goes_on else design.kind_nodes[kind]
        wait_s = replacement_wait_s(design, num_nodes, state.wall_s, state, returns_s)
        wait_s = max(wait_s, nodes_at_s - state.wall_s)
        nodes_at_s = state.wall_s + wait_s
        restart_s = mean_restart_s = max(mean_restart_s, design.kind_restart_s[kind])
        if design.restart_log_deviation > 0.0:
            restart_s *= lognormal(luck, serial, design.restart_log_deviation)
        load_s = design.fast_load_s if is_fast_alive else design.durable_load_s
        left_s = np.inf
        if design.restart_scale_s < FOREVER_S:
            unit = exponential(luck, RESTART_TIME, serial)
            left_s = design.restart_scale_s * _power(unit, design.inverse_shape)
        _pass_way_back(wait_s, restart_s, load_s, left_s, state)
        if left_s >= wait_s + restart_s + load_s or serial + 2 >= MAX_FAILURES:
            return
        state.num_failures += 1.0
        kind = kind_of(design, uniform(luck, KIND, serial + 1), 1.0 - design.kind_share[PLANNED])
        if is_fast_alive and not fast_survives(design, uniform(luck, SURVIVAL, serial + 1), kind):
            is_fast_alive = state.is_live = False
            _lose_writing(state)
            _restore(state.durable_s, state.num_saved_durable, state)


@inlined
def _pass_way_back(wait_s: float, restart_s: float, load_s: float, left_s: float, state: RunState) -> None:
    """Spends the parts of the recovery one after another until it is interrupted."""
    wait_s = min(wait_s, left_s)
    restart_s = min(restart_s, left_s - wait_s)
    load_s = min(load_s, left_s - wait_s - restart_s)
    state.replacement_wait_s += wait_s
    state.restart_s += restart_s
    state.checkpoint_restore_s += load_s
    _pass(wait_s + restart_s + load_s, state)


@inlined
def _write_ledger(state: RunState, results: RunResults, cell: Cell) -> None:
    """Writes one played run into its place in the results."""
    results.wall_s[cell] = state.wall_s
    results.checkpoint_stall_s[cell] = state.checkpoint_stall_s
    results.checkpoint_tax_s[cell] = state.checkpoint_tax_s
    results.backpressure_wait_s[cell] = state.backpressure_wait_s
    results.lost_work_s[cell] = state.lost_work_s
    results.reduced_capacity_s[cell] = state.reduced_capacity_s
    results.restart_s[cell] = state.restart_s
    results.replacement_wait_s[cell] = state.replacement_wait_s
    results.checkpoint_restore_s[cell] = state.checkpoint_restore_s
    results.num_failures[cell] = state.num_failures
    results.num_planned[cell] = state.num_planned
