"""How do thousands of designs become MLflow runs quickly? As rows, written straight into the tracking store.

MLflow has no call that creates many runs at once, and each run takes about 10 ms through its API. A store with a database
can instead be filled through its own engine (`studies.tracking.bulk_rows`). With a server instead of a database, or with an
unknown database, the runs are created through the API, and the outcome says so.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from studies.tracking.bulk_rows import Family, bulk_engine, write_rows
from studies.tracking.mlflow_session import mlflow_at, origin_tags
from studies.tracking.run_table import RunTable

if TYPE_CHECKING:
    from mlflow import MlflowClient

NUM_API_THREADS = 4
"""Concurrent requests to a tracking server; more would only queue up there."""

Way = Literal["bulk", "api"]


@dataclass(frozen=True, kw_only=True)
class BulkOutcome:
    """How a table of runs was written."""

    num_runs: int
    """Runs written."""
    way: Way
    """`bulk`: straight into the database; `api`: one by one through MLflow's interface."""
    reason: str
    """Why `bulk` was not used; empty if it was."""


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
        way: `api` avoids bulk writing even where it is possible.

    Raises:
        TrackingError: the store cannot be used; transactions that were completed before remain.
    """
    with mlflow_at(store_uri):
        from mlflow import MlflowClient

        client = MlflowClient(tracking_uri=store_uri)
        family = Family(
            experiment_id=experiment_id,
            artifact_location=client.get_experiment(experiment_id).artifact_location,
            started_at_ms=started_at_ms,
            tags={**origin_tags(), "mlflow.parentRunId": parent_run_id},
        )
        engine, obstacle = (None, "asked for") if way == "api" else bulk_engine(client)
        if engine is None:
            _write_through_api(client, family, designs)
            return BulkOutcome(num_runs=designs.num_runs, way="api", reason=obstacle)
        write_rows(engine, family, designs)
        return BulkOutcome(num_runs=designs.num_runs, way="bulk", reason="")


# The slow way: MLflow's interface


def _write_through_api(client: MlflowClient, family: Family, designs: RunTable) -> None:
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
