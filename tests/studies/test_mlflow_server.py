"""Is a server that is away, or none of MLflow, told in one plain sentence with what to look at?"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from simulator.errors import TrackingError
from studies.tracking.mlflow_session import mlflow_at
from studies.tracking.tracker import StudyTracker


@contextmanager
def server(status: int) -> Iterator[str]:
    """Gives the address of a server that answers everything with a page of that status."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(b"<html>hello</html>")

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Page) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


def told(uri: str) -> str:
    """Returns what is said where a study cannot be told to a store."""
    with pytest.raises(TrackingError) as caught:
        StudyTracker.open(experiment="e", run_name="r", tracking_uri=uri)
    return str(caught.value)


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (200, "something else than a server of MLflow answers there: check the address"),
        (404, "something else than a server of MLflow answers there (HTTP 404): check the address"),
        (401, "it lets nobody in without the right password (HTTP 401): set MLFLOW_TRACKING_USERNAME"),
        (403, "it lets nobody in without the right password (HTTP 403): set MLFLOW_TRACKING_USERNAME"),
        (500, "it answers with an error of its own (HTTP 500): look into its log"),
        (503, "it answers with an error of its own (HTTP 503): look into its log"),
    ],
)
def test_a_server_that_refuses_is_told_with_its_status(
    status: int, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with server(status) as uri:
        assert told(uri).startswith(f"MLflow store {uri} (tracking_uri): {reason}")
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        assert told("").startswith(f"MLflow store {uri} (MLFLOW_TRACKING_URI): {reason}")


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("http://no-such-host.invalid", "there is no host of that name: check the address"),
        ("http://127.0.0.1:99999", "this is no address of a server: write http://HOST:PORT"),
    ],
)
def test_an_address_of_nobody_is_told_with_what_is_wrong_with_it(uri: str, reason: str) -> None:
    assert told(uri) == f"MLflow store {uri} (tracking_uri): {reason}"


def test_a_server_that_never_answers_and_one_that_speaks_otherwise_are_told_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("studies.tracking.mlflow_server.CONNECT_TIMEOUT_S", 0.2)
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert told(uri).endswith("no answer in time: check the address and the network")
    with server(200) as uri:
        assert "no secure connection" in told(uri.replace("http", "https"))


def test_a_folder_is_told_to_be_no_store_any_more(tmp_path: Path) -> None:
    assert told(str(tmp_path)).startswith(
        f"MLflow store {tmp_path}: this is a folder, which MLflow no longer"
    )


def test_what_is_not_known_is_told_as_it_came() -> None:
    match = r"^MLflow store http://host \(tracking_uri\): disk is full$"
    with pytest.raises(TrackingError, match=match), mlflow_at("http://host"):
        raise OSError("disk is full")
