"""What does one run lose, computed slowly and without the kernel's shortcuts?

A run in plain Python, a table of goodputs from an independent Monte Carlo simulation, and the run that tests start from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import cast

from simulator.run.events import FOREVER_S, BackPressure, RunColumns, RunLedger
from simulator.table import Floats

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


def wall_s(ledger: RunLedger) -> Floats:
    """Returns how long runs take from start to end: all times of their accounts together."""
    total: Floats = sum(getattr(ledger, name) for name in TIMES)
    return total


def columns_of(row: tuple[float, ...], work_s: float) -> RunColumns:
    names = ("mtbf_s", "interval_s", "stall_s", "commit_s", "restart_s", "tax_fraction", "slots", "policy")
    return columns(work_s=work_s, **dict(zip(names, row, strict=True)))


@dataclass(frozen=True, kw_only=True)
class Interruption:
    """What ends an up-time in the plain loop."""

    up_s: float
    is_planned: bool = False
    is_fast_alive: bool = True


@dataclass(kw_only=True)
class SlowRun:
    """One run in plain Python, every save, commit and failure looked up anew at every instant.

    Nothing fails on the way back, which takes `restart_s` and a load. Times of saves are wall time, so that a
    write to the durable level goes on while the run comes back.
    """

    row: dict[str, float]
    ledger: dict[str, float] = field(default_factory=lambda: dict.fromkeys(TIMES, 0.0))
    wall_s: float = 0.0
    done_s: float = 0.0
    restored_s: float = 0.0
    fast: list[tuple[float, float, int]] = field(default_factory=lambda: [(0.0, 0.0, 0)])
    """Commit, work and number of every save, the first of which is the start of the run."""
    durable: list[tuple[float, float, int]] = field(default_factory=lambda: [(0.0, 0.0, 0)])
    due_s: float | None = None
    num_saved: int = 0

    def play(self, interruptions: list[Interruption]) -> dict[str, float]:
        """Returns the ledger; the run must be over before the interruptions are."""
        is_live = False
        num_planned = 0
        for count, interruption in enumerate(interruptions):
            self.play_up_time(self.wall_s + interruption.up_s, is_live=is_live)
            if self.done_s >= self.row["work_s"]:
                counts = {"num_failures": float(count - num_planned), "num_planned": float(num_planned)}
                return self.ledger | {"productive_s": self.row["work_s"]} | counts
            is_live = self.roll_back(interruption)
            num_planned += interruption.is_planned
            self.spend("restart_s", self.row["restart_s"])
            level = "fast_load_s" if interruption.is_fast_alive else "durable_load_s"
            self.spend("checkpoint_restore_s", self.row[level])
        raise RuntimeError("the run outlasts its interruptions")

    @property
    def tie_s(self) -> float:
        """What rounding must not decide: a save that is due this early finds its slot free."""
        return 1e-6 * self.row["interval_s"]

    @property
    def has_one_level(self) -> bool:
        same = self.row["durable_every"] == 1.0 and self.row["durable_commit_s"] == self.row["commit_s"]
        return same and self.row["live_lag_s"] >= FOREVER_S

    def spend(self, account: str, time_s: float) -> None:
        self.ledger[account] += time_s
        self.wall_s += time_s

    def play_up_time(self, until_s: float, *, is_live: bool) -> None:
        row = self.row
        if is_live:
            self.spend("reduced_capacity_s", min(row["reduced_capacity_s"], until_s - self.wall_s))
        if not is_live or self.due_s is None:
            self.due_s = self.done_s + row["interval_s"]
        while self.due_s > self.done_s + row["interval_s"] + self.tie_s:
            self.due_s -= row["interval_s"]
        while self.wall_s < until_s and self.done_s < row["work_s"]:
            is_due = self.done_s >= self.due_s and row["work_s"] - self.done_s > 1e-9 * row["interval_s"]
            under_way = [commit for commit, _, _ in self.fast if commit > self.wall_s + self.tie_s * is_due]
            if is_due and len(under_way) < row["slots"]:
                self.save(until_s)
            elif is_due and row["policy"] == WAIT:
                self.spend("backpressure_wait_s", min(*under_way, until_s) - self.wall_s)
            else:
                if is_due and row["policy"] == SKIP:
                    self.due_s += row["interval_s"]
                self.work([*under_way, until_s], 1.0 + row["tax_fraction"] * bool(under_way))

    def save(self, until_s: float) -> None:
        stall_s = self.row["stall_s"]
        is_writing = self.durable[-1][0] > self.wall_s + self.tie_s
        is_whole = self.wall_s + stall_s <= until_s
        self.spend("checkpoint_stall_s", min(stall_s, until_s - self.wall_s))
        if not is_whole:
            return
        self.num_saved += 1
        self.fast.append((self.wall_s + self.row["commit_s"], self.done_s, self.num_saved))
        is_next = not is_writing and self.num_saved - self.durable[-1][2] >= self.row["durable_every"]
        if is_next or self.has_one_level:
            commit_s = self.wall_s + self.row["durable_commit_s"]
            self.durable.append((commit_s, self.done_s, self.num_saved))
        self.due_s = self.done_s + self.row["interval_s"]

    def work(self, limits_s: list[float], slowdown: float) -> None:
        assert self.due_s is not None
        goal_s = min(self.row["work_s"], self.due_s) if self.due_s > self.done_s else self.row["work_s"]
        needed_s, left_s = (goal_s - self.done_s) * slowdown, min(limits_s) - self.wall_s
        work_s = goal_s - self.done_s if needed_s <= left_s else left_s / slowdown
        self.ledger["checkpoint_tax_s"] += min(needed_s, left_s) - work_s
        self.wall_s += min(needed_s, left_s)
        self.done_s = goal_s if needed_s <= left_s else self.done_s + work_s

    def roll_back(self, interruption: Interruption) -> bool:
        """Returns whether a live replica goes on."""
        committed = [save for save in self.fast + self.durable if save[0] <= self.wall_s]
        durable = [save for save in self.durable if save[0] <= self.wall_s]
        is_live = not interruption.is_planned and interruption.is_fast_alive
        is_live = is_live and self.row["live_lag_s"] < FOREVER_S
        newest = max(committed if interruption.is_fast_alive else durable, key=lambda save: save[1])
        back_s, number = newest[1], newest[2]
        if interruption.is_planned:
            level = "commit_s" if interruption.is_fast_alive else "durable_commit_s"
            self.spend("checkpoint_stall_s", self.row["stall_s"] + self.row[level])
            back_s, number = self.done_s, self.num_saved
        elif is_live:
            held_s = max(self.restored_s, *(work_s for _, work_s, _ in durable))
            back_s, number = max(held_s, self.done_s - self.row["live_lag_s"]), self.num_saved
        self.ledger["lost_work_s"] += self.done_s - back_s
        self.done_s = self.restored_s = back_s
        self.num_saved = number
        here = (self.wall_s, back_s, number)
        goes_on = (
            [save for save in self.durable if save[1] <= back_s] if interruption.is_fast_alive else durable
        )
        saved_durably = interruption.is_planned and (self.has_one_level or not interruption.is_fast_alive)
        self.durable = [here] if saved_durably else goes_on
        self.fast = [here]
        return is_live


def play_slowly(row: RunColumns, up_times_s: list[float]) -> dict[str, float]:
    """Plays one run with failures of one kind and saves of one level in plain Python."""
    return play_kinds_slowly(row, [Interruption(up_s=up_s) for up_s in up_times_s])


def play_kinds_slowly(row: RunColumns, interruptions: list[Interruption]) -> dict[str, float]:
    """Plays one run in plain Python; its columns are scalars, and `kind_...` are those of `interruptions`."""
    usual = {"live_lag_s": math.inf, "reduced_capacity_s": 0.0, "fast_load_s": 0.0, "durable_load_s": 0.0}
    usual |= {"durable_every": 1.0, "durable_commit_s": row["commit_s"]}  # type: ignore[dict-item]
    given = {name: value for name, value in row.items() if not name.startswith("kind_")}
    numbers = {name: float(value) for name, value in (usual | given).items()}  # type: ignore[arg-type]
    return SlowRun(row=numbers).play(interruptions)
