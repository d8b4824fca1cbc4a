"""Do all answers to a job with a changed model tell which model it is?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from planner.cli import commands as cli
from planner.compare.inputs import differences
from planner.job.file import parse_job
from planner.tracking.content import asked_params
from tests.planner.job_documents import changed

PLAN = ("--plan", "dp=8,mbs=2")
TOLD = "Llama 3.2 1B, changed: num_layers 8"
JOB = changed(
    workload={
        "model": {"name": "llama-3.2-1b", "num_layers": 8},
        "tokens": 1e9,
        "sequence_length": 2048,
        "global_batch_size": 64,
    },
    offers=[{"accelerator": "h100-sxm5-80gb", "num_gpus": 8, "rent_usd_per_gpu_hour": 2.5}],
    search={"num_refinements": 0, "micro_batch_sizes": [2], "recompute": ["none"], "tensor_parallel": [1]},
)
SWEEP = {
    "job": JOB,
    "axes": {"workload.model.num_layers": [8, 16]},
    "num_gpus": [8],
    "checkpoint_schemes": ["async"],
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "job.yaml").write_text(json.dumps(JOB))
    (tmp_path / "sweep.yaml").write_text(json.dumps(SWEEP))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ("recommend", "job.yaml", "--no-tracking"),
        ("simulate", "job.yaml", *PLAN, "--no-sensitivities"),
        ("simulate", "job.yaml", *PLAN, "--depth", "deep"),
        ("explain", "job.yaml"),
        ("explain", "job.yaml", *PLAN),
        ("goodput", "--job", "job.yaml", *PLAN),
        ("launch", "job.yaml", *PLAN),
        ("timeline", "job.yaml", *PLAN),
        ("sweep", "sweep.yaml"),
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
@pytest.mark.parametrize("form", [(), ("--json",)], ids=["text", "json"])
def test_every_answer_tells_it(
    arguments: tuple[str, ...], form: tuple[str, ...], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*arguments, *form]) == 0
    told = " ".join(capsys.readouterr().out.replace("#", " ").split())
    assert told.count(TOLD) == 1


def test_the_known_model_is_told_nowhere(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = ("--set", "workload.model.num_layers=16")  # as published
    assert cli.main(["simulate", "job.yaml", *PLAN, "--no-sensitivities", *known]) == 0
    assert "changed:" not in capsys.readouterr().out


def test_two_jobs_differ_in_it_and_mlflow_has_it() -> None:
    first = parse_job(changed(**{**JOB, "workload": {**JOB["workload"], "model": "llama-3.2-1b"}}))  # type: ignore[dict-item]
    second = parse_job(JOB)
    (difference,) = differences(first, second)
    assert (difference.name, difference.after) == ("workload.model", TOLD)
    assert asked_params(second, 0)["model"] == TOLD
