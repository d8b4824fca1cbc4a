"""What does an explanation contain? Constraints, the checks of one plan, and the counts of a whole space, as values.

`model_dump_json()` of these records is what `capplan explain --json` prints.
"""

from __future__ import annotations

from typing import Literal

from pydantic import RootModel

from constraints.registry import Constraint
from constraints.removal import RemovedDesigns
from planner.layout_figures import Figures
from planner.recommended.comparisons import OtherChoice
from planner.recommended.recommendation import Design, Infeasibility
from simulator.domain.plan import Plan
from simulator.record import Record

State = Literal["kept", "broken", "not_set", "not_known"]
"""`not_set`: the job has no such limit; `not_known`: what would be compared does not exist for a plan that cannot run."""


class ConstraintList(Record):
    """All constraints, or the requested one."""

    schema_version: Literal[1] = 1
    """Version of this form."""
    constraints: tuple[Constraint, ...]
    """In the order of their checks."""


class Check(Record):
    """The check of one constraint against one plan."""

    constraint: str
    """Its name."""
    state: State
    """Whether the plan meets it."""
    value: float | None
    """Value that is compared; null for layout rules, which compare several figures, and for infinite values."""
    limit: float | None
    """Limit of the value."""
    unit: str
    """Unit of `value` and `limit`."""
    slack_fraction: float | None
    """Headroom as a share of the limit; negative if it is violated."""
    figures: Figures
    """All quantities that the constraint compares, by name."""
    sentence: str
    """The result of the check, in words."""


class Untried(Record):
    """A choice of a plan that no search of the job makes."""

    choice: str
    """Field of the plan."""
    value: str
    """What the plan chooses."""
    tried: tuple[str, ...]
    """What the search tries beside the other choices of the plan."""
    field: str
    """Field of the job that lists it."""


class PlanExplanation(Record):
    """Every constraint of a job against one plan."""

    schema_version: Literal[1] = 1
    """Version of this form."""
    job: str
    """Name of the job."""
    model: str = ""
    """Name of the model, with what the job changes of a known one."""
    plan: Plan
    """The decisions, defaults filled in."""
    is_feasible: bool
    """Whether every constraint is met."""
    checks: tuple[Check, ...]
    """One for every constraint, in the order of `capplan explain`."""
    ways_out: tuple[OtherChoice, ...] = ()
    """Changes of one choice to a value that the search tries, on the same accelerators, with which a plan that violates
    constraints meets all of them; data parallelism follows. The best value of each choice first. Where the degrees do not
    multiply to `num_gpus`: changes of one degree, or of `num_gpus`, that make them."""
    untried: tuple[Untried, ...] = ()
    """Choices that the search of the job does not try, so that no answer to it can have them."""


class Binding(Record):
    """A limit whose removal would improve a lowest value."""

    constraint: str
    """The limit that binds."""
    quantity: str
    """The quantity that it increases, by the name of its limit: `deadline_days` is the time to train."""
    least: float
    """Lowest value of any design that meets all limits."""
    least_without: float
    """Lowest value of any design that meets all limits but this one."""


class FewestAccelerators(Record):
    """The smallest cluster that meets every limit."""

    num_gpus: int
    """Training accelerators."""
    bound: int
    """The fewest that could meet the limits by their bounds, proven by CP-SAT."""
    design: Design
    """A simulated design of that size."""
    proof: str
    """Proof that none is smaller."""


class SpaceExplanation(Record):
    """How many designs the constraints of a job leave."""

    schema_version: Literal[1] = 1
    """Version of this form."""
    job: str
    """Name of the job."""
    model: str = ""
    """Name of the model, with what the job changes of a known one."""
    num_tried: int
    """Designs that are tried: valid divisions by the degrees, under every choice of the job."""
    num_valid: int
    """Designs that meet the layout rules."""
    num_admitted: int
    """Designs that may meet memory and every limit, by their bounds."""
    num_feasible: int | None
    """Designs that meet memory and every limit, by simulation; null if the designs were not simulated."""
    removed: tuple[RemovedDesigns, ...]
    """Designs removed by each constraint; only constraints that remove any."""
    binding: tuple[Binding, ...]
    """Limits that increase the lowest time, cost or carbon; empty if no design meets all limits."""
    has_limits: bool = True
    """Whether the job sets any limit."""
    fewest: FewestAccelerators | None
    """The smallest cluster; null if not requested, or if no design meets the limits."""
    infeasibility: Infeasibility | None
    """Why no design meets the limits, and what would help; null if some design does."""


class Explanation(RootModel[ConstraintList | PlanExplanation | SpaceExplanation]):
    """What `capplan explain --json` prints: constraints without a job; one plan of a job; all its designs."""
