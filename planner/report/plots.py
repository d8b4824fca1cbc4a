"""How does a figure become a picture for a paper, a slide or MLflow? The same record drawn with matplotlib, as PNG or SVG."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, assert_never

import numpy as np

from planner.report.data import (
    BarsFigure,
    Figure,
    FrontFigure,
    FrontPoint,
    HistogramFigure,
    LinesFigure,
    Quantity,
    RangesFigure,
    Role,
)
from planner.report.designs import DesignCloud
from planner.report.figures import part_colours, part_names
from planner.report.units import log_ticks, size_ticks, tick_text, ticks
from planner.views.sensitivity_view import ends_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure as Canvas

PictureFormat = Literal["png", "svg"]
WIDTH_IN: Final = 7.5
"""Width in inches: that of a text column, or of half a slide."""
DOTS_PER_INCH: Final = 144
NUM_TICKS: Final = 6
CHARACTER_IN: Final = 0.075
"""Mean width of a character of a label, in inches."""
COLOURS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8ae2f", "#9aa0a9")
"""Okabe and Ito's colours, which the colour-blind can tell apart, and grey for the rest; as in report.css."""
ACCENT, WARM, SOFT, FAINT, BROKEN = "#1a5fb4", "#c8500a", "#59606c", "#a7aeb9", "#f0c8ab"
LOW, HIGH = "#86c1ea", "#0067a5"
CAPACITY: Final = "memory capacity"
LEGEND_COLUMNS: Final = 4
"""Most columns of a legend."""
LEGEND_DOT_POINTS: Final = 6.0
"""Size of legend dots, in points, for designs that are only specks in the picture."""
ROOM_OF_ROW: Final = 0.5
"""Distance from the first and the last bar to the ends of the vertical axis, in rows; marks end at 0.45."""
ROOM_BELOW_FRACTION, ROOM_ABOVE_FRACTION = 0.1, 0.3
"""Margins around the front, as shares of its extent; below it are few designs that meet the limits."""
WIDE_RATIO: Final = 10.0
"""Ratio of the ends of the horizontal axis above which both axes are logarithmic, as in controls.js."""
STYLE: Final[dict[Any, Any]] = {
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": SOFT,
    "xtick.color": SOFT,
    "ytick.color": "#1b1e24",
    "legend.frameon": False,
    "text.parse_math": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "capplan",
}
"""Settings of matplotlib for drawing; text in SVG stays text, and equal figures give equal bytes."""


def save_picture(figure: Figure, cloud: DesignCloud, path: Path) -> None:
    """Draws a figure into a file, in the format of its suffix.

    Args:
        figure: the figure.
        cloud: designs that are drawn behind the front.
        path: a file that ends in `.png` or `.svg`; an existing one is replaced.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    with mpl.rc_context(STYLE):
        canvas = drawing(figure, cloud)
        if path.suffix == ".svg":
            canvas.savefig(path, metadata={"Date": None})
        else:  # `savefig` would draw it twice, once for the layout alone
            FigureCanvasAgg(canvas).print_png(path, metadata={"Software": None})  # type: ignore[no-untyped-call]


def drawing(figure: Figure, cloud: DesignCloud) -> Canvas:
    """Returns the drawing that `save_picture` saves, with the current settings of matplotlib."""
    from matplotlib.figure import Figure as NewCanvas

    canvas = NewCanvas(figsize=(WIDTH_IN, _height_in(figure)), dpi=DOTS_PER_INCH, layout="constrained")
    title = figure.title.replace(" %", "\N{NO-BREAK SPACE}%")
    canvas.suptitle(title, x=0.01, horizontalalignment="left", fontsize=10.5, fontweight="bold", wrap=True)
    _draw(canvas.add_subplot(), figure, cloud)
    return canvas


def _height_in(figure: Figure) -> float:
    match figure:
        case BarsFigure():
            return 1.9 + 0.42 * len(figure.bars)
        case RangesFigure():
            return 1.7 + 0.24 * len(figure.ranges)
        case HistogramFigure():
            return 3.2
        case LinesFigure() | FrontFigure():
            return 4.4
    assert_never(figure)


def _draw(axes: Axes, figure: Figure, cloud: DesignCloud) -> None:
    match figure:
        case BarsFigure():
            _draw_bars(axes, figure)
        case RangesFigure():
            _draw_ranges(axes, figure)
        case HistogramFigure():
            _draw_histogram(axes, figure)
        case LinesFigure():
            _draw_lines(axes, figure)
        case FrontFigure():
            _draw_front(axes, figure, cloud)
        case _:
            assert_never(figure)


def _draw_bars(axes: Axes, figure: BarsFigure) -> None:
    rows = np.arange(len(figure.bars))
    starts = np.zeros(len(rows))
    colours = part_colours(figure)
    names = part_names(colours)
    for label, colour in sorted(colours.items(), key=lambda entry: entry[1]):
        widths = np.array(
            [sum(part.value for part in bar.parts if part.label == label) for bar in figure.bars]
        )
        shown = names[colour]
        axes.barh(
            rows, widths, left=starts, color=COLOURS[colour], label=shown, height=0.65, edgecolor="white"
        )
        starts += widths
    for row, bar in enumerate(figure.bars):
        if bar.capacity is not None:
            ends = [row - 0.45, row + 0.45]
            axes.plot([bar.capacity] * 2, ends, color="black", linestyle="--", linewidth=1.2, label=CAPACITY)
    axes.set_yticks(rows, [textwrap.fill(bar.label, 34) for bar in figure.bars])
    axes.set_ylim(len(rows) - 1.0 + ROOM_OF_ROW, -ROOM_OF_ROW)
    axes.tick_params(axis="y", length=0)
    _write_ticks(axes.xaxis, figure.quantity)
    _write_legend(axes)


def _draw_ranges(axes: Axes, figure: RangesFigure) -> None:
    for row, each in enumerate(figure.ranges):
        for end, colour in ((each.at_low, LOW), (each.at_high, HIGH)):
            if end is not None:
                axes.barh(row, end - figure.mid, left=figure.mid, color=colour, height=0.6)
        for mark in each.marks:
            axes.plot([mark.value] * 2, [row - 0.45, row + 0.45], color=WARM, linewidth=3.0)
    labels = [f"{each.label}, {ends_text(each.low_text, each.high_text)}" for each in figure.ranges]
    axes.set_yticks(range(len(labels)), labels)
    axes.axvline(figure.mid, color="black", linewidth=0.8)
    axes.set_ylim(len(labels) - 1.0 + ROOM_OF_ROW, -ROOM_OF_ROW)
    axes.tick_params(axis="y", length=0)
    _write_ticks(axes.xaxis, figure.quantity, WIDTH_IN - CHARACTER_IN * max(map(len, labels)))
    axes.fill_between([], [], color=LOW, label="input at low end")
    axes.fill_between([], [], color=HIGH, label="input at high end")
    if any(each.marks for each in figure.ranges):
        axes.plot([], [], color=WARM, linewidth=3.0, label="recommendation changes")
    if figure.quantity == "change":
        axes.set_xlabel("change from the value used")
    _write_legend(axes)


def _draw_histogram(axes: Axes, figure: HistogramFigure) -> None:
    axes.stairs(figure.counts, figure.edges, fill=True, color=ACCENT)
    top = max(figure.counts)
    axes.set_ylim(0.0, top * (1.1 + 0.13 * len(figure.marks)))
    for row, mark in enumerate(figure.marks):
        height = top * (1.05 + 0.13 * (len(figure.marks) - row))
        axes.plot([mark.value] * 2, [0.0, height], color=WARM, linestyle="--", linewidth=1.2)
        axes.annotate(mark.label, (mark.value, height), (4.0, -7.0), textcoords="offset points")
    axes.set_ylabel("runs")
    _write_ticks(axes.xaxis, figure.quantity)


def _draw_lines(axes: Axes, figure: LinesFigure) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for row, line in enumerate(figure.lines):
        joins = "-" if figure.is_joined else "none"
        axes.plot(
            line.x, line.y, linestyle=joins, marker="o", markersize=4.0, color=COLOURS[row], label=line.label
        )
        if line.mark:
            axes.axvline(line.mark.value, color=COLOURS[row], linestyle="--", linewidth=1.0)
            axes.annotate(
                line.mark.label,
                (line.mark.value, 0.97 - 0.07 * row),
                (4.0, 0.0),
                xycoords=("data", "axes fraction"),
                textcoords="offset points",
            )
    chosen = figure.chosen
    axes.plot(chosen.x, chosen.y, "D", markersize=7.0, color=WARM, label=chosen.label)
    axes.set_xlabel(figure.x_label)
    axes.grid(visible=True, which="major", color="#dfe2e7", linewidth=0.7)
    _place_ticks(axes.xaxis, size_ticks(*axes.get_xlim()), "count")
    _place_ticks(axes.yaxis, log_ticks(*axes.get_ylim()), figure.quantity)
    _write_legend(axes)


class _Look(NamedTuple):
    """How the designs of a role are drawn."""

    marker: str
    face: str
    edge: str
    label: str
    size: float = 6.0
    """Diameter of the symbol, in points."""
    cap_size: float = 4.5
    """Half the width of an error bar's cap, in points; keeps the cap visible next to a wide symbol."""

    def mark(self) -> dict[str, Any]:
        """Returns the symbol as arguments of matplotlib."""
        return {
            "marker": self.marker,
            "markersize": self.size,
            "markerfacecolor": self.face,
            "markeredgecolor": self.edge,
            "linestyle": "none",
        }


LOOKS: Final[dict[Role, _Look]] = {
    "front": _Look("o", ACCENT, ACCENT, "on the front"),
    "recommended": _Look("D", WARM, WARM, "recommended"),
    # A ring, because it nearly coincides with another design; caps as wide as the ring would make it look like a square.
    "tied": _Look("o", "none", WARM, "indistinguishable from it", size=9.0, cap_size=1.5),
}


def _draw_front(axes: Axes, figure: FrontFigure, cloud: DesignCloud) -> None:
    _draw_cloud(axes, figure, cloud)
    for role, look in LOOKS.items():
        points = [point for point in figure.points if point.role == role]
        if points:
            _draw_points(axes, points, look)
            axes.plot([], [], label=look.label, **look.mark())  # the legend has no error bars
    axes.set_xlabel(figure.x_label)
    axes.set_ylabel(figure.y_label)
    axes.grid(visible=True, color="#dfe2e7", linewidth=0.7)
    for axis, quantity in ((axes.xaxis, figure.x_quantity), (axes.yaxis, figure.y_quantity)):
        if axis.get_scale() == "log":
            _place_ticks(axis, log_ticks(*axis.get_view_interval()), quantity)
        else:
            _write_ticks(axis, quantity)
    _write_legend(axes)


def _draw_points(axes: Axes, points: Sequence[FrontPoint], look: _Look) -> None:
    places = [(p.x, p.y, 1.0 - p.interval.low_fraction, p.interval.high_fraction - 1.0) for p in points]
    x, y, below, above = (np.array(column) for column in zip(*places, strict=True))
    axes.errorbar(
        x,
        y,
        xerr=[x * below, x * above],
        yerr=[y * below, y * above],
        ecolor=look.edge,
        elinewidth=0.8,
        capsize=look.cap_size,
        **look.mark(),
    )


def _draw_cloud(axes: Axes, figure: FrontFigure, cloud: DesignCloud) -> None:
    """The other designs near the front, as one image, which keeps SVG small."""
    x_column, y_column = (cloud.numbers[name] for name in (figure.x_field, figure.y_field))
    (left, right), (bottom, top) = (_window(figure, name) for name in ("x", "y"))
    is_near = (left <= x_column) & (x_column <= right) & (bottom <= y_column) & (y_column <= top)
    for label, colour, is_kind in (
        ("violates a limit", BROKEN, cloud.broken > 0),
        ("dominated", FAINT, cloud.broken == 0),
    ):
        rows = is_near & is_kind
        if rows.any():
            axes.scatter(x_column[rows], y_column[rows], s=3.0, color=colour, rasterized=True)
            axes.plot([], [], "o", markersize=LEGEND_DOT_POINTS, color=colour, label=label)
    if right > WIDE_RATIO * left and min(left, bottom) > 0.0:
        axes.set_xscale("log")
        axes.set_yscale("log")
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, top)
    if num_beyond := int(np.count_nonzero(~is_near)):
        told = f"{num_beyond:,} more designs lie outside this picture, which is drawn around the front"
        axes.set_title(told, fontsize=8.0, color=SOFT, loc="right")


def _window(figure: FrontFigure, axis: Literal["x", "y"]) -> tuple[float, float]:
    """The ends of an axis, with a margin on both sides of the front and its error bars."""
    values = [(getattr(point, axis), point.interval) for point in figure.points]
    low = min(value * interval.low_fraction for value, interval in values)
    high = max(value * interval.high_fraction for value, interval in values)
    extent = high - low or high or 1.0
    return max(low - ROOM_BELOW_FRACTION * extent, 0.5 * low), high + ROOM_ABOVE_FRACTION * extent


def _write_ticks(axis: Axis, quantity: Quantity, room_in: float = WIDTH_IN) -> None:
    """Puts ticks at round numbers on an axis without changing its ends: as many as have room for their texts beside them."""
    low, high = axis.get_view_interval()
    for wanted in range(NUM_TICKS, 1, -1):
        found = ticks(low, high, quantity, wanted)
        longest = max((len(tick_text(value, quantity, high)) for value in found), default=0)
        if len(found) < 3 or (found[1] - found[0]) / (high - low) * room_in > CHARACTER_IN * (longest + 1):
            break
    _place_ticks(axis, found, quantity, largest=high)


def _place_ticks(axis: Axis, values: list[float], quantity: Quantity, largest: float | None = None) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    low, high = axis.get_view_interval()
    axis.set_major_locator(FixedLocator([value for value in values if low <= value <= high]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: tick_text(value, quantity, largest)))


def _write_legend(axes: Axes) -> None:
    """Writes the legend below the picture, with each label once, in as many columns as its width has room for."""
    handles, labels = axes.get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))
    for columns in range(LEGEND_COLUMNS, 0, -1):
        legend = axes.figure.legend(once.values(), once.keys(), loc="outside lower center", ncols=columns)
        if columns == 1 or legend.get_window_extent().width < axes.figure.bbox.width:
            return
        legend.remove()
