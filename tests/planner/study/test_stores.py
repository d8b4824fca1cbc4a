"""Does each kind of MLflow store hold a study once? PostgreSQL, and a server that is killed, both run for real."""

from __future__ import annotations

import sqlite3
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from mlflow import MlflowClient

from benchmarks.mlflow_server import MlflowServer
from planner import recommend
from planner.study.durable import StudyAnswer, run_study_of
from planner.study.reports import state_of
from planner.tracking.delivery import deliver
from planner.tracking.sending import Target
from simulator.domain.job import Job
from simulator.errors import TrackingError
from studies.files import design_parts
from studies.files.design_log import read_designs
from studies.files.identity import study_label
from studies.files.store import StudyStore
from studies.progress import Progress, Report, ignore
from studies.tracking.design_table import run_name
from studies.tracking.mlflow_session import check_usable, mlflow_at
from tests.planner.studies_run import NOW, job_of
from tests.postgres import postgres

pytestmark = [pytest.mark.usefixtures("pictures_drawn_once"), pytest.mark.long]


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """Address of a PostgreSQL database."""
    with postgres() as uri:
        yield uri


@pytest.fixture
def job() -> Job:
    """About a dozen batches."""
    return job_of(num_refinements=0)


def run(job: Job, folder: Path, *, target: Target | None = None, progress: Report = ignore) -> StudyAnswer:
    store = StudyStore(folder)
    return run_study_of(job, seed=1, store=store, clock=lambda: NOW, target=target, progress=progress)


def children(uri: str, run_id: str) -> Counter[str]:
    """How many runs each design has beneath a study's run."""
    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_run(run_id).info.experiment_id
    runs = client.search_runs([experiment], f"tags.`mlflow.parentRunId` = '{run_id}'", max_results=5000)
    return Counter(str(run.info.run_name) for run in runs if run.info.status == "FINISHED")


def test_postgresql_holds_every_design_of_a_recommendation_once(
    database: str, job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = recommend(job, seed=1, tracking_uri=database, experiment="recommend")
    assert answer.warnings == () or "MLflow" not in answer.warnings[-1]
    assert answer.mlflow is not None
    expected = Counter(run_name(number, study_label(job)) for number in range(answer.num_evaluated))
    assert children(database, answer.mlflow.run_id) == expected
    client = MlflowClient(tracking_uri=database)
    front = client.search_runs(
        [client.get_run(answer.mlflow.run_id).info.experiment_id],
        "tags.front = '1'",
        order_by=["metrics.cost_usd ASC"],
    )
    costs = [run.data.metrics["cost_usd"] for run in front]
    assert costs == sorted(costs)
    assert min(design.cost_usd for design in answer.front) == costs[0]
    assert (tmp_path / "capplan-studies" / "artifacts" / answer.mlflow.run_id).is_dir()


def test_postgresql_gets_a_study_once_however_often_it_is_delivered(
    database: str, job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    study = run(job, tmp_path)
    first = deliver(study.path, tracking_uri=database, experiment="deliver")
    assert first.record is not None
    assert not deliver(study.path, tracking_uri=database, experiment="deliver").is_new
    assert sum(children(database, first.record.run_id).values()) == study.answer.num_evaluated


def test_a_driver_that_is_missing_is_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg2", None)
    uri = "postgresql+psycopg2://ada:secret@127.0.0.1/mlflow"
    with (
        pytest.raises(
            TrackingError, match=r"driver is not installed.*pip install 'capplan\[postgres\]'"
        ) as caught,
        mlflow_at(uri),
    ):
        check_usable(uri)
    assert "secret" not in str(caught.value)


def test_a_database_named_without_its_driver_is_told_which_one_the_extra_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    rule = (
        r"driver is not installed.*: write postgresql\+psycopg2:// and pip install 'capplan\[postgres\]', or"
    )
    uri = (
        "postgresql+psycopg://ada@127.0.0.1/mlflow"  # which plain postgresql:// means from SQLAlchemy 2.1 on
    )
    with pytest.raises(TrackingError, match=rule), mlflow_at(uri):
        check_usable(uri)


def num_children(server: MlflowServer) -> int:
    """Runs of designs that are in a server's database."""
    with closing(sqlite3.connect(server.database)) as connection:
        query = "SELECT count(*) FROM tags WHERE key = 'mlflow.parentRunId'"
        return int(connection.execute(query).fetchone()[0])


@pytest.fixture
def server(tmp_path: Path, uri: str) -> Iterator[MlflowServer]:
    assert uri.endswith("mlflow.db"), "a store that is made already"
    with MlflowServer(tmp_path) as running:
        yield running


def test_a_server_that_is_killed_during_a_study_and_during_a_delivery_has_everything_once_in_the_end(
    server: MlflowServer, job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(design_parts, "DESIGNS_PER_PART", 20)
    whole = run(job, tmp_path / "whole")

    def kill_it(progress: Progress) -> None:
        if progress.num_done > 50:
            server.kill()

    study = run(job, tmp_path / "study", target=Target(tracking_uri=server.uri), progress=kill_it)
    assert study.tracking_failure.startswith(f"MLflow store {server.uri}")
    assert study.answer.model_dump_json() == whole.answer.model_dump_json()
    assert state_of(study.path).delivered_to == ()

    server.start()
    failures: list[TrackingError] = []

    def try_to_deliver() -> None:
        try:
            deliver(study.path, tracking_uri=server.uri)
        except TrackingError as error:
            failures.append(error)

    delivery = threading.Thread(target=try_to_deliver)
    delivery.start()
    while num_children(server) < 2 and delivery.is_alive():
        delivery.join(0.01)
    server.kill()
    delivery.join()
    assert len(failures) == 1
    assert state_of(study.path).delivered_to == ()

    server.start()
    delivered = deliver(study.path, tracking_uri=server.uri)
    assert delivered.record is not None
    client = MlflowClient(tracking_uri=server.uri)
    parents = client.search_runs(["1"], "tags.study_hash != ''")
    assert [(run.info.run_id, run.info.status) for run in parents] == [(delivered.record.run_id, "FINISHED")]
    found = children(server.uri, delivered.record.run_id)
    assert len(found) == delivered.record.num_design_runs > 2
    assert set(found.values()) == {1}
    parts = read_designs(client.download_artifacts(delivered.record.run_id, "designs", str(tmp_path)))
    assert sorted(parts["design_id"].tolist()) == list(range(study.answer.num_evaluated))
    steps = [point.step for point in client.get_metric_history(delivered.record.run_id, "designs_per_s")]
    assert sorted(steps) == list(range(len(steps)))
    assert not deliver(study.path, tracking_uri=server.uri).is_new
