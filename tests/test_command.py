"""Does the command keep its promises from outside? Exit codes, interrupts and repeatability of the real program."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from mlflow import MlflowClient

from planner.cli.commands import main
from studies.files.design_log import read_designs
from studies.tracking.mlflow_session import mlflow_at
from studies.tracking.store_address import DEFAULT_FILE

ROOT = Path(__file__).parents[1]
BLOOM = str(ROOT / "examples" / "bloom-176b.yaml")
NAMED_BY_A_JOB = "config-of-unknown-family.json"
MALFORMED = sorted(
    path for path in (ROOT / "tests" / "planner" / "malformed").glob("*.*") if path.name != NAMED_BY_A_JOB
)
PATIENCE_S = 300


def environment(folder: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
    return {**inherited, "PYTHONPATH": str(ROOT), "HOME": str(folder)}


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "planner.cli", "recommend", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment(folder), capture_output=True, text=True, check=False
    )


def designs_in_mlflow(folder: Path, answer: dict[str, dict[str, str]]) -> int:
    address = answer["mlflow"]["tracking_uri"]
    with mlflow_at(address):
        client = MlflowClient(tracking_uri=address)
        experiment = client.get_experiment_by_name(answer["mlflow"]["experiment"])
        assert experiment is not None
        (study,) = client.search_runs([experiment.experiment_id], "params.job != ''", max_results=10)
        parts = client.download_artifacts(study.info.run_id, "designs", str(folder))
    return len(read_designs(Path(parts))["design_id"])


@pytest.mark.long
def test_an_interrupt_leaves_every_evaluated_design_in_mlflow_and_in_the_output(tmp_path: Path) -> None:
    endless = ["search.algorithm=nsga2", "search.max_evaluations=10000000", "search.num_restarts=100"]
    large = ["search.zero_stages=[1, 2, 3]", "limits={}", "search.power_caps=[1.0, 0.9, 0.8, 0.7, 0.6]"]
    changes = [part for change in (*endless, *large) for part in ("--set", change)]
    job = str(ROOT / "examples" / "llama-3.1-70b.yaml")
    command = [
        sys.executable,
        "-m",
        "planner.cli",
        "recommend",
        job,
        "--json",
        "--output",
        "answer",
        *changes,
    ]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    table = tmp_path / "answer" / "designs.parquet.partial"
    deadline = time.monotonic() + PATIENCE_S
    while not (table.exists() and table.stat().st_size > 100_000) and time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, errors
    answer = json.loads(output)
    assert answer["status"] == "interrupted"
    assert answer["num_evaluated"] > 1_000
    written = len(read_designs(tmp_path / "answer" / "designs.parquet")["design_id"])
    assert written == answer["num_evaluated"] == answer["mlflow"]["num_designs"]
    assert designs_in_mlflow(tmp_path, answer) == answer["num_evaluated"]


@pytest.fixture
def workplace(tmp_path: Path, empty_store: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which commands run in this process, as in one of their own; it has an empty store."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / DEFAULT_FILE).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(empty_store, tmp_path / DEFAULT_FILE)
    return tmp_path


@pytest.mark.long
def test_the_same_command_twice_prints_the_same_but_for_the_time_of_day(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Two processes, as words are hashed otherwise in each; this one is the second.
    arguments = [BLOOM, "--json", "--seed", "7"]
    first = json.loads(run(workplace, *arguments).stdout)
    assert main(["recommend", *arguments]) == 0
    second = json.loads(capsys.readouterr().out)
    assert first.pop("created_at")
    assert second.pop("created_at")
    assert first == second


@pytest.mark.long
def test_limits_that_are_proven_too_tight_end_with_3_and_the_command_that_it_proposes_succeeds(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tight = run(workplace, BLOOM, "--no-tracking", "--set", "limits.deadline_days=20")
    assert tight.returncode == 3
    assert "deadline_days" in tight.stdout
    (proposed,) = [line for line in tight.stdout.splitlines() if "capplan recommend" in line]
    arguments = proposed.split()[2:]
    assert arguments[0] == BLOOM
    assert main(["recommend", *arguments]) == 0, capsys.readouterr()
    assert "Recommended:" in capsys.readouterr().out


@pytest.mark.parametrize("path", MALFORMED, ids=lambda path: path.name)
def test_a_malformed_file_ends_with_2_and_one_message(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recommend", str(path), "--no-tracking"]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith(f"Error: {path}: ")
    assert "Traceback" not in output.err


@pytest.mark.parametrize("path", ["/no/such/job.yaml", "/"])
def test_a_file_that_cannot_be_read_ends_with_2(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recommend", path, "--no-tracking"]) == 2
    assert "cannot be read" in capsys.readouterr().err
