"""How close is simulated memory to published peaks, and are runs that fitted distinguished from runs that did not?

The tables of docs/validation.md about memory; `python -m benchmarks.validate_steps` writes them with the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.sheets import Sheet, by_group, layout, statistics_sheet
from planner.measured.runs import OUT_OF_MEMORY, Comparison, Row, compare
from planner.validation.comparison import MemoryVerdicts, verdicts_of
from simulator.units import GIB


def memory_sheets(rows: Sequence[Row], comparisons: Sequence[Comparison]) -> list[Sheet]:
    """Returns the errors of published peaks, the verdicts on runs that ran, and the runs that did not fit."""
    with_memory = [c for c in comparisons if c.row["peak_memory_bytes"]]
    return [
        statistics_sheet(
            "memory",
            "source",
            by_group(with_memory, lambda c: c.row["group"]),
            lambda c: c.memory_error_fraction,
        ),
        _verdict_sheet(comparisons),
        _out_of_memory_sheet(rows),
    ]


def _verdict_sheet(comparisons: Sequence[Comparison]) -> Sheet:
    groups = {**by_group(comparisons, lambda c: c.row["group"]), "all": list(comparisons)}
    head = ("source", "ran", "too large", "by over 5%", "recomputation not given", "refused as plan", "which")
    lines = [_verdict_line(name, verdicts_of(members)) for name, members in groups.items()]
    return Sheet(name="verdicts", head=head, lines=lines)


def _verdict_line(name: str, found: MemoryVerdicts) -> list[str]:
    wrong, unknown = found.num_ran_but_simulated_too_large, found.num_ran_and_recompute_not_given
    counts = (
        found.num_ran_and_fit + wrong + unknown,
        wrong,
        found.num_ran_but_far_too_large,
        unknown,
        found.num_ran_but_refused_as_plan,
    )
    return [name, *map(str, counts), " ".join(found.too_large_rows)]


def _out_of_memory_sheet(rows: Sequence[Row]) -> Sheet:
    lines = [
        [
            layout(c.row),
            f"{c.simulated_memory_bytes / GIB:.1f}",
            f"{c.capacity_bytes / GIB:.1f}",
        ]
        for c in compare([row for row in rows if row["left_out_because"] == OUT_OF_MEMORY])
    ]
    head = ("run that ran out of memory", "memory needed (GiB)", "memory (GiB)")
    return Sheet(name="out-of-memory", head=head, lines=lines)
