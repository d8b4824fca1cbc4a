"""Where can studies be viewed? In MLflow's own interface on their store, reachable only from this machine."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import IO

from simulator.argument_names import Argument
from simulator.errors import InputError, Problem, TrackingError, system_reason
from studies.tracking.mlflow_session import check_usable, mlflow_at, sqlite_file, without_password
from studies.tracking.store_address import resolve_tracking_uri

LOOPBACK = "127.0.0.1"
"""No other machine reaches this address."""
PATIENCE_S = 120.0
"""How long MLflow may take to start: usually seconds, on a busy machine much longer."""
STEP_S = 0.2
END_S = 10.0
"""How long MLflow may take to stop before it is killed."""
MOST_SHOWN = 600
"""Most characters of MLflow's output that an error shows."""
_QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
}
"""Nothing is reported to MLflow's makers, and no other programs are started."""


def store_to_show(tracking_uri: str | None) -> str:
    """Returns the address of the store that is to be shown.

    Args:
        tracking_uri: the store; same default as `capplan recommend`.

    Raises:
        InputError: it is a file that does not exist.
        TrackingError: it cannot be reached.
    """
    uri = resolve_tracking_uri(tracking_uri)
    with mlflow_at(uri):
        file = sqlite_file(uri)
        if file is not None and not file.exists():
            rule = "there is no such store yet: capplan recommend JOB.yaml records its study there"
            raise InputError([Problem(path=Argument("tracking_uri"), value=without_password(uri), rule=rule)])
        check_usable(uri)
    return uri


def newest_experiment(uri: str) -> str | None:
    """Returns the id of the experiment that was changed last; `None` if there is only MLflow's own, empty one."""
    with mlflow_at(uri):
        from mlflow import MlflowClient

        found = MlflowClient(uri).search_experiments(max_results=1, order_by=["last_update_time DESC"])
        return str(found[0].experiment_id) if found else None


def runs_page(
    address: str, experiment: str | None, view: str | None = None, *, has_pictures: bool = False
) -> str:
    """Returns the address of an experiment's runs in an interface: as a table or as charts; in a view, if one is named."""
    if experiment is None:
        return address
    asked = {"viewStateShareKey": view, "compareRunsMode": "CHART" if has_pictures else None}
    query = urllib.parse.urlencode({name: value for name, value in asked.items() if value})
    return f"{address.rstrip('/')}/#/experiments/{experiment}/runs{f'?{query}' if query else ''}"


@contextmanager
def tracking_page(uri: str, port: int | None = None) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Starts MLflow's interface on a store and stops it at the end; yields its address and its process.

    Args:
        uri: a store that is no server itself.
        port: port on which it listens; by default any free one.

    Raises:
        TrackingError: it does not start, for example because the port is taken.
    """
    chosen = _free_port(port)
    with tempfile.TemporaryFile() as log:
        process = _started(uri, chosen, log)
        try:
            _wait_until_it_answers(process, chosen, uri, log)
            yield f"http://{LOOPBACK}:{chosen}", process
        finally:
            _stop(process)


def _free_port(asked: int | None) -> int:
    """The port that was asked for, or any free one. On one in use another program would answer in MLflow's place."""
    with closing(socket.socket()) as probe:
        # Connections that have ended take no port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, asked or 0))
        except OSError as error:
            way_out = "choose another port, or leave it out for any free one"
            raise TrackingError(f"port {asked} of {LOOPBACK}: {system_reason(error)}; {way_out}") from error
        port: int = probe.getsockname()[1]
        return port


def _started(uri: str, port: int, log: IO[bytes]) -> subprocess.Popen[bytes]:
    """Starts MLflow in its own process group; the store's password is passed where no process list shows it."""
    command = [sys.executable, "-m", "mlflow", "server", "--host", LOOPBACK, "--port", str(port)]
    return subprocess.Popen(  # noqa: S603  (no part comes from elsewhere)
        [*command, "--workers", "1"],
        env={**os.environ, **_QUIET, "MLFLOW_BACKEND_STORE_URI": uri},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def _wait_until_it_answers(process: subprocess.Popen[bytes], port: int, uri: str, log: IO[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise TrackingError(f"MLflow did not start on {without_password(uri)}: {_last_words(log, uri)}")
        if _answers(port):
            return
        time.sleep(STEP_S)
    raise TrackingError(f"MLflow did not answer within {PATIENCE_S:.0f} s: {_last_words(log, uri)}")


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/health", timeout=STEP_S) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _last_words(log: IO[bytes], uri: str) -> str:
    log.seek(0)
    text = " ".join(log.read().decode("utf-8", "replace").split())
    return text.replace(uri, without_password(uri))[-MOST_SHOWN:] or "it said nothing"


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Stops MLflow and all processes that it has started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(END_S)
        except ProcessLookupError:
            process.wait()
            return
        except subprocess.TimeoutExpired:
            continue
