"""How is an answer written to files? The answer as JSON, the front as CSV or Parquet."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, get_args, get_type_hints

from planner.input.own_files import OUTPUT, check_folder, replacing
from planner.recommended.recommendation import Design, Recommendation
from simulator.domain.job import Job, Objective
from simulator.domain.plan import Plan
from simulator.errors import InputError, Problem
from simulator.record import Record
from simulator.units import DAY
from studies.files.lock import held, lock_of

FrontFormat = Literal["csv", "parquet"]
ANSWER_FILE = "recommendation.json"
JOB_FILE = "job.json"
FRONT_FILE = "front"
PAGE_FILE = "report.html"

SINGLE_FIGURES = (
    "time_to_train_days",
    "cost_usd",
    "cost_low_usd",
    "cost_high_usd",
    "energy_kwh",
    "carbon_kgco2e",
    "peak_power_w",
    "step_time_s",
    "iteration_time_s",
    "mfu_fraction",
    "goodput_fraction",
    "num_failures",
    "peak_memory_bytes",
)
"""Figures of a design that are single numbers."""
FRONT_FIGURES = (
    "design_id",
    "accelerator",
    "node",
    "num_nodes",
    "region",
    *SINGLE_FIGURES,
    "memory_capacity_bytes",
)
_CARBON_AND_WATER = {
    "operational_kgco2e": "operational_location_kgco2e",
    "market_kgco2e": "operational_market_kgco2e",
    "embodied_kgco2e": "embodied_kgco2e",
    "water_l": "water_l",
}
"""Figure of merit by column of the front; the columns are called as in the table of all designs."""

_WRITTEN = (
    ANSWER_FILE,
    "designs.parquet",
    f"{FRONT_FILE}.csv",
    f"{FRONT_FILE}.parquet",
    JOB_FILE,
    PAGE_FILE,
)
"""Every file that an answer may have."""


@contextmanager
def output_folder(folder: Path) -> Iterator[Path]:
    """Makes the folder for an answer; inside the context no other process writes one there.

    An interrupt takes its files away, so that the same command can be run again. Folders that were made for it and are
    still empty at the end are removed, too.

    Raises:
        InputError: it cannot be made or written to, or holds a file of the name of one that is to be written.
        StudyError: another process is writing an answer there.
    """
    busy = "is in use by another process: choose another folder"
    with _made(folder), held(lock_of(folder / ANSWER_FILE), f"output folder {folder}", busy):
        _check_free(folder)  # now that nobody else can fill it
        try:
            yield folder
        except KeyboardInterrupt:
            for name in _WRITTEN:
                (folder / name).unlink(missing_ok=True)
            raise


@contextmanager
def _made(folder: Path) -> Iterator[None]:
    """Makes the folder and those above it; after the context, those of them that are empty are gone again."""
    missing = [above for above in (folder, *folder.parents) if not os.path.lexists(above)]
    try:
        _make(folder)
        yield
    finally:
        with suppress(OSError):  # the first that holds something keeps those above it
            for made in missing:
                made.rmdir()


def _make(folder: Path) -> None:
    if str(folder) in ("", ".") or folder.resolve() == Path.cwd():
        raise _problem(folder, "must be a folder of its own, not the working folder")
    check_folder(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        is_writable = os.access(folder, os.W_OK | os.X_OK)
    except OSError as error:
        raise _problem(folder, f"cannot be created: {error.strerror or error}") from None
    if not is_writable:
        raise _problem(folder, "cannot be written to")


def _check_free(folder: Path) -> None:
    taken = [name for name in _WRITTEN if (folder / name).exists()]
    if taken:
        rule = f"already contains {taken[0]}, and files are never overwritten: choose another folder"
        raise _problem(folder, rule)


def write_job(job: Job, folder: Path) -> Path:
    """Writes the job with every name resolved to its figures, so that the study can be repeated; returns the file."""
    path = folder / JOB_FILE
    with replacing(path, OUTPUT) as draft:
        draft.write_text(job.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return path


def write_answer(answer: Recommendation, folder: Path, front_format: FrontFormat) -> list[Path]:
    """Writes the answer and the front into a folder and returns the files."""
    answer_file = folder / ANSWER_FILE
    with replacing(answer_file, OUTPUT) as draft:
        draft.write_text(answer_json(answer), encoding="utf-8")
    front_file = folder / f"{FRONT_FILE}.{front_format}"
    rows = [_front_row(design, answer) for design in answer.front]
    kinds = _front_kinds(answer)
    with replacing(front_file, OUTPUT) as draft:
        if front_format == "csv":
            write_csv(rows, draft, list(kinds))
        else:
            _write_parquet(rows, draft, kinds)
    return [answer_file, front_file]


def answer_json(answer: Recommendation) -> str:
    """Returns the answer as the JSON object that `capplan recommend --json` prints, with a line end."""
    return answer.model_dump_json(indent=2) + "\n"


def _front_row(design: Design, answer: Recommendation) -> dict[str, object]:
    figures = {name: getattr(design, name) for name in FRONT_FIGURES}
    parts = {column: design.metrics.get(metric) for column, metric in _CARBON_AND_WATER.items()}
    used = {
        "checkpoint_interval_s": design.checkpoint_interval_s,
        "is_recommended": answer.recommends(design.design_id),
    }
    return figures | parts | _objectives(design) | design.plan.model_dump(mode="json") | used


def _objectives(design: Design) -> dict[str, float | None]:
    """Objectives that are no other figure of a front, late values and risks, in the columns of the table of all designs."""
    found: dict[str, float | None] = {}
    for name, value in design.objective_values.items():
        if column := _own_column(name):
            found[column] = value / DAY if value is not None and name == Objective.TIME_P95 else value
    return found


def _own_column(objective: str) -> str | None:
    """Column of an objective that is no other figure of a front."""
    from studies.tracking.design_table import OBJECTIVE_COLUMNS

    column = OBJECTIVE_COLUMNS[Objective(objective)]
    return None if column in FRONT_FIGURES else column


def _front_kinds(answer: Recommendation) -> dict[str, type]:
    """Kinds of values by column of a front, the same whatever its designs have, and where there are none."""
    figures = {name: _kind(Design, name) for name in FRONT_FIGURES}
    late = [column for name in answer.objectives if (column := _own_column(name))]
    decisions = {name: _kind(Plan, name) for name in Plan.model_fields}
    return figures | dict.fromkeys([*_CARBON_AND_WATER, *late], float) | decisions | {"is_recommended": bool}


def _kind(record: type[Record], name: str) -> type:
    """Kind of the values of a field: whole numbers, numbers, or text, which choices are written as."""
    annotation = get_type_hints(record)[name]
    kinds = {annotation, *get_args(annotation)}
    return next((kind for kind in (int, float) if kind in kinds), str)


def write_csv(rows: list[dict[str, object]], path: Path, no_rows: Sequence[str]) -> None:
    """Writes rows with the names of the first one as the heading, or those of `no_rows` where there is none."""
    with path.open("w", newline="", encoding="utf-8") as file:
        names = list(rows[0]) if rows else list(no_rows)
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _write_parquet(rows: list[dict[str, object]], path: Path, kinds: Mapping[str, type]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {int: pa.int64(), float: pa.float64(), bool: pa.bool_(), str: pa.string()}
    schema = pa.schema([(name, types[kind]) for name, kind in kinds.items()])
    pq.write_table(pa.Table.from_pylist(rows, schema), path)


def _problem(folder: Path, rule: str) -> InputError:
    return InputError([Problem(path=OUTPUT, value=str(folder), rule=rule)])
