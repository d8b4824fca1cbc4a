"""What would the constants of training steps be without one publisher's steps, and what do they predict for a design?

`planner/data/held_out_constants.csv` holds them; `python -m benchmarks.hold_out` writes it. The share of straggler delay that a
step has already waited for uses the shipped spread of accelerators, which no publisher moves by more than a tenth.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache

from constraints.evaluation import Evaluation, judge
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.layout.chunks import split_layers
from simulator.machine.rank import Rank
from simulator.machine.training import SOFTWARE, TrainingConstants, training_constants
from simulator.shipped import shipped_rows
from simulator.simulate import layout_memory, outcomes_of
from simulator.step.step import simulate_step

FILE = "data/held_out_constants.csv"


@cache
def held_out_rows() -> tuple[dict[str, str], ...]:
    """Returns the shipped table; the file is read once."""
    return tuple(shipped_rows(FILE, "planner"))


def constants_without(publisher: str) -> TrainingConstants:
    """Returns the constants fitted without a publisher; the shipped ones if the fit used none of the publisher's steps."""
    return constants_in(held_out_rows(), publisher)


def constants_in(table: Iterable[Mapping[str, str]], without: str) -> TrainingConstants:
    """Returns the constants that a table with the shipped one's columns gives for a fit without some steps."""
    shipped = training_constants()
    rows = [row for row in table if row["without"] == without]
    software = {row["constant"]: float(row["value"]) for row in rows if row["applies_to"] == SOFTWARE}
    sustained = {
        (family, number_format): float(row["value"])
        for row in rows
        if row["applies_to"] != SOFTWARE
        for family, number_format in [row["applies_to"].split()]
    }
    return replace(shipped, sustained_fractions={**shipped.sustained_fractions, **sustained}, **software)


def evaluate_with(job: Job, plans: PlanTable, constants: TrainingConstants) -> Evaluation:
    """Evaluates designs with other constants of training; see `constraints.evaluation.evaluate`."""
    chunks = split_layers(job.workload.model, plans, job.workload.stage_layers)
    steps = simulate_step(Rank.of(job, plans, constants), chunks)
    return judge(job, plans, outcomes_of(job, plans, steps, layout_memory(job, plans)))
