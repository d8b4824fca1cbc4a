"""Which packages does each command do without? Importing them would be most of the time that a short command takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.cli.terminal.exit_codes import BROKEN_INPUT, OK
from tests.planner.imports import run_and_loaded
from tests.planner.studies_run import made

SEARCH = {"matplotlib", "mlflow", "optuna", "ortools", "pandas", "pymoo", "sqlalchemy"}
"""What only searching, recording and drawing need."""
SIMULATOR = {"llvmlite", "moocore", "numba", "pyarrow", "scipy", *SEARCH}
"""What only simulating needs, besides."""
BLOOM = "examples/bloom-176b.yaml"
PLAN = "tp=4,pp=12,dp=8,mbs=2,recompute=full"


@pytest.mark.parametrize(
    "arguments",
    [
        ["simulate", "missing.yaml", "--plan", PLAN],
        ["simulate", BLOOM, "--plan", PLAN, "--set", "limits.budgt_usd=1"],
        ["timeline", "missing.yaml", "--plan", PLAN],
        ["goodput", "--job", "missing.yaml", "--plan", PLAN],
        ["explain", "missing.yaml"],
        ["recommend", "missing.yaml"],
    ],
    ids=" ".join,
)
def test_a_broken_job_is_told_without_the_simulator(arguments: list[str]) -> None:
    code, loaded = run_and_loaded(arguments)
    assert code == BROKEN_INPUT
    assert "pydantic" in loaded
    assert loaded & SIMULATOR == set()


def test_a_job_file_is_written_without_the_simulator(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    code, loaded = run_and_loaded(["init", str(file), "--yes", "--model", "llama-3.1-8b", "--tokens", "1T"])
    assert code == OK
    assert file.exists()
    assert loaded & SIMULATOR == set()


@pytest.mark.parametrize(
    "arguments",
    [["catalog"], ["catalog", "sites"], ["catalog", "accelerators", "h100-sxm5-80gb"]],
    ids=" ".join,
)
def test_the_catalogue_is_shown_without_the_simulator(arguments: list[str]) -> None:
    code, loaded = run_and_loaded(arguments)
    assert code == OK
    assert loaded & SIMULATOR == set()


@pytest.mark.parametrize(
    "arguments",
    [
        ["simulate", BLOOM, "--plan", PLAN],
        ["explain", "memory"],
        ["goodput", "--mtbf-s", "10980", "--stall-s", "5", "--work-days", "30"],
    ],
    ids=" ".join,
)
def test_one_design_is_simulated_without_what_only_a_search_needs(arguments: list[str]) -> None:
    code, loaded = run_and_loaded(arguments)
    assert code == OK
    assert loaded & SEARCH == set()


@pytest.mark.parametrize("command", ["status", "front", "list"])
def test_a_study_is_looked_at_without_what_only_a_search_needs(tmp_path: Path, command: str) -> None:
    study = made(tmp_path, num_batches=2).path
    name = [] if command == "list" else [study.stem]
    code, loaded = run_and_loaded(["study", command, *name, "--store", str(tmp_path)])
    assert code == OK
    assert loaded & SEARCH == set()
