"""What did this run train, on what, and with which layout? From the cells of a file to a row that can be simulated.

The columns are those of compiled lists of training runs: `gpu`, `n_gpus`, `layers`, `hidden`, `tp`, `pp`, .... What a row
leaves open is taken from a catalogue model of the same name and size, from the framework's habits or from defaults, and is
named in `assumed`. A row is read in two steps: first its setting (`planner.measured.run_setting`), then its design in that
setting (`planner.measured.run_design`).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from planner.input.arguments import path_given
from planner.input.problems import nearest
from planner.measured.cells import notes as measured_notes
from planner.measured.cells.file import Cells, read_cells
from planner.measured.cells.told import CannotModelError, Told
from planner.measured.frameworks.families import software_family
from planner.measured.layout.degrees import OpenLayoutError
from planner.measured.layout.schedule import says_nothing_of_chunks
from planner.measured.limits import reason_of_most
from planner.measured.run_design import RunDesign, design_of
from planner.measured.run_setting import setting_of
from planner.measured.runs import OUT_OF_MEMORY, Row
from planner.measured.software.run_software import RunSetting
from planner.measured.unmodelled import simulates_memory
from simulator import catalog
from simulator.argument_names import Argument
from simulator.errors import InputError, Problem
from simulator.units import GIB
from studies.progress import Progress, Report, ignore

SAME_TIME = 0.05
"""Fraction by which a time and the row's tokens per second may differ, since published figures are rounded or averaged."""
MOST_OF_CAPACITY = 1.1
"""Measured peak over the accelerator's memory up to which it may be of a slightly larger part of the same name."""
LONGEST_NOTES = 200
"""Number of characters of the notes that a row keeps."""
LONGEST_MODEL = 100
"""The same for the name of its model."""
ROW = Argument("row")
"""The argument that names a row."""
MOST_NAMED = 6
"""Most rows that a message names where none is similar to the one that was asked for."""
ROWS_AT_ONCE = 100
"""Rows that are read between two reports of the progress."""

_PRODUCTION = re.compile(r"production(?! steady)|whole[- ]run", re.IGNORECASE)
_OUT_OF_MEMORY = re.compile(r"out[- ]of[- ]memory|\boom\b", re.IGNORECASE)

_NO_PART_OF_THE_DESIGN = (
    "row_id",
    "tier",
    "software",
    "step_time_s",
    "peak_memory_bytes",
    "memory_kind",
    "memory_stage",
    "picks_chunks",
    "recomputes_all",
    "recomputes_some",
    "encoder_follows",
    "left_out_because",
    "notes",
    "assumed",
    "remarks",
)
"""Fields in which rows of the same configuration may differ."""


@dataclass(frozen=True, kw_only=True)
class Unmodelled:
    """A row that is not simulated."""

    row_id: str
    group: str
    reason: str
    step_time_s: str
    """What was measured; empty where nothing was."""
    possible: tuple[Row, ...] | None = None
    """The row with each possible layout, where only the layout is not stated (`planner.measured.untold_layouts`)."""


def read_measured(path: str | Path, progress: Report = ignore) -> list[Row | Unmodelled]:
    """Returns the rows of a file in order, each ready to be simulated or with the reason why it cannot be.

    Args:
        path: the file.
        progress: receives progress reports.

    Raises:
        InputError: the file is not a table of measured runs.
    """
    rows = read_cells(path_given(path))
    read = []
    for number, (cells, row_id) in enumerate(zip(rows, _ids(rows), strict=True)):
        if number % ROWS_AT_ONCE == 0:
            progress(Progress(stage="reading measured runs", num_done=number, num_total=len(rows)))
        read.append(_translated(cells, row_id))
    return read


def read_measured_row(path: str | Path, row_id: str) -> Row | Unmodelled:
    """Returns one row of a file, as `read_measured` does.

    Raises:
        InputError: the file is not a table of measured runs, or no row has that id.
    """
    rows = read_cells(path_given(path))
    return _translated(rows[place_of(row_id, _ids(rows))], row_id)


def place_of(row_id: str, ids: Sequence[str]) -> int:
    """Returns the place of a row among the ids of all.

    Raises:
        InputError: no row has that id.
    """
    if row_id in ids:
        return ids.index(row_id)
    rule = f"is no row of the file; {nearest(row_id, tuple(ids), most=MOST_NAMED)}"
    raise InputError([Problem(path=ROW, value=repr(row_id), rule=rule)])


def _ids(rows: Sequence[Cells]) -> list[str]:
    """The ids of rows; if several share one, their position in the file tells them apart."""
    ids = [cells.text.get("id") or f"row {cells.line}" for cells in rows]
    count = Counter(ids)
    return [
        f"{row_id} (row {cells.line})" if count[row_id] > 1 else row_id
        for cells, row_id in zip(rows, ids, strict=True)
    ]


def _translated(cells: Cells, row_id: str) -> Row | Unmodelled:
    group = cells.text.get("source") or "source not named"
    possible = None
    try:
        return _row(cells, row_id, group)
    except OpenLayoutError as error:
        tried = [
            _translated(replace(cells, numbers={**cells.numbers, **degrees}), row_id)
            for degrees in error.degrees
        ]
        possible = tuple(row for row in tried if not isinstance(row, Unmodelled))
        refused = [row.reason for row in tried if isinstance(row, Unmodelled)]
        reason = str(error) if possible or not refused else reason_of_most(refused)
    except CannotModelError as error:
        reason = str(error)
    except InputError as error:
        reason = "; ".join(str(problem) for problem in error.problems)
    return Unmodelled(
        row_id=row_id,
        group=group,
        reason=reason,
        step_time_s=_as_text(cells.step_time_s()),
        possible=possible or None,
    )


def _row(written: Cells, row_id: str, group: str) -> Row:
    """Returns a row, with sizes as text like all other cells."""
    setting = setting_of(written)
    design = design_of(setting)
    told = setting.told
    cells: dict[str, object] = {
        "row_id": row_id,
        "group": group,
        "model": told.name("model")[:LONGEST_MODEL] or "model not named",
        "precision": setting.precision,
        "is_production": bool(_PRODUCTION.search(setting.kind)),
        "tier": told.text("tier"),
        "software": software_family(told.framework),
        **design.cells,
        **_measured(setting, design),
        "picks_chunks": setting.habits.picks_chunks and says_nothing_of_chunks(told),
        "recomputes_all": setting.habits.recomputes_all,
        "recomputes_some": setting.recomputed().is_some,
        "has_memory_verdict": design.has_memory and simulates_memory(told, design.cells),
        "notes": " ".join(told.cells.text.get("notes", "").split())[:LONGEST_NOTES],
        "left_out_because": OUT_OF_MEMORY if _OUT_OF_MEMORY.search(setting.kind) else None,
        "assumed": " ".join(dict.fromkeys(told.assumed)),
        "remarks": "\n".join(told.remarks),
    }
    row = {name: _as_text(value) for name, value in cells.items()}
    key = "|".join(value for name, value in row.items() if name not in _NO_PART_OF_THE_DESIGN)
    return {**row, "config_key": told.text("config_key") or key}


def _measured(setting: RunSetting, design: RunDesign) -> dict[str, object]:
    """Returns the measured time and memory, and what the memory counts."""
    told = setting.told
    _remark_other_rate(told)
    memory = _measured_memory_gib(setting)
    written = f"{setting.kind} {told.text('notes')}"
    return {
        "step_time_s": told.cells.step_time_s(design.global_batch_size),
        "peak_memory_bytes": memory and memory * GIB,
        "memory_kind": measured_notes.memory_kind(written) or setting.habits.memory_kind,
        "memory_stage": setting.habits.memory_stage,
    }


def _measured_memory_gib(setting: RunSetting) -> float | None:
    """Returns the measured peak; `None` if there is none, or if a run that had room cannot have had it."""
    told = setting.told
    memory = told.cells.numbers.get("peak_mem_gib_per_gpu")
    accelerator = catalog.accelerator(str(setting.node.cells["accelerator"]))
    capacity = accelerator.memory_bytes / GIB
    if memory is None or memory <= MOST_OF_CAPACITY * capacity or _OUT_OF_MEMORY.search(setting.kind):
        return memory
    meaning = f"more than the {capacity:.4g} GiB of {accelerator.id}; memory is not compared"
    told.remark("peak_mem_gib_per_gpu", meaning)
    return None


def _remark_other_rate(told: Told) -> None:
    """Remarks that tokens per second are ignored where they imply a different step time than the measured one."""
    step_time_s, of_rate_s = told.cells.numbers.get("step_time_s"), told.cells.step_time_of_rate_s()
    if step_time_s and of_rate_s and not math.isclose(step_time_s, of_rate_s, rel_tol=SAME_TIME):
        meaning = f"with global_batch, seq_len and n_gpus a step of {of_rate_s:.4g} s; step_time_s counts"
        told.remark("tokens_per_s_per_gpu", meaning)


def _as_text(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
