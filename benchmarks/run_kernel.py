"""How fast is the event loop of a run, and how far is the expected run from its mean?

    python -m benchmarks.run_kernel

The run takes 60 days on 16,384 accelerators, with about 500 failures and a save every five minutes, played on one thread. It is
then played again with everything that a run may have. Each save, commit and failure counts as one event, even where the loop
adds up whole cycles. The plain loop of the tests plays the same runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np
from numba import set_num_threads
from rich.console import Console
from rich.table import Table

from benchmarks.run_reference import Interruption, play_kinds_slowly
from simulator.run.draws import unit_exponential
from simulator.run.events import RunColumns, RunLedger, RunReplications, expected_ledger, simulate_runs
from simulator.units import DAY

NUM_REPLICATIONS = 1000
NUM_REPETITIONS = 5
NUM_BY_REFERENCE = 2
NUM_DESIGNS = 30_000
"""As many as a search judges in about a second."""

PLAIN: RunColumns = {
    "work_s": 60 * DAY,
    "mtbf_s": 60 * DAY / 500,
    "interval_s": 300.0,
    "stall_s": 0.6,
    "commit_s": 60.0,
    "tax_fraction": 0.03,
    "slots": 1,
    "policy": 0,
    "restart_s": 300.0,
}
FULL: RunColumns = {
    **PLAIN,
    "kind_share": (0.45, 0.4, 0.05, 0.1),
    "kind_nodes": (0, 1, 4, 0),
    "kind_fast_survival": (1.0, 0.9, 0.2, 1.0),
    "durable_every": 12,
    "durable_commit_s": 200.0,
    "fast_load_s": 5.0,
    "durable_load_s": 60.0,
    "num_spares": 40,
    "repair_s": 3 * DAY,
    "spare_wait_s": 60.0,
    "queue_wait_s": 7200.0,
    "weibull_shape": 0.8,
    "restart_log_deviation": 0.5,
    "fails_during_restart": True,
}
RUNS: dict[str, RunColumns] = {
    "plain": PLAIN,
    "a save every five seconds": {**PLAIN, "interval_s": 5.0, "stall_s": 0.05, "commit_s": 1.0},
    "free saves, one a second": {
        **PLAIN,
        "interval_s": 1.0,
        "stall_s": 0.0,
        "commit_s": 0.0,
        "tax_fraction": 0.0,
    },
    "four slots, all of them in use": {**PLAIN, "slots": 4, "commit_s": 1100.0},
    "everything": FULL,
}


def shortest_s(call: Callable[[], object]) -> float:
    """Returns the shortest of some repetitions, after one that compiles."""
    call()
    seconds = []
    for _ in range(NUM_REPETITIONS):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def num_events(row: RunColumns, runs: RunReplications) -> float:
    """Returns saves, commits and failures of all replications, about."""
    working_s = (runs.productive_s + runs.lost_work_s).sum()
    return float(2 * working_s / np.asarray(row["interval_s"]) + runs.num_failures.sum())


def kernel_table() -> Table:
    table = Table("run", "1 replication", "1,000", "million events/s", "off the mean", title="Event loop")
    for name, row in RUNS.items():
        many_s = shortest_s(partial(simulate_runs, num_replications=NUM_REPLICATIONS, seed=1, **row))
        one_s = shortest_s(partial(simulate_runs, num_replications=1, seed=1, **row))
        runs = simulate_runs(num_replications=NUM_REPLICATIONS, seed=1, **row)
        table.add_row(
            name,
            f"{one_s * 1e3:.3f} ms",
            f"{many_s:.3f} s",
            f"{num_events(row, runs) / many_s / 1e6:,.0f}",
            f"{off_the_mean(row, runs):+.3%}",
        )
    return table


def off_the_mean(row: RunColumns, runs: RunReplications) -> float:
    """Returns the expected wall time over the mean one, less 1."""
    ledger = expected_ledger(**row)
    names = [name for name in RunLedger.names() if name.endswith("_s")]
    return float(sum(getattr(ledger, name)[0] for name in names) / runs.wall_s.mean() - 1.0)


def reference_table() -> Table:
    """The plain run without a compiler."""
    mtbf_s = 60 * DAY / 500
    ends = [
        [Interruption(up_s=mtbf_s * unit_exponential(1, r, i)) for i in range(1000)]
        for r in range(NUM_BY_REFERENCE)
    ]
    start = time.perf_counter()
    for interruptions in ends:
        play_kinds_slowly(PLAIN, interruptions)
    slow_s = (time.perf_counter() - start) / NUM_BY_REFERENCE
    fast_s = shortest_s(partial(simulate_runs, num_replications=100, seed=1, **PLAIN)) / 100
    table = Table("loop", "1 replication", title="Plain loop against the kernel")
    table.add_row("plain Python", f"{slow_s * 1e3:,.0f} ms")
    table.add_row("kernel", f"{fast_s * 1e3:.3f} ms")
    table.add_row("ratio", f"{slow_s / fast_s:,.0f}")
    return table


def expectation_table() -> Table:
    """How many designs a second the expectation takes."""
    table = Table("run", "designs/s", title=f"Expected ledger, {NUM_DESIGNS:,} designs")
    for name in ("plain", "everything"):
        row: RunColumns = {**RUNS[name], "interval_s": np.linspace(100.0, 1000.0, NUM_DESIGNS)}
        table.add_row(name, f"{NUM_DESIGNS / shortest_s(partial(expected_ledger, **row)):,.0f}")
    return table


def main() -> None:
    """Prints the tables."""
    set_num_threads(1)
    console = Console()
    for table in (kernel_table(), reference_table(), expectation_table()):
        console.print(table)


if __name__ == "__main__":
    main()
