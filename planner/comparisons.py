"""What is a design compared with? Itself under unsure inputs, and itself run, capped, placed or paused otherwise."""

from __future__ import annotations

from simulator.record import Record


class DrawnFigure(Record):
    """One objective of the recommended design under draws of unsure inputs."""

    p5: float
    """One draw in twenty stays below."""
    p50: float
    """Median."""
    p95: float
    """One draw in twenty goes beyond."""


class Ordering(Record):
    """A comparison of the recommended design with the best of the front in one objective."""

    objective: str
    """In what they are compared."""
    design_id: int
    """The design that has least of it."""
    holds_fraction: float
    """Share of the draws in which it still has less of it than the recommended design."""


class InputUncertainty(Record):
    """What survives when prices, grids, power and the making of hardware are drawn from their ranges."""

    num_draws: int
    """Draws; every design meets the same ones."""
    figures: dict[str, DrawnFigure]
    """The recommended design's objectives, in SI units and USD."""
    on_front_fraction: float
    """Share of the draws in which no design of the front beats the recommended one in everything."""
    orderings: tuple[Ordering, ...]
    """Which of the reasons for and against it survive."""


class WhatIfCase(Record):
    """The recommended design under one other circumstance; null where it cannot be told."""

    case: str
    """What is otherwise."""
    time_to_train_days: float | None = None
    cost_usd: float | None = None
    energy_kwh: float | None = None
    carbon_kgco2e: float | None = None
    note: str = ""
    """What it takes, or why it cannot be told."""
