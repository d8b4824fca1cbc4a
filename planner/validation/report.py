"""What does a validation report? Tables for people and for programs, and every row with its prediction."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from planner import __version__
from planner.measured.rows import Unmodelled
from planner.measured.runs import Comparison, known_reason, remarks_of
from planner.validation.comparison import (
    Choice,
    Entry,
    MemoryVerdicts,
    Modelled,
    Score,
    choices,
    memory_verdicts,
    scores,
    timed,
)
from simulator.catalog import catalog_hash
from simulator.record import finite_or_none
from simulator.units import GIB


def parallelism(comparison: Comparison) -> str:
    """Returns which kinds of parallelism a row combines, such as `TP+PP` or `ZeRO-3`."""
    row = comparison.row
    degrees = {"TP": "tensor", "PP": "pipeline", "CP": "context", "EP": "expert"}
    used = [letters for letters, name in degrees.items() if row[f"{name}_parallel"] != "1"]
    if row["zero_stage"] == "3":
        used.append("ZeRO-3")
    return "+".join(used) or "data only"


def model_family(comparison: Comparison) -> str:
    """Returns whether the feed-forward blocks are dense or experts, and what is special about attention."""
    network = "mixture of experts" if comparison.row["num_experts"] else "dense"
    if comparison.row.get("indexer_num_heads"):
        return f"chosen tokens, {network}"
    return f"hybrid, {network}" if comparison.row.get("linear_kind") else network


TABLES: Mapping[str, Callable[[Comparison], str]] = {
    "all": lambda comparison: "all",  # noqa: ARG005 (one group, whatever the row)
    "source": lambda comparison: comparison.row["group"],
    "accelerator": lambda comparison: comparison.row["accelerator"],
    "model_family": model_family,
    "precision": lambda comparison: comparison.row["precision"],
    "parallelism": parallelism,
    "tier": lambda comparison: comparison.row.get("tier") or "not given",
}
"""Tables of step times by the name of their groups."""


@dataclass(frozen=True, kw_only=True)
class MemoryScore:
    """Errors of the peak memory of one source, simulated over measured less one."""

    group: str
    num_rows: int
    mean_absolute_error_fraction: float
    bias_fraction: float
    worst_error_fraction: float
    worst_row: str
    worst_reason: str | None


@dataclass(frozen=True, kw_only=True)
class Report:
    """All tables of a validation."""

    step_time: Mapping[str, tuple[Score, ...]]
    """Errors of step times, by table of `TABLES`."""
    choices: tuple[Choice, ...]
    """Jobs of which several designs were measured."""
    memory: tuple[MemoryScore, ...]
    """Errors of the peak memory by source."""
    memory_verdicts: MemoryVerdicts
    """Which runs fit, in reality and in simulation."""
    not_modelled: Mapping[str, tuple[str, ...]]
    """Names of the rows that are not modelled, by reason, the most frequent reason first."""
    remarks: Mapping[str, tuple[str, ...]]
    """Names of the rows with a cell that was approximated or not understood, by remark."""
    unread_columns: Mapping[str, str | None]
    """Columns of the file that are not read, each with the column that may be meant."""
    num_rows: int
    """Number of rows in the file."""
    num_modelled: int
    """Number of rows with a prediction."""
    num_scored: int
    """Number of rows with a prediction and a measured step time."""


def report_of(entries: Sequence[Entry], unread_columns: Mapping[str, str | None]) -> Report:
    """Returns the tables of a validation; it also names the columns that are not read."""
    scored = timed(entries)
    read_with_care = [
        (remark, entry.comparison.row["row_id"])
        for entry in entries
        if isinstance(entry, Modelled)
        for remark in remarks_of(entry.comparison.row)
    ]
    unmodelled = [(entry.reason, entry.row_id) for entry in entries if isinstance(entry, Unmodelled)]
    return Report(
        step_time={table: tuple(scores(scored, name)) for table, name in TABLES.items()},
        choices=tuple(choices(scored)),
        memory=_memory_scores(entries),
        memory_verdicts=memory_verdicts(entries),
        not_modelled=_rows_by_reason(unmodelled),
        remarks=_rows_by_reason(read_with_care),
        unread_columns=unread_columns,
        num_rows=len(entries),
        num_modelled=len(entries) - len(unmodelled),
        num_scored=len(scored),
    )


def _rows_by_reason(found: Iterable[tuple[str, str]]) -> Mapping[str, tuple[str, ...]]:
    """Returns the names of rows by what is said about them, the most frequent first."""
    names: dict[str, list[str]] = {}
    for reason, row in found:
        names.setdefault(reason, []).append(row)
    return {reason: tuple(rows) for reason, rows in sorted(names.items(), key=lambda item: -len(item[1]))}


def _memory_scores(entries: Sequence[Entry]) -> tuple[MemoryScore, ...]:
    groups: dict[str, list[Comparison]] = {}
    for entry in entries:
        if isinstance(entry, Modelled) and math.isfinite(entry.comparison.memory_error_fraction):
            groups.setdefault(entry.comparison.row["group"], []).append(entry.comparison)
    return tuple(_memory_score(group, members) for group, members in sorted(groups.items()))


def _memory_score(group: str, members: Sequence[Comparison]) -> MemoryScore:
    errors = np.array([member.memory_error_fraction for member in members])
    worst = members[int(np.abs(errors).argmax())]
    return MemoryScore(
        group=group,
        num_rows=len(members),
        mean_absolute_error_fraction=float(np.abs(errors).mean()),
        bias_fraction=float(errors.mean()),
        worst_error_fraction=worst.memory_error_fraction,
        worst_row=worst.row["row_id"],
        worst_reason=known_reason(worst.row),
    )


def mean_regret_fraction(found: Sequence[Choice]) -> float:
    """Returns the mean slow-down of the picked designs; NaN where there was nothing to choose."""
    return float(np.mean([choice.regret_fraction for choice in found])) if found else math.nan


def mean_rank_correlation(found: Sequence[Choice]) -> float:
    """Returns the mean of the rank correlations; NaN where no job has enough designs."""
    known = [choice.rank_correlation for choice in found if choice.rank_correlation is not None]
    return float(np.mean(known)) if known else math.nan


def as_json(
    report: Report, entries: Sequence[Entry], *, whole_runs: Sequence[Mapping[str, object]] | None
) -> Mapping[str, object]:
    """Returns tables and rows as one JSON-compatible object; what does not exist is null.

    Args:
        report: the tables.
        entries: the rows.
        whole_runs: cold predictions of published whole runs, as a further table; `None`: none.
    """
    tables = {name: [asdict(score) for score in found] for name, found in report.step_time.items()}
    runs = {} if whole_runs is None else {"whole_runs": whole_runs}
    return {
        "schema_version": 1,
        "capplan_version": __version__,
        "catalog_hash": catalog_hash(),
        "num_rows": report.num_rows,
        "num_modelled": report.num_modelled,
        "num_scored": report.num_scored,
        "tables": {
            **tables,
            **runs,
            "choices": [asdict(choice) for choice in report.choices],
            "memory": [asdict(score) for score in report.memory],
            "memory_verdicts": asdict(report.memory_verdicts),
            "not_modelled": [
                {"reason": reason, "num_rows": len(rows)} for reason, rows in report.not_modelled.items()
            ],
            "unread_columns": [
                {"column": column, "meant": meant} for column, meant in report.unread_columns.items()
            ],
        },
        "mean_rank_correlation": finite_or_none(mean_rank_correlation(report.choices)),
        "mean_regret_fraction": finite_or_none(mean_regret_fraction(report.choices)),
        "rows": [row_json(entry) for entry in entries],
    }


def row_json(entry: Entry) -> Mapping[str, object]:
    """Returns one row with its prediction, JSON-compatible; what does not exist is null."""
    if isinstance(entry, Unmodelled):
        return {
            "id": entry.row_id,
            "source": entry.group,
            "predicted_step_time_s": None,
            "predicted_low_s": None,
            "predicted_high_s": None,
            "measured_step_time_s": float(entry.step_time_s) if entry.step_time_s else None,
            "predicted_peak_memory_gib": None,
            "memory_kind": None,
            "predicted_device_memory_gib": None,
            "fits": None,
            "reason": entry.reason,
            "measured_peak_memory_gib": None,
            "memory_capacity_gib": None,
            "accelerator": None,
            "assumed": [],
            "remarks": [],
        }
    comparison = entry.comparison
    row = comparison.row
    memory = row["peak_memory_bytes"]
    return {
        "id": row["row_id"],
        "source": row["group"],
        "predicted_step_time_s": comparison.expected_s,
        "predicted_low_s": entry.interval.low_s,
        "predicted_high_s": entry.interval.high_s,
        "measured_step_time_s": finite_or_none(comparison.measured_s),
        "predicted_peak_memory_gib": comparison.comparable_memory_bytes / GIB,
        "memory_kind": comparison.memory_kind,
        "predicted_device_memory_gib": comparison.simulated_memory_bytes / GIB,
        "fits": not comparison.is_too_large if comparison.has_memory_verdict else None,
        "reason": None,
        "measured_peak_memory_gib": float(memory) / GIB if memory else None,
        "memory_capacity_gib": comparison.capacity_bytes / GIB,
        "accelerator": row["accelerator"],
        "assumed": row["assumed"].split(),
        "remarks": remarks_of(row),
    }
