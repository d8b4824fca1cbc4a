"""Which numbers are behind a figure? A table of all of them, each with its exact value and its path in the record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import assert_never

from planner.report.data import (
    BarsFigure,
    Figure,
    FrontFigure,
    HistogramFigure,
    LinesFigure,
    Quantity,
    RangesFigure,
)
from planner.report.html import Html, tag, unbroken
from planner.report.units import text


def figure_table(figure: Figure) -> Html:
    """Returns the numbers of a figure as a table that is collapsed at first."""
    heading, rows = _content(figure)
    return tag(
        "details",
        tag("summary", "Numbers behind this figure"),
        table(figure.title, heading, rows),
        class_="numbers",
    )


def table(caption: str, heading: Sequence[str], rows: Sequence[Sequence[str]]) -> Html:
    """Returns a table whose rows are stacked on narrow screens; the first cell of a row is its heading."""
    head = tag("thead", tag("tr", *(tag("th", name, scope="col") for name in heading)))
    body = tag(
        "tbody",
        *(tag("tr", tag("th", row[0], scope="row"), *_cells(heading[1:], row[1:])) for row in rows),
    )
    whole = tag("table", tag("caption", caption), head, body)
    return tag("div", whole, class_="scroll", tabindex="0", role="region", aria_label=caption)


def _cells(heading: Sequence[str], cells: Sequence[str]) -> Iterator[Html]:
    """The cells of a row, each labelled with its column for narrow screens, on which there is no heading row."""
    for name, cell in zip(heading, cells, strict=False):
        yield tag("td", cell if isinstance(cell, Html) else unbroken(cell), data_label=name)


def number(value: float | None, shown: str, path: str) -> Html:
    """Returns a number for readers, with its exact value and its path in the report's JSON."""
    return tag("data", shown, value="" if value is None else repr(value), data_path=path)


def _number(value: float | None, quantity: Quantity, path: str) -> Html:
    return number(value, text(value, quantity), path)


def _content(figure: Figure) -> tuple[Sequence[str], list[Sequence[str]]]:
    match figure:
        case BarsFigure():
            return _bar_content(figure)
        case RangesFigure():
            return ["input", "low", "at low", "high", "at high", "where from"], list(_range_rows(figure))
        case HistogramFigure():
            return ["from", "to", "runs"], list(_bin_rows(figure))
        case LinesFigure():
            return ["", figure.x_label, "value"], list(_line_rows(figure))
        case FrontFigure():
            raise AssertionError("the table of the front has more than its picture")
    assert_never(figure)


def _place(figure: Figure) -> str:
    return f"figures.{figure.name}"


def _bar_content(figure: BarsFigure) -> tuple[Sequence[str], list[Sequence[str]]]:
    """A row for each part and a column for each bar; transposed if there are more bars than parts."""
    bars = [bar.label for bar in figure.bars]
    parts = list(dict.fromkeys(part.label for bar in figure.bars for part in bar.parts))
    cells = {
        (part.label, row): _number(
            part.value, figure.quantity, f"{_place(figure)}.bars.{row}.parts.{k}.value"
        )
        for row, bar in enumerate(figure.bars)
        for k, part in enumerate(bar.parts)
    }
    if len(bars) > len(parts):
        return ["", *parts], [
            [bar, *(cells.get((part, row), "") for part in parts)] for row, bar in enumerate(bars)
        ]
    return ["", *bars], [[part, *(cells.get((part, row), "") for row in range(len(bars)))] for part in parts]


def _range_rows(figure: RangesFigure) -> Iterator[Sequence[str]]:
    for row, each in enumerate(figure.ranges):
        place = f"{_place(figure)}.ranges.{row}"
        yield [
            each.label,
            each.low_text,
            _number(each.at_low, figure.quantity, f"{place}.at_low"),
            each.high_text,
            _number(each.at_high, figure.quantity, f"{place}.at_high"),
            each.note,
        ]


def _bin_rows(figure: HistogramFigure) -> Iterator[Sequence[str]]:
    place = _place(figure)
    for row, count in enumerate(figure.counts):
        yield [
            _number(figure.edges[row], figure.quantity, f"{place}.edges.{row}"),
            _number(figure.edges[row + 1], figure.quantity, f"{place}.edges.{row + 1}"),
            _number(count, "count", f"{place}.counts.{row}"),
        ]
    if figure.num_beyond:
        yield ["beyond", "", _number(figure.num_beyond, "count", f"{place}.num_beyond")]


def _line_rows(figure: LinesFigure) -> Iterator[Sequence[str]]:
    for row, line in enumerate(figure.lines):
        place = f"{_place(figure)}.lines.{row}"
        for k, (x, y) in enumerate(zip(line.x, line.y, strict=True)):
            yield [
                line.label,
                _number(x, "count", f"{place}.x.{k}"),
                _number(y, figure.quantity, f"{place}.y.{k}"),
            ]
