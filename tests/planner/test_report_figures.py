"""Is every figure what the answer says, and every picture of it what the figure says? All kinds, in the page and as files.

A figure or a kind of figure without a check of its own fails the tests at the bottom.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args
from xml.etree import ElementTree as ET

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle, StepPatch

from planner import human, simulate_plan
from planner.design_view import part_words
from planner.recommendation import Design, Recommendation
from planner.report_data import (
    BarsFigure,
    Figure,
    FrontFigure,
    HistogramFigure,
    LinesFigure,
    RangesFigure,
)
from planner.report_figures import show_figure
from planner.report_files import write_pictures
from planner.report_plots import STYLE, drawing
from planner.report_units import text
from tests.planner.report_studies import drawn

PART_FIELDS = {
    "cost": "cost_parts_usd",
    "energy": "energy_parts_kwh",
    "carbon": "carbon_parts_kgco2e",
    "run": "run_seconds",
    "step": "step_seconds",
}
OBJECTIVES = {"drivers-time-to-train": "time_to_train_days", "drivers-cost": "cost_usd"}
OBJECTIVES |= {"drivers-carbon": "carbon_kgco2e"}
CSS_ROUNDING = 0.5e-4
"""Places in the page are written to a hundredth of a per cent."""


def figures() -> dict[str, Figure]:
    return {figure.name: figure for figure in drawn().report.figures}


def answer() -> Recommendation:
    return drawn().report.answer


def best() -> Design:
    found = answer().recommendation
    assert found is not None
    return found


# What a figure holds is what the answer holds, by the name of the figure.


def check_front(figure: Figure) -> None:
    assert isinstance(figure, FrontFigure)
    uncertainty = answer().uncertainty
    assert uncertainty is not None
    tied = dict.fromkeys(uncertainty.tied_designs, "tied")
    roles = {**tied, best().design_id: "recommended"}
    expected = [
        (each.design_id, each.time_to_train_days, each.cost_usd, roles.get(each.design_id, "front"))
        for each in answer().front
    ]
    assert (figure.x_field, figure.y_field) == ("time_to_train_days", "cost_usd")
    assert [(point.design_id, point.x, point.y, point.role) for point in figure.points] == expected


def check_parts(figure: Figure) -> None:
    """The first bar is the recommended design, the others have least of an objective each."""
    assert isinstance(figure, BarsFigure)
    least = [min(answer().front, key=lambda design: getattr(design, field)) for field in OBJECTIVES.values()]
    designs = list({design.design_id: design for design in (best(), *least)}.values())
    for bar, design in zip(figure.bars, designs, strict=True):
        parts = getattr(design, PART_FIELDS[figure.name])
        shown = {part.label: part.value for part in bar.parts}
        rounding = 1e-11 * sum(parts.values())
        held = {part_words(name): value for name, value in parts.items() if part_words(name) in shown}
        assert shown == pytest.approx(held, rel=0.0, abs=rounding)
        assert sum(shown.values()) == pytest.approx(sum(parts.values()), rel=1e-12)


def check_memory(figure: Figure) -> None:
    assert isinstance(figure, BarsFigure)
    fullest = max(figure.bars, key=lambda bar: sum(part.value for part in bar.parts))
    shown = {part.label: part.value for part in fullest.parts}
    held = {part_words(name): value for name, value in best().memory_bytes.items() if value}
    assert shown == pytest.approx(held, rel=1e-12)
    assert {bar.capacity for bar in figure.bars} == {best().memory_capacity_bytes}


def check_spread(figure: Figure) -> None:
    assert isinstance(figure, HistogramFigure)
    uncertainty = answer().uncertainty
    assert uncertainty is not None
    is_finish = figure.name == "finish"
    spread = uncertainty.time_to_train_days if is_finish else uncertainty.cost_usd
    assert [mark.value for mark in figure.marks[:3]] == [spread.p5, spread.p50, spread.p95]
    assert sum(figure.counts) + figure.num_beyond == uncertainty.num_replays
    assert spread.p50 is not None
    ends, starts = figure.edges[1:], figure.edges[:-1]
    below = sum(count for count, end in zip(figure.counts, ends, strict=True) if end <= spread.p50)
    up_to = sum(count for count, start in zip(figure.counts, starts, strict=True) if start <= spread.p50)
    assert below <= uncertainty.num_replays / 2 <= up_to


def check_flips(figure: Figure) -> None:
    """The rents move between the ends that the job gives; where they flip the choice is a test of its own."""
    assert isinstance(figure, RangesFigure)
    assert figure.mid == 0.0
    by_label = {each.label: each for each in figure.ranges}
    for offer in drawn().report.job.offers:
        rent, price = by_label[f"rent of {offer.accelerator.id}"], offer.rent_usd_per_gpu_hour
        assert price is not None
        assert rent.at_low == pytest.approx(price.low / price.mid - 1.0, rel=1e-12)
        assert rent.at_high == pytest.approx(price.high / price.mid - 1.0, rel=1e-12)


def check_drivers(figure: Figure) -> None:
    """The tornado is that of `capplan simulate` with the recommended plan."""
    assert isinstance(figure, RangesFigure)
    field = OBJECTIVES[figure.name]
    simulated = simulate_plan(drawn().report.job, best().plan)
    assert simulated.sensitivities is not None
    result = next(each for each in simulated.sensitivities.results if each.result == field)
    swings = [(swing.at_low, swing.at_high) for swing in result.swings]
    assert figure.mid == result.mid == pytest.approx(getattr(best(), field), rel=1e-12)
    shown = [(each.at_low, each.at_high) for each in figure.ranges]
    assert shown == swings[: len(shown)]


def check_scaling(figure: Figure) -> None:
    """The diamond is the recommended design; what the curves are is a test of its own."""
    assert isinstance(figure, LinesFigure)
    field = "cost_usd" if figure.name == "scaling-cost" else "time_to_train_days"
    assert (figure.chosen.x, figure.chosen.y) == (best().plan.num_gpus, getattr(best(), field))


CHECKS: dict[str, Callable[[Figure], None]] = {
    "front": check_front,
    **dict.fromkeys(PART_FIELDS, check_parts),
    "memory": check_memory,
    "finish": check_spread,
    "cost-spread": check_spread,
    "flips": check_flips,
    **dict.fromkeys(OBJECTIVES, check_drivers),
    "scaling": check_scaling,
    "scaling-cost": check_scaling,
}


@pytest.mark.parametrize("name", CHECKS)
def test_a_figure_holds_what_the_answer_holds(name: str) -> None:
    CHECKS[name](figures()[name])


# What matplotlib draws into PNG and SVG is what the figure holds, by the kind of the figure.


def rectangles(axes: Axes) -> list[list[Rectangle]]:
    return [list(each.patches) for each in axes.containers if isinstance(each, BarContainer)]


def across(line: Line2D) -> list[float]:
    values: list[float] = np.asarray(line.get_xdata(), dtype=float).tolist()
    return values


def up(line: Line2D) -> list[float]:
    values: list[float] = np.asarray(line.get_ydata(), dtype=float).tolist()
    return values


def lines_at(axes: Axes, color: str) -> list[float]:
    """Where lines of a colour stand across, each of which is upright."""
    found = [across(line) for line in axes.lines if line.get_color() == color and len(across(line)) == 2]
    assert all(first == last for first, last in found)
    return [first for first, _ in found]


def drawn_bars(axes: Axes, figure: BarsFigure) -> None:
    pieces = [[patch.get_width() for patch in patches] for patches in rectangles(axes)]
    starts = [[patch.get_x() for patch in patches] for patches in rectangles(axes)]
    np.testing.assert_allclose(starts, np.cumsum([[0.0] * len(figure.bars), *pieces[:-1]], axis=0))
    for row, bar in enumerate(figure.bars):
        values = sorted(part.value for part in bar.parts)
        # A piece knows its two ends, so that its width is rounded as the total is.
        assert sorted(piece[row] for piece in pieces) == pytest.approx(values, abs=1e-12 * sum(values))
    limits = [bar.capacity for bar in figure.bars if bar.capacity is not None]
    assert lines_at(axes, "black") == limits
    assert labels_of(axes) == [bar.label for bar in figure.bars]


def labels_of(axes: Axes) -> list[str]:
    return [" ".join(label.get_text().split()) for label in axes.get_yticklabels()]


def drawn_ranges(axes: Axes, figure: RangesFigure) -> None:
    patches = [patch for patches in rectangles(axes) for patch in patches]
    reached = [(round(patch.get_y() + 0.5 * patch.get_height()), patch) for patch in patches]
    expected = [
        (row, end - figure.mid)
        for row, each in enumerate(figure.ranges)
        for end in (each.at_low, each.at_high)
        if end is not None
    ]
    assert all(patch.get_x() == figure.mid for patch in patches)
    assert [(row, patch.get_width()) for row, patch in reached] == expected
    assert lines_at(axes, "black") == [figure.mid]
    marks = [mark.value for each in figure.ranges for mark in each.marks]
    drawn_at = [value for line in axes.lines if line.get_linewidth() == 3.0 for value in set(across(line))]
    assert drawn_at == marks
    for label, each in zip(labels_of(axes), figure.ranges, strict=True):
        assert label.startswith(f"{each.label}, {each.low_text.split()[0]}")


def drawn_histogram(axes: Axes, figure: HistogramFigure) -> None:
    (stairs,) = [patch for patch in axes.patches if isinstance(patch, StepPatch)]
    counts, edges, _ = stairs.get_data()
    assert (tuple(counts), tuple(edges)) == (figure.counts, figure.edges)
    assert [across(line)[0] for line in axes.lines] == [mark.value for mark in figure.marks]
    assert [each.get_text() for each in axes.texts] == [mark.label for mark in figure.marks]


def drawn_lines(axes: Axes, figure: LinesFigure) -> None:
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    by_label = {str(line.get_label()): line for line in axes.lines}
    for line in figure.lines:
        shown = by_label[line.label]
        assert (across(shown), up(shown)) == (list(line.x), list(line.y))
    chosen = by_label[figure.chosen.label]
    assert (across(chosen), up(chosen)) == ([figure.chosen.x], [figure.chosen.y])
    marks = [line.mark for line in figure.lines if line.mark]
    dashed = [across(line)[0] for line in axes.lines if line.get_linestyle() == "--"]
    assert dashed == [mark.value for mark in marks]
    assert [each.get_text() for each in axes.texts] == [mark.label for mark in marks]
    assert axes.get_xlabel() == figure.x_label


def drawn_front(axes: Axes, figure: FrontFigure) -> None:
    bars = [each for each in axes.containers if isinstance(each, ErrorbarContainer)]
    points, ends = [], []
    for bar in bars:
        data, _, (beside, above) = bar.lines
        assert data is not None
        points += list(zip(across(data), up(data), strict=True))
        for one, other in zip(beside.get_segments(), above.get_segments(), strict=True):
            ends.append((*one[:, 0], *other[:, 1]))
    assert sorted(points) == sorted((point.x, point.y) for point in figure.points)
    # Simulated over measured is between 1 - error and 1 + error.
    expected = [
        (value / (1.0 + point.error_fraction), value / (1.0 - point.error_fraction))
        for point in figure.points
        for value in (point.x, point.y)
    ]
    drawn_ends = [pair for each in ends for pair in (each[:2], each[2:])]
    np.testing.assert_allclose(sorted(drawn_ends), sorted(expected), rtol=1e-12)
    assert (axes.get_xlabel(), axes.get_ylabel()) == (figure.x_label, figure.y_label)
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    for low, high, values in (
        (left, right, [p.x for p in figure.points]),
        (bottom, top, [p.y for p in figure.points]),
    ):
        assert low < min(values) < max(values) < high
        assert max(values) - min(values) > 0.3 * (high - low)  # the front does not sit in a corner
    columns = drawn().cloud.numbers
    x, y = columns[figure.x_field], columns[figure.y_field]
    num_beyond = np.count_nonzero(~((x >= left) & (x <= right) & (y >= bottom) & (y <= top)))
    assert num_beyond > 0
    assert axes.get_title(loc="right").startswith(f"{num_beyond:,} more designs lie beyond the edges")


DRAWN: dict[str, Callable[[Axes, Any], None]] = {
    "bars": drawn_bars,
    "ranges": drawn_ranges,
    "histogram": drawn_histogram,
    "lines": drawn_lines,
    "front": drawn_front,
}


@pytest.mark.parametrize("name", CHECKS)
def test_a_picture_draws_what_its_figure_holds(name: str) -> None:
    figure = figures()[name]
    with mpl.rc_context(STYLE):
        canvas = drawing(figure, drawn().cloud)
    DRAWN[figure.kind](canvas.axes[0], figure)


def test_an_svg_holds_the_words_of_its_figure(tmp_path: Path) -> None:
    for path in write_pictures(drawn(), tmp_path, "svg"):
        figure = figures()[path.stem]
        words = "".join(ET.parse(path).getroot().itertext())  # noqa: S314  (a file of ours)
        shown = re.sub(r"\s+", "", words)
        for wanted in (figure.title, *names_in(figure)):
            assert re.sub(r"\s+", "", wanted) in shown, (figure.name, wanted)


def names_in(figure: Figure) -> list[str]:
    """What a picture names beside its title."""
    match figure:
        case BarsFigure():
            return [bar.label for bar in figure.bars]
        case RangesFigure():
            return [each.label for each in figure.ranges]
        case HistogramFigure():
            return [mark.label for mark in figure.marks]
        case LinesFigure():
            return [figure.x_label, figure.chosen.label, *(line.label for line in figure.lines)]
        case FrontFigure():
            return [figure.x_label, figure.y_label]


# What stands in the page is what the figure holds, by the kind of the figure.


def boxes(page: str, kind: str) -> list[tuple[dict[str, float], str]]:
    """Places in hundredths and titles of the elements of a class."""
    found = re.findall(rf'<span class="{kind}" style="([^"]*)"(?: title="([^"]*)")?', page)
    return [
        (
            {key: float(value) / 100.0 for key, value in re.findall(r"(\w+):(-?[\d.]+)%", style)},
            html.unescape(title),
        )
        for style, title in found
    ]


def shown_bars(page: str, figure: BarsFigure) -> None:
    totals = [sum(part.value for part in bar.parts) for bar in figure.bars]
    whole = max([*totals, *(bar.capacity or 0.0 for bar in figure.bars)])
    rows = page.split('<div class="row">')[1:]
    for row, bar, total in zip(rows, figure.bars, totals, strict=True):
        drawn_parts = {title: place["width"] for place, title in boxes(row, r"part c\d")}
        assert drawn_parts == pytest.approx(
            {
                f"{part.label}: {text(part.value, figure.quantity)}": part.value / whole
                for part in bar.parts
                if part.value > 0.0
            },
            abs=CSS_ROUNDING,
        )
        assert f'<span class="total">{text(total, figure.quantity)}</span>' in row
        limits = [place["left"] for place, _ in boxes(row, "limit")]
        assert limits == ([pytest.approx(bar.capacity / whole, abs=CSS_ROUNDING)] if bar.capacity else [])


def shown_ranges(page: str, figure: RangesFigure) -> None:
    """The scale follows from two places of which the values are known: the middle and the longest reach."""
    rows = page.split('<div class="row">')[1:]
    ends = [end for each in figure.ranges for end in (each.at_low, each.at_high) if end is not None]
    low, high = min([figure.mid, *ends]), max([figure.mid, *ends])
    first, last = (reached(rows, edge, is_last=edge == high) for edge in (low, high))

    def value(place: float) -> float:
        return low + (place - first) / (last - first) * (high - low)

    rounding = 4 * CSS_ROUNDING * (high - low)
    for row, each in zip(rows, figure.ranges, strict=True):
        ((middle, _),) = boxes(row, "middle")
        assert value(middle["left"]) == pytest.approx(figure.mid, abs=rounding)
        for kind, end in (("low", each.at_low), ("high", each.at_high)):
            ((place, _),) = boxes(row, f"reach {kind}")
            shown = (value(place["left"]), value(place["left"] + place["width"]))
            assert shown == pytest.approx(sorted((figure.mid, high if end is None else end)), abs=rounding)
        marks = [(value(place["left"]), title) for place, title in boxes(row, "flip")]
        assert [title for _, title in marks] == [mark.label for mark in each.marks]
        assert [at for at, _ in marks] == pytest.approx([mark.value for mark in each.marks], abs=rounding)


def reached(rows: list[str], edge: float, *, is_last: bool) -> float:
    """How far boxes reach to one side."""
    places = [place for row in rows for place, _ in boxes(row, "reach (?:low|high)")]
    ends = [place["left"] + (place["width"] if is_last else 0.0) for place in places]
    assert math.isfinite(edge)
    return max(ends) if is_last else min(ends)


def shown_histogram(page: str, figure: HistogramFigure) -> None:
    bins = [place for place, _ in boxes(page, "bin")]
    marks = [place["left"] for place, _ in boxes(page, "mark")]
    values = [mark.value for mark in figure.marks]
    low, high = min([figure.edges[0], *values]), max([figure.edges[-1], *values])
    lefts = [(edge - low) / (high - low) for edge in figure.edges]
    assert [place["left"] for place in bins] == pytest.approx(lefts[:-1], abs=CSS_ROUNDING)
    assert [place["width"] for place in bins] == pytest.approx(np.diff(lefts), abs=CSS_ROUNDING)
    heights = [count / max(figure.counts) for count in figure.counts]
    assert [place["height"] for place in bins] == pytest.approx(heights, abs=CSS_ROUNDING)
    assert marks == pytest.approx([(value - low) / (high - low) for value in values], abs=CSS_ROUNDING)


def shown_lines(page: str, figure: LinesFigure) -> None:
    """On logarithmic axes places are straight in logarithms; equal values have equal places in curve and dots."""
    dots = boxes(page, r"dot c\d")
    values = [(line.label, x, y) for line in figure.lines for x, y in zip(line.x, line.y, strict=True)]
    titles = [f"{label}, {human.count(x)}: {text(y, figure.quantity)}" for label, x, y in values]
    assert [title for _, title in dots] == titles
    ((chosen, title),) = boxes(page, "dot chosen-dot")
    assert title == figure.chosen.label
    places = [*(place for place, _ in dots), chosen]
    points = [*values, ("", figure.chosen.x, figure.chosen.y)]
    straight([place["left"] for place in places], [x for _, x, _ in points], rises=True)
    straight([place["top"] for place in places], [y for _, _, y in points], rises=False)
    curves = re.findall(r'points="([^"]*)"', page)
    corners = [tuple(map(float, corner.split(","))) for curve in curves for corner in curve.split()]
    assert corners == [(round(100 * p["left"], 2), round(100 * p["top"], 2)) for p, _ in dots]


def straight(places: list[float], values: list[float], *, rises: bool) -> None:
    slope, offset = np.polyfit(np.log(values), places, 1)
    assert (slope > 0.0) == rises
    np.testing.assert_allclose(slope * np.log(values) + offset, places, atol=4 * CSS_ROUNDING)


def shown_front(page: str, figure: FrontFigure) -> None:
    """Its stage is empty until a browser runs the script; what that draws is tested in one (`test_report_page`)."""
    assert figure.points
    assert 'class="picture front"' in page
    assert not boxes(page, "dot")


SHOWN: dict[str, Callable[[str, Any], None]] = {
    "bars": shown_bars,
    "ranges": shown_ranges,
    "histogram": shown_histogram,
    "lines": shown_lines,
    "front": shown_front,
}


@pytest.mark.parametrize("name", [name for name in CHECKS if name != "front"])
def test_the_page_draws_what_a_figure_holds(name: str) -> None:
    figure = figures()[name]
    SHOWN[figure.kind](str(show_figure(figure)), figure)


# Nothing goes unchecked.


def test_every_figure_and_every_kind_of_figure_has_its_checks() -> None:
    kinds = {kind.model_fields["kind"].default for kind in get_args(get_args(Figure)[0])}
    assert set(CHECKS) == set(figures())
    assert kinds == set(DRAWN) == set(SHOWN)
    assert kinds == {figure.kind for figure in figures().values()}
