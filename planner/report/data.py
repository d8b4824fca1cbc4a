"""What does a report contain? One typed, versioned record from which page, pictures and JSON are made.

Page and pictures show only what is in this record, and the record comes from the answer or from simulating its designs again.
Every number is therefore the same wherever it is shown.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from planner.recommended.recommendation import Recommendation
from simulator.domain.job import Job
from simulator.record import Record

FAMILY: Final = "capplan report "
"""Start of the format of every report, by which a file is recognized as one."""
SCHEMA: Final = "capplan report 4"
"""Format of this version of the fields; the number changes with the fields. 4: intervals of steps in the place of errors."""

Quantity = Literal["usd", "kwh", "kgco2e", "bytes", "s", "days", "w", "fraction", "change", "count"]
"""Unit of the numbers of a figure; `change` is a share with its sign."""


Role = Literal["recommended", "tied", "front"]
"""Role of a design of the front; tied: indistinguishable from the recommended one for the model."""


class Part(Record):
    """A piece of a bar."""

    label: str
    """What it is."""
    value: float
    """Its size, in the figure's quantity."""


class Bar(Record):
    """A total and its parts."""

    label: str
    """What the bar stands for."""
    parts: tuple[Part, ...]
    """Its pieces; equal labels mean the same in all bars of a figure."""
    capacity: float | None = None
    """Limit of the total; null if there is none."""


class Mark(Record):
    """A labelled place on an axis."""

    value: float
    """The place on the axis."""
    label: str
    """What is at this place."""


class Range(Record):
    """One line of a tornado."""

    label: str
    """The input."""
    low_text: str
    """The input at its low end, with its unit."""
    high_text: str
    """The input at its high end."""
    at_low: float | None
    """The result at the low end; null if the run never ends."""
    at_high: float | None
    """The result at the high end; null if the run never ends."""
    marks: tuple[Mark, ...] = ()
    """Places between the two ends at which something changes."""
    note: str = ""
    """Where the range comes from, or what changes at the marks."""


class Line(Record):
    """One curve."""

    label: str
    """What the curve shows."""
    x: tuple[float, ...]
    """Horizontal positions, increasing."""
    y: tuple[float, ...]
    """One value for each x."""
    mark: Mark | None = None
    """The x beyond which a larger x gains little; null if that is beyond the end of the curve."""


class LinePoint(Record):
    """A single design in a figure of curves."""

    x: float
    """Its horizontal position."""
    y: float
    """Its vertical position."""
    label: str
    """Which design it is."""


class Figured(Record):
    """Fields of all figures."""

    name: str = Field(pattern="^[a-z][a-z-]*$")
    """Name of its file and of its anchor in the page."""
    title: str
    """The finding that it shows."""
    note: str
    """How to read it, with the unit."""


class BarsFigure(Figured):
    """Totals and their parts, one bar per line."""

    kind: Literal["bars"] = "bars"
    quantity: Quantity
    """Unit of all parts."""
    bars: tuple[Bar, ...]
    """From top to bottom."""


class RangesFigure(Figured):
    """A tornado chart: how far a result moves when each input moves over its range."""

    kind: Literal["ranges"] = "ranges"
    quantity: Quantity
    """Unit of `mid` and of the ends of the ranges."""
    mid: float
    """The result with all inputs at their middle."""
    ranges: tuple[Range, ...]
    """The inputs, those that move the result most first."""


class HistogramFigure(Figured):
    """How often each value occurred."""

    kind: Literal["histogram"] = "histogram"
    quantity: Quantity
    """Unit of the edges."""
    edges: tuple[float, ...]
    """Edges of the bins, one more than there are counts."""
    counts: tuple[int, ...]
    """Number of values in each bin."""
    num_beyond: int
    """Number of larger values beyond the last bin."""
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
    """Whether points of a curve are joined; false if values between them cannot be inferred from them."""


class StepInterval(Record):
    """The interval that holds four of five steps like that of a design, relative to the simulated one."""

    low_fraction: float
    """Its lower end over the simulated step."""
    high_fraction: float
    """Its upper end over the simulated step."""


class FrontPoint(Record):
    """A design of the front in a picture of two objectives."""

    design_id: int
    """Number of the design."""
    x: float
    """Its first objective."""
    y: float
    """Its second objective."""
    interval: StepInterval
    """80 % interval of its step, which applies to time, cost, energy and carbon alike."""
    role: Role
    """Its role."""


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
    """The designs, by increasing first objective."""


Figure = Annotated[
    BarsFigure | RangesFigure | HistogramFigure | LinesFigure | FrontFigure, Field(discriminator="kind")
]


class InputValue(Record):
    """One input figure of the answer."""

    name: str
    """Field of the job, as `--set` takes it, or the catalogue's name of the figure."""
    value: str
    """The figure with its unit."""
    source: str
    """Where it comes from."""
    confidence: str
    """`verified`, `partial` or `estimate` for figures of the catalogue; otherwise the origin: `job`, `preset`,
    `default` or `range`."""


class InputGroup(Record):
    """Inputs that belong together."""

    title: str
    """What they describe."""
    rows: tuple[InputValue, ...]
    """The inputs."""


class Reproduction(Record):
    """What is needed to reproduce the answer."""

    command: str
    """The command; it expects the job of this report in `job.json`."""
    capplan_version: str
    """Version of capplan that gave the answer."""
    seed: int
    """Seed of search and replays."""
    catalog_hash: str
    """Hash of the catalogue's content."""
    libraries: dict[str, str]
    """Versions of the libraries that can affect the result, on the machine that wrote the report."""


class DesignCounts(Record):
    """Numbers of designs, and how many of them the page draws: up to 100,000, all or an even selection of each kind."""

    num_designs: int
    """Number of simulated designs."""
    num_feasible: int
    """Number of designs whose run ends and that meet all limits."""
    num_broken: int
    """Number of designs whose run ends and that violate a limit."""
    num_feasible_drawn: int
    """Number of feasible designs in the page."""
    num_broken_drawn: int
    """Number of designs in the page that violate a limit."""


class Report(Record):
    """Everything that a report shows, except the cloud of designs behind the front."""

    format: Literal["capplan report 4"] = SCHEMA
    """Format, which determines the fields."""
    schema_version: int = 4
    """Version of this form, as in `format`; increases when a field is removed or changes its meaning."""
    answer: Recommendation
    """The answer, as `capplan recommend --json` prints it."""
    job: Job
    """The job, with all names resolved to figures."""
    step_intervals: dict[int, StepInterval]
    """80 % interval of the steps of the front's designs, by `design_id`."""
    figures: tuple[Figure, ...]
    """The figures, in reading order."""
    inputs: tuple[InputGroup, ...]
    """Every input with its source and confidence."""
    reproduction: Reproduction
    """How to get the same answer again."""
    designs: DesignCounts
    """Designs in the interactive view."""
