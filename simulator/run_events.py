"""What do saves, failures and restarts make of a run? Its expectation in closed form, and its replications.

One run does `work_s` of training. After every `interval_s` of work a save is due: training stops for
`stall_s`, at whose start the state is copied, and `commit_s` after the stall's end the save can be restored.
Meanwhile training takes 1 + `tax_fraction` times as long. At most `slots` saves are uncommitted; `policy`
says what happens when one more is due. The last work needs no save. Conventions, on which the literature is
divided:

- Failures are exponential with mean `mtbf_s` of *up-time*; nothing fails during a restart of `restart_s`.
- A failure goes back to the newest *committed* save; the work after it is lost work. Stalls, tax and waits of
  an up-time that is rolled back stay in their own accounts.
- Times beyond `FOREVER_S` are infinite, in the ledger of such a run all but `productive_s`; nan gives nan.

The equations are in `simulator.run_renewal`, the event loop in `simulator.run_kernel`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Unpack

import numpy as np
import numpy.typing as npt
from numba import get_num_threads

from simulator import run_renewal as renewal
from simulator.errors import InputError, Problem
from simulator.run_columns import FOREVER_S, BackPressure, RunColumns, Runs
from simulator.run_kernel import RunBatch, RunResults, play_run_block, play_run_blocks
from simulator.table import Floats, Table

__all__ = [
    "FOREVER_S",
    "BackPressure",
    "RunColumns",
    "RunLedger",
    "RunReplications",
    "expected_goodput",
    "expected_ledger",
    "optimal_interval_s",
    "simulate_runs",
]


@dataclass(frozen=True, kw_only=True)
class RunLedger(Table):
    """Where the seconds of a run go, `(n,)`; all columns in seconds sum to the wall time."""

    productive_s: Floats
    """Work that counts: `work_s`."""
    checkpoint_stall_s: Floats
    """Training stopped for saves."""
    checkpoint_tax_s: Floats
    """Slow-down by saves in the background."""
    backpressure_wait_s: Floats
    """Training stopped until a slot was free."""
    lost_work_s: Floats
    """Work done after the last committed save before a failure."""
    restart_s: Floats
    """From failures to the next work."""
    num_failures: Floats


@dataclass(frozen=True, kw_only=True)
class RunReplications(Table):
    """R runs of each design, `(n, R)`; columns as in `RunLedger`."""

    wall_s: Floats
    """From the first work to the end of the last, on a clock of its own."""
    num_failures: Floats
    productive_s: Floats
    checkpoint_stall_s: Floats
    checkpoint_tax_s: Floats
    backpressure_wait_s: Floats
    lost_work_s: Floats
    restart_s: Floats


def expected_ledger(**columns: Unpack[RunColumns]) -> RunLedger:
    """Returns the expected ledger of each run; see the head of this module for the equations.

    Raises:
        InputError: a column has a value out of range or another length.
    """
    runs = Runs.of(columns)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        accounts = _accounts(runs)
        wall_s = runs.work_s + sum(values for name, values in accounts.items() if name.endswith("_s"))
    # Written so that nan, as from infinity minus infinity, counts as never ending.
    never_ends = ~(wall_s < FOREVER_S) & ~runs.is_unknown
    infinite = {name: np.where(never_ends, np.inf, values) for name, values in accounts.items()}
    return RunLedger(productive_s=np.where(runs.is_unknown, np.nan, runs.work_s), **infinite)


def _accounts(runs: Runs) -> dict[str, Floats]:
    """Returns the columns of the ledger but `productive_s`, finite or not."""
    cycle = renewal.Cycle.of(runs)
    ends = renewal.Ends.of(runs, cycle)
    up_time_s = renewal.up_time_s(runs, cycle, ends)
    not_working_s = {
        "checkpoint_stall_s": renewal.stall_s(runs, cycle, ends),
        "checkpoint_tax_s": renewal.tax_s(runs, cycle, ends),
        "backpressure_wait_s": renewal.wait_s(runs, cycle, ends),
    }
    lost_work_s = up_time_s - runs.work_s - np.sum(list(not_working_s.values()), axis=0)
    return not_working_s | {
        # Rounding of the difference must not make a run that hardly fails lose less than nothing.
        "lost_work_s": np.maximum(0.0, lost_work_s),
        "restart_s": runs.restart_s * up_time_s / runs.mtbf_s,
        "num_failures": up_time_s / runs.mtbf_s,
    }


def expected_goodput(**columns: Unpack[RunColumns]) -> Floats:
    """Returns work over expected wall time, `(n,)`; 0 for a run that never ends.

    Raises:
        InputError: as `expected_ledger`.
    """
    runs = Runs.of(columns)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        cycle = renewal.Cycle.of(runs)
        up_time_s = renewal.up_time_s(runs, cycle, renewal.Ends.of(runs, cycle))
        goodput = runs.work_s / (up_time_s * (1.0 + runs.restart_s / runs.mtbf_s))
    return np.where(np.isnan(goodput) & ~runs.is_unknown, 0.0, goodput)


def optimal_interval_s(
    *,
    mtbf_s: npt.ArrayLike,
    stall_s: npt.ArrayLike,
    commit_s: npt.ArrayLike,
    tax_fraction: npt.ArrayLike,
    slots: npt.ArrayLike,
    restart_s: npt.ArrayLike,
    minimum_interval_s: npt.ArrayLike,
) -> Floats:
    """Returns the interval of the largest expected goodput of a long run, `(n,)`.

    It is never below `minimum_interval_s`, nor so short that saves queue for slots: that is the answer where
    a save costs nothing. The equations are in `simulator.run_renewal.best_interval_s`.

    Raises:
        InputError: as `expected_ledger`.
    """
    runs = Runs.of(
        {
            "work_s": np.inf,
            "mtbf_s": mtbf_s,
            "interval_s": minimum_interval_s,
            "stall_s": stall_s,
            "commit_s": commit_s,
            "tax_fraction": tax_fraction,
            "slots": slots,
            "policy": BackPressure.SKIP,
            "restart_s": restart_s,
        }
    )
    queueing_s = ((runs.stall_s + runs.commit_s) / runs.slots - runs.stall_s) / (1.0 + runs.tax_fraction)
    low_s = np.maximum(runs.interval_s, queueing_s)
    kink_s = np.maximum(low_s, runs.commit_s / (1.0 + runs.tax_fraction))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        # Beyond the commit time the tax is a cost per save, below it a constant share of all time: two hills,
        # of which only several slots can reach the lower one.
        cost_s = runs.stall_s + runs.tax_share * runs.commit_s
        long_s = np.maximum(kink_s, renewal.best_interval_s(cost_s, np.zeros(len(runs)), runs.mtbf_s))
        if not np.any(low_s < kink_s):
            return long_s
        short_s = renewal.best_interval_s(runs.stall_s, runs.tax_fraction, runs.mtbf_s)
        short_s = np.clip(short_s, low_s, kink_s)
        return np.where(_up_time_per_work(runs, short_s) < _up_time_per_work(runs, long_s), short_s, long_s)


def _up_time_per_work(runs: Runs, interval_s: Floats) -> Floats:
    """Returns what the best interval makes least; restarts take the same share at every interval."""
    changed = replace(runs, interval_s=interval_s)
    return renewal.Cycle.of(changed).up_time_per_work(changed)


def simulate_runs(*, num_replications: int, seed: int, **columns: Unpack[RunColumns]) -> RunReplications:
    """Plays every run event by event; replication r meets the same failures in every design and batch.

    Its i-th up-time is `mtbf_s` times an exponential number that depends on `seed`, r and i only. A run that
    has failed `simulator.run_kernel.MAX_FAILURES` times never ends.

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
    # Work that never ends must not be played, and neither must nan, for which the kernel could wait forever.
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
    """Fills the results on as many threads as there are replications for."""
    known = {name: np.where(runs.is_unknown, 1.0, values) for name, values in runs.columns().items()}
    codes = {name: known[name].astype(np.int64) for name in ("slots", "policy")}
    batch = RunBatch(**(known | codes | {"work_s": np.where(runs.is_unknown[:, None], 0.0, work_s)}))
    num_blocks = min(work_s.shape[1], get_num_threads())
    if len(runs) == 0:
        return
    if num_blocks > 1:
        play_run_blocks(batch, results, seed, num_blocks)
    else:
        play_run_block(batch, results, seed, 0, 1)
