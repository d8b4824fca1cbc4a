"""What does a comparison say? Two or more jobs with their designs, in inputs, decisions and figures, as values.

`model_dump_json()` of `Comparison` is what `capplan compare --json` prints.
"""

from __future__ import annotations

from pydantic import Field

from planner.compare.figures import Cause, Metrics
from planner.grid_conventions import GridConvention
from simulator.record import Record


class InputRow(Record):
    """One input in which a side differs from the first."""

    input: str
    """Its place in the job; offers by their accelerators, `offers[NAME #2]` the second of several with the same one."""
    values: tuple[str, ...]
    """What stands there, side by side."""
    decides_choice_only: bool
    """Whether it decides which design is chosen, and changes no figure of a design."""


class DecisionRow(Record):
    """One decision of the designs."""

    decision: str
    """Field of the plan, `accelerator`, `node` or `region`; `offer` where a job has several of the accelerator."""
    values: tuple[str | None, ...]
    """Side by side; null where a side has no design. The interval between saves is the one that is used."""
    is_same: bool
    """Whether all sides decide alike."""


class MetricRow(Record):
    """One figure of the designs."""

    metric: str
    """Field of a design, parts as `field.part`; the unit is in the name."""
    values: tuple[float | None, ...]
    """Side by side; null where a side has no design or does not know the figure."""


class Explanation(Record):
    """Why the figures of one side differ from those of the first; the parts of a figure sum to its `total`."""

    side: str
    """The other side."""
    causes: tuple[Cause, ...]
    """Inputs, one at a time."""
    interaction: Metrics
    """What all inputs together change beyond the sum of them alone."""
    design: Metrics
    """What the other design changes under the inputs of the other side."""
    total: Metrics
    """The whole difference."""
    choices: tuple[Cause, ...] = ()
    """Inputs, one at a time, by the design that is then chosen among those of both answers instead of the first; these and
    `choice_interaction` sum to `design`. None where a design was given, not chosen."""
    choice_interaction: Metrics = Field(default={})
    """What inputs choose only together, and what their design changes more under all inputs than under one."""
    notes: tuple[str, ...] = ()
    """What could not be told apart."""


class Comparison(Record):
    """Jobs and their designs side by side."""

    schema_version: int = 1
    """Of this form; it rises when a field goes or changes its meaning."""
    capplan_version: str
    """Version that simulated all sides anew."""
    sides: tuple[str, ...]
    """What is compared, as it was asked for."""
    inputs: tuple[InputRow, ...]
    """Inputs that differ."""
    decisions: tuple[DecisionRow, ...]
    """The designs."""
    metrics: tuple[MetricRow, ...]
    """Figures of the designs."""
    grids: tuple[tuple[GridConvention, ...], ...] = ()
    """How the grids behind their carbon are counted, side by side; a side without a design has those of all its offers."""
    explanations: tuple[Explanation, ...]
    """Why the others differ from the first; empty where a design is missing."""
    warnings: tuple[str, ...] = ()
    """What the reader should know."""
