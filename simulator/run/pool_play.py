"""How long does a run wait for replacement nodes if waits decide when nodes fail? The pool of spares, played separately.

If a wait takes as long as the up-time between failures, failures are no longer independent: nothing fails while the run waits,
or nodes that failed one after another return one after another and wait for each other again. We know of no closed form, so
failures, waits and returns are played as in the event loop (`simulator.run.pool`), without saves and work. Recoveries take
their mean times. Every design meets the same luck, so more spares give shorter waits in all but a few draws. Designs share
pools (`simulator.run.shared_plays`).
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

from simulator.compiled import compiled_uncounted, inlined
from simulator.row_sums import sum_columns
from simulator.run.columns import (
    FOREVER_S,
    MAX_NODES_IN_REPAIR,
    NUM_KINDS,
    PLANNED,
    Interruption,
    Runs,
    over_kinds,
)
from simulator.run.draws import KIND, RESTART_TIME, SURVIVAL, UP_TIME, exponential, luck_of, uniform
from simulator.run.kernel import fast_survives, kind_of
from simulator.run.pool import replacement_wait_s
from simulator.run.shared_plays import played_pools, rounded_s
from simulator.run.state import STATE, FloatArray, Records, RunDesign, designs_of, record_type
from simulator.table import Floats, Integers, Table

MOST_OF_A_RUN = 1024
"""Interruptions that are played of a run that has at least twice as many."""
NUM_RUNS = 8.0
"""Runs with this many interruptions, or more and shorter ones, played for each design: the initial state matters for a long
time, because nodes that failed together return together."""
LEAST_RUNS, RUNS_PER_SHARE = 2.0, 32.0
"""Runs of a design without spares, where none is ever left: two, or more for longer waits, this many per repair time."""
TIMES_AS_MANY = 4.0
"""Multiplier where nodes also fail during recovery: recoveries are then few but long, and dominate the mean."""
MANY_NODES = 8.0
"""Where an interruption takes more nodes than this on average, proportionally fewer are played, since each is looked at."""
SEED = 1
_NEVER_S = FOREVER_S**2
"""A recovery during which all played interruptions happen: so long that no share of it is meaningful."""
_NUM_PURPOSES = 4
"""Purposes of draws from up-times to survivals (`simulator.run.draws`)."""
_ROUNDING = 1e-12
"""Rounding of a wait over the time at which it ends: a wait for a spare is not longer than itself."""
_LEAST_REPAIR_S = 1.0
"""Divisor for a wait for the queue where repairs take no time."""


class Pool(Protocol):
    """How the pool of a design is played, with the results; a record to the compiler."""

    up_time_s: float
    """Up-time of the run; with many interruptions only a part is played."""
    is_part: bool
    apart_s: float
    """Mean time between failures during recovery; infinite if nothing fails then."""
    back_s: Sequence[float]
    """The recovery after the wait."""
    num_played: int
    """Interruptions to be played."""
    num_left: int
    """Interruptions that are still to be played."""
    sums_s: MutableSequence[float]
    """Sums of waits."""
    num_waits: MutableSequence[float]
    num_late: MutableSequence[float]
    """Waits that are longer than that for a spare,"""
    late_s: MutableSequence[float]
    """and the sums of what they are longer by, of its squares"""
    late_s2: MutableSequence[float]
    late_s3: MutableSequence[float]
    """and of its cubes."""


class Memory(NamedTuple):
    """What the kernel works with."""

    rows: Integers
    """Designs that are still played, `(n,)`."""
    states: Records
    """The run that is played, and one of which nothing is played, `(2,)`."""
    returns_s: FloatArray
    """Ring of nodes in repair (`simulator.run.pool`)."""
    key: npt.NDArray[np.uint64]
    """Key of all draws of the replication, `(1,)`."""
    draws: FloatArray
    """Its draws, `(4, k)`, one row for each purpose."""
    num_drawn: Integers
    """How many are drawn yet, `(4,)`."""

    @classmethod
    def of(cls, pools: Records) -> Self:
        """Returns memory for as many draws as pools can need: a recovery may last for as many interruptions as are played."""
        num_draws = 2 * pools["num_played"].max()
        return cls(
            rows=np.arange(len(pools)),
            states=np.zeros(2, dtype=STATE),
            returns_s=np.zeros(MAX_NODES_IN_REPAIR),
            key=np.zeros(1, dtype=np.uint64),
            draws=np.empty((_NUM_PURPOSES, num_draws)),
            num_drawn=np.zeros(_NUM_PURPOSES, dtype=np.int64),
        )


POOL = record_type(Pool)
"""`Pool` as one record."""


@dataclass(frozen=True, kw_only=True)
class PlayedWaits(Table):
    """Waits after each kind of interruption, `(n, 4)`; nan for what never occurred."""

    mean_s: Floats
    """Where nodes also fail during recovery, the constant wait after which, in the same time, none would be missing (the busy
    period of M/D/inf, as in `simulator.run.way_back`)."""
    late_share: Floats
    """Share of waits that are longer than that for a spare; the means of what they are longer by,"""
    late_s: Floats
    late_s2: Floats
    """of its square"""
    late_s3: Floats
    """and of its cube."""

    @classmethod
    def none(cls) -> Self:
        """Returns the waits of no run."""
        return cls(**{name: np.zeros((0, NUM_KINDS)) for name in cls.names()})


def played_waits(runs: Runs, up_time_s: Floats) -> PlayedWaits:
    """Returns the waits of runs.

    Runs that are only partly played count from their middle on, when the pool has long been full.

    Args:
        runs: the runs.
        up_time_s: how long they are up, `(n,)`.
    """
    pools = played_pools(designs_of(runs), _pools(runs, up_time_s), _play)
    missing_s = np.minimum(_ratio(pools["sums_s"], pools["num_waits"]), _NEVER_S)
    rate = np.where(pools["apart_s"] < FOREVER_S, _losses(runs) / runs.mtbf_s, 0.0)[:, None]
    num_late = pools["num_late"]
    return PlayedWaits(
        mean_s=np.divide(np.log1p(rate * missing_s), rate, out=missing_s.copy(), where=rate > 0.0),
        late_share=_ratio(num_late, pools["num_waits"]),
        **{name: _ratio(pools[name], num_late) for name in ("late_s", "late_s2", "late_s3")},
    )


def _play(designs: Records, pools: Records) -> None:
    play_pools(designs, pools, Memory.of(pools))


def _ratio(sums: Floats, counts: Floats) -> Floats:
    return np.asarray(np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0.0))


def _pools(runs: Runs, up_time_s: Floats) -> Records:
    """The records `(n,)` of runs of which nothing has been played."""
    pools, apart_s = np.zeros(len(runs), dtype=POOL), _apart_on_way_back_s(runs)
    pools["up_time_s"] = up_time_s = rounded_s(up_time_s, runs.mtbf_s)
    pools["is_part"] = up_time_s >= 2.0 * MOST_OF_A_RUN * runs.mtbf_s
    pools["apart_s"] = apart_s
    pools["back_s"] = rounded_s(
        runs.kind_restart_s
        + runs.kind_fast_survival * runs.fast_load_s[:, None]
        + (1.0 - runs.kind_fast_survival) * runs.durable_load_s[:, None],
        runs.mtbf_s[:, None],
    )
    pools["num_played"] = pools["num_left"] = _num_played(runs, apart_s)
    return pools


def _num_played(runs: Runs, apart_s: Floats) -> Integers:
    """Number of interruptions to play for each design, `(n,)`."""
    longest_s = np.where(runs.max_loans < FOREVER_S, runs.repair_s, runs.queue_wait_s)
    shared = RUNS_PER_SHARE * longest_s / np.maximum(runs.repair_s, _LEAST_REPAIR_S)
    num_runs = np.where(runs.num_spares > 0.0, NUM_RUNS, np.clip(shared, LEAST_RUNS, NUM_RUNS))
    num_runs = np.where(apart_s < FOREVER_S, TIMES_AS_MANY, 1.0) * num_runs
    num_nodes = over_kinds(runs.node_share, runs.kind_nodes)
    return (MOST_OF_A_RUN * num_runs / np.maximum(1.0, num_nodes / MANY_NODES)).astype(np.int64)


def _losses(runs: Runs) -> Floats:
    """Share of interruptions that take nodes and are unannounced."""
    takes_nodes = runs.kind_nodes[:, : Interruption.PLANNED] > 0.0
    return sum_columns(runs.kind_share[:, : Interruption.PLANNED] * takes_nodes)


def _apart_on_way_back_s(runs: Runs) -> Floats:
    """Mean time between failures during recovery, `(n,)`; infinite if nothing fails then."""
    unplanned = 1.0 - runs.kind_share[:, Interruption.PLANNED]
    can_fail = (runs.fails_during_restart == 1.0) & (unplanned > 0.0)
    return np.asarray(np.divide(runs.mtbf_s, unplanned, out=np.full(len(runs), FOREVER_S), where=can_fail))


@compiled_uncounted
def play_pools(designs: Records, pools: Records, memory: Memory) -> None:
    """Sums waits and their counts by kind, one replication after another, whose luck is drawn once for all designs."""
    rows, state, num_rows, replication = memory.rows, memory.states[0], len(designs), 0
    while num_rows > 0:
        memory.key[0] = luck_of(SEED, replication)
        for purpose in range(_NUM_PURPOSES):
            memory.num_drawn[purpose] = 0
        num_unfinished = 0
        for row in rows[:num_rows]:
            pool = pools[row]
            memory.states[0] = memory.states[1]
            state.spares_left = designs[row].num_spares
            most = min(pool.num_left, MOST_OF_A_RUN) if pool.is_part else pool.num_left
            # Runs without any interruption end, too.
            pool.num_left -= 1 + _play_pool(designs[row], pool, most, memory)
            if pool.num_left > 0:
                rows[num_unfinished] = row
                num_unfinished += 1
        num_rows, replication = num_unfinished, replication + 1


@compiled_uncounted
def _play_pool(design: RunDesign, pool: Pool, most: int, memory: Memory) -> int:
    """Plays up-times and recoveries up to an up-time or to `most` interruptions; returns their number."""
    state = memory.states[0]
    up_s, serial, index = 0.0, 0, 0
    while serial < most:
        unit_s = design.mtbf_s * _drawn(memory, UP_TIME, index)
        up_s, index = up_s + unit_s, index + 1
        if not pool.is_part and up_s >= pool.up_time_s:
            break
        state.wall_s += unit_s
        serial = _come_back(design, pool, serial, most, memory)
    return serial


@inlined
def _come_back(design: RunDesign, pool: Pool, serial: int, most: int, memory: Memory) -> int:
    """Plays a recovery, anew after each interruption; returns the number of interruptions by its end."""
    state, returns_s = memory.states[0], memory.returns_s
    first_counted = MOST_OF_A_RUN // 2 if pool.is_part else 0
    unplanned = 1.0 - design.kind_share[PLANNED]
    kind = kind_of(design, _drawn(memory, KIND, serial), 1.0)
    state.num_awaited = 0.0
    goes_on = design.kind_goes_on[kind] > 0.0
    while True:
        goes_on = goes_on and fast_survives(design, _drawn(memory, SURVIVAL, serial), kind)
        first, start_s = kind, state.wall_s
        num_nodes = 0.0 if goes_on else design.kind_nodes[kind]
        nodes_at_s = start_s + replacement_wait_s(design, num_nodes, start_s, state, returns_s)
        last = serial + pool.num_played
        fails_at_s = start_s + _until_failure_s(memory, serial, pool.apart_s)
        serial += 1
        while fails_at_s < nodes_at_s:
            if serial > last:
                nodes_at_s = np.inf
                break
            kind = kind_of(design, _drawn(memory, KIND, serial), unplanned)
            wait_s = replacement_wait_s(design, design.kind_nodes[kind], fails_at_s, state, returns_s)
            nodes_at_s = max(nodes_at_s, fails_at_s + wait_s)
            fails_at_s += _until_failure_s(memory, serial, pool.apart_s)
            serial += 1
        if serial > first_counted and num_nodes == design.kind_nodes[first]:
            _count_wait(pool, first, nodes_at_s - start_s, design.spare_wait_s, nodes_at_s)
        state.wall_s = nodes_at_s + pool.back_s[kind]
        if serial >= most or fails_at_s >= state.wall_s:
            return serial
        state.wall_s = fails_at_s
        kind = kind_of(design, _drawn(memory, KIND, serial), unplanned)


@inlined
def _count_wait(pool: Pool, kind: int, wait_s: float, spare_wait_s: float, now_s: float) -> None:
    pool.sums_s[kind] += wait_s
    pool.num_waits[kind] += 1.0
    longer_s = min(wait_s - spare_wait_s, _NEVER_S)
    if longer_s > _ROUNDING * now_s:
        pool.num_late[kind] += 1.0
        pool.late_s[kind] += longer_s
        pool.late_s2[kind] += longer_s**2
        pool.late_s3[kind] += longer_s**3


@inlined
def _until_failure_s(memory: Memory, serial: int, apart_s: float) -> float:
    return apart_s * _drawn(memory, RESTART_TIME, serial) if apart_s < FOREVER_S else np.inf


@inlined
def _drawn(memory: Memory, purpose: int, index: int) -> float:
    """Returns a number of the replication, drawn when it is first needed: of mean 1 for a time, otherwise in [0, 1)."""
    while memory.num_drawn[purpose] <= index:
        number = memory.num_drawn[purpose]
        draw = exponential if purpose <= RESTART_TIME else uniform
        memory.draws[purpose, number] = draw(memory.key[0], purpose, number)
        memory.num_drawn[purpose] += 1
    return float(memory.draws[purpose, index])
