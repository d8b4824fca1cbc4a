"""Do the settings on the page on FSDP2 and DeepSpeed describe these frameworks, and are they all that plays a part?"""

from __future__ import annotations

import re

import pytest

from docs.frameworks_page import PAGE, SOFTWARE, Software, job_of, row_of, settings_of
from planner.input.yaml_text import parse_text
from planner.job.file import parse_job
from planner.job.row_job import row_document
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable, Recompute
from simulator.simulate import steps_and_memory
from tests.simulator.builders import plan_of

TEXT = PAGE.read_text(encoding="utf-8")
of_each = pytest.mark.parametrize("software", SOFTWARE, ids=lambda software: software.mark)


def shown(software: Software) -> dict[str, dict[str, object]]:
    """The settings as they stand on the page."""
    (block,) = re.findall(rf"<!-- {software.mark} -->\n```yaml\n(.*?)```", TEXT, re.DOTALL)
    asked = parse_text(block, source="page")
    assert isinstance(asked, dict)
    return asked


def step_and_memory(job: Job, zero_stage: int) -> tuple[float, float]:
    plan = plan_of(context=4, data=16, zero=zero_stage, recompute=Recompute.FULL)
    steps, memory = steps_and_memory(job, PlanTable.from_plans([plan]))
    return float(steps.step_time_s[0]), float(memory.peak_bytes[0])


@of_each
def test_the_page_has_the_settings_of_today(software: Software) -> None:
    assert shown(software) == settings_of(software)


@of_each
def test_habits_that_are_left_out_change_neither_step_nor_memory(software: Software) -> None:
    settings = shown(software)
    whole = parse_job(row_document(row_of(software)))
    job = parse_job(job_of(settings["workload"], settings["search"]))
    for stage in software.zero_stages:
        assert step_and_memory(job, stage) == step_and_memory(whole, stage)


# PyTorch: `fully_shard` without more frees weights after the forward pass (stage 3), with `reshard_after_forward=False` after
# the backward pass (stage 2). DeepSpeed has stages 1 to 3.
def test_the_stages_are_those_that_the_frameworks_have() -> None:
    stages = {software.mark: shown(software)["search"]["zero_stages"] for software in SOFTWARE}
    assert stages == {"fsdp2": [2, 3], "eager": [2, 3], "older": [2, 3], "deepspeed": [1, 2, 3]}


# PyTorch kept all logits in 32 bits and did not fuse norms: a step needs much more of both than one of Megatron-LM.
def test_pytorch_of_2025_needs_much_more_time_and_memory_than_the_defaults() -> None:
    (older,) = (software for software in SOFTWARE if software.mark == "older")
    usual = step_and_memory(parse_job(job_of({}, {})), 3)
    settings = shown(older)
    eager = step_and_memory(parse_job(job_of(settings["workload"], settings["search"])), 3)
    assert eager[0] > 1.2 * usual[0]
    assert eager[1] > 1.2 * usual[1]
