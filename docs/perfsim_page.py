"""How is the page on PerfSim-Survey-2026's training scenarios made? From capplan's answers and the suite's own coverage matrix.

python -m docs.perfsim_page     writes docs/perfsim.md, as does docs.generate
"""

from __future__ import annotations

import sys
from pathlib import Path

from docs.perfsim import SCENARIOS, YES

PAGE = Path(__file__).with_name("perfsim.md")
FEATURES = (
    ("data parallel, several nodes", "T1.3"),
    ("tensor parallel", "T2.1"),
    ("pipeline", "T3.1"),
    ("interleaved pipeline", "T3.2"),
    ("FP8", "T4.1"),
    ("LoRA", "T4.2"),
    ("sequence parallel", "T4.3"),
    ("mixture of experts", "T4.4"),
)
INTRODUCTION = """\
# The training scenarios of PerfSim-Survey-2026

This page is for readers who compare performance models. A survey of such models (github.com/sarchlab/ml-perf-survey, commit
ad7cdaa; `llm-benchmark-suite.json`) asks 11 questions about training that one tool should answer. The page has capplan's
answers, the commands that give them, and what other tools cover.

Each question is a job in `examples/perfsim`, which says what the suite specifies and what it leaves open. Nobody has measured
these scenarios; [validation](validation.md) shows how far capplan is from measured steps.

`capplan simulate` answers each question with the step and its breakdown, the memory and the MFU. If a scenario asks for a
comparison, the figure compares two such plans. `python -m docs.perfsim_page` makes this page.
"""
COVERAGE = """\
## Who covers what

The columns of the other tools are the suite's own judgement. Vidur simulates inference. Timeloop and nn-Meter support neither
large models nor several accelerators.
"""
GAP = """\
ASTRA-sim needs compute times as input, and NeuSight, as the suite judges it, predicts compute times alone. None of the five
covers FP8 or LoRA. capplan runs all scenarios, with computation, communication and memory together, and continues from the
step to the run: failures, saves, cost, energy and carbon. It does not predict two things that the suite asks for: the effect
of FP8 on the accuracy of the model, and how evenly a router spreads its tokens. The suite's inference scenarios are out of
its scope.
"""


def perfsim_page() -> str:
    """Returns the page."""
    answers = [f"| {one.name} {one.title} | {one.asked} | {one.answer(one)} |" for one in SCENARIOS]
    commands = [f"# {one.name}\n{one.command}" for one in SCENARIOS]
    lines = [
        INTRODUCTION,
        "## Answers\n",
        "| scenario | asked | answer |\n|---|---|---|",
        *answers,
        "\n## Commands\n",
        "```sh",
        *commands,
        "```\n",
        COVERAGE,
        *_coverage(),
    ]
    return "\n".join(lines)


def _coverage() -> list[str]:
    scenarios = {one.name: one for one in SCENARIOS}
    rows = []
    for feature, name in FEATURES:
        one = scenarios[name]
        rows.append(f"| {feature} | {name} | {one.neusight} | {one.astra_sim} | no | yes: {one.uses} |")
    num = {tool: sum(getattr(one, tool) == YES for one in SCENARIOS) for tool in ("neusight", "astra_sim")}
    return [
        "| feature | scenario | NeuSight | ASTRA-sim | Vidur, Timeloop, nn-Meter | capplan |\n|---|---|---|---|---|---|",
        *rows,
        f"\nOf the {len(SCENARIOS)} scenarios NeuSight covers {num['neusight']} in full, ASTRA-sim {num['astra_sim']}.",
        GAP,
    ]


if __name__ == "__main__":
    PAGE.write_text(perfsim_page(), encoding="utf-8")
    sys.exit(0)
