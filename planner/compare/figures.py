"""What are the figures of a design, and how does a change affect them? The numbers of a comparison."""

from __future__ import annotations

from collections.abc import Iterable

from constraints.evaluation import evaluate
from planner.explain.runnable_plan import obstacles
from planner.recommended.designs import design_at
from planner.recommended.output import SINGLE_FIGURES
from planner.recommended.recommendation import Design
from simulator.domain.job import Job, Objective
from simulator.domain.plan import Plan, PlanTable
from simulator.domain.workload_rules import excluded
from simulator.errors import InputError
from simulator.record import Record
from simulator.units import DAY

_PARTS = (
    "memory_bytes",
    "step_seconds",
    "run_seconds",
    "cost_parts_usd",
    "energy_parts_kwh",
    "carbon_parts_kgco2e",
    "metrics",
    "power_w",
)
LATE = {Objective.TIME_P95: ("time_to_train_p95_days", DAY), Objective.COST_P95: ("cost_p95_usd", 1.0)}
"""Names and units of late values, which no limit changes, as in the table of all designs; risks follow from limits."""
Metrics = dict[str, float]
"""Figures by the names of the fields of a design; parts have a point in theirs."""


class Cause(Record):
    """What one input alone changes in the design of the first side."""

    input: str
    """Its place in the job."""
    effects: Metrics
    """Change of each figure; figures that it leaves alone are left out."""
    note: str = ""
    """Why there is no figure, where there is none."""


def design_of(job: Job, plan: Plan) -> Design:
    """Returns a plan simulated, with late values among its objectives."""
    job = job.model_copy(update={"objectives": tuple(dict.fromkeys([*job.objectives, *LATE]))})
    return design_at(job, evaluate(job, PlanTable.from_plans([plan])), 0, 0)


def metrics_of(design: Design) -> Metrics:
    """Returns every figure of a design by its name; parts have a point in theirs."""
    figures = {name: float(getattr(design, name)) for name in SINGLE_FIGURES}
    late = {
        name: (value, design.objective_values.get(objective)) for objective, (name, value) in LATE.items()
    }
    figures |= {name: value / unit for name, (unit, value) in late.items() if value is not None}
    for name in _PARTS:
        parts: dict[str, float | None] = getattr(design, name)
        figures |= {f"{name}.{part}": float(value) for part, value in parts.items() if value is not None}
    return figures


def figures_or_reason(job: Job, plan: Plan) -> Metrics | str:
    """Returns the figures of a plan, or why it cannot be run."""
    if rule := excluded(job.workload):
        return rule
    if broken := obstacles(job, plan):
        return broken[0].sentence
    try:
        return metrics_of(design_of(job, plan))
    except InputError as error:
        return error.problems[0].rule


def change(before: Metrics, after: Metrics) -> Metrics:
    """Returns by how much each figure changes; one that is missing is nothing."""
    names = dict.fromkeys([*before, *after])
    return {name: after.get(name, 0.0) - before.get(name, 0.0) for name in names}


def plus(changes: Iterable[Metrics]) -> Metrics:
    """Returns the sum of changes, figure by figure."""
    total: Metrics = {}
    for one in changes:
        total = {name: total.get(name, 0.0) + one.get(name, 0.0) for name in dict.fromkeys([*total, *one])}
    return total


def known_in_all(cases: Iterable[Metrics]) -> frozenset[str]:
    """Returns the names of the figures that every case has; a purchase that never pays has no time after which it does."""
    return frozenset.intersection(*map(frozenset, cases))


def only(names: frozenset[str], figures: Metrics) -> Metrics:
    """Returns the figures with these names."""
    return {name: value for name, value in figures.items() if name in names}


def without_rounding(changes: Metrics, base: Metrics) -> Metrics:
    """Leaves out changes that only rounding makes."""
    return {
        name: change for name, change in changes.items() if abs(change) > 1e-12 * abs(base.get(name, 0.0))
    }
