"""Are counted nouns in answers singular for one thing? Checked against examples written by hand."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from planner import load_job
from planner.cli.commands import main
from planner.input.plan_input import plan_of, read_plan
from planner.notes.reasons import searched_text
from planner.text import human
from planner.timeline.view import show_timeline
from simulator.step.timeline import step_timeline
from tests.planner.hand_made import recommended

LLAMA = Path(__file__).parents[3] / "examples" / "llama-3.1-70b.yaml"


@pytest.mark.parametrize(
    ("number", "told"), [(0, "0 batches"), (1, "1 batch"), (2, "2 batches"), (1024, "1,024 batches")]
)
def test_a_count_takes_the_plural_that_is_given(number: int, told: str) -> None:
    assert human.counted(number, "batch", "batches") == told
    assert human.counted(number, "row") == told.replace("batches", "rows").replace("batch", "row")


def test_a_search_that_simulated_one_design_says_so() -> None:
    alone = recommended().model_copy(update={"num_evaluated": 1, "num_feasible": 1})
    assert searched_text(alone) == "1 design simulated, 1 meets all limits"
    assert searched_text(recommended()) == "4,321 designs simulated, 210 meet all limits"


def test_a_step_of_one_micro_batch_on_one_stage_says_so() -> None:
    job = load_job(LLAMA)
    plan, _ = plan_of(job, read_plan(f"offer=0,tp=8,dp={job.workload.global_batch_size},zero_stage=3"))
    console = Console(file=io.StringIO(), width=100)
    with console.capture() as capture:
        show_timeline(step_timeline(job, plan), console)
    assert "One step by stage: 1 stage, 1 micro-batch, " in capture.get()


def test_a_file_of_one_measured_step_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "step.csv"
    file.write_text(
        "model,gpu,n_gpus,precision,dp,micro_batch,global_batch,seq_len,step_time_s\n"
        "llama-3.1-8b,h100-sxm5-80gb,64,bf16,64,1,128,4096,1.0\n"
    )
    assert main(["validate", "--measured", str(file)]) == 0
    told = capsys.readouterr().out
    assert "1 row, 1 of them modelled, 1 with a measured step time" in told
    assert "1 configuration: mean absolute error" in told
