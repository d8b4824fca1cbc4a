"""How do the points of a study's curves reach MLflow quickly? As rows inserted into its tables, each once.

MLflow's own call makes an object of every point and takes 0.2 s for 500 of them, as long as simulating a thousand designs.
If the store's database can be reached (`studies.tracking.bulk_rows.bulk_engine`), points are inserted as rows of two tables:
the history of each curve, and its latest point, which is the one of the last step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from studies.tracking.bulk_rows import LARGEST_FLOAT, bulk_engine
from studies.tracking.mlflow_session import BUSY_TIMEOUT_MS

if TYPE_CHECKING:
    import sqlalchemy as sa
    from mlflow import MlflowClient
    from sqlalchemy.dialects import postgresql, sqlite

_Row = dict[str, object]


class Point(NamedTuple):
    """A number on a curve."""

    key: str
    """Name of the curve."""
    value: float
    timestamp: int
    """Milliseconds since 1970."""
    step: int


def write_points(client: MlflowClient, run_id: str, points: Sequence[Point]) -> None:
    """Adds points to the curves of a run; existing points are left as they are.

    Args:
        client: client of the store, within `mlflow_at`.
        run_id: the run.
        points: the points, in any order.
    """
    from mlflow.entities import Metric

    engine, _ = bulk_engine(client)
    if engine is None or not points or not _insert(engine, run_id, points):
        client.log_batch(run_id, [Metric(*point) for point in points])


def _insert(engine: sa.Engine, run_id: str, points: Sequence[Point]) -> bool:
    """Writes points as rows; returns false if that is impossible, so that MLflow must write them or say why it cannot."""
    import sqlalchemy as sa
    from mlflow.store.tracking.dbmodels import models

    runs = models.SqlRun.__table__
    rows = [_row(run_id, point) for point in points]
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":  # each of MLflow's sessions says so, too
            connection.exec_driver_sql(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
            connection.commit()
        is_active = (runs.c.run_uuid == run_id) & (runs.c.lifecycle_stage == "active")
        if connection.execute(sa.select(runs.c.run_uuid).where(is_active)).first() is None:
            return False
        history, latest = models.SqlMetric.__table__, models.SqlLatestMetric.__table__
        connection.execute(_insert_into(engine, history).on_conflict_do_nothing(), rows)
        connection.execute(_replacing_older(_insert_into(engine, latest), latest), _latest(rows, points))
        connection.commit()
    return True


def _insert_into(engine: sa.Engine, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
    from sqlalchemy.dialects import postgresql, sqlite

    return sqlite.insert(table) if engine.dialect.name == "sqlite" else postgresql.insert(table)


def _replacing_older(
    insert: sqlite.Insert | postgresql.Insert, latest: sa.Table
) -> sqlite.Insert | postgresql.Insert:
    """Replaces the latest point of a curve if that point is older."""
    import sqlalchemy as sa

    new, old = (sa.tuple_(of.step, of.timestamp, of.value) for of in (insert.excluded, latest.c))
    return insert.on_conflict_do_update(
        index_elements=["key", "run_uuid"],
        set_={name: insert.excluded[name] for name in ("value", "timestamp", "step", "is_nan")},
        where=new > old,
    )


def _row(run_id: str, point: Point) -> _Row:
    """A point as MLflow's tables hold it; databases have no infinity and no NaN."""
    is_nan = math.isnan(point.value)
    value = 0.0 if is_nan else max(-LARGEST_FLOAT, min(LARGEST_FLOAT, point.value))
    return {**point._asdict(), "run_uuid": run_id, "value": value, "is_nan": is_nan}


def _latest(rows: Sequence[_Row], points: Sequence[Point]) -> list[_Row]:
    """The rows of the last point of each curve: the one with the largest step, then the latest time, then the largest value."""
    order = sorted(
        range(len(rows)), key=lambda row: (points[row].step, points[row].timestamp, _value(rows[row]))
    )
    return list({points[row].key: rows[row] for row in order}.values())


def _value(row: _Row) -> float:
    value = row["value"]
    assert isinstance(value, float)
    return value
