"""How far is the expected run from the mean of replays? Random runs of the difficult classes, and of all.

    python -m benchmarks.random_runs [CLASS ...] [--num 1000] [--replays 300] [--seed 1] [--worst]

Runs that take more than thirty times as long as their work, and runs that are interrupted in hardly any replay, are left out.
For up-times with memory, the goodput is compared, in points; otherwise the wall time, in per cent. The worst runs are those
whose difference exceeds three standard errors of the mean by most.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

from simulator.run.events import expected_goodput, expected_ledger, simulate_runs
from simulator.table import Booleans, Floats

Columns = dict[str, Floats]

MOST_TIMES = 30.0
"""Wall time over work above which nobody would plan such a run."""
LEAST_INTERRUPTIONS = 100.0
"""Smallest number of interruptions in all replays of a run; with fewer, not even the error of their mean is known."""
NUM_WORST = 10
NOT_TOLD = ("mtbf_s",)


@dataclass(frozen=True)
class Draw:
    """Random columns of a number of runs."""

    luck: np.random.Generator
    num: int

    def log(self, low: float, high: float) -> Floats:
        """Returns numbers whose logarithms are uniform."""
        return np.exp(self.luck.uniform(np.log(low), np.log(high), self.num))

    def often(self, values: Floats, otherwise: float) -> Floats:
        """Returns half of the values, and another one for the rest."""
        return np.where(self.luck.random(self.num) < 0.5, values, otherwise)

    def shares(self, planned: Floats) -> Floats:
        """Returns shares of the kinds of interruption, `(n, 4)`, with those that are planned."""
        unplanned = self.luck.dirichlet([1.0, 1.0, 0.3], self.num)
        return np.column_stack([unplanned * (1.0 - planned)[:, None], planned])

    def survival(self, planned: Floats) -> Floats:
        """Returns how likely the fast level of saves outlives the kinds of interruption, `(n, 4)`."""
        node = self.often(self.luck.random(self.num), 1.0)
        return np.column_stack([np.ones(self.num), node, self.luck.random(self.num), planned])


def two_levels(draw: Draw, *, longest: float = 0.5, work: tuple[float, float] = (0.1, 300.0)) -> Columns:
    """Runs with two levels of saves, up to so many up-times apart, and so much work in up-times."""
    mtbf_s = draw.log(600, 1e6)
    interval_s = mtbf_s * draw.log(0.003, longest)
    commit_s = interval_s * draw.often(draw.log(1e-3, 1.0), 0.0)
    return {
        "work_s": mtbf_s * draw.log(*work),
        "mtbf_s": mtbf_s,
        "interval_s": interval_s,
        "stall_s": interval_s * draw.often(draw.log(1e-4, 0.3), 0.0),
        "commit_s": commit_s,
        "tax_fraction": draw.often(draw.log(1e-3, 0.3), 0.0),
        "slots": np.ones(draw.num),
        "policy": np.zeros(draw.num),
        "restart_s": mtbf_s * draw.log(1e-4, 0.3),
        "kind_share": draw.shares(draw.often(draw.luck.uniform(0.0, 0.5, draw.num), 0.0)),
        "kind_fast_survival": draw.survival(draw.often(draw.luck.random(draw.num), 1.0)),
        "durable_every": draw.luck.integers(1, 20, draw.num).astype(float),
        "durable_commit_s": np.maximum(commit_s, interval_s * draw.log(1e-3, 3.0)),
    }


def with_replicas(draw: Draw, runs: Columns) -> Columns:
    """The same runs with live replicas."""
    missing_s = draw.often(runs["mtbf_s"] * draw.log(1e-4, 0.5), 0.0)
    return runs | {"live_lag_s": runs["mtbf_s"] * draw.log(1e-5, 0.1), "reduced_capacity_s": missing_s}


def ageing(draw: Draw, runs: Columns) -> Columns:
    """The same runs with Weibull up-times."""
    return runs | {"weibull_shape": draw.luck.uniform(0.5, 1.5, draw.num)}


def announced(draw: Draw, runs: Columns) -> Columns:
    """The same runs with a tenth or more of the interruptions announced, most of which the fast level outlives."""
    survives = np.where(draw.luck.random(draw.num) < 0.7, 1.0, draw.luck.random(draw.num))
    return runs | {
        "kind_share": draw.shares(draw.luck.uniform(0.1, 0.8, draw.num)),
        "kind_fast_survival": draw.survival(survives),
    }


def unannounced(draw: Draw, runs: Columns) -> Columns:
    """The same runs with nothing announced."""
    return runs | {"kind_share": draw.shares(np.zeros(draw.num))}


def up_to_first_save(draw: Draw, runs: Columns) -> Columns:
    """The same runs with as much work as lies before the first save, or less."""
    return runs | {"work_s": runs["interval_s"] * draw.luck.uniform(0.1, 1.0, draw.num)}


def about_a_durable_save(draw: Draw, runs: Columns) -> Columns:
    """The same runs with a third to three times the work that lies before the first durable save."""
    return runs | {"work_s": runs["interval_s"] * runs["durable_every"] * draw.log(0.3, 3.0)}


LONG = (100.0, 300.0)
CLASSES: dict[str, Callable[[Draw], Columns]] = {
    "ageing": lambda draw: ageing(draw, two_levels(draw, work=LONG)),
    "ageing-replicas": lambda draw: ageing(draw, with_replicas(draw, two_levels(draw, work=LONG))),
    "ageing-replicas-far": lambda draw: ageing(
        draw, with_replicas(draw, two_levels(draw, longest=2.0, work=LONG))
    ),
    "announced-replicas": lambda draw: announced(
        draw, with_replicas(draw, two_levels(draw, longest=2.0, work=(1.0, 300.0)))
    ),
    "announced": lambda draw: announced(draw, two_levels(draw, longest=2.0, work=(1.0, 100.0))),
    "announced-short": lambda draw: about_a_durable_save(
        draw, announced(draw, two_levels(draw, longest=3.0))
    ),
    "first-save": lambda draw: up_to_first_save(draw, unannounced(draw, two_levels(draw, longest=4.0))),
    "durable-save": lambda draw: about_a_durable_save(draw, unannounced(draw, two_levels(draw, longest=4.0))),
}


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How far the expectation is off for each run, `(n,)`."""

    off: Floats
    """In points of goodput, or per cent of the wall time."""
    error: Floats
    """Standard error of the mean of replays, in the same unit."""
    counts: Booleans
    """Whether a run is interrupted, and ends in time."""

    @classmethod
    def of(cls, runs: Columns, *, num_replays: int, seed: int) -> Agreement:
        """Plays every run, and compares."""
        replays = simulate_runs(num_replications=num_replays, seed=seed, **runs)
        ends = np.asarray(np.isfinite(replays.wall_s).all(axis=1))
        is_met = (replays.num_failures + replays.num_planned).sum(axis=1) >= LEAST_INTERRUPTIONS
        played_s = np.where(ends[:, None], replays.wall_s, 1.0)
        mean_s, error_s = played_s.mean(axis=1), played_s.std(axis=1) / np.sqrt(num_replays)
        error = error_s / mean_s
        if "weibull_shape" in runs:
            goodput = runs["work_s"] / mean_s
            off, error = expected_goodput(**runs) - goodput, error * goodput
        else:
            ledger = expected_ledger(**runs)
            told_s = np.sum([getattr(ledger, name) for name in ledger.names() if name.endswith("_s")], axis=0)
            off = told_s / mean_s - 1.0
        return cls(
            off=100.0 * off,
            error=100.0 * error,
            counts=ends & is_met & (mean_s < MOST_TIMES * runs["work_s"]) & np.isfinite(off),
        )

    @property
    def beyond_noise(self) -> Floats:
        """How far off it is beyond three standard errors, `(n,)`."""
        return np.where(self.counts, np.maximum(0.0, np.abs(self.off) - 3.0 * self.error), 0.0)

    def worst(self) -> list[int]:
        """Returns the runs that are farthest off, beyond noise."""
        found: list[int] = np.argsort(-self.beyond_noise)[:NUM_WORST].tolist()
        return found


def _row(name: str, found: Agreement) -> list[str]:
    off, error = found.off[found.counts], found.error[found.counts]
    figures = [np.abs(off).mean(), 0.8 * error.mean(), np.abs(off).max(), found.beyond_noise.max()]
    return [name, str(found.counts.sum()), *(f"{figure:.2f}" for figure in figures)]


def _told(runs: Columns, row: int) -> str:
    """Returns the columns of one run, times in up-times."""
    mtbf_s = runs["mtbf_s"][row]
    values = {
        name: column[row] / (mtbf_s if name.endswith("_s") else 1.0)
        for name, column in runs.items()
        if name not in NOT_TOLD
    }
    return ", ".join(f"{name} {np.round(value, 4)}" for name, value in values.items())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare expected runs with the means of replays.")
    parser.add_argument("classes", nargs="*", metavar="CLASS", help=f"of {', '.join(CLASSES)}; default all")
    parser.add_argument("--num", type=int, default=1000, help="runs of each class")
    parser.add_argument("--replays", type=int, default=300, help="of each run")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--worst", action="store_true", help="tell the worst runs of each class")
    return parser.parse_args()


def main() -> None:
    """Prints a row for each class."""
    asked, console = _arguments(), Console(width=200)
    table = Table("class", "runs", "off by", "of it noise", "most", "most beyond noise", box=None)
    for name in asked.classes or CLASSES:
        draw = Draw(np.random.default_rng([asked.seed, list(CLASSES).index(name)]), asked.num)
        runs = CLASSES[name](draw)
        found = Agreement.of(runs, num_replays=asked.replays, seed=asked.seed)
        table.add_row(*_row(name, found))
        for row in found.worst() if asked.worst else ():
            console.print(f"{name}: {found.off[row]:+.1f} ({found.error[row]:.1f}) {_told(runs, row)}")
    console.print(table)


if __name__ == "__main__":
    main()
