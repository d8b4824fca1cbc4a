"""Does `capplan ui` show the studies on this machine, and on no other?"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from planner import recommend
from planner.cli import commands as cli
from planner.tracking.page import tracking_page
from simulator.errors import TrackingError
from tests.support import job_with

pytestmark = pytest.mark.long
ROOT = Path(__file__).parents[3]
PATIENCE_S = 180


def store(folder: Path, empty: Path) -> str:
    """A store with one study."""
    file = folder / "mlflow.db"
    file.write_bytes(empty.read_bytes())
    uri = f"sqlite:///{file}"
    recommend(job_with(name="shown"), tracking_uri=uri, experiment="budget")
    return uri


@contextmanager
def interruptible() -> Iterator[None]:
    """Lets Ctrl-C reach what is started meanwhile: what a shell starts in the background, and all below it, ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def stop(process: subprocess.Popen[str]) -> None:
    """Ends the command, which ends what it has started, and closes its pipes, also after a test that failed."""
    if process.poll() is None:
        process.terminate()
    process.communicate(timeout=PATIENCE_S)


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory, empty_store: Path
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command, running, and the address that it has printed."""
    uri = store(tmp_path_factory.mktemp("ui"), empty_store)
    with interruptible():
        process = subprocess.Popen(
            [sys.executable, "-m", "planner.cli", "ui", "--tracking-uri", uri, "--json"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()
        printed = json.loads(line)
        assert printed["front_address"] == printed["address"].replace(
            "studies", "front&compareRunsMode=CHART"
        )
        yield process, printed["address"]
    finally:
        stop(process)


def root_of(address: str) -> str:
    return address.partition("/#/")[0]


def get(address: str, body: dict[str, object] | None = None) -> str:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"Content-Type": "application/json"})  # noqa: S310  (loopback)
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as reply:  # noqa: S310
        assert reply.status == 200
        return str(reply.read().decode())


def listening(port: int) -> set[str]:
    """Local addresses, as the kernel writes them, that listen on a port."""
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
            local, _, state = line.split()[1:4]
            if state == "0A" and int(local.partition(":")[2], 16) == port:
                found.add(local.partition(":")[0])
    return found


# The tests of one running interface, in their order; the last one stops it.


def test_the_page_answers_and_is_that_of_mlflow(running: tuple[subprocess.Popen[str], str]) -> None:
    _, address = running
    assert re.fullmatch(
        r"http://127\.0\.0\.1:\d+/#/experiments/\d+/runs\?viewStateShareKey=capplan-studies", address
    )
    assert "<title>MLflow</title>" in get(root_of(address))


def test_the_studies_of_the_store_are_there(running: tuple[subprocess.Popen[str], str]) -> None:
    _, page = running
    address = root_of(page)
    found = json.loads(get(f"{address}/api/2.0/mlflow/experiments/search", {"max_results": 10}))
    names = {each["name"]: each["experiment_id"] for each in found["experiments"]}
    runs = json.loads(
        get(f"{address}/api/2.0/mlflow/runs/search", {"experiment_ids": [names["budget"]], "max_results": 50})
    )
    assert f"/#/experiments/{names['budget']}/runs?" in page
    names_of_runs = {run["info"]["run_name"] for run in runs["runs"]}
    assert any(re.fullmatch(r"shown [0-9a-f]{6}", name) for name in names_of_runs)


def test_the_views_show_columns_that_runs_have(running: tuple[subprocess.Popen[str], str]) -> None:
    """The filters are asked of MLflow itself; every column and axis is one that the runs that they find have."""
    address = root_of(running[1])
    number = re.findall(r"experiments/(\d+)", running[1])[0]
    found = json.loads(get(f"{address}/api/2.0/mlflow/experiments/get?experiment_id={number}"))
    tags = {each["key"]: each["value"] for each in found["experiment"]["tags"]}
    for key, optional in (
        ("capplan-studies", {"limit_budget_usd", "limit_deadline_days"}),
        ("capplan-front", set()),
    ):
        view = json.loads(tags[f"mlflow.sharedViewState.{key}"])
        asked = {"experiment_ids": [number], "filter": view["searchFilter"], "max_results": 50}
        runs = json.loads(get(f"{address}/api/2.0/mlflow/runs/search", asked))["runs"]
        held = {
            f"{kind}.`{each['key']}`"
            for kind in ("params", "metrics", "tags")
            for each in runs[0]["data"].get(kind, [])
        }
        columns = [name for name in view["selectedColumns"] if name.split("`")[1] not in optional]
        assert set(columns) <= held
        parallel, scatter = view["compareRunCharts"]
        axes = [*parallel["selectedMetrics"], scatter["xaxis"]["key"], scatter["yaxis"]["key"]]
        assert {f"metrics.`{name}`" for name in axes} <= held
        assert {f"params.`{name}`" for name in parallel["selectedParams"]} <= held


def test_nothing_listens_but_on_loopback(running: tuple[subprocess.Popen[str], str]) -> None:
    _, address = running
    # 127.0.0.1, its bytes from the last to the first.
    assert listening(int(root_of(address).rpartition(":")[2])) == {"0100007F"}


def test_ctrl_c_stops_it_and_all_that_it_has_started(running: tuple[subprocess.Popen[str], str]) -> None:
    process, address = running
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert errors.splitlines()[-1] == "Stopped."
    assert listening(int(root_of(address).rpartition(":")[2])) == set()


def test_ctrl_c_while_it_starts_is_no_failure(
    tmp_path: Path, empty_store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    file = tmp_path / "mlflow.db"
    file.write_bytes(empty_store.read_bytes())
    monkeypatch.setattr("planner.tracking.page._wait_until_it_answers", interrupted)
    assert cli.main(["ui", "--tracking-uri", f"sqlite:///{file}"]) == 0
    assert capsys.readouterr().err.splitlines()[-1] == "Stopped."


def test_a_store_that_is_not_there_is_named_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert cli.main(["ui"]) == 2
    assert "there is no such store yet: capplan recommend JOB.yaml" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_cannot_be_reached_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["ui", "--tracking-uri", "http://user:secret@127.0.0.1:9"]) == 1
    err = capsys.readouterr().err
    assert "127.0.0.1:9" in err
    assert "secret" not in err


def test_a_start_that_fails_says_what_mlflow_said(tmp_path: Path) -> None:
    broken = tmp_path / "mlflow.db"
    broken.write_text("this is no database", encoding="utf-8")
    with (
        pytest.raises(TrackingError, match="MLflow did not start on sqlite:///"),
        tracking_page(f"sqlite:///{broken}"),
    ):
        pass


def test_a_port_on_which_another_program_answers_is_not_taken_for_that_of_mlflow(empty_store: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        told = f"port {port} of 127.0.0.1: Address already in use; choose another port"
        with pytest.raises(TrackingError, match=told), tracking_page(f"sqlite:///{empty_store}", port):
            pass


def test_the_password_of_a_store_is_in_no_list_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, object] = {}

    class Started:
        pid = os.getpid()

        def poll(self) -> int:
            return 1

        def wait(self, _: float | None = None) -> int:
            return 0

    def started(command: list[str], **options: object) -> Started:
        seen.update(options, command=command)
        return Started()

    monkeypatch.setattr(subprocess, "Popen", started)
    monkeypatch.setattr(os, "killpg", lambda *_: None)
    uri = "postgresql://user:secret@127.0.0.1:9/none"
    with pytest.raises(TrackingError, match="postgresql://user:"), tracking_page(uri):
        pass
    assert "secret" not in str(seen["command"])
    assert "secret" in str(seen["env"])
