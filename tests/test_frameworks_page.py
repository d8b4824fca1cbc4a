"""Does the page on frameworks name all of them, and is what it says beside them true?"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.frameworks_page import PAGE, job_of
from planner.job.file import parse_job
from planner.job.row_job import row_document
from planner.measured.rows import Unmodelled, read_measured_row
from planner.measured.software.framework_habits import habits_of
from simulator.catalog import Kind, framework, names
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable, Recompute
from simulator.simulate import steps_and_memory
from tests.simulator.builders import plan_of

TEXT = PAGE.read_text(encoding="utf-8")


def step_and_memory(job: Job) -> tuple[float, float]:
    plan = plan_of(context=4, data=16, zero=3, recompute=Recompute.FULL)
    steps, memory = steps_and_memory(job, PlanTable.from_plans([plan]))
    return float(steps.step_time_s[0]), float(memory.peak_bytes[0])


def row_workload(folder: Path, cells: str) -> dict[str, object]:
    """The workload of the page's row, of another framework."""
    (table,) = re.findall(r"cat > row.csv <<'END'\n(.*?)END\n", TEXT, re.DOTALL)
    file = folder / "row.csv"
    file.write_text(table.replace("llm-foundry 2024,FSDP", cells), encoding="utf-8")
    row = read_measured_row(file, "run-01")
    assert not isinstance(row, Unmodelled)
    workload = row_document(row)["workload"]
    assert isinstance(workload, dict)
    return workload


def test_every_framework_is_on_the_page() -> None:
    told = re.findall(r"^\| `([a-z0-9-]+)` \|", TEXT.partition("<!-- end -->")[0], re.MULTILINE)
    assert told == ["framework", *names(Kind.FRAMEWORKS)]


def test_those_that_shard_alone_are_those_that_it_names() -> None:
    (told,) = re.findall(r"\*Frameworks that shard alone\* \((.*?)\)", TEXT, re.DOTALL)
    alone = [name for name in names(Kind.FRAMEWORKS) if framework(name).search.get("tensor_parallel") == [1]]
    assert re.findall(r"`(.*?)`", told) == alone


# PyTorch kept all logits in 32 bits and did not fuse norms: a step needs much more of both than one of Megatron-LM.
def test_pytorch_of_2025_needs_much_more_time_and_memory_than_megatron() -> None:
    usual = step_and_memory(parse_job(job_of("megatron-lm")))
    asked = job_of("fsdp2-eager")
    older = {**asked["workload"], "attention": "flash-2", "copies_shared_heads": True}
    eager = step_and_memory(parse_job({**asked, "workload": older}))
    assert eager[0] > 1.2 * usual[0]
    assert eager[1] > 1.2 * usual[1]


def test_pytorch_of_2025_is_read_from_measured_rows_as_the_page_describes_it(tmp_path: Path) -> None:
    read = row_workload(tmp_path, "FSDP2 2025,FSDP")
    assert (read["attention"], read["copies_shared_heads"]) == ("flash-2", True)
    assert "attention: flash-2`, `copies_shared_heads: true`" in TEXT


def test_the_first_stage_of_deepspeed_keeps_the_gradients_that_the_page_names() -> None:
    assert habits_of("DeepSpeed 2026", "hopper", "bf16").gradient_bytes == 6
    assert "`zero_stages: [1]` and\n  `workload.gradient_bytes: 6`" in TEXT


def test_the_row_of_the_page_is_read_as_it_stands(tmp_path: Path) -> None:
    assert row_workload(tmp_path, "llm-foundry 2024,FSDP")["sync_bytes"] == 2


def test_a_framework_of_ones_own_fills_a_job_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (own,) = re.findall(r"cat > ours.csv <<'END'\n(.*?)END\n", TEXT, re.DOTALL)
    (tmp_path / "ours.csv").write_text(own, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    job = parse_job({**job_of("our-trainer"), "catalog": "ours.csv"})
    assert (job.workload.logit_bytes, job.workload.sync_bytes) == (2, 2)
    assert (job.workload.sharded_copies, job.search.zero_stages) == ("fsdp-2", (3,))
