"""What does a report contain? One typed, versioned record from which page, pictures and JSON are made.

Pictures say nothing that does not stand here, and what stands here comes from the answer or from simulating its designs
again, so that a number is the same wherever it is shown.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from planner.recommended.recommendation import Recommendation
from simulator.domain.job import Job
from simulator.record import Record

FAMILY: Final = "capplan report "
"""Every report says that it is one,"""
SCHEMA: Final = "capplan report 3"
"""and which fields it has: another number means other fields. 3: drawn designs are counted by kind."""

Quantity = Literal["usd", "kwh", "kgco2e", "bytes", "s", "days", "w", "fraction", "change", "count"]
"""Unit of the numbers of a figure; `change` is a share with its sign."""


Role = Literal["recommended", "tied", "front"]
"""What a design of the front is; tied: the model cannot tell it from the recommended one."""


class Part(Record):
    """A piece of a bar."""

    label: str
    """What it is."""
    value: float
    """How much, in the figure's quantity."""


class Bar(Record):
    """A total and what it is made of."""

    label: str
    """What the bar stands for."""
    parts: tuple[Part, ...]
    """Its pieces; equal labels are equal things in all bars of a figure."""
    capacity: float | None = None
    """What the total must not exceed; null without such a limit."""


class Mark(Record):
    """A place on an axis that has a name."""

    value: float
    """Where."""
    label: str
    """What is there."""


class Range(Record):
    """One line of a tornado."""

    label: str
    """Which input."""
    low_text: str
    """The input at its low end, with its unit."""
    high_text: str
    """The input at its high end."""
    at_low: float | None
    """What the figure shows at the low end; null where the run never ends."""
    at_high: float | None
    """What it shows at the high end."""
    marks: tuple[Mark, ...] = ()
    """Places between the two at which something changes."""
    note: str = ""
    """Where the range comes from, or what changes at the marks."""


class Line(Record):
    """One curve."""

    label: str
    """What it is of."""
    x: tuple[float, ...]
    """Rising."""
    y: tuple[float, ...]
    """One for each x."""
    mark: Mark | None = None
    """The x after which the curve is hardly worth following; null where that lies beyond its end."""


class LinePoint(Record):
    """A design beside the curves."""

    x: float
    """Where it lies across."""
    y: float
    """Where it lies up."""
    label: str
    """Which one it is."""


class Figured(Record):
    """What all figures have."""

    name: str = Field(pattern="^[a-z][a-z-]*$")
    """Name of its file and of its place in the page."""
    title: str
    """What it shows, as a finding."""
    note: str
    """How to read it, with the unit."""


class BarsFigure(Figured):
    """Totals and their parts, one bar a line."""

    kind: Literal["bars"] = "bars"
    quantity: Quantity
    """Unit of all parts."""
    bars: tuple[Bar, ...]
    """From top to bottom."""


class RangesFigure(Figured):
    """A tornado: how far something moves when each input moves over its range."""

    kind: Literal["ranges"] = "ranges"
    quantity: Quantity
    """Unit of `mid` and of the ends of the ranges."""
    mid: float
    """Where nothing has moved."""
    ranges: tuple[Range, ...]
    """What moves it most first."""


class HistogramFigure(Figured):
    """How often a value came out."""

    kind: Literal["histogram"] = "histogram"
    quantity: Quantity
    """Unit of the edges."""
    edges: tuple[float, ...]
    """Borders of the bins, one more than there are counts."""
    counts: tuple[int, ...]
    """How many values lie in each bin."""
    num_beyond: int
    """How many larger values lie beyond the last bin."""
    marks: tuple[Mark, ...]
    """Percentiles and limits."""


class LinesFigure(Figured):
    """Curves over the number of accelerators, both axes logarithmic."""

    kind: Literal["lines"] = "lines"
    x_label: str
    """What the horizontal axis shows."""
    quantity: Quantity
    """Unit of the vertical axis."""
    lines: tuple[Line, ...]
    """The curves."""
    chosen: LinePoint
    """The recommended design."""
    is_joined: bool = True
    """Whether points of a curve are joined; not where what lies between them does not follow from them."""


class FrontPoint(Record):
    """A design of the front in a picture of two objectives."""

    design_id: int
    """Which one."""
    x: float
    """Its first objective."""
    y: float
    """Its second objective."""
    error_fraction: float
    """Mean error of simulated steps of its kind, which time, cost, energy and carbon share."""
    role: Role
    """What it is."""


class FrontFigure(Figured):
    """The front in two objectives."""

    kind: Literal["front"] = "front"
    x_field: str
    """Field of a design on the horizontal axis."""
    x_label: str
    """The field on the horizontal axis in words."""
    x_quantity: Quantity
    """Unit of the horizontal axis."""
    y_field: str
    """Field of a design on the vertical axis."""
    y_label: str
    """The field on the vertical axis in words."""
    y_quantity: Quantity
    """Unit of the vertical axis."""
    points: tuple[FrontPoint, ...]
    """The designs, by rising first objective."""


Figure = Annotated[
    BarsFigure | RangesFigure | HistogramFigure | LinesFigure | FrontFigure, Field(discriminator="kind")
]


class InputValue(Record):
    """One figure that went into the answer."""

    name: str
    """Field of the job, as `--set` takes it, or the catalogue's name of the figure."""
    value: str
    """The figure with its unit."""
    source: str
    """Where it comes from."""
    confidence: str
    """`verified`, `partial` or `estimate` for figures of the catalogue; else who says so: `job`, `preset`,
    `default` or `range`."""


class InputGroup(Record):
    """Inputs that belong together."""

    title: str
    """What they describe."""
    rows: tuple[InputValue, ...]
    """The inputs."""


class Reproduction(Record):
    """What it takes to get the same answer again."""

    command: str
    """The command, on the job of this report saved as `job.json`."""
    capplan_version: str
    """Version that answered."""
    seed: int
    """Seed of search and replays."""
    catalog_hash: str
    """Content of the catalogue."""
    libraries: dict[str, str]
    """Versions of what the result can depend on, on the machine that wrote the report."""


class DesignCounts(Record):
    """How many designs there are, and how many of them the page draws: all up to 100,000, else an even share of each kind."""

    num_designs: int
    """Designs that were simulated."""
    num_feasible: int
    """Designs whose run ends and that meet all limits."""
    num_broken: int
    """Designs whose run ends and that violate a limit."""
    num_feasible_drawn: int
    """Feasible designs in the page."""
    num_broken_drawn: int
    """Designs in the page that violate a limit."""


class Report(Record):
    """Everything that a report shows, less the cloud of designs behind the front."""

    format: Literal["capplan report 3"] = SCHEMA
    """Which fields to expect."""
    schema_version: int = 3
    """Of this form, as in `format`; it rises when a field goes or changes its meaning."""
    answer: Recommendation
    """The answer, as `capplan recommend --json` prints it."""
    job: Job
    """What was asked, with all names resolved to figures."""
    errors: dict[int, float]
    """Mean error of simulated steps of the front's designs, by `design_id`."""
    figures: tuple[Figure, ...]
    """The figures, in reading order."""
    inputs: tuple[InputGroup, ...]
    """Every input with its source and confidence."""
    reproduction: Reproduction
    """How to get the same answer again."""
    designs: DesignCounts
    """What the interactive view shows."""
