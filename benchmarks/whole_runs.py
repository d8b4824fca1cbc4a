"""How close are predictions of whole runs to what was published, with and without the runs' own data? The pages about it.

    python -m benchmarks.whole_runs           prints the tables
    python -m benchmarks.whole_runs --write   writes docs/whole-runs.md

`capplan validate` prints the same predictions. `planner.validation.whole_runs` makes them, `planner/data/published_runs.csv`
holds what was published, with its sources.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.lora_run import lora_text
from benchmarks.whole_run_inputs_page import (
    deepseek_text,
    habit_text,
    inputs_table,
    mt_nlg_text,
    rules_table,
)
from benchmarks.whole_runs_page import (
    arithmetic_table,
    energy_table,
    hours_table,
    left_out_table,
    llmcarbon_text,
    metered_text,
    seen_table,
)

PAGE = Path(__file__).parents[1] / "docs" / "whole-runs.md"
PAGE_HEAD = """\
# Whole runs: what was published, what capplan predicts cold

This page shows how accurate capplan is on whole training runs, in GPU-hours and energy. It is written by
`python -m benchmarks.whole_runs --write`. `planner/data/published_runs.csv` holds the published figures with their sources.
Step time, goodput and power come from the simulator. There are two predictions of each run:

- *Cold* is the prediction by which accuracy is judged. It knows only model, work, layout, hardware and the framework's name.
  Its constants come from a fit without the publisher's steps (`planner/data/held_out_constants.csv`). Everything else follows
  the rules below, which are the same for every run.
- *Shipped* uses capplan's constants as they are, and what was published of the run itself: its failures, saves, storage and
  nodes in reserve. For most runs, the constants were fitted on published steps of the run, among others.
"""
ENERGY_NOTE = "W per GPU include its share of host, fans, fabric and power supplies, without cooling.\n"
RULES_NOTE = """\
Spares matter: without any, every failed node costs two hours of waiting for a replacement (arXiv 2412.12636). The rule gives
BLOOM the 4 nodes that it had in reserve. How many GPUs of the cluster stood by for Llama 3.1 is not published. One more rule
is the same for all runs but was decided with Llama 3's figures in view: how much of the slow-down by stragglers is already in
a step.
"""
INPUTS_NOTE = """\
Both predictions use *published* and *assumed* inputs. Only the shipped one uses inputs *published of the run itself*.
"""
ARITHMETIC_NOTE = """\
These energies are GPU-hours x rated power (x PUE where the source says so). Agreement with them confirms no model of energy.
The hours of OPT are arithmetic themselves, 992 GPUs x 34 days, and so are those of GPT-3, 10,000 GPUs x 14.8 days. The 330 W
of GPT-3 are the mean power of a GPU with its share of the system, as the source gives it. The energy of OPT could not be
checked in its source. Llama 2, 3 and 3.1 publish hours, watts and tonnes of CO2e, but no energy; the 350 W of the 34B are
those of the paper (arXiv 2307.09288, table 2).
"""


def page() -> str:
    """Returns docs/whole-runs.md."""
    parts = [
        PAGE_HEAD,
        "## GPU-hours\n",
        f"{hours_table()}\n",
        f"{llmcarbon_text()}\n",
        "## MT-NLG\n",
        f"{mt_nlg_text()}\n",
        "## DeepSeek-V3\n",
        f"{deepseek_text()}\n",
        "## The rules\n",
        f"{rules_table()}\n",
        f"{RULES_NOTE}\n{habit_text()}\n",
        "## What of each run the shipped prediction has seen\n",
        f"{seen_table()}\n",
        "## Energy\n",
        ENERGY_NOTE,
        f"{energy_table()}\n",
        "## The metered run\n",
        f"{metered_text()}\n",
        "## A LoRA run, its work given\n",
        f"{lora_text()}\n",
        "## Published energies that are arithmetic\n",
        ARITHMETIC_NOTE,
        f"{arithmetic_table()}\n",
        "## Published runs that are not predicted\n",
        f"{left_out_table()}\n",
        "## Every input\n",
        INPUTS_NOTE,
        f"{inputs_table()}\n",
    ]
    return "\n".join(parts)


def main() -> None:
    """Prints the tables, or writes the page."""
    parser = argparse.ArgumentParser(description="Compare whole runs, predicted cold, with published ones.")
    parser.add_argument("--write", action="store_true", help="write the page instead of printing the tables")
    if not parser.parse_args().write:
        print(page())
        return
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
