"""How close is simulated memory to published peaks, by row and by component, and do runs that fitted fit in simulation?

    python -m benchmarks.memory_accuracy training_runs.csv [--rows]

Takes a file of measured runs like `capplan validate --measured`. An error is the simulated over the published memory, less one,
for what the publisher counted; rows with the same `config_key` are averaged first. If the file has tiers, only rows of tier A
are scored.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from planner.measured.rows import read_measured
from planner.measured.runs import OUT_OF_MEMORY, Comparison, job_of, memory_kind, plan_of
from planner.validation.comparison import Modelled, configurations, entries_of
from simulator.domain.plan import PlanTable
from simulator.memory.peak import MemoryTable
from simulator.simulate import layout_memory
from simulator.units import GIB


def compared(path: Path) -> list[Comparison]:
    """Returns the rows of a file that say something about memory: a peak, or that it was not enough."""
    entries = entries_of(read_measured(path))
    rows = [entry.comparison for entry in entries if isinstance(entry, Modelled)]
    return [row for row in rows if row.row["tier"] in ("", "A") and (_has_peak(row) or _ran_out(row))]


def _has_peak(comparison: Comparison) -> bool:
    return bool(comparison.row["peak_memory_bytes"])


def _ran_out(comparison: Comparison) -> bool:
    return comparison.row["left_out_because"] == OUT_OF_MEMORY


def print_scores(rows: Iterable[Comparison]) -> None:
    """Prints the errors of every source and of all sources."""
    by_source: dict[str, list[float]] = defaultdict(list)
    for configuration in configurations(row for row in rows if _has_peak(row)):
        errors = [row.memory_error_fraction for row in configuration.rows]
        by_source[configuration.rows[0].row["group"]].append(float(np.mean(errors)))
    for source, found in [*by_source.items(), ("all", [e for each in by_source.values() for e in each])]:
        values = np.array(found)
        print(
            f"{source[:60]:60} {len(values):3}  bias {values.mean():+.1%}  mean abs. {np.abs(values).mean():.1%}  "
            f"largest {np.abs(values).max():.1%}"
        )


def print_verdicts(rows: Iterable[Comparison]) -> None:
    """Prints how full the device is simulated to be in runs that fitted and in runs that did not."""
    for name, is_member in (("ran", _has_peak), ("ran out of memory", _ran_out)):
        shares = [row.simulated_memory_bytes / row.capacity_bytes for row in rows if is_member(row)]
        if shares:
            print(
                f"{name}: {len(shares)} rows, simulated {min(shares):.0%} to {max(shares):.0%} of the memory"
            )


def print_rows(rows: Iterable[Comparison]) -> None:
    """Prints every row with its components in GiB."""
    names = MemoryTable.names()
    print("row kind published simulated error " + " ".join(name.removesuffix("_bytes") for name in names))
    for comparison in rows:
        row = comparison.row
        memory = layout_memory(job_of(row), PlanTable.from_plans([plan_of(row)]))
        parts = " ".join(f"{getattr(memory, name)[0] / GIB:.1f}" for name in names)
        published = float(row["peak_memory_bytes"] or "nan") / GIB
        print(
            f"{row['row_id']} {memory_kind(row)} {published:.1f} {comparison.comparable_memory_bytes / GIB:.1f} "
            f"{comparison.memory_error_fraction:+.1%} {parts}"
        )


def main() -> None:
    """Compares the rows of a file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, help="measured runs, a CSV file")
    parser.add_argument("--rows", action="store_true", help="print every row too")
    arguments = parser.parse_args()
    rows = compared(arguments.file)
    if arguments.rows:
        print_rows(rows)
    print_scores(rows)
    print_verdicts(rows)


if __name__ == "__main__":
    main()
