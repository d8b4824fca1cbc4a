"""How do columns of designs become rows of MLflow's tables quickly? Inside the database, from one wide temporary table.

A design is about fifty rows in five tables. Sending each row to the database costs more than storing it. So the designs are
sent once, one row each with a column for every parameter, metric and tag, and the database itself makes MLflow's rows from
them, key by key in the order of its indexes. This relies on the layout of the five tables, so the layout is first compared
with the one known here.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from studies.tracking.mlflow_session import refresh_statistics, writing

if TYPE_CHECKING:
    import sqlalchemy as sa
    from mlflow import MlflowClient

    from studies.tracking.run_table import RunTable

DESIGNS_PER_TRANSACTION = 2_000
"""About 0.4 s of writing, during which other writers to the store wait."""

KNOWN_DATABASES = ("sqlite", "postgresql")
"""Databases on which the statements below are tested."""

LARGEST_FLOAT = float(np.finfo(np.float64).max)
"""What MLflow's database stores write in place of infinity (SqlAlchemyStore.sanitize_metric_value)."""

_WideRows = list[tuple[str | float | None, ...]]
"""Rows of the wide table, in the order of its columns."""
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
"""The layout for which the rows below are made: unchanged from MLflow 2.22 to 3.17."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """What all runs of one call have in common."""

    experiment_id: str
    artifact_location: str
    started_at_ms: int
    """Start and end of every run, milliseconds since 1970 (UTC)."""
    tags: Mapping[str, str]


def bulk_engine(client: MlflowClient) -> tuple[sa.Engine | None, str]:
    """Returns the engine of the client's own store, or None and the reason why rows cannot be written through it."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    store = getattr(getattr(client, "_tracking_client", None), "store", None)
    if not isinstance(store, SqlAlchemyStore):
        return None, "the store has no database that can be reached from here"
    if store.engine.dialect.name not in KNOWN_DATABASES:
        return (
            None,
            f"rows are written to {' and '.join(KNOWN_DATABASES)} only, not to {store.engine.dialect.name}",
        )
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


def write_rows(engine: sa.Engine, family: Family, designs: RunTable) -> None:
    """Writes one finished run per design, in transactions of `DESIGNS_PER_TRANSACTION`."""
    # One random suffix per call keeps ids unique. Time and serial number in front keep them in order, so every insertion
    # is at the end of the database's indexes.
    tail = uuid.uuid4().hex[:12]
    wide = _wide_table(f"designs_{tail}", designs)
    statements = list(_statements(wide, family, designs))
    with writing(engine) as connection:
        for start in range(0, designs.num_runs, DESIGNS_PER_TRANSACTION):
            serials = range(start, min(start + DESIGNS_PER_TRANSACTION, designs.num_runs))
            ids = [f"{family.started_at_ms:012x}{serial:08x}{tail}" for serial in serials]
            rows = _wide_rows(family, designs, slice(start, serials.stop), ids)
            with connection.begin():
                _write(connection, wide, rows, statements)
        refresh_statistics(connection, KNOWN_COLUMNS)


def _write(
    connection: sa.Connection, wide: sa.Table, rows: _WideRows, statements: Sequence[sa.Insert]
) -> None:
    """Fills the wide table, copies its rows into MLflow's tables, and drops it."""
    wide.create(connection, checkfirst=False)
    _fill(connection, wide, rows)
    for statement in statements:
        connection.execute(statement)
    wide.drop(connection, checkfirst=False)


# The wide table: a row for each design


def _wide_table(name: str, designs: RunTable) -> sa.Table:
    """Describes the temporary table; its columns are numbered, since a key may be any text."""
    import sqlalchemy as sa

    common = [sa.Column(column, sa.Text) for column in ("run_uuid", "name", "artifact_uri")]
    texts = [sa.Column(f"{kind}_{number}", sa.Text) for kind, number, _ in _text_keys(designs)]
    metrics = [sa.Column(f"metric_{number}", sa.Double) for number in range(len(designs.metrics))]
    return sa.Table(name, sa.MetaData(), *common, *texts, *metrics, prefixes=["TEMPORARY"])


def _text_keys(designs: RunTable) -> Iterator[tuple[str, int, str]]:
    """Yields kind, number and key of every column of texts."""
    for kind, columns in (("param", designs.params), ("tag", designs.tags)):
        for number, key in enumerate(columns):
            yield kind, number, key


def _wide_rows(family: Family, designs: RunTable, part: slice, ids: Sequence[str]) -> _WideRows:
    """Returns the rows of some designs, in the order of the columns; a metric that is not a number is None."""
    from mlflow.utils.uri import append_to_uri_path

    # MLflow parses an address to add a folder, so this is done once for all runs, whose ids have the same form.
    folder = str(append_to_uri_path(family.artifact_location, ids[0], "artifacts"))  # type: ignore[no-untyped-call]
    columns: list[Sequence[str] | list[float | None]] = [
        ids,
        designs.names[part],
        [folder.replace(ids[0], run_id) for run_id in ids],
        *(texts[part] for texts in designs.params.values()),
        *(texts[part] for texts in designs.tags.values()),
    ]
    for numbers in designs.metrics.values():
        raw = np.asarray(numbers[part], dtype=np.float64)
        kept = np.clip(raw, -LARGEST_FLOAT, LARGEST_FLOAT).astype(object)
        kept[np.isnan(raw)] = None
        columns.append(kept.tolist())
    return list(zip(*columns, strict=True))


def _fill(connection: sa.Connection, wide: sa.Table, rows: _WideRows) -> None:
    if connection.dialect.name == "sqlite":
        # Bypasses SQLAlchemy, which would inspect every value: SQLite takes our types as they are.
        marks = ", ".join("?" * len(wide.columns))
        connection.exec_driver_sql(f"INSERT INTO {wide.name} VALUES ({marks})", rows)  # noqa: S608 (a name of ours)
        return
    names = wide.columns.keys()
    connection.execute(wide.insert(), [dict(zip(names, row, strict=True)) for row in rows])


# MLflow's tables, which the database fills from it


def _statements(wide: sa.Table, family: Family, designs: RunTable) -> Iterator[sa.Insert]:
    """Yields the statements that copy designs from the wide table into MLflow's tables, in the order of primary keys."""
    import sqlalchemy as sa

    tables = _tables()

    def copy(table: str, values: Mapping[str, object]) -> sa.Insert:
        sources = [
            (value if isinstance(value, sa.ColumnElement) else sa.literal(value, tables[table].c[name].type))
            for name, value in values.items()
        ]
        return tables[table].insert().from_select(list(values), sa.select(*sources).select_from(wide))

    yield copy("runs", _run_values(wide, family))
    texts: list[tuple[str, str, object]] = [
        ("tag", "mlflow.runName", wide.c.name),
        *(("tag", key, value) for key, value in family.tags.items()),
        *((kind, key, wide.c[f"{kind}_{number}"]) for kind, number, key in _text_keys(designs)),
    ]
    for kind, key, value in sorted(texts, key=lambda text: text[:2]):
        yield copy(f"{kind}s", {"key": key, "value": value, "run_uuid": wide.c.run_uuid})
    for number, key in sorted(enumerate(designs.metrics), key=lambda metric: metric[1]):
        for table in ("metrics", "latest_metrics"):
            yield copy(table, _metric_values(wide, family, key, wide.c[f"metric_{number}"]))


def _run_values(wide: sa.Table, family: Family) -> dict[str, object]:
    return {
        "run_uuid": wide.c.run_uuid,
        "name": wide.c.name,
        "artifact_uri": wide.c.artifact_uri,
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


def _metric_values(wide: sa.Table, family: Family, key: str, value: sa.Column[float]) -> dict[str, object]:
    import sqlalchemy as sa

    return {
        "key": key,
        "value": sa.func.coalesce(value, 0.0),
        "run_uuid": wide.c.run_uuid,
        "timestamp": family.started_at_ms,
        "step": 0,
        "is_nan": value.is_(None),
    }
