"""Why is a measured row simulated as it is? How it was read, and where its simulated time and memory go."""

from __future__ import annotations

from planner import __version__
from planner.job.file import parse_job
from planner.job.row_job import fills_its_nodes, row_document
from planner.json_forms import Cell
from planner.measured.rows import Unmodelled
from planner.measured.runs import DECIDING, Row, is_untold, plan_of
from planner.one_design.simulated_design import SimulatedDesign, one_step, simulate_plan
from planner.validation.comparison import Entry
from planner.validation.report import row_json
from simulator.catalog import catalog_hash
from simulator.domain.calibration import Calibration
from simulator.record import Record
from simulator.step.timeline import StepTimeline


class ReadCell(Record):
    """A field that decides how a row is simulated."""

    field: str
    """Field of the model, the workload, the plan or the node, or the hardware by its catalogue names."""
    value: str
    """What it was read as."""
    is_assumed: bool
    """Whether the row leaves it open."""


class MeasuredRow(Record):
    """What `capplan validate --row ID --json` prints."""

    schema_version: int = 1
    """Version of this form; increases when a field is removed or changes its meaning."""
    capplan_version: str
    """What simulated the row,"""
    catalog_hash: str
    """and with which figures of hardware."""
    row: dict[str, Cell | tuple[str, ...]]
    """Measurement and prediction, as in `rows` of `capplan validate --json`."""
    cells: tuple[ReadCell, ...] = ()
    """How the row was read; fields that are not named have their defaults. Empty if it is not modelled."""
    job: dict[str, object] | None = None
    """The job file that stands for the row; null if it is not modelled, or uses its last node in part, as no job does."""
    simulated: SimulatedDesign | None = None
    """One step of the row's plan for that job: parts of its time, memory by component and stage. Figures of the whole run, its
    cost, energy and carbon are those of placeholders. Null without `job`."""
    notes: str = ""
    """What the row says in free text, shortened."""


def measured_row(entry: Entry, calibration: Calibration | None = None) -> MeasuredRow:
    """Returns how a row was read and what its simulation consists of."""
    known = {"capplan_version": __version__, "catalog_hash": catalog_hash(), "row": row_json(entry)}
    if isinstance(entry, Unmodelled):
        return MeasuredRow.model_validate(known)
    row = entry.comparison.row
    read = known | {"cells": _cells(row), "notes": row.get("notes", "")}
    if not fills_its_nodes(row):
        return MeasuredRow.model_validate(read)
    document = row_document(row, calibration)
    simulated = simulate_plan(parse_job(document), plan_of(row), with_sensitivities=False)
    return MeasuredRow.model_validate(read | {"job": document, "simulated": simulated})


def step_of(answer: MeasuredRow) -> StepTimeline | None:
    """Returns every event of one step of a row; `None` where there is no timeline."""
    if answer.job is None or answer.simulated is None:
        return None
    return one_step(parse_job(answer.job), answer.simulated)


def _cells(row: Row) -> tuple[ReadCell, ...]:
    return tuple(
        ReadCell(field=name, value=value, is_assumed=is_untold(row, name))
        for name, value in row.items()
        if value and name in DECIDING
    )
