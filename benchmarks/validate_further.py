"""How close are simulated steps to measured ones outside the published steps, and which design would be picked?

Two tables of docs/validation.md over `data/further_steps.csv`: vTrain's 109 iterations on several nodes and 60 of its 1,440 on
one (every 24th), and the 22 steps of Narayanan et al. (SC'21). `python -m benchmarks.validate_steps` writes them with the
others, and `capplan validate --measured benchmarks/data/further_steps.csv` prints every row.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.sheets import Sheet, by_group, statistics_sheet
from planner.measured.rows import Unmodelled, read_measured
from planner.measured.runs import Comparison, compare
from planner.validation.comparison import Choice, choices_among
from simulator.errors import InputError, Problem

FURTHER_FILE = Path(__file__).parent / "data" / "further_steps.csv"
SAMPLE = "vTrain one node, a sample"
"""Source of which not every design of a job is carried, so that it tells nothing of choices."""


def further_comparisons() -> list[Comparison]:
    """Returns every row of `FURTHER_FILE` beside its simulation.

    Raises:
        InputError: a row cannot be modelled, so that a table would leave it out silently.
    """
    rows = read_measured(FURTHER_FILE)
    refused = [
        Problem(path=row.row_id, value="", rule=row.reason) for row in rows if isinstance(row, Unmodelled)
    ]
    if refused:
        raise InputError(refused, str(FURTHER_FILE))
    return compare([row for row in rows if not isinstance(row, Unmodelled)])


def further_sheets() -> list[Sheet]:
    """Returns the errors of every source, and how well the designs of one job are told apart."""
    comparisons = further_comparisons()
    groups = by_group(comparisons, lambda c: c.row["group"])
    return [
        statistics_sheet("further", "source", groups, lambda c: c.error_fraction),
        jobs_sheet("further-jobs", choices_among([c for c in comparisons if c.row["group"] != SAMPLE])),
    ]


def jobs_sheet(name: str, found: Sequence[Choice]) -> Sheet:
    """Returns how well the designs of each job are ordered, of jobs with enough designs to rank."""
    ranked = [choice for choice in found if choice.rank_correlation is not None]
    lines = [_job_line(choice.group, [choice]) for choice in ranked]
    head = ("job", "designs", "rank correlation", "regret")
    return Sheet(name=name, head=head, lines=[*lines, _job_line("mean of the jobs", ranked)])


def _job_line(name: str, found: Sequence[Choice]) -> list[str]:
    correlation = np.mean([choice.rank_correlation for choice in found])
    regret = np.mean([choice.regret_fraction for choice in found])
    return [name, str(sum(choice.num_designs for choice in found)), f"{correlation:.2f}", f"{regret:.1%}"]
