"""Which rows of a file can a calibration use, and are they consistent? Unusable rows are reported one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from planner.calibration.steps import MeasuredSteps, ideal_s
from planner.input.problems import shown
from planner.measured.cells.file import unread_columns
from planner.measured.hardware.accelerator_names import accelerator_id
from planner.measured.row_reasons import reason_against
from planner.measured.rows import Unmodelled, read_measured
from planner.measured.runs import OUT_OF_MEMORY, Row
from planner.text.human import counted, percent
from simulator.argument_names import Argument
from simulator.errors import InputError, Problem, refusal

FEWEST_CONFIGURATIONS = 3
"""Number of configurations per accelerator below which a fit would reflect single measurements rather than the cluster."""
ENOUGH_CONFIGURATIONS = 8
"""Number of configurations below which the reader is warned."""
UNEQUAL_RATIO = 1.15
"""Slowest over fastest measurement of one configuration above which the reader is warned."""
CONTRADICTORY_RATIO = 1.5
"""Slowest over fastest measurement of one configuration above which nothing can be learned from the rows."""
MOST_NAMED = 5
"""Maximum number of rows or reasons named in one message."""


@dataclass(frozen=True, kw_only=True)
class UsableRows:
    """The steps that constants are fitted on."""

    steps: MeasuredSteps
    num_rows: int
    """Number of rows behind these steps."""
    num_left_out: int
    warnings: tuple[str, ...]


def usable_rows(measured: Path, accelerator: str | None) -> UsableRows:
    """Returns the timed rows of a file that can be simulated, by configuration.

    Args:
        measured: CSV file with the columns of `capplan validate --measured`.
        accelerator: uses only the rows of this accelerator; `None`: the rows of all.

    Raises:
        InputError: the file is not a table of measured runs, has too few usable rows, or rows that contradict each other.
    """
    read = read_measured(measured)
    wanted = accelerator and accelerator_id(accelerator, path=Argument("accelerator"))
    reasons = [_reason_against(row, wanted) for row in read]
    rows = [
        row
        for row, reason in zip(read, reasons, strict=True)
        if not reason and not isinstance(row, Unmodelled)
    ]
    counts = Counter(row["accelerator"] for row in {row["config_key"]: row for row in rows}.values())
    enough = [row for row in rows if counts[row["accelerator"]] >= FEWEST_CONFIGURATIONS]
    if not enough:
        too_few = _too_few(counts, [reason for reason in reasons if reason])
        raise refusal(measured, "; ".join([too_few, *_misspelt(measured)]))
    steps = MeasuredSteps.of(enough)
    return UsableRows(
        steps=steps,
        num_rows=len(enough),
        num_left_out=len(read) - len(enough),
        warnings=(
            *_on_left_out([reason for reason in reasons if reason]),
            *_on_columns(measured),
            *_on_counts(counts),
            *_on_agreement(steps, str(measured)),
        ),
    )


def _reason_against(row: Row | Unmodelled, wanted: str | None) -> str:
    if isinstance(row, Unmodelled):
        return row.reason
    if wanted and row["accelerator"] != wanted:
        return f"measured on {row['accelerator']}, not on {wanted}"
    if row["left_out_because"] == OUT_OF_MEMORY or not row["step_time_s"]:
        return "no step time"
    return row["left_out_because"] or reason_against(row)


def _too_few(counts: Counter[str], reasons: Sequence[str]) -> str:
    known = ", ".join(f"{count} of {name}" for name, count in counts.items()) or "none"
    rule = (
        f"needs at least {FEWEST_CONFIGURATIONS} distinct configurations of one accelerator with a measured step; usable: "
        f"{known}"
    )
    why = f" ({_named(reasons)})" if reasons else ""
    return f"{rule}{why}; measure other layouts, sizes or sequence lengths"


def _on_left_out(reasons: Sequence[str]) -> list[str]:
    return [f"Rows that are not used: {len(reasons)} ({_named(reasons)})."] if reasons else []


def _on_columns(measured: Path) -> list[str]:
    return [f"T{note[1:]}" for note in _misspelt(measured)]


def _misspelt(measured: Path) -> list[str]:
    """Returns which columns are not read, though their names look like those of columns that are."""
    misspelt = {name: meant for name, meant in unread_columns(measured).items() if meant}
    return [
        f"the column {shown(name)} is not read; did you mean {meant}?" for name, meant in misspelt.items()
    ]


def _named(reasons: Sequence[str]) -> str:
    """Returns the commonest reasons with their counts."""
    found = Counter(reasons).most_common(MOST_NAMED)
    more = len(set(reasons)) - len(found)
    named = "; ".join(f"{count} x {reason}" for reason, count in found)
    return named + (f"; {more} more reason{'s' if more > 1 else ''}" if more else "")


def _on_counts(counts: Counter[str]) -> list[str]:
    notes = []
    few = {name: count for name, count in counts.items() if count < FEWEST_CONFIGURATIONS}
    for name, count in few.items():
        notes.append(
            f"{name} is not calibrated: it has {counted(count, 'configuration')} and needs at least {FEWEST_CONFIGURATIONS}."
        )
    fitted = {name: count for name, count in counts.items() if name not in few}
    if len(fitted) > 1:
        notes.append(
            f"The rows cover {len(fitted)} accelerators ({', '.join(sorted(fitted))}): each gets its own hardware constants, "
            "but they share the software constants. To avoid this, fit the rows of one accelerator alone."
        )
    notes += [
        f"{name} has only {count} configurations; measure at least {ENOUGH_CONFIGURATIONS}, with different layouts."
        for name, count in fitted.items()
        if count < ENOUGH_CONFIGURATIONS
    ]
    return notes


def _on_agreement(steps: MeasuredSteps, source: str) -> list[str]:
    """Compares repeated measurements of each configuration."""
    notes, problems = [], []
    for members in steps.members:
        times_s = np.array(ideal_s(members))
        slowest, fastest = int(times_s.argmax()), int(times_s.argmin())
        ratio = float(times_s[slowest] / times_s[fastest])
        pair = f"{members[slowest]['row_id']} and {members[fastest]['row_id']}"
        if ratio >= CONTRADICTORY_RATIO:
            value = f"{times_s[slowest]:.4g} s and {times_s[fastest]:.4g} s"
            rule = (
                "are measurements of the same configuration and contradict each other; "
                "remove one, or distinguish them by a column"
            )
            problems.append(Problem(path=pair, value=value, rule=rule))
        elif ratio >= UNEQUAL_RATIO:
            notes.append(
                f"{pair} are measurements of the same configuration and differ by {percent(ratio - 1.0)}."
            )
    if problems:
        raise InputError(problems[:MOST_NAMED], source)
    return notes[:MOST_NAMED]
