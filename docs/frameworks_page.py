"""What does a job say for FSDP2 or DeepSpeed? The settings on docs/how-to/frameworks.md, and what they change."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from docs.markdown import replaced, table_of_numbers
from planner.answer.recommend import recommend
from planner.job.file import parse_job
from planner.job.row_job import row_document
from planner.job.unused_fields import unused_fields
from planner.measured.rows import Unmodelled, read_measured_row
from planner.measured.runs import Row
from planner.text import human
from planner.text.human import typed

PAGE = Path(__file__).parent / "how-to" / "frameworks.md"
_ROW = "id,model,gpu,n_gpus,precision,global_batch,seq_len,framework,zero_stage_or_fsdp"
_RUN = "run-01,llama-3.1-8b,h100-sxm5-80gb,64,bf16,128,32768"
_OF_THE_RUN = {"model", "tokens", "sequence_length", "global_batch_size", "context_exchange"}
"""Fields of the workload that are no habits."""
_CHECKPOINTS = ("sync_sharded", "async")


@dataclass(frozen=True, kw_only=True)
class Software:
    """A framework that shards weights, without tensor and pipeline parallelism."""

    name: str
    """Its name on the page."""
    mark: str
    """Name of the marked part of the page."""
    cell: str
    """Its name in a table of measured rows."""
    zero_stages: Sequence[int]
    """Stages that it has."""


SOFTWARE = (
    Software(
        name="PyTorch FSDP2, compiled", mark="fsdp2", cell="FSDP2 2026 with compile", zero_stages=(2, 3)
    ),
    Software(name="PyTorch FSDP2, not compiled", mark="eager", cell="FSDP2 2026", zero_stages=(2, 3)),
    Software(name="the same until 2025", mark="older", cell="FSDP2 2025", zero_stages=(2, 3)),
    Software(name="DeepSpeed ZeRO", mark="deepspeed", cell="DeepSpeed 2026", zero_stages=(1, 2, 3)),
)


def filled_frameworks() -> str:
    """Returns the page with the settings of each framework, and the runs that follow from them."""
    text = PAGE.read_text(encoding="utf-8")
    for software in SOFTWARE:
        text = replaced(text, software.mark, _block(settings_of(software)))
    heading = ("software", "layout", "recomputation", "step", "MFU", "time to train")
    return replaced(text, "effect", table_of_numbers(heading, _effects()))


def settings_of(software: Software) -> dict[str, Any]:
    """Returns the part of a job that describes a framework: its habits that matter without tensor parallelism and pipelines."""
    habits = _habits(software)
    search = {
        "tensor_parallel": [1],
        "pipeline_parallel": [1],
        "zero_stages": list(software.zero_stages),
        "checkpoint_schemes": list(_CHECKPOINTS),
    }
    unused = unused_fields(parse_job(job_of(habits, search)))
    kept = {name: value for name, value in habits.items() if f"workload.{name}" not in unused}
    return {"workload": kept, "search": search}


def _block(settings: Mapping[str, Mapping[str, Any]]) -> str:
    lines = [
        line
        for part, fields in settings.items()
        for line in (f"{part}:", *(f"  {name}: {_written(value)}" for name, value in fields.items()))
    ]
    return "\n".join(["```yaml", *lines, "```"])


def _written(value: object) -> str:
    if isinstance(value, float):
        return typed(value)
    return json.dumps(value).replace('"', "")


def job_of(habits: Mapping[str, Any], search: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the job behind the table: 8 billion weights are trained further on long sequences."""
    return {
        "workload": {
            "model": "llama-3.1-8b",
            "tokens": 20e9,
            "sequence_length": 32768,
            "global_batch_size": 128,
            **habits,
        },
        "offers": [{"accelerator": "h100-sxm5-80gb", "num_gpus": 64, "rent_usd_per_gpu_hour": 2.5}],
        "site": "us-iowa",
        "objectives": ["time_to_train"],
        "search": {**search, "num_refinements": 0},
    }


def row_of(software: Software) -> Row:
    """Returns a run of a framework on 64 H100, as a table of measured steps would have it."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "row.csv"
        file.write_text(f"{_ROW}\n{_RUN},{software.cell},zero3\n", encoding="utf-8")
        row = read_measured_row(file, "run-01")
    if isinstance(row, Unmodelled):
        raise TypeError(f"{software.cell}: {row.reason}")
    return row


def _habits(software: Software) -> dict[str, Any]:
    workload: Any = row_document(row_of(software))["workload"]
    return {name: value for name, value in workload.items() if name not in _OF_THE_RUN}


def _effects() -> Iterator[Sequence[str]]:
    sharded = {**settings_of(SOFTWARE[0])["search"], "zero_stages": [1, 2, 3]}
    yield _effect("defaults of capplan (Megatron)", {}, sharded)
    for software in SOFTWARE:
        settings = settings_of(software)
        yield _effect(software.name, settings["workload"], settings["search"])


def _effect(name: str, habits: Mapping[str, Any], search: Mapping[str, Any]) -> Sequence[str]:
    best = recommend(parse_job(job_of(habits, search)), tracking=False, with_report=False).best
    if best is None:
        raise ValueError(f"{name} has no design")
    plan = best.plan
    return (
        name,
        f"CP {plan.context_parallel} x DP {plan.data_parallel}, ZeRO-{plan.zero_stage}",
        plan.recompute.value,
        human.duration(best.step_time_s),
        human.percent(best.mfu_fraction),
        human.days(best.time_to_train_days),
    )
