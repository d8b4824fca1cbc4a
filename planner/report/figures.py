"""How does a figure look in the page? HTML boxes of any width, without a script, with the figure's numbers in a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple, Self, assert_never

from planner.report.data import (
    Bar,
    BarsFigure,
    Figure,
    FrontFigure,
    HistogramFigure,
    LinesFigure,
    Mark,
    Quantity,
    Range,
    RangesFigure,
)
from planner.report.html import Html, joined, percent, tag, unbroken
from planner.report.tables import figure_table
from planner.report.units import log_ticks, size_ticks, text, tick_text, ticks
from planner.text import human
from planner.views.sensitivity_view import ends_text

NUM_COLOURS: Final = 7
"""Number of colours; the largest parts have their own, and the others share the last one."""
LEAST_PART_FRACTION: Final = 0.004
"""Parts below this share are too narrow to be seen, and share one box."""
OTHER: Final = "other"
"""Name of several parts that share a colour."""


def show_figure(figure: Figure) -> Html:
    """Returns a figure with its caption and the table behind it; the front's picture is drawn by the page's script."""
    heading = f"{figure.name}-title"
    return tag(
        "figure",
        tag(
            "figcaption",
            tag("h3", unbroken(figure.title), id=heading),
            tag("p", unbroken(figure.note), class_="note") if figure.note else None,
        ),
        tag("div", _picture(figure), class_=f"picture {figure.kind}", aria_hidden="true"),
        figure_table(figure),
        id=figure.name,
        role="group",
        aria_labelledby=heading,
    )


def _picture(figure: Figure) -> Html:
    match figure:
        case BarsFigure():
            return _bars(figure)
        case RangesFigure():
            return _ranges(figure)
        case HistogramFigure():
            return _histogram(figure)
        case LinesFigure():
            return _lines(figure)
        case FrontFigure():
            return Html("")
    assert_never(figure)


def _bars(figure: BarsFigure) -> Html:
    whole = max(max(_total(bar), bar.capacity or 0.0) for bar in figure.bars) or 1.0
    colours = part_colours(figure)
    rows = [_bar_row(figure, bar, whole, colours) for bar in figure.bars]
    return joined(*rows, _axis(0.0, whole, figure.quantity), _legend(colours))


def part_colours(figure: BarsFigure) -> dict[str, int]:
    """Returns the colour number of every part, the largest part first; small parts share the last colour."""
    totals: dict[str, float] = {}
    for bar in figure.bars:
        for part in bar.parts:
            totals[part.label] = totals.get(part.label, 0.0) + part.value
    ordered = sorted(totals, key=lambda label: -totals[label])
    whole = sum(totals.values()) or 1.0
    return {
        label: row if row < NUM_COLOURS and totals[label] >= LEAST_PART_FRACTION * whole else NUM_COLOURS
        for row, label in enumerate(ordered)
    }


def part_names(colours: dict[str, int]) -> dict[int, str]:
    """Returns the legend text for each colour of `part_colours`, in their order: one part, or several together."""
    names: dict[int, str] = {}
    for label, colour in colours.items():
        names[colour] = OTHER if colour in names else label
    return dict(sorted(names.items()))


def _bar_row(figure: BarsFigure, bar: Bar, whole: float, colours: dict[str, int]) -> Html:
    boxes = [
        tag(
            "span",
            class_=f"part c{colours[part.label]}",
            style=f"width:{percent(part.value / whole)}",
            title=f"{part.label}: {text(part.value, figure.quantity)}",
        )
        for part in sorted(bar.parts, key=lambda part: colours[part.label])
        if part.value > 0
    ]
    limit = (
        tag("span", class_="limit", style=f"left:{percent(bar.capacity / whole)}") if bar.capacity else None
    )
    total = text(_total(bar), figure.quantity)
    label = tag("div", tag("span", bar.label), tag("span", total, class_="total"), class_="row-label")
    return tag("div", label, tag("div", *boxes, limit, class_="track"), class_="row")


def _total(bar: Bar) -> float:
    return sum(part.value for part in bar.parts)


def _legend(colours: dict[str, int]) -> Html:
    names = part_names(colours)
    return tag(
        "ul",
        *(tag("li", tag("span", class_=f"swatch c{colour}"), name) for colour, name in names.items()),
        class_="legend",
    )


def _axis(low: float, high: float, quantity: Quantity) -> Html:
    return _tick_row(
        [
            ((value - low) / (high - low), tick_text(value, quantity, high))
            for value in ticks(low, high, quantity)
        ]
    )


def _tick_row(places: Sequence[tuple[float, str]]) -> Html:
    """Labels centred below their tick marks; pictures leave room for labels at both ends."""
    return tag(
        "div",
        *(tag("span", label, class_="centred", style=f"left:{percent(place)}") for place, label in places),
        class_="axis",
    )


def _ranges(figure: RangesFigure) -> Html:
    ends = [value for each in figure.ranges for value in (each.at_low, each.at_high) if value is not None]
    low, high = min([figure.mid, *ends]), max([figure.mid, *ends])
    margin = 0.02 * (high - low) or 1.0
    low, high = low - margin, high + margin
    rows = [_range_row(figure, each, low, high) for each in figure.ranges]
    drawn = {
        "low": any(each.at_low != figure.mid for each in figure.ranges),
        "high": any(each.at_high != figure.mid for each in figure.ranges),
    }
    keys = [(f"input at {kind} end", kind) for kind, is_drawn in drawn.items() if is_drawn]
    legend = tag(
        "ul",
        *(tag("li", tag("span", class_=f"swatch {kind}"), label) for label, kind in keys),
        tag("li", tag("span", class_="swatch flip"), "recommendation changes")
        if any(each.marks for each in figure.ranges)
        else None,
        class_="legend",
    )
    return joined(*rows, _axis(low, high, figure.quantity), legend)


def _range_row(figure: RangesFigure, each: Range, low: float, high: float) -> Html:
    def place(value: float | None) -> float:
        return (value - low) / (high - low) if value is not None else 1.0

    mid = place(figure.mid)
    boxes = []
    for kind, value in (("low", each.at_low), ("high", each.at_high)):
        start, end = sorted((mid, place(value)))
        boxes.append(
            tag("span", class_=f"reach {kind}", style=f"left:{percent(start)};width:{percent(end - start)}")
        )
    marks = [
        tag("span", class_="flip", style=f"left:{percent(place(mark.value))}", title=mark.label)
        for mark in each.marks
    ]
    label = tag(
        "div",
        tag("span", each.label),
        tag("span", _ends(each), class_="total"),
        class_="row-label",
    )
    middle = tag("span", class_="middle", style=f"left:{percent(mid)}")
    note = tag("p", unbroken(each.note), class_="row-note") if each.marks else None
    return tag("div", label, tag("div", *boxes, middle, *marks, class_="track thin"), note, class_="row")


def _ends(each: Range) -> str:
    """The ends of a range; one value where there is no range."""
    return each.low_text if each.low_text == each.high_text else ends_text(each.low_text, each.high_text)


def _histogram(figure: HistogramFigure) -> Html:
    low, high = figure.edges[0], figure.edges[-1]
    low, high = min([low, *_values(figure.marks)]), max([high, *_values(figure.marks)])
    span, most = (high - low) or 1.0, max(figure.counts) or 1
    boxes = [
        tag(
            "span",
            class_="bin",
            style=(
                f"left:{percent((start - low) / span)};width:{percent((end - start) / span)};"
                f"height:{percent(count / most)}"
            ),
        )
        for start, end, count in zip(figure.edges, figure.edges[1:], figure.counts, strict=False)
    ]
    rows, lines = _marks([((mark.value - low) / span, mark.label) for mark in figure.marks])
    return joined(rows, tag("div", *boxes, *lines, class_="field short"), _axis(low, high, figure.quantity))


def _values(marks: Sequence[Mark]) -> list[float]:
    return [mark.value for mark in marks]


def _marks(places: Sequence[tuple[float, str]]) -> tuple[Html, list[Html]]:
    """Labels above a picture, each on its own line to avoid overlaps, and their vertical lines through the picture."""
    rows = tag(
        "div",
        *(
            tag(
                "div",
                tag(
                    "span", label, class_="begins" if place < 0.5 else "ends", style=f"left:{percent(place)}"
                ),
                class_="mark-row",
            )
            for place, label in places
        ),
        class_="marks",
    )
    return rows, [tag("span", class_="mark", style=f"left:{percent(place)}") for place, _ in places]


class _LogField(NamedTuple):
    """Positions on two logarithmic axes, as shares of the width from the left and of the height from the top."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float

    @classmethod
    def of(cls, figure: LinesFigure) -> Self:
        """Returns the field that contains all points of a figure."""
        x = [figure.chosen.x, *(value for line in figure.lines for value in line.x)]
        y = [figure.chosen.y, *(value for line in figure.lines for value in line.y)]
        return cls(*_bounds(x), *_bounds(y))

    def across(self, x: float) -> float:
        return math.log(x / self.x_low) / math.log(self.x_high / self.x_low)

    def down(self, y: float) -> float:
        return 1.0 - math.log(y / self.y_low) / math.log(self.y_high / self.y_low)

    def style(self, x: float, y: float) -> str:
        return f"left:{percent(self.across(x))};top:{percent(self.down(y))}"

    def point(self, x: float, y: float) -> str:
        return f"{100 * self.across(x):.2f},{100 * self.down(y):.2f}"


def _bounds(values: Sequence[float]) -> tuple[float, float]:
    """The smallest and the largest value with a margin on a logarithmic axis."""
    low, high = min(values), max(values)
    room = max((high / low) ** 0.06, 1.02)
    return low / room, high * room


def _lines(figure: LinesFigure) -> Html:
    field, chosen = _LogField.of(figure), figure.chosen
    rulers = [
        tag(
            "span",
            tag("span", tick_text(value, figure.quantity)),
            class_="ruler",
            style=f"top:{percent(field.down(value))}",
        )
        for value in log_ticks(field.y_low, field.y_high)
    ]
    diamond = tag("span", class_="dot chosen-dot", style=field.style(chosen.x, chosen.y), title=chosen.label)
    marks = [line.mark for line in figure.lines if line.mark]
    rows, verticals = _marks([(field.across(mark.value), mark.label) for mark in marks])
    drawing, dots = _curves(figure, field), _dots(figure, field)
    columns = [(field.across(value), human.count(value)) for value in size_ticks(field.x_low, field.x_high)]
    return joined(
        tag("div", rows, class_="outside") if marks else None,
        tag("div", *rulers, drawing, *dots, diamond, *verticals, class_="field outside"),
        tag("div", _tick_row(columns), class_="outside"),
        tag("p", figure.x_label, class_="axis-name"),
        _legend({line.label: row for row, line in enumerate(figure.lines)}),
        tag("p", tag("span", class_="symbol recommended"), unbroken(chosen.label), class_="note"),
    )


def _curves(figure: LinesFigure, field: _LogField) -> Html:
    curves = [
        tag("polyline", class_=f"c{row}", points=" ".join(map(field.point, line.x, line.y)))
        for row, line in enumerate(figure.lines if figure.is_joined else ())
    ]
    return tag("svg", *curves, viewBox="0 0 100 100", preserveAspectRatio="none")


def _dots(figure: LinesFigure, field: _LogField) -> list[Html]:
    return [
        tag(
            "span",
            class_=f"dot c{row}",
            style=field.style(x, y),
            title=f"{line.label}, {human.count(x)}: {text(y, figure.quantity)}",
        )
        for row, line in enumerate(figure.lines)
        for x, y in zip(line.x, line.y, strict=True)
    ]
