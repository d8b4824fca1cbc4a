"""What is a design compared with? The best design for each objective, and itself under uncertain inputs or what-if cases."""

from __future__ import annotations

from pydantic import Field

from simulator.domain.plan import Plan
from simulator.record import Record

SURE_FRACTION = 0.9
"""Share of the draws from which an order counts as certain."""


class DrawnFigure(Record):
    """One figure of a design over draws of uncertain inputs."""

    p5: float
    """5th percentile of the draws."""
    p50: float
    """Median."""
    p95: float
    """95th percentile of the draws."""


class DrawnDesign(Record):
    """One design of the front over draws of uncertain inputs."""

    design_id: int
    """Which one."""
    figures: dict[str, DrawnFigure]
    """Wall time (s), cost (USD), energy (J), carbon (kg CO2e), water (l) if known, and other objectives."""
    on_front_fraction: float
    """Share of the draws in which no drawn design beats it in every objective."""
    recommended_fraction: float
    """Share of the draws in which it is the best compromise of the drawn designs."""
    least_fraction: dict[str, float]
    """Share of the draws in which it has the lowest value, by objective."""


class Ordering(Record):
    """A comparison of the recommended design with the best design of the front in one objective."""

    objective: str
    """The objective that is compared."""
    design_id: int
    """The design with the lowest value."""
    holds_fraction: float
    """Share of the draws in which its value is still lower than that of the recommended design."""


class Neighbours(Record):
    """Two designs of the front that are neighbours by one objective."""

    objective: str
    """The objective that orders them."""
    design_id: int
    """The design with the lower value."""
    next_design_id: int
    """The next design."""
    holds_fraction: float
    """Share of the draws in which they keep this order."""


class TornadoBar(Record):
    """The effect of one uncertain input alone, at the ends of its range, on one objective of one design, and on its rank."""

    input: str
    """The input, such as `hardware_price of h100-sxm5-80gb`: fields of `InputFactors`, the hardware's price, or the step
    time that all designs on the same accelerators share."""
    objective: str
    """The quantity: an objective, or another figure of [DrawnDesign](#drawndesign), such as `water`."""
    design_id: int
    """The design."""
    middle: float
    """The objective with all inputs at the middle, in SI units and USD."""
    at_low: float
    """The objective at the low end of this input, in SI units and USD."""
    at_high: float
    """The objective at the high end of this input, in SI units and USD."""
    place: int
    """Rank of the design among the drawn ones by this objective with all inputs at the middle; 1: lowest."""
    place_at_low: int
    """Rank of the design at the low end of this input."""
    place_at_high: int
    """Rank of the design at the high end of this input."""


class InputUncertainty(Record):
    """Results when times, failures, prices, grids, power and embodied carbon are drawn from their ranges."""

    num_draws: int
    """Number of draws, which are the same for every design."""
    figures: dict[str, DrawnFigure]
    """The recommended design's figures; see [DrawnDesign](#drawndesign)."""
    on_front_fraction: float
    """Share of the draws in which no design of the front beats the recommended one in every objective."""
    recommended_fraction: float
    """Share of the draws in which it would be recommended again."""
    within_deadline_fraction: float | None = None
    """Share of the draws in which its expected time meets the deadline; null without one."""
    within_budget_fraction: float | None = None
    """Share of the draws in which its expected cost meets the budget; null without one."""
    orderings: tuple[Ordering, ...]
    """How often the comparisons with the best design for each objective hold."""
    neighbours: tuple[Neighbours, ...] = ()
    """How often pairs of drawn designs that are neighbours by an objective keep their order."""
    designs: tuple[DrawnDesign, ...] = ()
    """The designs that were drawn: all of the front, or 60 evenly spread over a longer one, with the best in every
    objective."""
    tornado: tuple[TornadoBar, ...] = ()
    """What drives the recommended design's objectives and other figures: every input that moves one, the largest swing
    first."""


class Driver(Record):
    """One factor of an objective, in two designs."""

    name: str
    """Name of the factor, with its unit."""
    value: float
    """Value in the design."""
    reference: float
    """Value in the design that it is compared with."""
    is_factor: bool = True
    """Whether the objective is the product of all that are, or, for carbon, the sum; false for a cause that acts through one of
    them, such as a power cap through the power of a GPU."""


class Best(Record):
    """The best design of the front for one objective, the reasons, and what is worse."""

    objective: str
    """The objective."""
    design_id: int
    """The design."""
    value: float
    """Value of the objective, in SI units and USD."""
    shared_with: tuple[int, ...] = ()
    """Other designs of the front with exactly the same value."""
    compared_with: int | None
    """The recommended design; if that is itself the best, the next best among the designs that are best in another
    objective, or of the whole front. Null for a front of one design."""
    drivers: tuple[Driver, ...]
    """What causes the difference, the largest ratio first; differences below 0.5 % are left out. Time is work over GPUs x
    speed x share of time in steps; cost is GPU-hours x price; energy is GPU-hours x power x PUE x overhead of idle spares;
    carbon is energy x grid intensity + embodied carbon."""
    changes: dict[str, float]
    """Relative change of the other objectives from the design that it is compared with: above 0 is worse. Risks, and
    objectives whose reference is 0, as differences."""


class OtherChoice(Record):
    """The best design that has another value of one choice, on the accelerators of a design, with its spares and power cap."""

    name: str
    """The choice, a field of [Plan](#plan)."""
    value: int | str | None
    """The other value; null where the plan leaves it out."""
    plan: Plan
    """The best design with this value, or the one nearest to the limits where none keeps them."""
    violated: tuple[str, ...]
    """Limits of the job that it violates, including memory and progress; none if it keeps all."""
    time_to_train_days: float | None
    """Wall time of its run; null if it never ends."""
    objective_values: dict[str, float | None]
    """Values of the objectives by name, in the order of the job: SI units, USD and probabilities."""


class WhatIfCase(Record):
    """The recommended design in one what-if case; figures are null if they are unknown."""

    case: str
    """The changed circumstance."""
    time_to_train_days: float | None = None
    """Wall time, including the wait for a later start, which costs nothing else."""
    cost_usd: float | None = None
    """Cost of the run."""
    energy_kwh: float | None = None
    """Energy of the facility."""
    carbon_kgco2e: float | None = None
    """Operational and embodied greenhouse gases."""
    time_change_days: float | None = None
    """Change of wall time from the answer: below 0 is a saving."""
    cost_change_usd: float | None = None
    """Change of cost from the answer."""
    energy_change_kwh: float | None = None
    """Change of energy from the answer."""
    carbon_change_kgco2e: float | None = None
    """Change of greenhouse gases from the answer."""
    limits_broken: dict[str, float | None] = Field(default_factory=dict)
    """Limits of the job that are violated in this case, including memory and progress, and the share by which each is
    exceeded; null if unbounded."""
    note: str = ""
    """What it takes, or why it cannot be told."""
