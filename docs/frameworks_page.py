"""What does a job say for its framework? The table on docs/how-to/frameworks.md, and what each framework changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from docs.markdown import replaced, row_of_text, table_of_numbers
from planner.answer.recommend import recommend
from planner.job.file import parse_job
from planner.text import human
from simulator.catalog import Kind, figures, framework, names

PAGE = Path(__file__).parent / "how-to" / "frameworks.md"
_SHOWN = ("megatron-lm", "megatron-bridge", "fsdp2", "fsdp2-eager", "torchtitan", "deepspeed")
"""Frameworks whose run the page shows."""


def filled_frameworks() -> str:
    """Returns the page with the frameworks of the catalogue, and the runs that follow from them."""
    text = PAGE.read_text(encoding="utf-8")
    heading = ("`framework`", "software", "searched unless the job says otherwise")
    rows = [heading, ("---",) * len(heading), *_frameworks()]
    text = replaced(text, "frameworks", "\n".join(row_of_text(row) for row in rows))
    columns = ("framework", "layout", "recomputation", "checkpoints", "step", "MFU", "time to train")
    return replaced(text, "effect", table_of_numbers(columns, _effects()))


def _frameworks() -> Iterator[Sequence[str]]:
    for name in names(Kind.FRAMEWORKS):
        software = next(str(f.value) for f in figures(Kind.FRAMEWORKS, name) if f.quantity == "name")
        searched = (f"`{field}: {_listed(value)}`" for field, value in framework(name).search.items())
        yield f"`{name}`", software, ", ".join(searched) or "everything"


def _listed(value: object) -> str:
    return f"[{', '.join(map(str, value))}]" if isinstance(value, list) else str(value)


def job_of(name: str) -> dict[str, Any]:
    """Returns the job behind the table: 8 billion weights are trained further on long sequences."""
    return {
        "workload": {
            "model": "llama-3.1-8b",
            "tokens": 20e9,
            "sequence_length": 32768,
            "global_batch_size": 128,
            "framework": name,
        },
        "offers": [{"accelerator": "h100-sxm5-80gb", "num_gpus": 64, "rent_usd_per_gpu_hour": 2.5}],
        "site": "us-iowa",
        "objectives": ["time_to_train"],
        "search": {"num_refinements": 0},
    }


def _effects() -> Iterator[Sequence[str]]:
    for name in _SHOWN:
        best = recommend(parse_job(job_of(name)), tracking=False, with_report=False).best
        if best is None:
            raise ValueError(f"{name} has no design")
        plan = best.plan
        degrees = {
            "TP": plan.tensor_parallel,
            "PP": plan.pipeline_parallel,
            "CP": plan.context_parallel,
            "DP": plan.data_parallel,
        }
        layout = " x ".join(f"{degree} {ranks}" for degree, ranks in degrees.items() if ranks > 1)
        yield (
            f"`{name}`",
            f"{layout}, ZeRO-{plan.zero_stage}",
            plan.recompute.value,
            plan.checkpoint_scheme.value,
            human.duration(best.step_time_s),
            human.percent(best.mfu_fraction),
            human.days(best.time_to_train_days),
        )
