"""Does MLflow stay silent, and does a store that cannot be used say which one it is and why?"""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Event
from time import sleep
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.exc import OperationalError

from simulator.errors import StudyError, TrackingError
from studies.tracking import mlflow_session
from studies.tracking.mlflow_session import (
    MAX_REASON_CHARACTERS,
    check_key,
    check_usable,
    make_file,
    mlflow_at,
    without_password,
)

ROOT = Path(__file__).parents[2]


def check(uri: str) -> None:
    with mlflow_at(uri):
        check_usable(uri)


@given(st.text(alphabet="aZ9é_-.:/ ,\\", min_size=1, max_size=8) | st.just("k" * 251))
def test_keys_are_refused_exactly_where_mlflow_refuses_them(key: str) -> None:
    with mlflow_at("sqlite://"):
        from mlflow.exceptions import MlflowException
        from mlflow.utils.validation import _validate_metric_name, _validate_tag_name

    def takes(check: Callable[[str], None], refusal: type[Exception]) -> bool:
        try:
            check(key)
        except refusal:
            return False
        return True

    def mlflow_check(key: str) -> None:
        _validate_metric_name(key)  # type: ignore[no-untyped-call]
        _validate_tag_name(key)  # type: ignore[no-untyped-call]

    expected = takes(mlflow_check, MlflowException) and len(key) <= 250
    assert takes(lambda key: check_key("metric", key), StudyError) == expected


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("sqlite:////data/mlflow.db", "sqlite:////data/mlflow.db"),
        ("http://host:5000", "http://host:5000"),
        ("https://ada:s3cr%40t@host/mlflow", "https://ada:***@host/mlflow"),
        ("postgresql://ada:pa/ss@w#rd@host:5432/db", "postgresql://ada:***@host:5432/db"),
        (
            "mysql+pymysql://host/db?user=ada&password=secret&x=1",
            "mysql+pymysql://host/db?user=ada&password=***&x=1",
        ),
    ],
)
def test_passwords_are_not_shown(uri: str, shown: str) -> None:
    assert without_password(uri) == shown


def test_a_password_that_the_store_quotes_in_its_error_is_not_shown() -> None:
    uri = "https://ada:s3cr%40t@host/mlflow"
    with pytest.raises(TrackingError) as caught, mlflow_at(uri):
        raise OSError(f"no answer from {uri} for ada with s3cr@t")
    shown = "https://ada:***@host/mlflow"
    assert (
        str(caught.value) == f"MLflow store {shown} (tracking_uri): no answer from {shown} for ada with ***"
    )
    assert caught.value.__suppress_context__


def test_a_session_leaves_environment_and_loggers_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "false")
    monkeypatch.delenv("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", raising=False)
    with mlflow_at("sqlite://"):
        pass
    before = dict(os.environ)
    level = logging.getLogger("mlflow").level
    with mlflow_at("sqlite://"), mlflow_at("http://host"):
        assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
        assert not logging.getLogger("mlflow").isEnabledFor(logging.ERROR)
    assert dict(os.environ) == before
    assert logging.getLogger("mlflow").level == level


def test_sessions_of_two_threads_that_overlap_leave_all_as_it_was() -> None:
    with mlflow_at("sqlite://"):
        pass
    before, level = dict(os.environ), logging.getLogger("mlflow").level
    is_second_inside, is_first_outside = Event(), Event()

    def second() -> None:
        with mlflow_at("http://host"):
            is_second_inside.set()
            is_first_outside.wait(10)
            assert not logging.getLogger("mlflow").isEnabledFor(logging.ERROR)

    with ThreadPoolExecutor() as pool:
        with mlflow_at("sqlite://"):
            running = pool.submit(second)
            is_second_inside.wait(10)
        is_first_outside.set()
        running.result()
    assert dict(os.environ) == before
    assert logging.getLogger("mlflow").level == level


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("sqlite:////proc/nobody/mlflow.db", r"store sqlite:////proc/nobody/mlflow\.db: .*No such file"),
        (
            "sqlite:////dev/null/mlflow.db",
            r"store sqlite:////dev/null/mlflow\.db: .*(Not a directory|File exists)",
        ),
        (
            "http://ada:secret@127.0.0.1:9",
            r"store http://ada:\*\*\*@127\.0\.0\.1:9 \(tracking_uri\): the connection is refused: start",
        ),
        ("postgresql+no_driver://ada:secret@127.0.0.1/db", r"ada:\*\*\*@127\.0\.0\.1/db: .*no_driver"),
        ("http://[bad", r"store http://\[bad \(tracking_uri\): this is no address of a server"),
    ],
)
def test_a_store_that_cannot_be_reached_is_named_without_its_password(address: str, reason: str) -> None:
    with pytest.raises(TrackingError, match=reason) as caught:
        check(address)
    assert "secret" not in str(caught.value)


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("all work and no play " * 100)
    with pytest.raises(TrackingError, match=r"mlflow\.db: file is not a database"):
        check(f"sqlite:///{tmp_path}/mlflow.db")


def test_a_store_that_may_only_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    (tmp_path / "mlflow.db").touch()
    connect = sqlite3.connect

    # As on a read-only disk, which even the superuser cannot write.
    def connect_read_only(file: Path, **options: object) -> sqlite3.Connection:
        return connect(f"file:{file}?mode=ro", uri=True, **options)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(sqlite3, "connect", connect_read_only)
    with pytest.raises(TrackingError, match=r"mlflow\.db: attempt to write a readonly database"):
        check(uri)


def test_a_store_that_somebody_else_writes_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlflow_session, "BUSY_TIMEOUT_MS", 1)
    with closing(sqlite3.connect(tmp_path / "mlflow.db", isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        with pytest.raises(TrackingError, match=r"mlflow\.db: database is locked"):
            check(f"sqlite:///{tmp_path}/mlflow.db")


def test_a_check_makes_the_folder_and_changes_nothing_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "new folder" / "mlflow.db"
    check(f"sqlite:///{file}")
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA user_version = 7")
    before = file.read_bytes()
    check(f"sqlite:///{file}")
    assert file.read_bytes() == before


# A new store

Making = Callable[[Path, Path], None]


@pytest.fixture
def made_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Making], str]:
    """Puts something else in the place of MLflow's making of tables; returns the store's address."""
    file = tmp_path / "mlflow.db"

    def put(making: Making) -> str:
        from mlflow.store.tracking import sqlalchemy_store

        def make(uri: str, artifacts: str) -> SimpleNamespace:
            making(Path(uri.removeprefix("sqlite:///")), file)
            return SimpleNamespace(engine=SimpleNamespace(dispose=lambda: None))

        monkeypatch.setattr(sqlalchemy_store, "SqlAlchemyStore", make)
        return f"sqlite:///{file}"

    return put


def make(uri: str) -> None:
    with mlflow_at(uri):
        make_file(uri)


def test_a_new_store_takes_its_name_when_it_is_complete(
    tmp_path: Path, made_by: Callable[[Making], str]
) -> None:
    def making(draft: Path, file: Path) -> None:
        draft.write_text("complete")
        assert not file.exists()

    uri = made_by(making)
    make(uri)
    make(uri)
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("mlflow.db", "complete")]


def test_threads_make_their_stores_one_after_the_other(
    tmp_path: Path, made_by: Callable[[Making], str]
) -> None:
    num_making, most_making = 0, 0

    def making(draft: Path, file: Path) -> None:
        nonlocal num_making, most_making
        num_making += 1
        most_making = max(most_making, num_making)
        sleep(0.05)
        draft.write_text("complete")
        num_making -= 1

    uri = made_by(making)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(make, [uri, uri]))
    assert most_making == 1
    assert (tmp_path / "mlflow.db").read_text() == "complete"


def test_an_interrupt_leaves_no_broken_store(tmp_path: Path, made_by: Callable[[Making], str]) -> None:
    def making(draft: Path, file: Path) -> None:
        draft.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(made_by(making))
    assert list(tmp_path.iterdir()) == []


def test_the_statement_that_failed_is_not_told() -> None:
    with (
        pytest.raises(TrackingError, match=r"^MLflow store x: \(sqlite3.OperationalError\) disk is full$"),
        mlflow_at("x"),
    ):
        raise OperationalError("INSERT INTO runs", {"id": 1}, sqlite3.OperationalError("disk is full"))


def test_of_a_long_reason_the_beginning_is_told() -> None:
    with pytest.raises(TrackingError) as caught, mlflow_at("x"):
        raise ImportError("first of all " + "word " * 1000)
    told = str(caught.value)
    assert told.startswith("MLflow store x: first of all word")
    assert len(told) == len("MLflow store x: ") + MAX_REASON_CHARACTERS


def test_a_full_disk_is_told_in_the_words_of_the_system(
    tmp_path: Path, made_by: Callable[[Making], str]
) -> None:
    def making(draft: Path, file: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(draft))

    with pytest.raises(TrackingError, match=r"^MLflow store sqlite://\S+: No space left on device$"):
        make(made_by(making))
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_another_study_made_meanwhile_is_kept(
    tmp_path: Path, made_by: Callable[[Making], str]
) -> None:
    def making(draft: Path, file: Path) -> None:
        draft.write_text("ours")
        file.write_text("theirs, with runs in it")

    make(made_by(making))
    assert (tmp_path / "mlflow.db").read_text() == "theirs, with runs in it"
    assert len(list(tmp_path.iterdir())) == 1


# What a user's own program notices: nothing

PROGRAM = """
import os, warnings
warnings.simplefilter("error")
before = dict(os.environ)
import numpy as np
from studies.tracking.run_table import RunTable
from studies.tracking.tracker import StudyTracker
with StudyTracker.open(experiment="llama", run_name="one", params={"seed": "1"}) as tracker:
    tracker.log_generation(0, {"hypervolume": 0.5})
    tracker.log_designs(RunTable(names=["a", "b"], metrics={"cost_usd": np.ones(2)}))
    tracker.finish("FINISHED", {"cost_usd": 1.0})
assert dict(os.environ) == before, set(os.environ.items()) ^ set(before.items())
warnings.simplefilter("ignore")
import mlflow
from mlflow.telemetry.client import get_telemetry_client
assert get_telemetry_client() is None
assert mlflow.active_run() is None
assert mlflow.last_active_run() is None
assert not mlflow.is_tracking_uri_set()
assert "capplan-studies" not in mlflow.get_tracking_uri()
"""

MARKS_OF_TESTING = {
    "CI",
    "GITHUB_ACTIONS",
    "PYTEST_CURRENT_TEST",
    "MLFLOW_DISABLE_TELEMETRY",
    "_MLFLOW_TELEMETRY_SESSION_ID",
    "MLFLOW_TRACKING_URI",
}
"""Variables in whose presence MLflow keeps quiet by itself, or goes elsewhere."""


@pytest.mark.long
def test_a_users_program_sees_no_output_no_telemetry_and_no_change_of_mlflows_state(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in MARKS_OF_TESTING}
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=environment | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.stdout, result.stderr, result.returncode) == ("", "", 0)
    assert [entry.name for entry in tmp_path.iterdir()] == ["capplan-studies"]
    assert [entry.name for entry in (tmp_path / "capplan-studies").iterdir()] == ["mlflow.db"]


# Patience


def test_a_server_that_is_away_is_not_tried_for_minutes_unless_the_user_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", raising=False)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "77")
    with mlflow_at("http://127.0.0.1:9"):
        from mlflow.environment_variables import MLFLOW_HTTP_REQUEST_MAX_RETRIES, MLFLOW_HTTP_REQUEST_TIMEOUT

        assert os.environ[MLFLOW_HTTP_REQUEST_MAX_RETRIES.name] == "2"
        assert os.environ[MLFLOW_HTTP_REQUEST_TIMEOUT.name] == "77"
    assert "MLFLOW_HTTP_REQUEST_MAX_RETRIES" not in os.environ
    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "77"
