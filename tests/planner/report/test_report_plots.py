"""Does a picture for papers stand where the numbers of its figure are? Figures that are made up, and what matplotlib draws."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_hex
from matplotlib.container import ErrorbarContainer
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Annotation

from planner.report.data import (
    Bar,
    BarsFigure,
    Figure,
    FrontFigure,
    FrontPoint,
    HistogramFigure,
    Line,
    LinePoint,
    LinesFigure,
    Mark,
    Part,
    Range,
    RangesFigure,
    StepInterval,
)
from planner.report.front import front_figure
from planner.report.plots import BROKEN, COLOURS, FAINT, HIGH, LOW, STYLE, drawing
from tests.planner.report_studies import drawn

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def axes_of(figure: Figure) -> Axes:
    (axes,) = drawing(figure, drawn().cloud).axes
    return axes


def boxes(axes: Axes, colour: str) -> list[tuple[float, float]]:
    """Where the bars of one colour begin and end along the horizontal axis, from row to row."""
    own = [
        each
        for each in axes.patches
        if isinstance(each, Rectangle) and to_hex(each.get_facecolor()) == colour
    ]
    return [
        (each.get_x(), each.get_x() + each.get_width()) for each in sorted(own, key=lambda box: box.get_y())
    ]


def data_of(line: Line2D) -> tuple[list[float], list[float]]:
    return np.asarray(line.get_xdata()).tolist(), np.asarray(line.get_ydata()).tolist()


def texts(axes: Axes) -> list[str]:
    return [text.get_text() for legend in axes.figure.legends for text in legend.get_texts()]


def test_parts_of_a_bar_follow_each_other_from_its_top_row_on() -> None:
    values = {"one": (30.0, 20.0, 10.0), "other": (25.0, 15.0, 5.0)}
    bars = tuple(
        Bar(label=name, parts=tuple(Part(label=f"part {row}", value=value) for row, value in enumerate(each)))
        for name, each in values.items()
    )
    axes = axes_of(BarsFigure(name="cost", title="", note="", quantity="usd", bars=bars))
    assert boxes(axes, COLOURS[0]) == [(0.0, 30.0), (0.0, 25.0)]
    assert boxes(axes, COLOURS[1]) == [(30.0, 50.0), (25.0, 40.0)]
    assert boxes(axes, COLOURS[2]) == [(50.0, 60.0), (40.0, 45.0)]
    assert axes.yaxis_inverted()


@pytest.mark.parametrize("marks", [(), (Mark(value=120.0, label="a100"),)])
def test_bars_of_a_tornado_reach_from_the_middle_to_either_end(marks: tuple[Mark, ...]) -> None:
    price = Range(label="rent", low_text="1", high_text="3", at_low=80.0, at_high=130.0, marks=marks)
    free = Range(label="grid", low_text="0", high_text="1", at_low=0.0, at_high=105.0)
    endless = Range(label="failures", low_text="1", high_text="9", at_low=None, at_high=110.0)
    axes = axes_of(
        RangesFigure(name="x", title="", note="", quantity="usd", mid=100.0, ranges=(price, free, endless))
    )
    assert [sorted(box) for box in boxes(axes, LOW)] == [[80.0, 100.0], [0.0, 100.0]]
    assert boxes(axes, HIGH) == [(100.0, 130.0), (100.0, 105.0), (100.0, 110.0)]
    upright = [data_of(line)[0] for line in axes.lines if data_of(line)[0]]
    assert upright == [[mark.value] * 2 for mark in marks] + [[100.0, 100.0]]
    assert ("recommendation changes" in texts(axes)) == bool(marks)
    assert axes.get_xlabel() == ""


def test_curves_and_their_marks_are_told_apart_and_the_recommended_size_stands_on_its_place() -> None:
    lines = tuple(
        Line(
            label=name, x=(64.0, 128.0), y=(days, days / 2.0), mark=Mark(value=128.0, label=f"end of {name}")
        )
        for name, days in (("h100", 40.0), ("a100", 80.0))
    )
    chosen = LinePoint(x=128.0, y=20.0, label="recommended")
    axes = axes_of(
        LinesFigure(
            name="x", title="", note="", x_label="accelerators", quantity="days", lines=lines, chosen=chosen
        )
    )
    curves = {str(line.get_label()): line for line in axes.lines if not str(line.get_label()).startswith("_")}
    assert [curves[name].get_color() for name in ("h100", "a100")] == list(COLOURS[:2])
    assert data_of(curves["recommended"]) == ([128.0], [20.0])
    heights = [text.xy[1] for text in axes.texts if isinstance(text, Annotation)]
    assert len(set(heights)) == 2
    assert "128" in [label.get_text() for label in axes.get_xticklabels()]


def front_of(*points: tuple[float, float, float]) -> FrontFigure:
    """A front of points with an interval from so much below one to twice as much above it."""
    shown = front_figure(drawn().report.answer, drawn().report.step_intervals)
    made = tuple(
        FrontPoint(
            design_id=number,
            x=x,
            y=y,
            interval=StepInterval(low_fraction=1.0 - below, high_fraction=1.0 + 2.0 * below),
            role="front",
        )
        for number, (x, y, below) in enumerate(points)
    )
    return shown.model_copy(update={"points": made})


def test_error_bars_reach_to_the_ends_of_the_interval_and_the_picture_beyond_them() -> None:
    axes = axes_of(front_of((80.0, 300.0, 0.25), (100.0, 200.0, 0.25)))
    (container,) = (each for each in axes.containers if isinstance(each, ErrorbarContainer))
    across, up = (cast(LineCollection, each).get_segments() for each in container[2])
    assert [segment[:, 0].tolist() for segment in across] == [
        pytest.approx([value * 0.75, value * 1.5]) for value in (80.0, 100.0)
    ]
    assert [segment[:, 1].tolist() for segment in up] == [
        pytest.approx([value * 0.75, value * 1.5]) for value in (300.0, 200.0)
    ]
    # From 60 to 150, a tenth of that below and three tenths above.
    low, high = 80.0 * 0.75, 100.0 * 1.5
    assert axes.get_xlim() == pytest.approx((low - 0.1 * (high - low), high + 0.3 * (high - low)))


@pytest.mark.parametrize(
    ("points", "ends"),
    [([(10.0, 1.0, 0.0)], (9.0, 13.0)), ([(1.0, 1.0, 0.0), (9.9, 1.0, 0.0)], (0.5, 12.57))],
)
def test_a_front_of_one_design_and_one_that_begins_near_zero_have_room_around_them(
    points: list[tuple[float, float, float]], ends: tuple[float, float]
) -> None:
    assert axes_of(front_of(*points)).get_xlim() == pytest.approx(ends)


def test_designs_behind_the_front_are_those_within_the_picture_by_whether_they_break_a_limit() -> None:
    report, cloud = drawn().report, drawn().cloud
    figure = front_figure(report.answer, report.step_intervals)
    axes = axes_of(figure)
    x, y = cloud.numbers[figure.x_field], cloud.numbers[figure.y_field]
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    is_near = (left <= x) & (x <= right) & (bottom <= y) & (y <= top)
    specks = {
        to_hex(cast("str", each.get_facecolor()[0])): len(np.asarray(each.get_offsets()))
        for each in axes.collections
        if isinstance(each, PathCollection)
    }
    expected = {
        BROKEN: np.count_nonzero(is_near & (cloud.broken > 0)),
        FAINT: np.count_nonzero(is_near & (cloud.broken == 0)),
    }
    assert specks == {colour: count for colour, count in expected.items() if count}
    assert len(specks) > 0
    assert f"{np.count_nonzero(~is_near):,} more designs" in axes.get_title(loc="right")


def test_labels_of_the_marks_of_a_histogram_stand_above_each_other() -> None:
    marks = tuple(Mark(value=value, label=f"{value:g}") for value in (1.0, 1.5, 2.0))
    axes = axes_of(
        HistogramFigure(
            name="x",
            title="",
            note="",
            quantity="days",
            edges=(0.0, 1.0, 2.0),
            counts=(10, 20),
            num_beyond=0,
            marks=marks,
        )
    )
    ends = [max(data_of(line)[1]) for line in axes.lines]
    assert ends == sorted(set(ends), reverse=True)
    assert 20.0 < min(ends) < max(ends) < axes.get_ylim()[1]


@pytest.mark.parametrize("word", ["i", "b200-sxm-180gb", "WWWWW"])
def test_a_long_title_has_several_lines_within_the_picture(word: str) -> None:
    def extent(title: str) -> tuple[float, float]:
        bar = Bar(label="one", parts=(Part(label="a", value=1.0),))
        canvas = drawing(
            BarsFigure(name="x", title=title, note="", quantity="usd", bars=(bar,)), drawn().cloud
        )
        FigureCanvasAgg(canvas).draw()  # type: ignore[no-untyped-call]
        (text,) = canvas.texts
        box = text.get_window_extent()
        return box.x1 / canvas.bbox.width, box.height

    with mpl.rc_context(STYLE):
        (_, height), (end, all_lines) = extent(word), extent(" ".join([word] * (120 // len(word))))
    assert end <= 1.0
    assert all_lines >= 1.9 * height


def test_a_front_over_more_than_a_decade_has_logarithmic_axes_as_on_the_page() -> None:
    narrow, wide = front_of((1.0, 9.0, 0.0), (4.0, 3.0, 0.0)), front_of((1.0, 9.0, 0.0), (11.0, 3.0, 0.0))
    scales = [[axes.get_xscale(), axes.get_yscale()] for axes in map(axes_of, (narrow, wide))]
    assert scales == [["linear", "linear"], ["log", "log"]]
    axes = axes_of(wide)
    assert axes.get_xlim() == pytest.approx((0.5, 14.0))
    assert axes.get_xticks().tolist() == [0.5, 1.0, 2.0, 5.0, 10.0]
