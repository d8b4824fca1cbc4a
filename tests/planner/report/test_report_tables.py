"""Do the tables of a page, and what stands around the picture of its front, say what there is and no more?"""

from __future__ import annotations

import re

import pytest

from planner.recommended.comparisons import WhatIfCase
from planner.recommended.design_words import layout
from planner.recommended.recommendation import Recommendation
from planner.report import explorer as report_explorer
from planner.report.data import Bar, BarsFigure, DesignCounts, HistogramFigure, Part
from planner.report.explorer import explorer
from planner.report.sections import comparisons, inputs, rejected, verdict
from planner.report.tables import figure_table, number
from planner.text import human
from tests.planner.hand_made import infeasible, interrupted, recommended
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


def text_of(html: str) -> str:
    """The text of a part of a page, with a space between its elements."""
    return " ".join(" ".join(Page(html).texts).split())


def verdict_of(answer: Recommendation) -> str:
    return text_of(verdict(drawn().report.model_copy(update={"answer": answer})))


@pytest.mark.parametrize(
    ("answer", "begins"),
    [
        (recommended(), "Take 1,024 x h100-sxm5-80gb, TP8 PP4 VPP2 DP32."),
        (interrupted(), "The search was stopped; the best design so far is 1,024 x h100-sxm5-80gb, TP8"),
        (infeasible(), "No design meets all limits."),
        (infeasible().model_copy(update={"has_limits": False}), "No design can be run."),
        (
            interrupted().model_copy(update={"recommendation": None, "front": (), "uncertainty": None}),
            "Stopped before a design was found.",
        ),
    ],
)
def test_a_page_begins_with_what_to_do(answer: Recommendation, begins: str) -> None:
    assert verdict_of(answer).startswith(begins)


def test_a_figure_has_the_range_of_its_replays_where_both_ends_are_known() -> None:
    answer = recommended()
    sure = answer.uncertainty
    assert sure is not None
    known = "Time to train 31.4 days mean; 30.6 days to 33.4 days in 9 of 10 replays"
    assert known in verdict_of(answer).replace("\N{NO-BREAK SPACE}", " ")
    late = sure.model_copy(
        update={"time_to_train_days": sure.time_to_train_days.model_copy(update={"p95": None})}
    )
    told = verdict_of(answer.model_copy(update={"uncertainty": late}))
    assert "Time to train 31.4 days mean Cost" in told.replace("\N{NO-BREAK SPACE}", " ")


def test_the_cost_has_the_range_of_all_inputs_or_else_of_prices_if_there_is_one() -> None:
    answer, prices = recommended(), "over the price range of the hardware"
    best = answer.front[0]
    assert prices in verdict_of(answer)
    one_price = best.model_copy(update={"cost_high_usd": best.cost_low_usd})
    assert prices not in verdict_of(answer.model_copy(update={"recommendation": one_price}))
    unsure = drawn().report.answer.input_uncertainty
    assert unsure is not None
    told = verdict_of(answer.model_copy(update={"input_uncertainty": unsure}))
    assert prices not in told
    time, cost = (
        part.partition(" in 9 of 10 draws")[0].split("replays ")[-1]
        for part in (told.partition("Time to train")[2], told.partition(" Cost ")[2])
    )
    drawn_time, drawn_cost = (unsure.figures[name] for name in ("time_to_train", "cost"))
    assert time == f"{human.duration(drawn_time.p5)} to {human.duration(drawn_time.p95)}"
    assert cost == f"{human.dollars(drawn_cost.p5)} to {human.dollars(drawn_cost.p95)}"


def test_designs_that_a_bound_excludes_are_told_before_those_that_were_simulated() -> None:
    assert text_of(rejected(recommended())).endswith("budget_usd cost above budget_usd = 2e6 1,234 56")


def test_a_what_if_case_that_changes_a_figure_to_nothing_is_no_unknown_one() -> None:
    cases = (WhatIfCase(case="free power", cost_usd=0.0, note="a gift"),)
    told = text_of(comparisons(recommended().model_copy(update={"what_if": cases})))
    assert told.endswith("free power not known $0 not known not known a gift")


def test_of_the_groups_of_inputs_the_first_is_open() -> None:
    html = inputs(drawn().report)
    opened = ["open" in attributes for name, attributes in Page(html).tags if name == "details"]
    assert len(opened) > 2
    assert opened == [True, *[False] * (len(opened) - 1)]


def test_designs_of_the_front_that_have_one_layout_are_told_apart_as_on_the_terminal() -> None:
    report = drawn().report
    first, *others = report.answer.front
    more = first.plan.model_copy(update={"num_spare_nodes": first.plan.num_spare_nodes + 1})
    same = first.model_copy(update={"design_id": 987_654, "plan": more})
    answer = report.answer.model_copy(update={"front": (first, same, *others)})
    intervals = {**report.step_intervals, same.design_id: report.step_intervals[first.design_id]}
    page = Page(str(explorer(report.model_copy(update={"answer": answer, "step_intervals": intervals}))))
    for plan in (first.plan, more):
        told = f"{layout(plan)} {human.counted(plan.num_spare_nodes, 'spare')}"
        assert sum(text.startswith(told) for text in page.texts) == 1
