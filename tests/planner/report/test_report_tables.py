"""Do the tables of a page, and what stands around the picture of its front, say what there is and no more?"""

from __future__ import annotations

import re

import pytest

from planner.report import explorer as report_explorer
from planner.report.data import Bar, BarsFigure, DesignCounts, HistogramFigure, Part
from planner.report.explorer import explorer
from planner.report.tables import figure_table, number
from tests.planner.report_pages import Page
from tests.planner.report_studies import drawn

COUNTS = DesignCounts(
    num_designs=1_000, num_feasible=600, num_broken=300, num_feasible_drawn=500, num_broken_drawn=200
)


def shown(**changes: int) -> str:
    counts = COUNTS.model_copy(update=changes)
    return str(explorer(drawn().report.model_copy(update={"designs": counts})))


def headings(html: str) -> list[str]:
    return re.findall(r'<th scope="col">(.*?)</th>', html)


def test_kinds_of_designs_that_there_are_not_are_neither_counted_nor_in_the_legend() -> None:
    legend = {"dominated", "violates a limit"}
    assert legend <= set(Page(shown()).texts)
    num_front = len(drawn().report.answer.front)
    alone = Page(shown(num_broken=0, num_broken_drawn=0, num_feasible_drawn=num_front)).texts
    told = (
        f"On this page: {num_front} of 600 feasible designs; 400 designs whose run never ends are not shown."
    )
    assert any(told in text for text in alone)
    assert not legend & set(alone)
    # Designs that break a limit, none of which is drawn.
    hidden = Page(shown(num_broken_drawn=0)).texts
    assert any("0 of 300 designs that violate a limit; 100 designs" in text for text in hidden)
    assert "violates a limit" not in hidden


def test_all_is_drawn_at_first_but_designs_far_from_the_front() -> None:
    boxes = {
        attributes["id"]: "checked" in attributes
        for name, attributes in Page(shown()).tags
        if name == "input" and attributes.get("type") == "checkbox"
    }
    assert boxes == {
        "show-beaten": True,
        "show-broken": True,
        "show-far": False,
        "show-errors": True,
        "log-scale": False,
    }


@pytest.mark.parametrize(("most", "title"), [(500, "3 designs"), (2, "2 of 3 designs")])
def test_a_long_front_is_shown_in_part_and_says_so(
    most: int, title: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_explorer, "MOST_ROWS", most)
    assert len(drawn().report.answer.front) == 3
    html = shown()
    assert f"The front as a table, {title}<" in html
    assert html.count('class="pick"') == min(3, most)


def test_a_design_of_the_front_has_no_role_but_where_it_is_more_than_that() -> None:
    roles = re.findall(r'<td data-label="role">(.*?)</td>', shown())
    assert roles.count("recommended") == 1
    assert set(roles) <= {"recommended", "tied", ""}


def bars_of(num_bars: int, num_parts: int) -> BarsFigure:
    parts = tuple(Part(label=f"part {row}", value=1.0) for row in range(num_parts))
    bars = tuple(Bar(label=f"bar {row}", parts=parts) for row in range(num_bars))
    return BarsFigure(name="cost", title="", note="", quantity="usd", bars=bars)


@pytest.mark.parametrize(
    ("num_bars", "heading"), [(2, ["", "bar 0", "bar 1"]), (3, ["", "part 0", "part 1"])]
)
def test_a_table_of_bars_is_transposed_where_there_are_more_bars_than_parts(
    num_bars: int, heading: list[str]
) -> None:
    assert headings(str(figure_table(bars_of(num_bars, 2)))) == heading


@pytest.mark.parametrize("num_beyond", [0, 6])
def test_runs_beyond_a_histogram_have_a_row_if_there_are_any(num_beyond: int) -> None:
    runs = HistogramFigure(
        name="finish",
        title="",
        note="",
        quantity="days",
        edges=(1.0, 2.0, 3.0),
        counts=(4, 5),
        num_beyond=num_beyond,
        marks=(),
    )
    numbers = [shown for _, _, shown in Page(str(figure_table(runs))).numbers]
    assert ("beyond" in str(figure_table(runs))) == (num_beyond > 0)
    assert numbers[:6] == ["1.00 days", "2.00 days", "4", "2.00 days", "3.00 days", "5"]
    assert numbers[6:] == [str(num_beyond)] * (num_beyond > 0)


def test_what_never_ends_has_words_and_no_value() -> None:
    assert number(None, "never ends", "a.b") == '<data value="" data-path="a.b">never ends</data>'
