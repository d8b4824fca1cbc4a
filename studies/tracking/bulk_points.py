"""How do the points of a study's curves reach MLflow quickly? As rows beside those that MLflow has, each once.

MLflow's own call makes an object of every point and takes a fifth of a second for 500 of them, as long as a thousand designs
take to be simulated. Where a store's database can be reached (`studies.tracking.bulk_rows.bulk_engine`), its points are rows of
two tables: the history of each curve, and its latest point, which is the one of the last step.
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
    """Adds points to the curves of a run; those that it has are left as they are.

    Args:
        client: of the store, within `mlflow_at`.
        run_id: the run.
        points: in any order.
    """
    from mlflow.entities import Metric

    engine, _ = bulk_engine(client)
    if engine is None or not points or not _insert(engine, run_id, points):
        client.log_batch(run_id, [Metric(*point) for point in points])


def _insert(engine: sa.Engine, run_id: str, points: Sequence[Point]) -> bool:
    """Writes points as rows; returns whether that is possible: else it is for MLflow to write them, or to say why not."""
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
    """Takes the place of the latest point of a curve where that came before."""
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
    """The rows of the last point of each curve: that of the largest step, the latest time, the largest value."""
    order = sorted(
        range(len(rows)), key=lambda row: (points[row].step, points[row].timestamp, _value(rows[row]))
    )
    return list({points[row].key: rows[row] for row in order}.values())


def _value(row: _Row) -> float:
    value = row["value"]
    assert isinstance(value, float)
    return value
