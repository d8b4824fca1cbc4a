"""What is a design compared with? The best of each objective, and itself under unsure inputs or other circumstances."""

from __future__ import annotations

from pydantic import Field

from simulator.record import Record

SURE_FRACTION = 0.9
"""Share of the draws from which an order counts as sure."""


class DrawnFigure(Record):
    """One figure of a design under draws of unsure inputs."""

    p5: float
    """One draw in twenty stays below."""
    p50: float
    """Median."""
    p95: float
    """One draw in twenty goes beyond."""


class DrawnDesign(Record):
    """One design of the front under draws of unsure inputs."""

    design_id: int
    """Which one."""
    figures: dict[str, DrawnFigure]
    """Wall time (s), cost (USD), energy (J), carbon (kg CO2e), water (l) where it is known, and other objectives."""
    on_front_fraction: float
    """Share of the draws in which no drawn design beats it in everything."""
    recommended_fraction: float
    """Share of the draws in which it is the best compromise of the drawn designs."""
    least_fraction: dict[str, float]
    """Share of the draws in which it has the least of each objective."""


class Ordering(Record):
    """A comparison of the recommended design with the best of the front in one objective."""

    objective: str
    """In what they are compared."""
    design_id: int
    """The design that has least of it."""
    holds_fraction: float
    """Share of the draws in which it still has less of it than the recommended design."""


class Neighbours(Record):
    """Two designs of the front that follow each other by one objective."""

    objective: str
    """By what they are ordered."""
    design_id: int
    """The design with less of the objective."""
    next_design_id: int
    """The design that follows it."""
    holds_fraction: float
    """Share of the draws in which they keep this order."""


class TornadoBar(Record):
    """What one unsure input alone, at the ends of its range, does to one objective of one design, and to its place."""

    input: str
    """The input, such as `hardware_price of h100-sxm5-80gb`: fields of `InputFactors`, the hardware's price, or the step
    time that all designs on the same accelerators share."""
    objective: str
    """What is looked at: an objective, or a figure of [DrawnDesign](#drawndesign) that is none, such as `water`."""
    design_id: int
    """Of which design."""
    middle: float
    """The objective with all inputs at the middle, in SI units and USD."""
    at_low: float
    """The objective at the low end of this input, in SI units and USD."""
    at_high: float
    """The objective at the high end of this input, in SI units and USD."""
    place: int
    """Place of the design among the drawn ones by this objective with all inputs at the middle; 1: least."""
    place_at_low: int
    """Place of the design at the low end of this input."""
    place_at_high: int
    """Place of the design at the high end of this input."""


class InputUncertainty(Record):
    """What survives when times, failures, prices, grids, power and the making of hardware are drawn from their ranges."""

    num_draws: int
    """Draws; every design meets the same ones."""
    figures: dict[str, DrawnFigure]
    """The recommended design's figures; see [DrawnDesign](#drawndesign)."""
    on_front_fraction: float
    """Share of the draws in which no design of the front beats the recommended one in everything."""
    recommended_fraction: float
    """Share of the draws in which it would be recommended again."""
    within_deadline_fraction: float | None = None
    """Share of the draws in which its expected time keeps the deadline; null without one."""
    within_budget_fraction: float | None = None
    """Share of the draws in which its expected cost keeps the budget; null without one."""
    orderings: tuple[Ordering, ...]
    """Which of the reasons for and against it survive."""
    neighbours: tuple[Neighbours, ...] = ()
    """Which pairs of the drawn designs that follow each other by an objective keep their order."""
    designs: tuple[DrawnDesign, ...] = ()
    """The designs that were drawn: all of the front, or 60 evenly spread over a longer one, with the best in every
    objective."""
    tornado: tuple[TornadoBar, ...] = ()
    """What drives the recommended design's objectives and other figures: every input that moves one, the largest swing
    first."""


class Driver(Record):
    """One factor of an objective, in two designs."""

    name: str
    """What it is, with its unit."""
    value: float
    """In the design,"""
    reference: float
    """and in the one that it is compared with."""
    is_factor: bool = True
    """Whether the objective follows their ratio; false for what acts through another factor, as a power cap does through
    the power of a GPU."""


class Best(Record):
    """The design of the front with the least of one objective: why it has, and what it gives up."""

    objective: str
    """Of what it has least."""
    design_id: int
    """Which design."""
    value: float
    """How much, in SI units and USD."""
    shared_with: tuple[int, ...] = ()
    """Other designs of the front that have exactly as little of it."""
    compared_with: int | None
    """The recommended design; where that is the best itself, the next best among the designs that are best in something
    else, or of the whole front. Null for a front of one design."""
    drivers: tuple[Driver, ...]
    """What makes the difference, the largest ratio first; what differs by less than half a per cent is left out. Time is
    work over GPUs x speed x share of the time in steps; cost of rent GPU-hours x price; energy GPU-hours x power x PUE x idle
    spares;    carbon energy x grid + making."""
    changes: dict[str, float]
    """The other objectives over those of the design that it is compared with, less one: above 0 is given up. Risks, and
    what the other has nothing of, as differences."""


class WhatIfCase(Record):
    """The recommended design under one other circumstance; null where it cannot be told."""

    case: str
    """What is otherwise."""
    time_to_train_days: float | None = None
    """Wall time, with the wait for a later start, which takes nothing else."""
    cost_usd: float | None = None
    """Cost of the run."""
    energy_kwh: float | None = None
    """Energy of the facility."""
    carbon_kgco2e: float | None = None
    """Operational and embodied greenhouse gases."""
    time_change_days: float | None = None
    """Wall time less that of the answer: below 0 is saved."""
    cost_change_usd: float | None = None
    """Cost less that of the answer."""
    energy_change_kwh: float | None = None
    """Energy less that of the answer."""
    carbon_change_kgco2e: float | None = None
    """Greenhouse gases less those of the answer."""
    limits_broken: dict[str, float | None] = Field(default_factory=dict)
    """Limits of the job that do not hold then, memory and progress among them, and by which share each is exceeded; null
    where that has no bound."""
    note: str = ""
    """What it takes, or why it cannot be told."""
