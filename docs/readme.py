"""Are the results in the README real? Its marked parts are regenerated from capplan's answers."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path

from rich.console import Console

from docs.markdown import replaced
from planner import load_job, recommend
from planner.job.typed_command import TypedCommand
from planner.recommended.recommendation import Recommendation
from planner.views.render import show
from simulator.accuracy.published_runs import step_time_error

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
JOB = ROOT / "examples" / "llama-3.1-70b.yaml"
SHOWN_SECTIONS = ("Recommended", "Configuration", "Results", "Why this design", "Other choices")
"""Sections of the answer that the README shows."""
ACCURACY_ROWS = (
    ("H100, bf16", "hopper", "bf16"),
    ("H100, fp8", "hopper", "fp8"),
    ("A100, bf16", "ampere", "bf16"),
    ("A100, fp16", "ampere", "fp16"),
    ("B200, bf16", "blackwell", "bf16"),
    ("B200, fp8", "blackwell", "fp8"),
)


def filled_readme() -> str:
    """Returns the README with its marked parts regenerated."""
    text = README.read_text(encoding="utf-8")
    answer, tight = _text(), _text("limits.budget_usd=1.6e6")
    shown = [section for section in _sections(answer) if section.startswith(SHOWN_SECTIONS)]
    conflict = [
        section for section in _sections(tight) if not section.startswith(("Constraints that", "Notes"))
    ]
    text = replaced(text, "answer", _block(shown))
    text = replaced(text, "infeasible", _block(conflict))
    return replaced(text, "accuracy", _accuracy_table())


@cache
def answer_of(*overrides: str) -> Recommendation:
    """Returns the answer to the README's job."""
    return recommend(load_job(JOB, overrides), tracking=False)


def _text(*overrides: str) -> str:
    answer = answer_of(*overrides)
    command = TypedCommand(job="examples/llama-3.1-70b.yaml", overrides=overrides)
    console = Console(file=io.StringIO(), width=100, markup=False, highlight=False, emoji=False)
    with console.capture() as capture:
        show(answer, console, command=command)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def _sections(text: str) -> list[str]:
    return [section for section in text.split("\n\n") if section.strip()]


def _block(sections: list[str]) -> str:
    body = "\n\n".join(sections)
    return f"```text\n{body}\n```"


def _accuracy_table() -> str:
    lines = ["| accelerator, format | configurations | bias | mean absolute error |", "|---|---:|---:|---:|"]
    for name, family, precision in ACCURACY_ROWS:
        error = step_time_error(family, precision)
        lines.append(
            f"| {name} | {error.num_rows} | {error.bias_fraction:+.1%} | {error.mean_absolute_error_fraction:.1%} |"
        )
    return "\n".join(lines)
