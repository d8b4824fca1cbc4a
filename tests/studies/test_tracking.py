"""Does a user find the study in MLflow as it went, whatever happened to it, and is nothing else touched?"""

from __future__ import annotations

import math
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from simulator.errors import InputError, StudyError, TrackingError
from studies.tracking import bulk_rows
from studies.tracking import tracker as tracking
from studies.tracking.run_table import RunTable
from studies.tracking.store_address import resolve_tracking_uri
from studies.tracking.tracker import (
    MAX_WAITING_METRICS,
    MAX_WAITING_S,
    RETRY_AFTER_S,
    StudyTracker,
    nothing_to_wait_for,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run


@dataclass
class Clock:
    """A clock that stands still unless it is set; it starts at some moment of 2026."""

    now_s: float = field(default=1_790_000_000.0)

    def __call__(self) -> float:
        return self.now_s


def client_of(tracker: StudyTracker) -> MlflowClient:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=tracker.tracking_uri)


def run_of(tracker: StudyTracker) -> Run:
    return client_of(tracker).get_run(tracker.run_id)


def experiment_id(client: MlflowClient, name: str) -> str:
    found = client.get_experiment_by_name(name)
    assert found is not None
    return str(found.experiment_id)


def curve(tracker: StudyTracker, key: str) -> list[tuple[int, float]]:
    history = client_of(tracker).get_metric_history(tracker.run_id, key)
    return sorted((point.step, point.value) for point in history)


def opened(uri: str, clock: Callable[[], float] | None = None) -> StudyTracker:
    return StudyTracker.open(
        experiment="llama 70b", run_name="h100 or a100", tracking_uri=uri, clock=clock or Clock()
    )


def test_a_study_is_recorded_from_its_settings_to_its_result(uri: str, tmp_path: Path) -> None:
    clock = Clock()
    (tmp_path / "recommendation.json").write_text("{}")
    params = {f"setting_{number}": str(number) for number in range(150)}
    with StudyTracker.open(
        experiment="llama 70b",
        run_name="h100 or a100",
        tracking_uri=uri,
        params=params,
        tags={"catalogue_hash": "abc123"},
        clock=clock,
    ) as tracker:
        assert run_of(tracker).info.status == "RUNNING"
        for step in range(3):
            tracker.log_generation(step, {"hypervolume": 0.25 * step, "num_feasible": 10 * step})
        tracker.log_artifact(tmp_path / "recommendation.json", "result")
        clock.now_s += 60.0
        tracker.finish("FINISHED", {"cost_usd": 3e6, "hypervolume": 0.75})
    run = run_of(tracker)
    assert (run.info.run_name, run.info.status) == ("h100 or a100", "FINISHED")
    assert (run.info.start_time, run.info.end_time) == (1_790_000_000_000, 1_790_000_060_000)
    assert run.data.params == params
    assert run.data.metrics == {"cost_usd": 3e6, "hypervolume": 0.75, "num_feasible": 20.0}
    assert curve(tracker, "num_feasible") == [(0, 0.0), (1, 10.0), (2, 20.0)]
    assert (
        tmp_path / "artifacts" / tracker.run_id / "artifacts" / "result" / "recommendation.json"
    ).is_file()
    assert run.data.tags["catalogue_hash"] == "abc123"
    assert run.data.tags["mlflow.source.name"] == "capplan"
    assert run.data.tags["numpy_version"] == np.__version__
    assert run.data.tags["python_version"] == ".".join(map(str, sys.version_info[:3]))
    assert {f"{name}_version" for name in ("capplan", "pymoo", "optuna", "ortools", "mlflow")} <= set(
        run.data.tags
    )


def test_designs_become_child_runs_that_can_be_sorted(uri: str) -> None:
    designs = RunTable(
        names=[f"design {number}" for number in range(5)],
        params={"num_gpus": ["64", "128", "256", "512", "1024"]},
        metrics={"cost_usd": np.array([3.0, 1.0, math.nan, 2.0, 5.0])},
        tags={"front": ["1", "1", "0", "0", "0"]},
    )
    with opened(uri) as tracker:
        assert tracker.takes_thousands
        assert tracker.log_designs(designs).way == "bulk"
    client = client_of(tracker)
    children = client.search_runs(
        [experiment_id(client, "llama 70b")],
        f"tags.mlflow.parentRunId = '{tracker.run_id}' and metrics.cost_usd >= 1",
        order_by=["metrics.cost_usd ASC"],
    )
    # MLflow stores NaN as 0 with a mark, hence the filter.
    assert [run.data.params["num_gpus"] for run in children] == ["128", "512", "64", "1024"]
    assert len(client.search_runs([experiment_id(client, "llama 70b")])) == 1 + designs.num_runs


def test_a_store_that_takes_designs_one_by_one_says_so(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_rows, "KNOWN_COLUMNS", dict.fromkeys(bulk_rows.KNOWN_COLUMNS, "colour"))
    with opened(uri) as tracker:
        assert not tracker.takes_thousands
        assert tracker.log_designs(RunTable(names=["a"])).way == "api"


@pytest.mark.parametrize(
    ("error", "status"), [(KeyboardInterrupt, "KILLED"), (ValueError, "FAILED"), (SystemExit, "FAILED")]
)
def test_a_study_that_breaks_off_says_so_and_keeps_its_points(
    uri: str, error: type[BaseException], status: str
) -> None:
    with pytest.raises(error), opened(uri) as tracker:
        tracker.log_generation(0, {"hypervolume": 0.5})
        raise error
    assert run_of(tracker).info.status == status
    assert curve(tracker, "hypervolume") == [(0, 0.5)]


def test_a_result_is_at_the_last_step_of_the_curves_in_whatever_order_they_came(uri: str) -> None:
    with opened(uri) as tracker:
        tracker.log_generation(7, {"hypervolume": 0.7})
        tracker.log_generation(3, {"num_feasible": 3.0})
        tracker.finish("FINISHED", {"recommended_cost_usd": 2.0})
    assert curve(tracker, "recommended_cost_usd") == [(7, 2.0)]


def test_a_study_that_does_not_say_how_it_ended_is_finished(uri: str) -> None:
    with opened(uri) as tracker:
        pass
    assert run_of(tracker).info.status == "FINISHED"


def test_nothing_is_logged_after_the_end(uri: str, tmp_path: Path) -> None:
    with opened(uri) as tracker:
        tracker.finish("KILLED", {})
    late: list[Callable[[], object]] = [
        lambda: tracker.log_generation(1, {"hypervolume": 1.0}),
        lambda: tracker.log_artifact(tmp_path / "mlflow.db"),
        lambda: tracker.log_designs(RunTable(names=["a"])),
        lambda: tracker.finish("FINISHED", {}),
    ]
    for call in late:
        with pytest.raises(StudyError, match=r"run 'h100 or a100' .* has ended"):
            call()
    assert run_of(tracker).info.status == "KILLED"


def test_a_curve_whose_name_mlflow_refuses_is_named_and_nothing_of_its_step_waits(uri: str) -> None:
    tracker = opened(uri)
    with pytest.raises(StudyError, match=r"^metric 'a,b': use at most 250 of letters"):
        tracker.log_generation(0, {"hypervolume": 1.0, "a,b": 2.0})
    tracker.finish()
    assert run_of(tracker).data.metrics == {}


def test_points_wait_for_company_but_not_for_long(uri: str) -> None:
    clock = Clock()
    with opened(uri, clock) as tracker:
        tracker.log_generation(0, {"hypervolume": 0.0})
        assert curve(tracker, "hypervolume") == []
        clock.now_s += MAX_WAITING_S
        tracker.log_generation(1, {"hypervolume": 0.1})
        assert len(curve(tracker, "hypervolume")) == 2
        tracker.log_generation(2, {f"metric {number}": 0.0 for number in range(MAX_WAITING_METRICS)})
        assert len(run_of(tracker).data.metrics) == 1 + MAX_WAITING_METRICS


def test_thousands_of_points_and_odd_numbers_survive(uri: str) -> None:
    values = [math.nan, math.inf, -0.0, *(number / 7.0 for number in range(2500))]
    with opened(uri) as tracker:
        tracker.log_generation(7, {f"metric {number}": value for number, value in enumerate(values)})
    metrics = run_of(tracker).data.metrics
    assert math.isnan(metrics["metric 0"])
    assert metrics["metric 1"] == sys.float_info.max  # MLflow's stand-in for infinity
    assert [metrics[f"metric {number}"] for number in range(2, len(values))] == values[2:]


def test_the_result_is_what_the_table_shows_even_beside_a_curve_of_the_same_name(uri: str) -> None:
    with opened(uri) as tracker:
        tracker.log_generation(40, {"best_cost_usd": 9.0})
        tracker.finish("FINISHED", {"best_cost_usd": 3.0 + 7.0})
    assert run_of(tracker).data.metrics["best_cost_usd"] == 10.0


def test_studies_of_one_experiment_stand_side_by_side(uri: str) -> None:
    ids = []
    for budget_usd in ("1e6", "2e6"):
        with StudyTracker.open(
            experiment="budgets", run_name=budget_usd, tracking_uri=uri, params={"budget_usd": budget_usd}
        ) as tracker:
            tracker.finish("FINISHED", {"time_s": 1e12 / float(budget_usd)})
        ids.append(tracker.run_id)
    client = client_of(tracker)
    found = client.search_runs([experiment_id(client, "budgets")], order_by=["metrics.time_s ASC"])
    assert [run.info.run_id for run in found] == ids[::-1]


def test_without_any_word_the_store_lies_in_the_working_folder(
    tmp_path: Path, empty_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    expected = f"sqlite:///{tmp_path}/capplan-studies/mlflow.db"
    assert resolve_tracking_uri() == expected
    (tmp_path / "capplan-studies").mkdir()
    shutil.copy(empty_store, tmp_path / "capplan-studies" / "mlflow.db")
    with StudyTracker.open(experiment="llama", run_name="one") as tracker:
        assert tracker.tracking_uri == expected
        assert run_of(tracker).info.artifact_uri.startswith((tmp_path / "capplan-studies/artifacts").as_uri())


def test_the_environment_names_the_store_and_the_argument_overrules_it(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with StudyTracker.open(experiment="llama", run_name="one") as tracker:
        assert tracker.tracking_uri == uri
    assert resolve_tracking_uri("http://host:5000") == "http://host:5000"


def test_a_relative_address_means_the_same_from_every_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve_tracking_uri("sqlite:///a/b.db") == f"sqlite:///{tmp_path}/a/b.db"
    assert resolve_tracking_uri("sqlite:///a.db?timeout=3") == f"sqlite:///{tmp_path}/a.db?timeout=3"


@pytest.mark.parametrize(
    "address",
    [
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite+pysqlite://",
        "sqlite:///file::memory:?cache=shared&uri=true",
        "sqlite:///file:runs?mode=memory&uri=true",
    ],
)
def test_a_store_in_memory_is_refused_since_nothing_of_it_stays(address: str) -> None:
    with pytest.raises(InputError, match=r"tracking_uri = sqlite.*must name a file, such as sqlite:///"):
        resolve_tracking_uri(address)


def test_the_store_of_the_working_folder_needs_no_address(
    tmp_path: Path, empty_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    file = tmp_path / "capplan-studies" / "mlflow.db"
    file.parent.mkdir()
    file.write_bytes(empty_store.read_bytes())
    with opened(f"sqlite:///{file}") as tracker:
        assert tracker.open_command == "capplan ui"
        monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///other.db")
        assert tracker.open_command == f"capplan ui --tracking-uri sqlite:///{file}"
        # Whoever is told the command need not have the variable.
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{file}")
        assert tracker.open_command == f"capplan ui --tracking-uri sqlite:///{file}"


@pytest.mark.parametrize(
    ("address", "command"),
    [
        ("sqlite:////a b/mlflow.db", "capplan ui --tracking-uri 'sqlite:////a b/mlflow.db'"),
        ("postgresql://ada:secret@host/db", "capplan ui --tracking-uri 'postgresql://ada:***@host/db'"),
        (
            "https://ada:secret@host/mlflow/",
            "python -m webbrowser 'https://host/mlflow/#/experiments/1'",
        ),
    ],
)
def test_the_command_that_opens_the_study_can_be_pasted(uri: str, address: str, command: str) -> None:
    with opened(uri) as tracker:
        shown = StudyTracker(
            client_of(tracker), run_of(tracker), "llama", address, Clock(), nothing_to_wait_for
        )
    assert shown.open_command == command.format(id=tracker.run_id)
    assert "secret" not in repr(shown)


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        ({"experiment": " "}, "experiment is empty"),
        ({"run_name": ""}, "run name is empty"),
        ({"params": {"a,b": "1"}}, "param 'a,b': use at most 250"),
        (
            {"params": {"yaml": "x" * 6001}},
            "param 'yaml' has 6001 characters: .* keep longer texts as a file",
        ),
        ({"tags": {"": "1"}}, "tag '': use at most 250"),
    ],
)
def test_what_mlflow_would_refuse_is_refused_before_a_run_is_made(
    uri: str, words: dict[str, object], rule: str
) -> None:
    with pytest.raises(StudyError, match=rule):
        StudyTracker.open(**{"experiment": "llama", "run_name": "one", "tracking_uri": uri, **words})  # type: ignore[arg-type]


def test_a_file_that_is_not_there_is_named(uri: str, tmp_path: Path) -> None:
    with opened(uri) as tracker, pytest.raises(StudyError, match=r"designs\.parquet is not a file"):
        tracker.log_artifact(tmp_path / "designs.parquet")


def test_a_deleted_experiment_is_named_with_the_way_out(uri: str) -> None:
    with opened(uri) as tracker:
        pass
    client = client_of(tracker)
    client.delete_experiment(experiment_id(client, "llama 70b"))
    with pytest.raises(
        TrackingError, match=r"'llama 70b' is deleted; restore it \(mlflow experiments restore"
    ):
        opened(uri)


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("sqlite:////proc/nobody/mlflow.db", r"store sqlite:////proc/nobody/mlflow\.db: .*No such file"),
        ("file:///tmp/mlruns", r"store file:///tmp/mlruns: this is a folder, .*: name a database"),
        ("mssql://ada:secret@host/db", r"store mssql://ada:\*\*\*@host/db: "),
    ],
)
def test_a_store_that_cannot_be_used_is_named(address: str, reason: str) -> None:
    with pytest.raises(TrackingError, match=reason):
        opened(address)


@contextmanager
def locked(uri: str) -> Iterator[None]:
    """Another program writes to the store, without end."""
    with closing(sqlite3.connect(uri.removeprefix("sqlite:///"), isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        yield
        connection.execute("ROLLBACK")


@pytest.fixture
def impatient() -> Iterator[None]:
    """Lets the 20 s that MLflow's sessions wait for a lock pass at once."""
    from sqlalchemy import Engine, event

    def shorten(
        connection: object, cursor: object, statement: str, parameters: object, context: object, many: bool
    ) -> tuple[str, object]:
        return statement.replace("busy_timeout = 20000", "busy_timeout = 1"), parameters

    event.listen(Engine, "before_cursor_execute", shorten, retval=True)
    yield
    event.remove(Engine, "before_cursor_execute", shorten)


@pytest.mark.usefixtures("impatient")
def test_what_a_locked_store_did_not_take_is_sent_later(uri: str, capfd: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with opened(uri, clock) as tracker:
        tracker.log_generation(0, {"hypervolume": 0.1})
        clock.now_s += MAX_WAITING_S
        with locked(uri), pytest.raises(TrackingError, match="database is locked"):
            tracker.log_generation(1, {"hypervolume": 0.2})
        with pytest.raises(TrackingError, match="database is locked"):  # not tried again so soon
            tracker.log_generation(2, {"hypervolume": 0.3})
        assert curve(tracker, "hypervolume") == []
        clock.now_s += RETRY_AFTER_S
        tracker.log_generation(3, {"hypervolume": 0.4})
        assert curve(tracker, "hypervolume") == [(0, 0.1), (1, 0.2), (2, 0.3), (3, 0.4)]
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("impatient")
def test_a_locked_store_does_not_hide_what_broke_the_study(uri: str) -> None:
    tracker = opened(uri)
    with locked(uri), pytest.raises(ZeroDivisionError) as caught, tracker:
        tracker.log_generation(0, {"hypervolume": 1 / 0})
    assert "could not be ended either: MLflow store sqlite" in caught.value.__notes__[0]


@pytest.mark.usefixtures("impatient")
def test_a_result_that_arrives_at_the_second_try_ends_the_study_as_it_said(uri: str) -> None:
    with pytest.raises(TrackingError, match="database is locked"), opened(uri) as tracker, locked(uri):
        tracker.finish("FINISHED", {"cost_usd": 3.0})
    run = run_of(tracker)
    assert (run.info.status, run.data.metrics) == ("FINISHED", {"cost_usd": 3.0})


def test_a_run_whose_settings_cannot_be_logged_is_not_left_running(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trackers = []

    def fail(tracker: StudyTracker, params: object) -> None:
        trackers.append(tracker)
        raise KeyboardInterrupt

    monkeypatch.setattr(tracking.StudyTracker, "_log_params", fail)
    with pytest.raises(KeyboardInterrupt):
        opened(uri)
    assert run_of(trackers[0]).info.status == "KILLED"
