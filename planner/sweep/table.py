"""What are the results of a sweep, row by row? One table of all designs, for CSV, Parquet or a data frame."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from pathlib import Path

import numpy as np

from planner.input.arguments import check_kind
from planner.notes.accuracy_notes import step_notes
from planner.notes.step_note import StepNote, StepNotes
from planner.sweep.axis_values import as_written
from planner.sweep.grid import AUTO, Sweep, SweepPoint
from planner.uncertain.uncertainty import step_time_interval
from simulator.record import finite_or_none
from simulator.units import DAY, JOULES_PER_KWH
from studies.tracking.design_table import plan_columns

Row = dict[str, object]
ASKED = ("num_gpus", "checkpoint_scheme", "checkpoint_interval_s")
"""Columns with what the sweep asks for, in addition to its axes."""
BROKEN = "broken_constraint"
"""Column with the constraint that rules out every layout for the scheme; empty if some layout supports it."""
IS_FASTEST = "is_fastest_layout"
"""Column that tells whether a row is on the fastest layout of its size, whatever the scheme."""
MODEL = "model"
"""Column with the name of the model, and what the sweep or its job changes of a known one."""
STEP_NOTES = "step_time_notes"
"""Column with the reasons why the step of a design is known less well than most, as `StepNotes`; empty if there are none."""


def sweep_rows(sweep: Sweep, points: Iterable[SweepPoint]) -> list[Row]:
    """Returns one row per design, in the order of the sweep; sizes at which nothing fits have no rows.

    Raises:
        InputError: `sweep` is no sweep.
    """
    check_kind(sweep, "sweep", Sweep, "must be a Sweep, such as load_sweep returns")
    return [row for point in points for row in point_rows(sweep, point)]


def point_rows(sweep: Sweep, point: SweepPoint) -> list[Row]:
    """Returns the rows of one point: its axes, its decisions, and what comes of them with the unit in every name.

    A scheme that no layout can have has rows of `None` but for size, scheme and interval, and names what it breaks.
    """
    if point.result is None:
        return []
    model = np.full(len(point.result.plans), point.job.workload.model.name, dtype=object)
    columns = {MODEL: model, **plan_columns(point.job, point.result.plans), **_figures(point)}
    found = zip(*(column.tolist() for column in columns.values()), strict=True)
    num_gpus = point.job.offers[0].num_gpus.max
    rows: list[Row] = []
    for scheme, interval in product(sweep.checkpoint_schemes, sweep.checkpoint_intervals_s):
        broken = point.broken.get(scheme)
        values = next(found) if broken is None else (None,) * len(columns)
        asked = dict(zip(ASKED, (num_gpus, scheme.value, str(interval)), strict=True))
        figures = dict(zip(columns, values, strict=True))
        where = {IS_FASTEST: None if broken else scheme not in point.elsewhere, BROKEN: broken or ""}
        rows.append({**point.axes, **figures, **asked, **where})
    return rows


def json_rows(rows: Iterable[Row]) -> list[Row]:
    """Returns the rows as JSON can have them, which knows no infinity: `None` where nothing is ever saved or a run never ends.

    Example:
        >>> json_rows([{"checkpoint_scheme": "none", "used_interval_s": float("inf")}])
        [{'checkpoint_scheme': 'none', 'used_interval_s': None}]
    """
    return [{name: _finite(value) for name, value in row.items()} for row in rows]


def _finite(value: object) -> object:
    return finite_or_none(value) if isinstance(value, float) else value


def write_rows(rows: list[Row], path: Path) -> None:
    """Writes the rows as CSV, with lists and mappings of axes as JSON; without rows, a heading of what is asked."""
    from planner.recommended.output import write_csv

    texts = [{name: _cell(value) for name, value in row.items()} for row in rows]
    write_csv(texts, path, no_rows=(*ASKED, BROKEN))


def _cell(value: object) -> object:
    return as_written(value) if isinstance(value, dict | list) else value


def can_run(row: Row) -> bool:
    """Returns whether some layout supports the scheme of a row, so that it has figures."""
    return row[BROKEN] == ""


def step_notes_of(row: Row) -> tuple[StepNote, ...]:
    """Returns the reasons why the step of a row is known less well than most."""
    told = row[STEP_NOTES]
    assert isinstance(told, StepNotes), "rows come from point_rows"
    return told.notes


def is_auto(row: Row) -> bool:
    """Returns whether a row uses the interval with the least loss."""
    return row["checkpoint_interval_s"] == AUTO


def _figures(point: SweepPoint) -> dict[str, np.ndarray]:
    assert point.result is not None
    outcomes, scores = point.result.outcomes, point.result.scores
    run, saves, workload = outcomes.run, outcomes.checkpoints, point.job.workload
    healthy_s = run.productive_s + run.straggler_s
    return {
        "step_time_s": outcomes.steps.step_time_s,
        **_certainty(point),
        "mfu_fraction": outcomes.summary.mfu_fraction,
        "checkpoint_bytes_per_gpu": saves.bytes_per_save / point.result.plans.num_gpus,
        "stall_s": saves.stall_s,
        "commit_s": saves.commit_s,
        "minimum_interval_s": saves.minimum_interval_s,
        "used_interval_s": run.checkpoint_interval_s,
        "tokens_per_s": workload.tokens / healthy_s,
        "goodput_fraction": run.goodput_fraction,
        "effective_tokens_per_s": workload.tokens / run.wall_time_s,
        "num_failures": run.num_failures,
        "checkpoint_stall_s": run.checkpoint_stall_s,
        "checkpoint_tax_s": run.checkpoint_tax_s,
        "lost_work_s": run.lost_work_s,
        "way_back_s": run.way_back_s,
        "wall_time_s": run.wall_time_s,
        "time_to_train_days": scores.time_to_train_s / DAY,
        "time_to_train_p95_days": scores.time_to_train_p95_s / DAY,
        "energy_kwh": scores.energy_j / JOULES_PER_KWH,
        "cost_usd": scores.cost_usd,
        "carbon_kgco2e": scores.carbon_kgco2e,
    }


def _certainty(point: SweepPoint) -> dict[str, np.ndarray]:
    """The 80 % interval of every step, and why it is wide."""
    assert point.result is not None
    job, plans = point.job, point.result.plans
    steps_s = point.result.outcomes.steps.step_time_s.tolist()
    intervals = [step_time_interval(job, plans, row, step_s) for row, step_s in enumerate(steps_s)]
    notes = [StepNotes(*step_notes(job, plans.plan(row))) for row in range(len(plans))]
    low_s, high_s = np.array(intervals).reshape(-1, 2).T
    return {"step_time_low_s": low_s, "step_time_high_s": high_s, STEP_NOTES: np.array(notes, dtype=object)}
