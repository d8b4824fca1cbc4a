"""What does a comparison contain? Two or more jobs with their designs, in inputs, decisions and figures, as values.

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
    """Its values, side by side."""
    decides_choice_only: bool
    """Whether it affects only which design is chosen, but no figure of a design."""


class DecisionRow(Record):
    """One decision of the designs."""

    decision: str
    """Field of the plan, `accelerator`, `node` or `region`; `offer` if a job has several offers of the accelerator."""
    values: tuple[str | None, ...]
    """Side by side; null if a side has no design. The interval between saves is the one that is used."""
    is_same: bool
    """Whether all sides have the same value."""


class MetricRow(Record):
    """One figure of the designs."""

    metric: str
    """Field of a design, parts as `field.part`; the unit is in the name."""
    values: tuple[float | None, ...]
    """Side by side; null if a side has no design or the figure is unknown."""


class Explanation(Record):
    """Why the figures of one side differ from those of the first; the parts of a figure sum to its `total`."""

    side: str
    """The other side."""
    causes: tuple[Cause, ...]
    """Inputs, one at a time."""
    interaction: Metrics
    """Effect of all inputs together beyond the sum of their single effects."""
    design: Metrics
    """Effect of the different design, under the inputs of the other side."""
    total: Metrics
    """The whole difference; figures that are unknown in a case are left out, as is the time after which buying pays off where
    it never does."""
    choices: tuple[Cause, ...] = ()
    """Inputs, one at a time, with the effect of the design that each leads to among those of both answers; these and
    `choice_interaction` sum to `design`. Empty if a design was given, not chosen."""
    choice_interaction: Metrics = Field(default={})
    """Effect of designs that only several inputs together lead to, and their extra effect under all inputs; also of a better
    design that one of the searches did not find, which a note then names."""
    notes: tuple[str, ...] = ()
    """What could not be separated."""


class Comparison(Record):
    """Jobs and their designs side by side."""

    schema_version: int = 1
    """Version of this form; increases when a field is removed or changes its meaning."""
    capplan_version: str
    """Version that simulated all sides for this comparison."""
    sides: tuple[str, ...]
    """The compared sides, as they were given."""
    inputs: tuple[InputRow, ...]
    """Different inputs."""
    decisions: tuple[DecisionRow, ...]
    """The designs."""
    metrics: tuple[MetricRow, ...]
    """Figures of the designs."""
    grids: tuple[tuple[GridConvention, ...], ...] = ()
    """Conventions of the grids behind their carbon, side by side; without a design, those of all offers of the side."""
    explanations: tuple[Explanation, ...]
    """Why the others differ from the first, in their order; sides without a design are left out."""
    warnings: tuple[str, ...] = ()
    """Notes for the reader."""
