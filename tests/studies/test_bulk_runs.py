"""Is a run that was written as rows the same, to MLflow, as one made through its interface?"""

from __future__ import annotations

import math
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from simulator.errors import StudyError, TrackingError
from studies.tracking import bulk_rows
from studies.tracking.bulk_runs import BulkOutcome, Way, write_runs
from studies.tracking.mlflow_session import mlflow_at
from studies.tracking.run_table import RunTable

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

STARTED_AT_MS = 1_790_000_000_123


@dataclass(frozen=True, kw_only=True)
class Store:
    """An SQLite store with one experiment and the run of one study."""

    file: Path
    client: MlflowClient
    experiment_id: str
    parent_run_id: str

    @property
    def uri(self) -> str:
        return f"sqlite:///{self.file}"

    def write(self, designs: RunTable, way: Way = "bulk") -> BulkOutcome:
        return write_runs(
            self.uri, self.experiment_id, self.parent_run_id, designs, started_at_ms=STARTED_AT_MS, way=way
        )

    def children(self, filter_string: str = "", order_by: str = "attributes.run_id ASC") -> list[Run]:
        below = f"tags.mlflow.parentRunId = '{self.parent_run_id}'"
        clauses = " and ".join(clause for clause in (below, filter_string) if clause)
        return list(
            self.client.search_runs([self.experiment_id], clauses, max_results=5000, order_by=[order_by])
        )


@pytest.fixture
def store(tmp_path: Path, empty_store: Path) -> Store:
    file = Path(shutil.copy(empty_store, tmp_path / "mlflow.db"))
    uri = f"sqlite:///{file}"
    with mlflow_at(uri):
        from mlflow import MlflowClient

        client = MlflowClient(tracking_uri=uri)
        experiment_id = client.create_experiment("llama", (tmp_path / "artifacts").as_uri())
        run = client.create_run(experiment_id)
        return Store(file=file, client=client, experiment_id=experiment_id, parent_run_id=run.info.run_id)


def designs(num: int) -> RunTable:
    serial = np.arange(num)
    return RunTable(
        names=[f"design {number:04d}" for number in serial],
        params={"num_gpus": [str(8 * number) for number in serial], "schedule": ["1f1b"] * num},
        metrics={"cost_usd": (serial * 7919) % 1000 / 8.0, "num_stages": serial % 5},
        tags={"front": [str(int(number % 10 == 0)) for number in serial]},
    )


ODD_NUMBERS = [0.1, -0.0, math.nan, math.inf, -math.inf, 1e308, 5e-324]


def odd_designs() -> RunTable:
    num = len(ODD_NUMBERS)
    return RunTable(
        names=[f"odd {number}" for number in range(num)],
        params={"a/b c": ["", "é", "x" * 6000, "'\"%s", "\n", "0", "None"], "z.y-x:w": ["1"] * num},
        metrics={
            "time_s": np.array(ODD_NUMBERS),
            "is_feasible": np.arange(num) % 2 == 0,
            "num_gpus": np.arange(num, dtype=np.int32),
            "single": np.linspace(0.1, 0.7, num, dtype=np.float32),
        },
        tags={"front": ["1"] * num, "note": ["t" * 8000] * num},
    )


def everything(store: Store, run: Run) -> str:
    """Returns all that MLflow tells about a run, as text (in which NaN equals NaN), without its id."""
    history = {
        key: [
            (point.value, point.timestamp, point.step)
            for point in store.client.get_metric_history(run.info.run_id, key)
        ]
        for key in sorted(run.data.metrics)
    }
    data = [sorted(columns.items()) for columns in (run.data.metrics, run.data.params, run.data.tags)]
    told = [
        sorted(dict(run.info).items()),
        data,
        run.to_dictionary().keys(),
        run.inputs,
        run.outputs,
        history,
    ]
    return repr(told).replace(run.info.run_id, "ID")


def test_a_bulk_run_reads_back_identical_to_one_made_through_the_interface(store: Store) -> None:
    by_way = {}
    for way in ("bulk", "api"):
        before = {run.info.run_id for run in store.children()}
        store.write(odd_designs(), way)
        runs = [
            run for run in store.children(order_by="attributes.run_name ASC") if run.info.run_id not in before
        ]
        by_way[way] = [everything(store, store.client.get_run(run.info.run_id)) for run in runs]
    assert len(by_way["bulk"]) == len(ODD_NUMBERS)
    assert by_way["bulk"] == by_way["api"]


def test_a_bulk_run_says_what_was_written(store: Store) -> None:
    assert store.write(odd_designs()) == BulkOutcome(num_runs=len(ODD_NUMBERS), way="bulk", reason="")
    runs = store.children()
    assert [run.info.run_name for run in runs] == odd_designs().names
    assert {run.info.status for run in runs} == {"FINISHED"}
    assert {(run.info.start_time, run.info.end_time) for run in runs} == {(STARTED_AT_MS, STARTED_AT_MS)}
    assert (
        runs[0].info.artifact_uri == f"{store.file.parent.as_uri()}/artifacts/{runs[0].info.run_id}/artifacts"
    )
    assert runs[2].data.params == {"a/b c": "x" * 6000, "z.y-x:w": "1"}
    assert runs[3].data.tags["mlflow.parentRunId"] == store.parent_run_id
    # MLflow keeps the largest finite number in place of infinity (its documented behaviour).
    largest = 1.7976931348623157e308
    expected = [0.1, -0.0, math.nan, largest, -largest, 1e308, 5e-324]
    np.testing.assert_array_equal([run.data.metrics["time_s"] for run in runs], expected)


def test_a_bulk_run_can_be_edited_deleted_and_restored(store: Store) -> None:
    store.write(designs(3))
    run_id = store.children()[1].info.run_id
    store.client.log_metric(run_id, "cost_usd", 5.0, step=1)
    store.client.set_tag(run_id, "front", "2")
    store.client.delete_run(run_id)
    assert len(store.children()) == 2
    store.client.restore_run(run_id)
    run = store.client.get_run(run_id)
    assert (run.data.metrics["cost_usd"], run.data.tags["front"]) == (5.0, "2")


def test_runs_are_found_and_sorted_by_metric(store: Store) -> None:
    store.write(designs(300))
    found = store.children("tags.front = '1' and metrics.cost_usd < 60", "metrics.cost_usd DESC")
    costs_usd = sorted(((number * 7919) % 1000 / 8.0 for number in range(0, 300, 10)), reverse=True)
    assert [run.data.metrics["cost_usd"] for run in found] == [cost for cost in costs_usd if cost < 60]
    assert len(store.children("params.num_gpus = '80'")) == 1


def test_runs_keep_their_order_across_transactions(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_rows, "DESIGNS_PER_TRANSACTION", 7)
    store.write(designs(20))
    store.write(designs(0))
    assert [run.info.run_name for run in store.children()] == designs(20).names


def test_the_file_is_left_with_statistics_and_its_own_journal_mode(store: Store) -> None:
    store.write(designs(50))
    with closing(sqlite3.connect(store.file)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        measured = {row[0] for row in connection.execute("SELECT DISTINCT tbl FROM sqlite_stat1")}
    assert {"runs", "params", "metrics", "latest_metrics", "tags"} <= measured
    assert [entry.name for entry in store.file.parent.iterdir()] == ["mlflow.db"]


@pytest.mark.parametrize(
    ("known", "column"),
    [
        (bulk_rows.KNOWN_COLUMNS["runs"].replace("user_id", ""), "runs.user_id"),
        (bulk_rows.KNOWN_COLUMNS["runs"] + " colour", "runs.colour"),
    ],
)
def test_an_unknown_layout_is_left_to_the_interface(
    store: Store, monkeypatch: pytest.MonkeyPatch, known: str, column: str
) -> None:
    monkeypatch.setattr(bulk_rows, "KNOWN_COLUMNS", {**bulk_rows.KNOWN_COLUMNS, "runs": known})
    outcome = store.write(designs(4))
    assert (outcome.num_runs, outcome.way) == (4, "api")
    assert outcome.reason.endswith(f"columns not known here: {column}")
    assert {run.info.run_name for run in store.children()} == set(designs(4).names)


@pytest.mark.parametrize(
    ("columns", "rule"),
    [
        ({"params": {"a": ["1"]}}, r"param 'a' has 1 entries for 2 designs"),
        ({"tags": {"a": ["1", "2", "3"]}}, r"tag 'a' has 3 entries for 2 designs"),
        ({"metrics": {"a,b": np.zeros(2)}}, r"metric 'a,b': use at most 250 of letters"),
        ({"metrics": {"a": np.array(["1", "2"])}}, r"metric 'a' does not hold numbers"),
        ({"params": {"a": ["1", "x" * 6001]}}, r"param 'a' has 6001 characters: MLflow takes 6000"),
        ({"tags": {"../a": ["1", "2"]}}, r"tag '\.\./a': use"),
        ({"names": ["a", ""]}, r"a run name is empty"),
    ],
)
def test_what_mlflow_would_refuse_is_refused_before_anything_is_written(
    columns: dict[str, object], rule: str
) -> None:
    with pytest.raises(StudyError, match=rule):
        RunTable(**{"names": ["a", "b"], **columns})  # type: ignore[arg-type]


def test_a_failure_names_the_store_and_the_reason(store: Store) -> None:
    with pytest.raises(TrackingError, match=r"mlflow\.db: No Experiment with id=99 exists"):
        write_runs(store.uri, "99", store.parent_run_id, designs(1), started_at_ms=STARTED_AT_MS)
