"""What does an explanation say? Constraints, the checks of one plan, and the counts of a whole space, as values.

`model_dump_json()` of these records is what `capplan explain --json` prints.
"""

from __future__ import annotations

from typing import Literal

from pydantic import RootModel

from planner.explain.violations import Figures
from planner.recommended.recommendation import Design, Infeasibility
from simulator.domain.plan import Plan
from simulator.record import Record

State = Literal["kept", "broken", "not_set", "not_known"]
"""`not_set`: the job has no such limit; `not_known`: what would be compared does not exist for a plan that cannot run."""


class ConstraintText(Record):
    """One constraint in words."""

    name: str
    """Its name in jobs and answers."""
    kind: Literal["layout", "physics", "limit", "purchase"]
    """`layout`: the split cannot run or cannot be had; `physics`: memory and progress; `limit`: one that the job sets;
    `purchase`: one of a plan over several jobs."""
    sentence: str
    """What it says."""
    formula: str
    """The constraint as a comparison, in the letters of docs/model.md."""
    unit: str
    """Unit of both sides; 1 for counts and shares."""
    source: str
    """Who says so."""
    way_out: str
    """What to change where it is broken."""


class ConstraintList(Record):
    """The constraints that there are, or the one that was asked for."""

    schema_version: Literal[1] = 1
    """Version of this form."""
    constraints: tuple[ConstraintText, ...]
    """In the order of their checks."""


class Check(Record):
    """What one constraint says about one plan."""

    constraint: str
    """Its name."""
    state: State
    """Whether the plan keeps it."""
    value: float | None
    """What is compared; null for rules of layouts, which compare several figures, and where it is infinite."""
    limit: float | None
    """What it is compared with."""
    unit: str
    """Unit of `value` and `limit`."""
    slack_fraction: float | None
    """Share of the limit that is left; negative where it is broken."""
    figures: Figures
    """All quantities that the constraint compares, by name."""
    sentence: str
    """What the constraint says about the plan, in words."""


class PlanExplanation(Record):
    """Every constraint of a job against one plan."""

    schema_version: Literal[1] = 1
    """Version of this form."""
    job: str
    """Name of the job."""
    plan: Plan
    """The decisions, defaults filled in."""
    is_feasible: bool
    """Whether every constraint is kept."""
    checks: tuple[Check, ...]
    """One for every constraint, in the order of `capplan explain`."""


class RemovedDesigns(Record):
    """How many designs one constraint removes."""

    constraint: str
    """Its name."""
    stage: Literal["rules", "bounds", "simulation"]
    """By which means: rules of layouts; bounds that no simulation beats, of the designs that keep the rules; simulation, of
    the designs that the bounds admit."""
    num_designs: int
    """Designs that break it."""
    num_only: int
    """Designs that break it and nothing else at this stage."""


class Binding(Record):
    """A limit without which something would be better."""

    constraint: str
    """The limit that binds."""
    quantity: str
    """What it makes larger, as its own limit is called: `deadline_days` is the time to train."""
    least: float
    """Least value of any design that keeps all other limits, this one too."""
    least_without: float
    """Least value of any design that keeps all other limits, this one left out."""


class FewestAccelerators(Record):
    """The smallest cluster that keeps every limit."""

    num_gpus: int
    """Accelerators that train."""
    bound: int
    """The fewest that could keep the limits by their bounds, proven by CP-SAT."""
    design: Design
    """A simulated design of that size."""
    proof: str
    """Why none is smaller."""


class SpaceExplanation(Record):
    """What the constraints of a job leave of its designs."""

    schema_version: Literal[1] = 1
    """Version of this form."""
    job: str
    """Name of the job."""
    num_tried: int
    """Designs that are tried: degrees that divide what they must, under every choice of the job."""
    num_valid: int
    """Designs that keep the rules of layouts."""
    num_admitted: int
    """Designs that may keep memory and every limit, by bounds."""
    num_feasible: int | None
    """Designs that keep memory and every limit, by simulation; null where the designs were not simulated."""
    removed: tuple[RemovedDesigns, ...]
    """What each constraint removes; only those that remove any."""
    binding: tuple[Binding, ...]
    """Limits that make the least time, cost or carbon larger; empty where no design keeps all."""
    fewest: FewestAccelerators | None
    """The smallest cluster; null where it was not asked for, or where no design keeps the limits."""
    infeasibility: Infeasibility | None
    """Why no design keeps the limits, and what would help; null where some design does."""


class Explanation(RootModel[ConstraintList | PlanExplanation | SpaceExplanation]):
    """What `capplan explain --json` prints: constraints without a job; one plan of a job; all its designs."""
