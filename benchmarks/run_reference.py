"""What does one run lose, worked out slowly and without the kernel's shortcuts?

A run in plain Python, a table of goodputs from an independent Monte Carlo, and the run that tests start from.
"""

from __future__ import annotations

from typing import cast

from simulator.run_events import BackPressure, RunColumns, RunLedger

TIMES = tuple(name for name in RunLedger.names() if name.endswith("_s"))

WAIT, SKIP = BackPressure.WAIT, BackPressure.SKIP

# (mtbf, interval, stall, commit, restart in s, tax, slots, policy) -> goodput of a Monte Carlo of at least
# 4e8 s that was written independently of this code; standard error about 0.0003.
MONTE_CARLO = [
    ((10980, 371, 0.8, 60, 390, 0.0, 1, WAIT), 0.94251),
    ((10980, 371, 0.8, 210, 390, 0.03, 1, WAIT), 0.91424),
    ((10980, 600, 5, 120, 600, 0.0, 1, WAIT), 0.90444),
    ((3600, 300, 2, 200, 300, 0.05, 1, WAIT), 0.80730),
    ((10980, 1108, 60, 0, 390, 0.0, 1, WAIT), 0.86787),
    ((1080, 120, 3, 60, 180, 0.0, 1, WAIT), 0.74656),
    ((10980, 100, 1, 300, 390, 0.0, 1, WAIT), 0.31359),
    ((1080, 60, 2, 120, 180, 0.05, 1, WAIT), 0.37668),
    ((3600, 50, 1, 200, 300, 0.1, 1, WAIT), 0.22027),
    ((10980, 100, 1, 300, 390, 0.0, 2, WAIT), 0.62460),
    ((10980, 100, 1, 300, 390, 0.0, 4, WAIT), 0.92646),
    ((10980, 100, 1, 250, 390, 0.0, 1, SKIP), 0.92824),
]


def columns(**changes: object) -> RunColumns:
    """A run of twelve days with a failure every three hours; what a test is about is changed."""
    usual: dict[str, object] = {
        "work_s": 1e6,
        "mtbf_s": 10_980.0,
        "interval_s": 600.0,
        "stall_s": 5.0,
        "commit_s": 120.0,
        "tax_fraction": 0.0,
        "slots": 1,
        "policy": SKIP,
        "restart_s": 390.0,
    }
    return cast(RunColumns, usual | changes)


def columns_of(row: tuple[float, ...], work_s: float) -> RunColumns:
    names = ("mtbf_s", "interval_s", "stall_s", "commit_s", "restart_s", "tax_fraction", "slots", "policy")
    return columns(work_s=work_s, **dict(zip(names, row, strict=True)))


def play_slowly(row: RunColumns, up_times_s: list[float]) -> dict[str, float]:
    """Plays one run in plain Python, every save, commit and failure looked up anew at every instant."""
    c = {name: float(value) for name, value in row.items()}  # type: ignore[arg-type]
    done_s, ledger, num_failures = 0.0, dict.fromkeys(TIMES, 0.0), 0
    for up_s in up_times_s:
        start_s, now_s, due_s = done_s, 0.0, done_s + c["interval_s"]
        saves: list[tuple[float, float]] = []
        while now_s < up_s and done_s < c["work_s"]:
            under_way = [commit for commit, _ in saves if commit > now_s]
            if done_s >= due_s and len(under_way) < c["slots"]:
                stopped_s = min(c["stall_s"], up_s - now_s)
                ledger["checkpoint_stall_s"] += stopped_s
                now_s += stopped_s
                if stopped_s == c["stall_s"]:
                    saves.append((now_s + c["commit_s"], done_s))
                due_s = done_s + c["interval_s"]
                continue
            if done_s >= due_s and c["policy"] == WAIT:
                until_s = min(*under_way, up_s)
                ledger["backpressure_wait_s"] += until_s - now_s
                now_s = until_s
                continue
            if done_s >= due_s and c["policy"] == SKIP:
                due_s += c["interval_s"]
            goal_s = min(c["work_s"], due_s) if due_s > done_s else c["work_s"]
            rate = 1.0 / (1.0 + c["tax_fraction"]) if under_way else 1.0
            need_s = (goal_s - done_s) / rate
            limit_s = min([*under_way, up_s]) - now_s
            work_s = goal_s - done_s if need_s <= limit_s else limit_s * rate
            ledger["checkpoint_tax_s"] += min(need_s, limit_s) - work_s
            now_s = now_s + need_s if need_s <= limit_s else now_s + limit_s
            done_s = goal_s if need_s <= limit_s else done_s + work_s
        if done_s >= c["work_s"]:
            break
        usable_s = max([work for commit, work in saves if commit <= up_s], default=start_s)
        ledger["lost_work_s"] += done_s - usable_s
        ledger["restart_s"] += c["restart_s"]
        done_s, num_failures = usable_s, num_failures + 1
    return ledger | {"productive_s": c["work_s"], "num_failures": float(num_failures)}
