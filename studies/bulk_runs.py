"""How do thousands of designs become MLflow runs quickly? As rows, written straight into the tracking store.

MLflow has no call that makes many runs at once, and one run through its API costs about 10 ms. A store with
a database behind it can instead be filled through its own engine and MLflow's own table objects, column by
column in large transactions. That relies on the layout of five tables, so the layout is compared with
the one known here first; when it differs, or when there is a server instead of a database, the runs are made
through the API, and the outcome says so.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from simulator.errors import StudyError
from studies.mlflow_session import (
    MAX_KEY_CHARACTERS,
    MAX_PARAM_CHARACTERS,
    MAX_TAG_CHARACTERS,
    check_key,
    check_texts,
    mlflow_at,
    origin_tags,
    refresh_statistics,
    writing,
)

if TYPE_CHECKING:
    import sqlalchemy as sa
    from mlflow import MlflowClient

DESIGNS_PER_TRANSACTION = 2_000
"""About 0.4 s of writing, during which other writers of the store wait."""

NUM_API_THREADS = 4
"""Concurrent requests to a tracking server; more only queue up in it."""

LARGEST_FLOAT = float(np.finfo(np.float64).max)
"""What MLflow's database stores write in place of infinity (SqlAlchemyStore.sanitize_metric_value)."""

_TEXT_COLUMNS = "key value run_uuid"
_METRIC_COLUMNS = "key value run_uuid timestamp step is_nan"
KNOWN_COLUMNS: Mapping[str, str] = {
    "runs": "run_uuid name source_type source_name entry_point_name user_id status start_time end_time "
    "deleted_time source_version lifecycle_stage artifact_uri experiment_id",
    "params": _TEXT_COLUMNS,
    "metrics": _METRIC_COLUMNS,
    "latest_metrics": _METRIC_COLUMNS,
    "tags": _TEXT_COLUMNS,
}
"""The layout that the rows below are made for: unchanged from MLflow 2.22 to 3.17."""

Way = Literal["bulk", "api"]


class Rows(NamedTuple):
    """Rows of one table."""

    names: Sequence[str]
    """Columns that have a value."""
    values: list[tuple[object, ...]]
    """One entry a row, in their order."""


@dataclass(frozen=True, kw_only=True)
class RunTable:
    """Designs as MLflow will show them, one run each; every column has one entry per design.

    Raises:
        StudyError: a column has another length than `names`, or a key or text that MLflow does not take.
    """

    names: Sequence[str]
    """Run names."""
    params: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """What was chosen: texts by parameter name."""
    metrics: Mapping[str, npt.NDArray[np.generic]] = field(default_factory=dict)
    """What came out: numbers `(n,)` by metric name; NaN and infinities are allowed."""
    tags: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """What to filter by, such as `front`: texts by tag name."""

    def __post_init__(self) -> None:
        check_texts("run name", self.names, MAX_KEY_CHARACTERS)
        if not all(self.names):
            raise StudyError("a run name is empty: MLflow would invent one")
        for kind, columns in (("param", self.params), ("metric", self.metrics), ("tag", self.tags)):
            for key, values in columns.items():
                check_key(kind, key)
                if len(values) != self.num_runs:
                    raise StudyError(f"{kind} {key!r} has {len(values)} entries for {self.num_runs} designs")
        for key, numbers in self.metrics.items():
            if np.asarray(numbers).dtype.kind not in "biuf":
                raise StudyError(f"metric {key!r} does not hold numbers: must be bool, int or float")
        for key, texts in self.params.items():
            check_texts(f"param {key!r}", texts, MAX_PARAM_CHARACTERS)
        for key, texts in self.tags.items():
            check_texts(f"tag {key!r}", texts, MAX_TAG_CHARACTERS)

    @property
    def num_runs(self) -> int:
        """Designs in the table."""
        return len(self.names)


@dataclass(frozen=True, kw_only=True)
class BulkOutcome:
    """What became of a table of runs."""

    num_runs: int
    """Runs written."""
    way: Way
    """`bulk`: straight into the database; `api`: one by one through MLflow's interface."""
    reason: str
    """Why not `bulk`; empty when it was."""


@dataclass(frozen=True, kw_only=True)
class _Family:
    """What all runs of one call have in common."""

    experiment_id: str
    artifact_location: str
    started_at_ms: int
    tags: Mapping[str, str]


def write_runs(
    store_uri: str,
    experiment_id: str,
    parent_run_id: str,
    designs: RunTable,
    started_at_ms: int,
    *,
    way: Way = "bulk",
) -> BulkOutcome:
    """Writes one finished child run per design.

    Args:
        store_uri: MLflow tracking URI; a database or a server.
        experiment_id: experiment of the parent run.
        parent_run_id: run under which the interface shows the designs.
        designs: the runs to write.
        started_at_ms: start and end of every run, milliseconds since 1970 (UTC); ids sort by it.
        way: `api` forgoes the bulk way even where it is possible.

    Raises:
        TrackingError: the store cannot be used; whole transactions that came before stay.
    """
    with mlflow_at(store_uri):
        from mlflow import MlflowClient

        client = MlflowClient(tracking_uri=store_uri)
        family = _Family(
            experiment_id=experiment_id,
            artifact_location=client.get_experiment(experiment_id).artifact_location,
            started_at_ms=started_at_ms,
            tags={**origin_tags(), "mlflow.parentRunId": parent_run_id},
        )
        engine, obstacle = (None, "asked for") if way == "api" else bulk_engine(client)
        if engine is None:
            _write_through_api(client, family, designs)
            return BulkOutcome(num_runs=designs.num_runs, way="api", reason=obstacle)
        _write_as_rows(engine, family, designs)
        return BulkOutcome(num_runs=designs.num_runs, way="bulk", reason="")


# The quick way: rows


def bulk_engine(client: MlflowClient) -> tuple[sa.Engine | None, str]:
    """Returns the engine of the client's own store, or None and what forbids writing rows through it."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    store = getattr(getattr(client, "_tracking_client", None), "store", None)
    if not isinstance(store, SqlAlchemyStore):
        return None, "the store has no database that can be reached from here"
    if unknown := _unknown_columns():
        return None, f"the installed MLflow keeps runs in columns not known here: {', '.join(unknown)}"
    return store.engine, ""


def _tables() -> dict[str, sa.Table]:
    from mlflow.store.tracking.dbmodels import models

    classes = (models.SqlRun, models.SqlParam, models.SqlMetric, models.SqlLatestMetric, models.SqlTag)
    return {model.__tablename__: model.__table__ for model in classes}


def _unknown_columns() -> list[str]:
    """Returns where the installed MLflow's tables differ from `KNOWN_COLUMNS` in a way that matters.

    A new column does not matter when it may be left out: it is nullable and has a default.
    """
    differing = []
    for name, table in _tables().items():
        known = set(KNOWN_COLUMNS[name].split())
        differing += [f"{name}.{column}" for column in sorted(known - set(table.columns.keys()))]
        for column in table.columns:
            has_default = column.default is not None or column.server_default is not None
            if column.name not in known and not (column.nullable and has_default):
                differing.append(f"{name}.{column.name}")
    return differing


def _write_as_rows(engine: sa.Engine, family: _Family, designs: RunTable) -> None:
    # One random tail per call keeps ids unique; time and serial number in front keep them in order, and
    # with that every insertion at the end of the database's indexes.
    tail = uuid.uuid4().hex[:12]
    with writing(engine) as connection:
        for start in range(0, designs.num_runs, DESIGNS_PER_TRANSACTION):
            part = slice(start, min(start + DESIGNS_PER_TRANSACTION, designs.num_runs))
            serials = range(part.start, part.stop)
            ids = [f"{family.started_at_ms:012x}{serial:08x}{tail}" for serial in serials]
            rows = _rows(family, designs, part, ids)
            with connection.begin():
                for name, table in _tables().items():
                    if rows[name].values:
                        _insert(connection, table, rows[name])
        refresh_statistics(connection, KNOWN_COLUMNS)


def _insert(connection: sa.Connection, table: sa.Table, rows: Rows) -> None:
    if connection.dialect.name != "sqlite" or set(rows.names) != set(table.columns.keys()):
        named = [dict(zip(rows.names, values, strict=True)) for values in rows.values]
        connection.execute(table.insert(), named)
        return
    # Past SQLAlchemy, which would look at every value: a third less time, and SQLite takes our types as they are.
    columns = ", ".join(f'"{name}"' for name in rows.names)
    marks = ", ".join("?" * len(rows.names))
    statement = f'INSERT INTO "{table.name}" ({columns}) VALUES ({marks})'  # noqa: S608 (names of MLflow's own tables)
    connection.exec_driver_sql(statement, rows.values)


def _rows(family: _Family, designs: RunTable, part: slice, ids: list[str]) -> dict[str, Rows]:
    """Returns the rows of some designs by table, in the order of the tables' primary keys."""
    tags: dict[str, Sequence[str]] = {key: values[part] for key, values in designs.tags.items()}
    tags |= {key: [value] * len(ids) for key, value in family.tags.items()}
    tags["mlflow.runName"] = designs.names[part]
    metrics = _metric_rows(family, designs, part, ids)
    return {
        "runs": _run_rows(family, designs.names[part], ids),
        "params": _text_rows({key: values[part] for key, values in designs.params.items()}, ids),
        "metrics": metrics,
        "latest_metrics": metrics,
        "tags": _text_rows(tags, ids),
    }


def _run_rows(family: _Family, names: Sequence[str], ids: list[str]) -> Rows:
    from mlflow.utils.uri import append_to_uri_path

    common: dict[str, object] = {
        **dict.fromkeys(("source_name", "entry_point_name", "source_version"), ""),
        "source_type": "UNKNOWN",
        "user_id": family.tags["mlflow.user"],
        "status": "FINISHED",
        "start_time": family.started_at_ms,
        "end_time": family.started_at_ms,
        "deleted_time": None,
        "lifecycle_stage": "active",
        "experiment_id": int(family.experiment_id),
    }

    # MLflow takes an address apart to add a folder: once for all runs, whose ids are all alike.
    folder = str(append_to_uri_path(family.artifact_location, ids[0], "artifacts"))  # type: ignore[no-untyped-call]
    shared = tuple(common.values())
    values = [
        (*shared, run_id, name, folder.replace(ids[0], run_id))
        for run_id, name in zip(ids, names, strict=True)
    ]
    return Rows((*common, "run_uuid", "name", "artifact_uri"), values)


def _text_rows(columns: Mapping[str, Sequence[str]], ids: list[str]) -> Rows:
    rows: list[tuple[object, ...]] = []
    for key in sorted(columns):
        rows += zip(repeat(key, len(ids)), columns[key], ids, strict=True)
    return Rows(_TEXT_COLUMNS.split(), rows)


def _metric_rows(family: _Family, designs: RunTable, part: slice, ids: list[str]) -> Rows:
    rows: list[tuple[object, ...]] = []
    stamps, steps = [family.started_at_ms] * len(ids), [0] * len(ids)
    for key in sorted(designs.metrics):
        raw = np.asarray(designs.metrics[key][part], dtype=np.float64)
        values = np.nan_to_num(raw, nan=0.0, posinf=LARGEST_FLOAT, neginf=-LARGEST_FLOAT)
        numbers, are_nan = values.tolist(), np.isnan(raw).tolist()
        rows += zip(repeat(key, len(ids)), numbers, ids, stamps, steps, are_nan, strict=True)
    return Rows(_METRIC_COLUMNS.split(), rows)


# The slow way: MLflow's interface


def _write_through_api(client: MlflowClient, family: _Family, designs: RunTable) -> None:
    from mlflow.entities import Metric, Param

    now = family.started_at_ms

    def write(serial: int) -> None:
        tags = {key: values[serial] for key, values in designs.tags.items()} | dict(family.tags)
        params = [Param(key, values[serial]) for key, values in designs.params.items()]
        metrics = [Metric(key, float(values[serial]), now, 0) for key, values in designs.metrics.items()]
        run = client.create_run(family.experiment_id, now, tags, designs.names[serial])
        client.log_batch(run.info.run_id, metrics, params)
        client.set_terminated(run.info.run_id, end_time=now)

    # A database store is bound by its own work in this process; only a server gains from threads.
    num_threads = NUM_API_THREADS if client.tracking_uri.startswith("http") else 1
    with ThreadPoolExecutor(num_threads) as pool:
        list(pool.map(write, range(designs.num_runs)))
