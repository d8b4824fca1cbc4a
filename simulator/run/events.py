"""How do saves, failures and restarts change a run? Its expectation in closed form, and its replications.

One run does `work_s` of training. After every `interval_s` of work a save is due: training stops for `stall_s`, at whose start
the state is copied, and the save can be restored `commit_s` after the end of the stall. Meanwhile training takes 1 +
`tax_fraction` times as long. At most `slots` saves are uncommitted; `policy` decides what happens if another one is due. The
last work needs no save. The literature disagrees on these conventions:

- `mtbf_s` is the mean *up-time* between interruptions of all kinds. Unless `fails_during_restart`, nothing fails
  during recovery; otherwise the recovery begins anew with new luck, and the time spent stays in the accounts it reached.
- An interruption goes back to the newest *committed* save of the level that survives it, and the restored state
  counts as a save of the fast level, too. The work after it is lost work. Stalls, tax and waits of an
  up-time that is rolled back stay in their own accounts.
- The way back is the wait for other nodes, the restart and the load, one after another. The save interval starts anew
  after it, except where a live replica went on. There, too, the interruption ends commits to the fast level,
  but not the write to the durable one; a save that waited for a slot begins once the missing capacity is back, and
  none begins at the instant of an interruption.
- Times beyond `FOREVER_S` are infinite; the ledger of such a run is infinite except for `productive_s`. nan gives nan.

The equations are in `simulator.run.renewal` for one level of saves, `simulator.run.levels` for two and for live
replicas, `simulator.run.way_back` and `simulator.run.spares` for the way back; the event loop is in
`simulator.run.kernel` and `simulator.run.up_time`. The expected ledger assumes memoryless up-times. Over random runs
with intervals of up to half an up-time, Weibull shapes from 0.5 to 1.5 change the goodput by a point on average and by up
to 4 points with one level of saves, by up to 12 where spares run out now and then, and by up to 20 with two levels;
`expected_goodput` includes this (`simulator.run.weibull`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

import numpy as np

from simulator.errors import InputError, Problem
from simulator.run.columns import FOREVER_S, BackPressure, Interruption, RunColumns, Runs
from simulator.run.course import Course
from simulator.run.delays import Delays
from simulator.run.interval import optimal_interval_s
from simulator.run.kernel import play_run_block
from simulator.run.levels import UPTIME_LOSSES, UpTime
from simulator.run.renewal import Cycle
from simulator.run.shares import Shares
from simulator.run.state import RunResults, designs_of
from simulator.run.way_back import WayBack
from simulator.run.weibull import goodput_without_saves, memory_factor
from simulator.table import Floats, Table
from simulator.threads import num_parts, on_threads

MAX_SAVES = 1e8
"""Limit on the saves of one replication, which take some seconds to play; there is no limit with one save at a time."""
RUNS_PER_THREAD = 100
"""Replications that take some milliseconds to play; starting a thread takes a tenth of a millisecond."""

__all__ = [
    "FOREVER_S",
    "BackPressure",
    "RunColumns",
    "RunLedger",
    "RunReplications",
    "expected_goodput",
    "expected_ledger",
    "expected_ledger_and_delays",
    "optimal_interval_s",
    "simulate_runs",
]


@dataclass(frozen=True, kw_only=True)
class RunLedger(Table):
    """Where the seconds of a run go, `(n,)`; all columns in seconds sum to the wall time."""

    productive_s: Floats
    """Work that counts: `work_s`."""
    checkpoint_stall_s: Floats
    """Training stopped for saves, including those before planned interruptions, up to their commit."""
    checkpoint_tax_s: Floats
    """Slow-down by saves in the background."""
    backpressure_wait_s: Floats
    """Training stopped until a slot was free."""
    lost_work_s: Floats
    """Work done after the state that an interruption goes back to."""
    reduced_capacity_s: Floats
    """Missing capacity until a live replica was back, as time without work."""
    restart_s: Floats
    """From interruptions to the next work, without the two that follow."""
    replacement_wait_s: Floats
    """Waiting for other nodes to replace those that failed."""
    checkpoint_restore_s: Floats
    """Loading saves."""
    num_failures: Floats
    """Unplanned interruptions, including those during restarts."""
    num_planned: Floats


@dataclass(frozen=True, kw_only=True)
class RunReplications(RunLedger):
    """R runs of each design: the ledger of each, `(n, R)`."""

    wall_s: Floats
    """From the first work to the end of the last, on a separate clock."""


def expected_ledger(**columns: Unpack[RunColumns]) -> RunLedger:
    """Returns the expected ledger of each run; see the head of this module for the equations.

    Raises:
        InputError: a column has a value out of range or another length.
    """
    return expected_ledger_and_delays(**columns)[0]


def expected_ledger_and_delays(**columns: Unpack[RunColumns]) -> tuple[RunLedger, Delays]:
    """Returns the expected ledger of each run, and the delays by its interruptions.

    Raises:
        InputError: as `expected_ledger`.
    """
    runs = Runs.of(columns)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        course = Course.of(runs)
        way_back, up_time = course.way_back, course.up_time
        ahead_s = _saving_ahead_s(runs)
        accounts = _accounts(runs, way_back, up_time, ahead_s)
        delays = Delays.of(runs, course, ahead_s)
        wall_s = runs.work_s + sum(values for name, values in accounts.items() if name.endswith("_s"))
    # Written so that nan, as from infinity minus infinity, counts as never ending.
    never_ends = ~(wall_s < FOREVER_S) & ~runs.is_unknown
    infinite = {name: np.where(never_ends, np.inf, values) for name, values in accounts.items()}
    return RunLedger(productive_s=np.where(runs.is_unknown, np.nan, runs.work_s), **infinite), delays


def _accounts(runs: Runs, way_back: WayBack, up_time: UpTime, ahead_s: Floats) -> dict[str, Floats]:
    """Returns the columns of the ledger except `productive_s`, finite or not."""
    num_ends = up_time.total_s / runs.mtbf_s
    working = {name: getattr(up_time, name) for name in UPTIME_LOSSES}
    lost_work_s = up_time.total_s - runs.work_s - np.sum(list(working.values()), axis=0)
    working["checkpoint_stall_s"] = working["checkpoint_stall_s"] + num_ends * ahead_s
    return working | {
        # Rounding of the difference must not give a run that hardly fails negative lost work.
        "lost_work_s": np.maximum(0.0, lost_work_s),
        "restart_s": way_back.restart_s * num_ends,
        "replacement_wait_s": way_back.replacement_wait_s * num_ends,
        "checkpoint_restore_s": way_back.checkpoint_restore_s * num_ends,
        "num_failures": way_back.num_failures * num_ends,
        "num_planned": runs.kind_share[:, Interruption.PLANNED] * num_ends,
    }


def _saving_ahead_s(runs: Runs) -> Floats:
    """Returns the mean time of saving before planned interruptions, per interruption of any kind, `(n,)`."""
    survival = runs.kind_fast_survival[:, Interruption.PLANNED]
    commit_s = survival * runs.commit_s + (1.0 - survival) * runs.durable_commit_s
    return np.where(runs.planned_share > 0.0, runs.planned_share * (runs.stall_s + commit_s), 0.0)


def expected_goodput(**columns: Unpack[RunColumns]) -> Floats:
    """Returns work over expected wall time, `(n,)`; 0 for a run that never ends.

    Up-times with memory change it by the same factor as in a long run; in a run with few failures they have little effect.
    Without saves it is exact.

    Raises:
        InputError: as `expected_ledger`.
    """
    runs = Runs.of(columns)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        course = Course.of(runs)
        up_time_s = course.up_time.total_s
        apart_s = course.way_back.total_s + _saving_ahead_s(runs)
        goodput = runs.work_s / (up_time_s * (1.0 + apart_s / runs.mtbf_s))
        factor = memory_factor(runs, Shares.of(runs, course.way_back))
        goodput = np.minimum(1.0, goodput * factor ** -np.expm1(-up_time_s / runs.mtbf_s))
        starts_over = ~runs.has_saves & ~runs.has_live_replicas
        goodput = np.where(starts_over, goodput_without_saves(runs, apart_s), goodput)
    return np.where(np.isnan(goodput) & ~runs.is_unknown, 0.0, goodput)


def simulate_runs(*, num_replications: int, seed: int, **columns: Unpack[RunColumns]) -> RunReplications:
    """Plays every run event by event; replication r meets the same failures in every design and batch.

    Its i-th up-time is `mtbf_s` times an exponential number that depends only on `seed`, r and i. A run that has failed
    `simulator.run.kernel.MAX_FAILURES` times never ends.

    Args:
        num_replications: R >= 1.
        seed: any integer from 0 to 2**63 - 1.
        **columns: see `RunColumns`; `work_s` may have the shape (n, R), one amount of work per replication.

    Raises:
        InputError: as `expected_ledger`; also when R or the seed is out of range.
    """
    _check_replications(num_replications, seed)
    work_s = np.asarray(columns["work_s"], dtype=np.float64)
    runs = Runs.of({**columns, "work_s": np.zeros(len(work_s)) if work_s.ndim == 2 else work_s})
    work_s = _work_by_replication(work_s, runs, num_replications)
    is_unknown = runs.is_unknown[:, None] | np.isnan(work_s)
    results = RunResults(*(np.zeros(work_s.shape) for _ in RunResults._fields))
    _check_saves(runs, work_s)
    # Endless work must not be played, nor nan, on which the kernel could wait forever.
    _play(runs, np.where(work_s < FOREVER_S, work_s, 0.0), results, seed)
    never_ends = (work_s >= FOREVER_S) | (results.wall_s >= FOREVER_S)
    replications = {
        name: np.select([is_unknown, never_ends], [np.nan, np.inf], values)
        for name, values in results._asdict().items()
    }
    replications["productive_s"] = np.where(is_unknown, np.nan, work_s)
    return RunReplications(**replications)


def _check_replications(num_replications: int, seed: int) -> None:
    problems = []
    if num_replications < 1:
        rule = "must be at least 1"
        problems.append(Problem(path="num_replications", value=str(num_replications), rule=rule))
    if not 0 <= seed < 2**63:
        problems.append(Problem(path="seed", value=str(seed), rule="must be from 0 to 2**63 - 1"))
    if problems:
        raise InputError(problems)


def _check_saves(runs: Runs, work_s: Floats) -> None:
    """Raises an error if several saves may be in flight at once, which are played one by one, and there are too many."""
    has_many_at_once = (runs.slots > 1.0) & (runs.commit_s > runs.interval_s) & ~runs.is_unknown
    if not np.any(has_many_at_once):
        return
    most_s = np.max(work_s, axis=1, initial=0.0)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        num_saves = most_s / Cycle.of(runs).gain_s
    is_too_many = has_many_at_once & (most_s < FOREVER_S) & (num_saves > MAX_SAVES)
    if np.any(is_too_many):
        rule = f"makes more than {MAX_SAVES:.0e} saves, several at a time; give a longer interval, less work or one slot"
        raise InputError(
            [Problem(path="interval_s", value=f"{runs.interval_s[is_too_many][0]:g}", rule=rule)]
        )


def _work_by_replication(work_s: Floats, runs: Runs, num_replications: int) -> Floats:
    """Returns the work of every replication, `(n, R)`."""
    shape = (len(runs), num_replications)
    if work_s.ndim == 2 and work_s.shape != shape:
        rule = f"must have one row per design and one column per replication: {shape}"
        raise InputError([Problem(path="work_s", value=f"shape {work_s.shape}", rule=rule)])
    if np.any(work_s < 0.0):
        raise InputError([Problem(path="work_s", value=str(work_s.min()), rule="must be at least 0")])
    return np.broadcast_to(np.minimum(work_s if work_s.ndim == 2 else runs.work_s[:, None], FOREVER_S), shape)


def _play(runs: Runs, work_s: Floats, results: RunResults, seed: int) -> None:
    """Fills the results, on as many threads as the replications justify; runs are independent."""
    if len(runs) == 0:
        return
    designs = designs_of(runs)
    work_s = np.where(runs.is_unknown[:, None], 0.0, work_s)
    num_blocks = max(1, min(work_s.shape[1], num_parts(work_s.size, RUNS_PER_THREAD)))
    on_threads(
        lambda block: play_run_block(designs, work_s, results, seed, block, num_blocks), range(num_blocks)
    )
