"""Do the figures of a report say what a search finds: what flips the choice, what scale does?"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, cast

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.lines import Line2D

from planner.answer.recommend import recommend
from planner.recommended.comparisons import Best
from planner.recommended.recommendation import Design, Recommendation
from planner.report import breakdowns as report_breakdowns
from planner.report.breakdowns import OBJECTIVE_FIELDS, breakdowns
from planner.report.data import Bar, BarsFigure, HistogramFigure, LinesFigure, Part, Range, RangesFigure
from planner.report.designs import EXCESS_NAMES, DesignCloud
from planner.report.fastest import FastestRuns
from planner.report.figures import part_colours, show_figure
from planner.report.flips import flips
from planner.report.front import front_figure
from planner.report.plots import STYLE, drawing
from planner.report.rivals import rivals, sizes_of
from planner.report.scaling import MOST_SIZES, curve_of, curve_title, few_sizes, scaling
from planner.report.sources import report_of_folder
from planner.report.spread import spreads
from planner.report.units import text
from planner.sweep.grid import Sweep, run_sweep
from planner.text import human
from planner.uncertain.sensitivity import LEAST_SHOWN_FRACTION
from planner.uncertain.uncertainty import accuracy_of, step_time_interval
from simulator.accuracy.published_runs import Accuracy
from simulator.domain.job import Job, Objective
from simulator.domain.limits import Limits
from simulator.domain.offer import Estimate, GpuRange
from simulator.domain.options import Factors
from simulator.domain.plan import CheckpointScheme, PlanTable, Recompute
from studies.files.design_log import read_designs
from tests.planner.report_pages import best_of, figure
from tests.planner.report_studies import answered, drawn, job
from tests.support import job_with

if TYPE_CHECKING:
    from constraints.evaluation import Evaluation


def test_pictures_name_the_memory_there_is_and_what_changes() -> None:
    memory, changes = figure("memory"), figure("flips")
    assert isinstance(memory, BarsFigure)
    assert isinstance(changes, RangesFigure)
    (legend,) = drawing(memory, drawn().cloud).legends
    assert "memory capacity" in [label.get_text() for label in legend.get_texts()]
    (axes,) = drawing(changes, drawn().cloud).axes
    assert axes.get_xlabel() == "change from the value used"


def test_replays_that_are_all_alike_stand_in_the_middle_of_a_narrow_picture(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    report, wall_s, cost_usd = drawn().report, np.full(400, 636.0), np.full(400, 3.53)
    cost_usd[0] += 1e-9  # another order of the same sum
    monkeypatch.setattr("planner.report.spread.replayed", lambda *_: (wall_s, cost_usd))
    figures = spreads(report.job, report.answer, cast("Evaluation", None))
    for found, value in zip(figures, (636.0 / 86_400.0, 3.53), strict=True):
        assert found.edges[0] == pytest.approx(0.98 * value)
        assert found.edges[-1] == pytest.approx(1.02 * value)
        (place,) = np.flatnonzero(found.counts)
        assert found.edges[place] + found.edges[place + 1] == pytest.approx(2.0 * value)


def spreads_of(
    monkeypatch: pytest.MonkeyPatch, days: np.ndarray, *, deadline_days: float | None = None, **finish: float
) -> list[HistogramFigure]:
    """Histograms of runs that take so many days for 1 USD a day."""
    report = drawn().report
    assert report.answer.uncertainty is not None
    monkeypatch.setattr("planner.report.spread.replayed", lambda *_: (86_400.0 * days, days))
    limited = report.job.model_copy(update={"limits": Limits(deadline_days=deadline_days)})
    told = report.answer.uncertainty.time_to_train_days.model_copy(update=finish)
    uncertainty = report.answer.uncertainty.model_copy(update={"time_to_train_days": told})
    answer = report.answer.model_copy(update={"uncertainty": uncertainty})
    return spreads(limited, answer, cast("Evaluation", None))


@pytest.mark.parametrize(("deadline_days", "is_drawn"), [(2.4, True), (2.6, False)])
def test_a_limit_is_drawn_up_to_half_a_picture_beyond_it(
    monkeypatch: pytest.MonkeyPatch, deadline_days: float, *, is_drawn: bool
) -> None:
    # All but the last six of 400 runs of one to two days are drawn: up to 1.985 days, and half of 0.985 days more is 2.48.
    finish, _ = spreads_of(monkeypatch, np.linspace(1.0, 2.0, 400), deadline_days=deadline_days)
    assert (finish.num_beyond, sum(finish.counts)) == (6, 394)
    label = f"deadline: {text(deadline_days, 'days')}"
    assert (label in [mark.label for mark in finish.marks]) is is_drawn
    assert (label in finish.note) is not is_drawn


@pytest.mark.parametrize(
    ("half", "late", "told"),
    [
        (0.2, 0.4, "95 % of runs end by 2 January 2026."),
        (1.0, 3.0, "half of the runs end by 3 January 2026 and 95 % by 5 January 2026."),
    ],
)
def test_percentiles_are_told_as_dates_and_marked(
    half: float, late: float, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish, _ = spreads_of(monkeypatch, np.linspace(0.1, 3.5, 400), p5=0.15, p50=half, p95=late)
    start = "If started on 2 January 2026, the date of this answer,"
    assert f"{start} {told}" in finish.note
    assert finish.note.endswith("Not drawn: the largest is 3.50 days.")
    assert finish.title == f"95 % of runs end within {text(late, 'days')}"
    assert [(mark.value, mark.label.partition(":")[0]) for mark in finish.marks] == [
        *((0.15, "5 %"), (half, "median"), (late, "95 %"))
    ]


def test_the_spread_of_the_cost_names_what_prices_alone_change() -> None:
    answer, cost = drawn().report.answer, figure("cost-spread")
    assert isinstance(cost, HistogramFigure)
    assert answer.uncertainty is not None
    assert cost.title == f"95 % of runs cost at most {text(answer.uncertainty.cost_usd.p95, 'usd')}"
    best = best_of(drawn().report)
    low, high = (text(usd, "usd") for usd in (best.cost_low_usd, best.cost_high_usd))
    assert low != high
    assert f"the price range of the hardware alone moves the cost from {low} to {high}." in cost.note


def test_a_run_of_centuries_has_no_date(monkeypatch: pytest.MonkeyPatch) -> None:
    days = np.linspace(1.0, 2.0, 400)
    for last, is_dated in ((36_000.0, True), (5e6, False)):
        finish, _ = spreads_of(monkeypatch, days, p50=30_000.0, p95=last)
        assert ("If started on" in finish.note) is is_dated


def test_replays_that_never_end_have_no_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    days = np.linspace(1.0, 2.0, 400)
    days[7] = np.inf
    assert spreads_of(monkeypatch, days) == []


@pytest.mark.parametrize(("low", "high"), [(0.336, 0.457), (336.0, 457.0), (3.36e6, 4.57e6)])
def test_the_texts_below_a_tornado_stand_apart(low: float, high: float) -> None:
    made = Range(
        label="embodied carbon of the accelerators",
        low_text="0.85 x",
        high_text="2 x",
        at_low=low,
        at_high=high,
    )
    changes = RangesFigure(
        name="x", title="x", note="", quantity="kgco2e", mid=(low + high) / 2, ranges=(made,)
    )
    with mpl.rc_context(STYLE):
        canvas = drawing(changes, drawn().cloud)
        canvas.draw_without_rendering()
        (axes,) = canvas.axes
        texts = [label.get_window_extent() for label in axes.get_xticklabels() if label.get_text()]
    assert len(texts) >= 2
    assert all(left.x1 < right.x0 for left, right in pairwise(texts))


def test_a_tornado_of_cost_begins_with_the_rent_that_all_of_it_is() -> None:
    cost = figure("drivers-cost")
    assert isinstance(cost, RangesFigure)
    rent = cost.ranges[0]
    assert (rent.label, rent.low_text, rent.high_text) == ("rent", "2 USD/GPU-hour", "7 USD/GPU-hour")
    # At 2.6 USD in the middle.
    ends = (cost.mid * 2.0 / 2.6, cost.mid * 7.0 / 2.6)
    assert (rent.at_low, rent.at_high) == pytest.approx(ends)
    shown = f"{text(ends[0], 'usd')} to {text(ends[1], 'usd')}"
    assert cost.title == f"Cost depends most on rent: {shown}"
    for each in cost.ranges:
        assert each.at_low is not None
        assert each.at_high is not None
        assert abs(each.at_high - each.at_low) >= LEAST_SHOWN_FRACTION * cost.mid


@pytest.mark.parametrize(
    ("objectives", "fields"),
    [
        (("carbon", "time_to_train"), ("carbon_kgco2e", "time_to_train_days")),
        (("cost", "deadline_risk"), ("cost_usd", "time_to_train_days")),
        (("deadline_risk",), ("time_to_train_days", "cost_usd")),
    ],
)
def test_the_axes_of_the_front_are_the_first_objectives_then_time_and_cost(
    objectives: tuple[str, ...], fields: tuple[str, str]
) -> None:
    answer = drawn().report.answer.model_copy(update={"objectives": objectives})
    shown = front_figure(answer, drawn().report.step_intervals)
    assert (shown.x_field, shown.y_field) == fields
    assert [(point.x, point.y) for point in shown.points] == [
        tuple(getattr(design, field) for field in fields) for design in answer.front
    ]


def test_a_recommended_design_is_that_and_no_tie_and_has_the_interval_of_its_own_step() -> None:
    report = drawn().report
    answer, best = report.answer, best_of(report)
    assert answer.uncertainty is not None
    uncertainty = answer.uncertainty.model_copy(update={"tied_designs": (best.design_id,)})
    tied = answer.model_copy(update={"uncertainty": uncertainty})
    roles = {point.design_id: point.role for point in front_figure(tied, report.step_intervals).points}
    assert roles[best.design_id] == "recommended"
    for design in answer.front:
        known = step_time_interval(report.job, PlanTable.from_plans([design.plan]), 0, 1.0)
        found = report.step_intervals[design.design_id]
        assert (found.low_fraction, found.high_fraction) == known
        assert 0.0 < found.low_fraction < 1.0 < found.high_fraction


def test_error_bars_are_the_interval_that_the_answer_tells() -> None:
    report = drawn().report
    best, sure = best_of(report), report.answer.uncertainty
    assert sure is not None
    found = report.step_intervals[best.design_id]
    ends_s = found.low_fraction * best.step_time_s, found.high_fraction * best.step_time_s
    assert ends_s == pytest.approx((sure.step_time_low_s, sure.step_time_high_s), rel=1e-12)


def test_a_result_that_has_no_end_reaches_the_edge_of_its_tornado() -> None:
    end = Range(label="failures", low_text="1", high_text="9", at_low=90.0, at_high=None)
    chart = RangesFigure(name="cost", title="", note="", quantity="usd", mid=100.0, ranges=(end,))
    (style,) = re.findall(r'class="reach high" style="left:([\d.]+)%;width:([\d.]+)%"', show_figure(chart))
    assert sum(map(float, style)) == pytest.approx(100.0, abs=0.1)
    assert float(style[1]) > 0.0


def test_parts_beyond_the_seventh_share_a_colour() -> None:
    parts = tuple(Part(label=f"part {number}", value=10.0 - number) for number in range(9))
    bars = BarsFigure(name="cost", title="", note="", quantity="usd", bars=(Bar(label="one", parts=parts),))
    assert list(part_colours(bars).values()) == [0, 1, 2, 3, 4, 5, 6, 7, 7]


def test_a_title_never_breaks_before_a_sign() -> None:
    memory = figure("memory")
    assert isinstance(memory, BarsFigure)
    long = memory.model_copy(update={"title": f"{'x' * 85} +3 % more"})
    shown = drawing(long, drawn().cloud).get_suptitle()
    assert "\n%" not in shown
    assert "+3\N{NO-BREAK SPACE}%" in shown


def least_by(objective: str, *designs: Design) -> tuple[Best, ...]:
    """The first of some designs as the best in an objective; the others equal it."""
    ids = [design.design_id for design in designs]
    made = Best(
        objective=objective,
        design_id=ids[0],
        value=1.0,
        shared_with=tuple(ids[1:]),
        compared_with=None,
        drivers=(),
        changes={},
    )
    return (made,)


def test_of_designs_with_as_low_a_value_the_picture_names_the_one_that_the_answer_names() -> None:
    report = drawn().report
    best = best_of(report).model_copy(update={"cost_usd": 1.0})
    twin = best.model_copy(update={"design_id": 7_777})
    for first, second in ((best, twin), (twin, best)):
        for front in ((first, second), (second, first)):
            answer = report.answer.model_copy(
                update={"front": front, "best_of_each": least_by("cost", first, second)}
            )
            labels = [bar.label for bar in breakdowns(report.job, answer, best)[0].bars]
            (named,) = (label for label in labels if "lowest cost" in label)
            assert named.startswith("recommended, ") == (first is best)


def test_a_picture_of_several_designs_names_the_ranks_of_all() -> None:
    report = drawn().report
    step_seconds = {"compute_s": 2.0, "tensor_comm_s": 1.0}

    def of(design: Design, tensor: int, context: int) -> Design:
        split = {"tensor_parallel": tensor, "context_parallel": context}
        changed = {"plan": design.plan.model_copy(update=split), "step_seconds": step_seconds}
        return design.model_copy(update=changed)

    def named(best: Design, *others: Design) -> set[str]:
        best_of_each = least_by("time_to_train", *others) if others else ()
        answer = report.answer.model_copy(update={"front": others, "best_of_each": best_of_each})
        step = next(each for each in breakdowns(report.job, answer, best) if each.name == "step")
        return {part.label for bar in step.bars for part in bar.parts} - {"compute"}

    best, others = best_of(report), [each for each in report.answer.front if each != best_of(report)]
    assert named(of(best, 1, 2)) == {"context parallelism"}
    assert named(of(best, 1, 2), of(others[0], 2, 1)) == {"tensor and context parallelism"}


def test_what_only_another_design_spends_is_drawn_too() -> None:
    report = drawn().report
    best, other = best_of(report), next(each for each in report.answer.front if each != best_of(report))
    parts = [{"rent_usd": 100.0, "storage_usd": 0.0}, {"rent_usd": 90.0, "storage_usd": 20.0}]
    own, dear = (
        each.model_copy(update={"cost_parts_usd": its})
        for each, its in zip((best, other), parts, strict=True)
    )
    answer = report.answer.model_copy(update={"front": (dear,), "best_of_each": least_by("energy", dear)})
    cost = breakdowns(report.job, answer, own)[0]
    assert [[part.value for part in bar.parts] for bar in cost.bars] == [[100.0, 0.0], [90.0, 20.0]]


@pytest.mark.parametrize(
    ("seconds", "title"),
    [
        (
            {"productive_s": 80.0, "lost_work_s": 5.0, "restart_s": 15.0},
            "80.0 % of 100 s are productive steps; the largest loss is restarts (15.0 %)",
        ),
        ({"productive_s": 100.0, "lost_work_s": 0.0}, "All of 100 s are productive steps"),
    ],
)
def test_the_title_of_a_run_names_its_largest_loss(seconds: dict[str, float], title: str) -> None:
    report = drawn().report
    best = best_of(report).model_copy(update={"run_seconds": seconds})
    alone = report.answer.model_copy(update={"front": (), "best_of_each": ()})
    figures = breakdowns(report.job, alone, best)
    assert [each.title for each in figures if each.name == "run"] == [title]


def test_the_fullest_stage_of_a_long_pipeline_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_breakdowns, "MOST_STAGES", 1)  # the first one
    report = drawn().report
    best = best_of(report)
    plan = best.plan.model_copy(
        update={"pipeline_parallel": 2, "data_parallel": best.plan.data_parallel // 2}
    )
    workload = report.job.workload.model_copy(update={"stage_layers": (4, 28)})
    job_ = report.job.model_copy(update={"workload": workload})
    memory = breakdowns(job_, report.answer, best.model_copy(update={"plan": plan}))[-1]
    assert [bar.label for bar in memory.bars] == ["stage 0", "stage 1"]
    assert memory.title.startswith("The fullest of 2 stages, stage 1,")


def test_the_title_of_the_memory_names_the_fullest_stage() -> None:
    memory = figure("memory")
    assert isinstance(memory, BarsFigure)
    peaks = [sum(part.value for part in bar.parts) for bar in memory.bars]
    fullest = memory.bars[peaks.index(max(peaks))]
    assert fullest.capacity is not None
    share = human.percent(max(peaks) / fullest.capacity)
    whose = f"The fullest of {len(peaks)} stages, {fullest.label}," if len(peaks) > 1 else "An accelerator"
    assert memory.title.startswith(f"{whose} fills {share} of its ")


def test_small_parts_are_drawn_and_rounding_and_what_is_not_there_are_none() -> None:
    memory = figure("memory")
    assert isinstance(memory, BarsFigure)
    held = {part.label for bar in memory.bars for part in bar.parts if part.value > 0.0}
    assert {part.label for bar in memory.bars for part in bar.parts} == held
    # A part of half a per cent, and what rounding of a difference leaves of another one.
    parts = {"rent_usd": 995.0, "storage_usd": 5.0, "electricity_usd": 1e-10}
    best = best_of(drawn().report).model_copy(update={"cost_parts_usd": parts})
    alone = drawn().report.answer.model_copy(update={"front": (), "best_of_each": ()})
    cost = breakdowns(job(), alone, best)[0]
    assert [part.value for part in cost.bars[0].parts] == [995.0, 5.0]


def test_the_note_of_a_single_bar_is_a_sentence() -> None:
    report = drawn().report
    best = best_of(report)
    alone = report.answer.model_copy(update={"front": (best,), "best_of_each": ()})
    notes = {each.name: each.note for each in breakdowns(report.job, alone, best)}
    assert notes["carbon"].startswith("Location-based grid")
    assert all(not note or (note[0].isupper() and note.endswith(".")) for note in notes.values())


@pytest.mark.parametrize(
    ("num_tied", "told"),
    [
        (0, "form the front"),
        (1, "; 1 of them is indistinguishable"),
        (2, "; 2 of them are indistinguishable"),
    ],
)
def test_the_title_of_the_front_counts_the_designs_that_are_tied(num_tied: int, told: str) -> None:
    answer = drawn().report.answer
    assert answer.uncertainty is not None
    tied = tuple(design.design_id for design in answer.front[:num_tied])
    uncertainty = answer.uncertainty.model_copy(update={"tied_designs": tied})
    shown = front_figure(
        answer.model_copy(update={"uncertainty": uncertainty}), drawn().report.step_intervals
    )
    assert told in shown.title
    assert ("indistinguishable" in shown.title) == (num_tied > 0)


def test_the_legend_of_the_front_has_plain_marks_that_can_be_seen() -> None:
    """Of a ring and error bars of about its size, caps as wide as the ring would make a crossed square."""
    shown = front_figure(drawn().report.answer, drawn().report.step_intervals)
    roles = ("recommended", "front", "tied")
    points = [
        point.model_copy(update={"role": role}) for point, role in zip(shown.points, roles, strict=True)
    ]
    canvas = drawing(shown.model_copy(update={"points": tuple(points)}), drawn().cloud)
    (legend,) = canvas.legends
    marks = {mark.get_label(): mark for mark in legend.legend_handles if isinstance(mark, Line2D)}
    assert set(marks) == {text.get_text() for text in legend.get_texts()}
    assert set(marks) >= {"dominated", "on the front", "recommended", "indistinguishable from it"}
    assert all(mark.get_markersize() >= 6.0 for mark in marks.values())
    ring = marks["indistinguishable from it"]
    caps = {
        line.get_color(): line.get_markersize() for line in canvas.axes[0].lines if line.get_marker() == "|"
    }
    assert ring.get_markerfacecolor() == "none"
    assert min(caps.values()) < ring.get_markersize() / 2.0


@pytest.mark.parametrize(
    ("small", "name"), [((0.1,), "part 3"), ((0.1, 0.05), "other")], ids=["one small part", "two small parts"]
)
def test_page_and_picture_call_small_parts_the_same(small: tuple[float, ...], name: str) -> None:
    parts = tuple(
        Part(label=f"part {row}", value=value) for row, value in enumerate((60.0, 30.0, 9.0, *small))
    )
    bars = BarsFigure(
        name="cost", title="cost", note="", bars=(Bar(label="all", parts=parts),), quantity="usd"
    )
    (legend,) = drawing(bars, drawn().cloud).legends
    shown = [label.get_text() for label in legend.get_texts()]
    assert shown == ["part 0", "part 1", "part 2", name]
    page = str(show_figure(bars))
    assert [each in page for each in (f"</span>{label}</li>" for label in shown)] == [True] * len(shown)


@pytest.mark.parametrize(
    ("words", "columns"), [("part", 4), ("tensor and context parallelism", 2), ("x" * 70, 1)]
)
def test_a_legend_has_the_columns_for_which_the_picture_has_room(words: str, columns: int) -> None:
    parts = tuple(Part(label=f"{words} {row}", value=10.0) for row in range(6))
    bars = BarsFigure(name="step", title="step", note="", bars=(Bar(label="all", parts=parts),), quantity="s")
    with mpl.rc_context(STYLE):
        canvas = drawing(bars, drawn().cloud)
        canvas.draw_without_rendering()
    (legend,) = canvas.legends
    extent = legend.get_window_extent()
    assert 0.0 < extent.x0 < extent.x1 < canvas.bbox.width
    assert len({round(text.get_window_extent().x0) for text in legend.get_texts()}) == columns


def test_rent_flips_the_choice_where_the_product_of_objectives_or_the_budget_says() -> None:
    """The compromise has the least product of objectives, and rent is all of the cost: both points are closed forms."""
    report = drawn().report
    best, job_ = best_of(report), report.job
    fields = [OBJECTIVE_FIELDS[objective][0] for objective in job_.objectives]

    def product(design: Design) -> float:
        return float(math.prod(getattr(design, field) for field in fields))

    others = [design for design in report.answer.front if design.plan.offer != best.plan.offer]
    assert others
    assert job_.limits.budget_usd is not None
    expected = min(
        job_.limits.budget_usd / best.cost_usd, min(product(design) for design in others) / product(best)
    )
    ranges = figure("flips")
    assert isinstance(ranges, RangesFigure)
    rent = next(each for each in ranges.ranges if each.label == f"rent of {best.accelerator}")
    assert rent.at_high is not None
    (mark,) = rent.marks
    # The stretch from the middle to the high end is halved ten times.
    assert mark.value == pytest.approx(expected - 1.0, abs=rent.at_high / 2**10)
    assert mark.value >= expected - 1.0
    assert ("because the recommended one violates budget" in rent.note) == (
        expected == job_.limits.budget_usd / best.cost_usd
    )


def test_inputs_that_change_the_choice_come_first_and_then_those_with_the_widest_ranges() -> None:
    changes = figure("flips")
    assert isinstance(changes, RangesFigure)
    order = []
    for each in changes.ranges:
        assert each.at_low is not None
        assert each.at_high is not None
        assert each.at_low <= 0.0 <= each.at_high  # a range contains the value used
        order.append(
            (min((abs(mark.value) for mark in each.marks), default=math.inf), each.at_low - each.at_high)
        )
    assert order == sorted(order)
    assert len({width for nearest, width in order if math.isinf(nearest)}) > 1
    marks = [mark for each in changes.ranges for mark in each.marks]
    assert all(mark.label.startswith("below" if mark.value < 0.0 else "above") for mark in marks)
    first = changes.ranges[0]
    closest = min(first.marks, key=lambda mark: abs(mark.value))
    assert changes.title.endswith(f"the closest change is {first.label} {closest.label}")


def test_nothing_flips_where_one_design_is_best_in_everything() -> None:
    report = drawn().report
    best = best_of(report)
    alone = report.answer.model_copy(update={"front": (best,)})
    own = report.job.offers[best.plan.offer]
    size = GpuRange(min=best.plan.num_gpus, max=best.plan.num_gpus)
    assert best.plan.offer == 0
    offers = (own.model_copy(update={"num_gpus": size}),)
    unlimited = report.job.model_copy(update={"limits": Limits(), "offers": offers})
    found = flips_of(unlimited, alone)
    assert all(not each.marks for each in found.ranges)
    assert found.title == "No single input changes the recommendation"
    # The cluster is rented, so that what an owner pays moves nothing; nothing is capped or taken back.
    idle = {"building", "maintenance", "cost of capital", "slow-down by the cap", "interruptions"}
    assert not idle & {each.label for each in found.ranges}


def test_one_input_at_a_time_and_all_of_them_together_are_told_apart() -> None:
    report = drawn().report
    unsure = report.answer.input_uncertainty
    assert unsure is not None
    ranges = figure("flips")
    assert isinstance(ranges, RangesFigure)
    assert "all steps on the same accelerators vary together" in ranges.note
    told = f"{human.percent(unsure.recommended_fraction)} of {unsure.num_draws:,} draws recommend the same design"
    assert told in ranges.note
    without = report.answer.model_copy(update={"input_uncertainty": None})
    assert "draws" not in flips_of(report.job, without).note


def flips_of(job_: Job, answer: Recommendation) -> RangesFigure:
    assert answer.recommendation is not None
    best = answer.recommendation
    return flips(job_, answer, best, accuracy_of_best(job_, best), FastestRuns(job_, best))


def accuracy_of_best(job_: Job, best: Design) -> Accuracy:
    return accuracy_of(job_, PlanTable.from_plans([best.plan]), 0)


def rented(job_: Job, *, h100: float, a100: float) -> Job:
    """The job with one quote for each accelerator, for cost alone and without limits."""
    prices = [Estimate(low=price, mid=price, high=price) for price in (h100, a100)]
    offers = tuple(
        offer.model_copy(update={"rent_usd_per_gpu_hour": price})
        for offer, price in zip(job_.offers, prices, strict=True)
    )
    return job_.model_copy(update={"offers": offers, "objectives": (Objective.COST,), "limits": Limits()})


@pytest.mark.short(1)
@pytest.mark.parametrize("own_site", [0, 1])
def test_the_grids_of_all_sites_move_also_where_the_recommended_design_stands_elsewhere(
    own_site: int,
) -> None:
    norway = job_with(site="norway").site
    offers = [
        offer.model_copy(update={"site": norway if place == own_site else None})
        for place, offer in enumerate(job().offers)
    ]
    objectives = (Objective.CARBON,)
    both = job().model_copy(update={"offers": tuple(offers), "objectives": objectives, "limits": Limits()})
    found = flips_of(both, recommend(both, seed=1, tracking=False, with_report=False))
    grids = [each.label for each in found.ranges if each.label.startswith("grid carbon")]
    assert sorted(grids) == [f"grid carbon of {place}" for place in ("norway", job().site.region)]


def test_the_error_of_a_step_is_that_of_one_kind_of_accelerator_wherever_it_stands() -> None:
    """Twice the same accelerators at other rents: longer steps make both dearer alike, so the choice stays."""
    here = rented(job(), h100=1.0, a100=9.0)
    there = here.offers[0].model_copy(
        update={
            "site": job_with(site="norway").site,
            "rent_usd_per_gpu_hour": Estimate(low=1, mid=1.01, high=2),
        }
    )
    wide = here.input_factors.model_copy(update={"step_time": Factors(low=0.8, high=1.25)})
    twice = here.model_copy(update={"offers": (*here.offers, there), "input_factors": wide})
    found = flips_of(twice, recommend(twice, seed=1, tracking=False, with_report=False))
    steps = {each.label: each for each in found.ranges if each.label.startswith("step time")}
    # The A100 are too dear to be chosen with any steps of theirs.
    assert steps.keys() == {"step time, h100-sxm5-80gb", "step time, a100-sxm4-80gb"}
    assert all(step.at_high == pytest.approx(0.25) and not step.marks for step in steps.values())


@pytest.mark.parametrize(("site", "place"), [("norway", ""), ("us-iowa", " (offer 0)")])
def test_a_design_that_takes_as_long_is_no_tie_if_it_costs_less(site: str, place: str) -> None:
    """Twice the same accelerators of one size: rent is all of the cost, and half more is asked for the others."""
    here, size = rented(job(), h100=1.0, a100=9.0), {"num_gpus": GpuRange(min=16, max=16)}
    own = here.offers[0].model_copy(update=size)
    dear = {"site": job_with(site=site).site, "rent_usd_per_gpu_hour": Estimate(low=1.5, mid=1.5, high=1.5)}
    objectives = (Objective.TIME, Objective.COST)
    both = here.model_copy(update={"offers": (own, own.model_copy(update=dear)), "objectives": objectives})
    answer = recommend(both, seed=1, tracking=False, with_report=False)
    name = f"rent of h100-sxm5-80gb in {both.site.region}{place}"
    (rent,) = (each for each in flips_of(both, answer).ranges if each.label == name)
    (mark,) = rent.marks
    error = accuracy_of_best(both, best_of_answer(answer)).mean_absolute_error_fraction
    # A quote is tried up to four times, in a stretch that is halved ten times.
    assert 1.0 + mark.value == pytest.approx(1.5 / (1.0 - error), abs=3.0 / 2**9)


def test_an_input_that_moves_no_objective_may_still_break_a_limit() -> None:
    """Power costs nothing where the cluster is rented, and there may not be more of it."""
    here = rented(job(), h100=1.0, a100=9.0)
    alone = here.model_copy(update={"offers": here.offers[:1]})
    answer = recommend(alone, seed=1, tracking=False, with_report=False)
    limits = Limits(power_w=1.01 * best_of_answer(answer).peak_power_w)
    (power,) = (
        each
        for each in flips_of(alone.model_copy(update={"limits": limits}), answer).ranges
        if each.label.startswith("power while computing")
    )
    (mark,) = power.marks
    assert 0.0 < mark.value < 0.02
    assert "because the recommended one violates power" in power.note


def test_what_is_better_without_any_change_is_not_what_a_change_brings() -> None:
    """A search that was stopped early may recommend full recomputation, which every layout without it beats."""
    report = drawn().report
    best = best_of(report)
    plan = best.plan.model_copy(update={"recompute": Recompute.FULL})
    slow = best.model_copy(update={"plan": plan})
    size = GpuRange(min=best.plan.num_gpus, max=best.plan.num_gpus)
    own = report.job.offers[best.plan.offer].model_copy(update={"num_gpus": size})
    unlimited = report.job.model_copy(update={"limits": Limits(), "offers": (own,)})
    found = flips_of(unlimited, report.answer.model_copy(update={"front": (slow,), "recommendation": slow}))
    assert found.title == "No single input changes the recommendation"


def test_rivals_have_their_site_where_the_job_has_several() -> None:
    answer, one = drawn().report.answer, drawn().report.job
    norway = job_with(site="norway").site
    two = one.model_copy(
        update={"offers": (one.offers[0].model_copy(update={"site": norway}), *one.offers[1:])}
    )
    best = best_of(drawn().report)
    for job_, places in (two, {"norway", one.site.region}), (one, {""}):
        found = rivals(job_, answer, best, FastestRuns(job_, best))
        assert len({rival.plan for rival in found}) == len(found)
        told = [rival.words for rival in found]
        assert {words.partition(",")[0].partition(" in ")[2] for words in told if "not on" in words} == places


def test_layouts_beside_the_front_are_saved_and_capped_as_the_recommended_design_is() -> None:
    report = drawn().report
    own = {
        "checkpoint_scheme": CheckpointScheme.SYNC_SHARDED,
        "checkpoint_interval_s": 600.0,
        "power_cap_fraction": 0.8,
    }
    best = best_of(report)
    best = best.model_copy(update={"plan": best.plan.model_copy(update=own)})
    found = rivals(report.job, report.answer, best, FastestRuns(report.job, best))
    beside = [rival.plan for rival in found if rival.design_id is None]
    assert beside
    assert all(getattr(plan, name) == value for plan in beside for name, value in own.items())


def test_a_quote_is_searched_beyond_itself_for_offers_that_are_not_on_the_front() -> None:
    """Rent is all of the cost: the other offer wins when the ratio of rents is the ratio of the hours of both."""
    cheap = recommend(rented(job(), h100=1.0, a100=0.9), seed=1, tracking=False, with_report=False)
    best = best_of_answer(cheap)
    assert {design.accelerator for design in cheap.front} == {best.accelerator} == {"h100-sxm5-80gb"}
    found = flips_of(rented(job(), h100=1.0, a100=0.9), cheap)
    own, other = (
        next(each for each in found.ranges if each.label == f"rent of {name}")
        for name in ("h100-sxm5-80gb", "a100-sxm4-80gb")
    )
    (mark,), (beyond,) = own.marks, other.marks
    assert mark.value > 0 > beyond.value
    # A quote has no range; it is shown as far as it was tried, from a quarter to four times.
    assert (own.low_text, own.high_text) == ("0.25 USD/GPU-hour", "4 USD/GPU-hour")
    assert [(each.at_low, each.at_high) for each in (own, other)] == [(-0.75, 3.0)] * 2
    # What leaves the ratio of both rents at the flip the same: 1 + mark = 1 / (1 + beyond), to the halvings.
    assert (1.0 + mark.value) * (1.0 + beyond.value) == pytest.approx(1.0, abs=0.02)
    assert "a100-sxm4-80gb" in own.note
    assert "not on the front" in own.note


def test_failures_of_one_kind_of_accelerator_are_not_those_of_another() -> None:
    """Rent is all of the cost, and the other offer costs one per cent more: it wins if only the best one fails more often."""
    wide = job().input_factors.model_copy(update={"failure_rate": Factors(low=1.0, high=30.0)})
    often = job().reliability.model_copy(update={"failures_per_1000_node_days": 200.0})
    job_ = job().model_copy(update={"input_factors": wide, "reliability": often})
    costs = {
        asked.offers[0].accelerator.id: best_of_answer(
            recommend(asked, seed=1, tracking=False, with_report=False)
        ).cost_usd
        for both in [rented(job_, h100=1.0, a100=1.0)]
        for asked in [both.model_copy(update={"offers": (offer,)}) for offer in both.offers]
    }
    a100 = 1.01 * costs["h100-sxm5-80gb"] / costs["a100-sxm4-80gb"]
    near = rented(job_, h100=1.0, a100=a100)
    found = flips_of(near, recommend(near, seed=1, tracking=False, with_report=False))
    marks = {each.label: each.marks for each in found.ranges if each.label.startswith("failures")}
    assert len(marks["failures, h100-sxm5-80gb"]) == 1
    assert marks["failures, a100-sxm4-80gb"] == ()


@pytest.mark.long
def test_offers_that_are_beaten_may_win_without_spares_too() -> None:
    """Rent is all of the cost: the other offer wins when what it costs is less by more than the error of a step."""
    spares = job().search.model_copy(update={"with_spares": (True, False), "num_refinements": 0})
    both = rented(job(), h100=1.0, a100=0.9).model_copy(update={"search": spares})
    answer = recommend(both, seed=1, tracking=False, with_report=False)
    best, other = (
        best_of_answer(recommend(asked, seed=1, tracking=False, with_report=False))
        for asked in (both, both.model_copy(update={"offers": both.offers[1:]}))
    )
    assert (best.accelerator, other.accelerator) == ("h100-sxm5-80gb", "a100-sxm4-80gb")
    assert best.plan.num_spare_nodes == other.plan.num_spare_nodes == 0
    own = next(each for each in flips_of(both, answer).ranges if each.label == f"rent of {best.accelerator}")
    error = accuracy_of_best(both, best).mean_absolute_error_fraction
    expected = other.cost_usd / best.cost_usd / (1.0 - error)
    # A quote is tried up to four times, in a stretch that is halved ten times.
    assert 1.0 + own.marks[-1].value == pytest.approx(expected, abs=3.0 / 2**9)


def best_of_answer(answer: Recommendation) -> Design:
    assert answer.recommendation is not None
    return answer.recommendation


def test_accelerators_of_too_few_sizes_for_a_curve_are_named(tmp_path: Path) -> None:
    offers = {offer.accelerator.id: offer for offer in job().offers}
    a100 = offers["a100-sxm4-80gb"]
    fewest, cheap = a100.num_gpus.min, Estimate(low=0.1, mid=0.1, high=0.1)
    one_size = {"num_gpus": GpuRange(min=fewest, max=fewest), "rent_usd_per_gpu_hour": cheap}
    offers[a100.accelerator.id] = a100.model_copy(update=one_size)
    few = job().model_copy(update={"offers": tuple(offers.values()), "limits": Limits()})
    recommend(few, seed=1, tracking=False, with_report=False, output=tmp_path / "answer")
    report = report_of_folder(tmp_path / "answer").report
    assert {design.accelerator for design in report.answer.front} == set(offers)
    (lines,) = (each for each in report.figures if each.name == "scaling")
    assert isinstance(lines, LinesFigure)
    assert [line.label for line in lines.lines] == ["h100-sxm5-80gb"]
    assert lines.note.endswith(" Not drawn: a100-sxm4-80gb, with fewer than 2 such sizes.")


def test_accelerators_that_are_not_on_the_front_are_drawn_behind_those_on_it(tmp_path: Path) -> None:
    """Who has two offers asks of the one that was not taken, too."""
    offers = {offer.accelerator.id: offer for offer in job().offers}
    dear = Estimate(low=50.0, mid=50.0, high=50.0)
    offers["a100-sxm4-80gb"] = offers["a100-sxm4-80gb"].model_copy(update={"rent_usd_per_gpu_hour": dear})
    objectives = (Objective.TIME, Objective.COST)
    changed = {"offers": tuple(offers.values()), "limits": Limits(), "objectives": objectives}
    recommend(
        job().model_copy(update=changed),
        seed=1,
        tracking=False,
        with_report=False,
        output=tmp_path / "answer",
    )
    report = report_of_folder(tmp_path / "answer").report
    assert {design.accelerator for design in report.answer.front} == {"h100-sxm5-80gb"}
    for name in ("scaling", "scaling-cost"):
        (lines,) = (each for each in report.figures if each.name == name)
        assert isinstance(lines, LinesFigure)
        assert [line.label for line in lines.lines] == ["h100-sxm5-80gb", "a100-sxm4-80gb"]


def test_accelerators_beyond_the_third_are_named(tmp_path: Path) -> None:
    names = ("h100-sxm5-80gb", "h200-sxm-141gb", "b200-sxm-180gb", "mi300x")
    rents = [{"accelerator": name, "num_gpus": {"min": 8, "max": 16}} for name in names]
    layouts = {"tensor_parallel": [1], "pipeline_parallel": [1], "checkpoint_schemes": ["async"]}
    four = job_with(*(rent | {"rent_usd_per_gpu_hour": 2.0} for rent in rents), search=layouts)
    recommend(four, seed=1, tracking=False, with_report=False, output=tmp_path / "answer")
    report = report_of_folder(tmp_path / "answer").report
    (lines,) = (each for each in report.figures if each.name == "scaling")
    assert isinstance(lines, LinesFigure)
    drawn_names = [line.label for line in lines.lines]
    (left_out,) = set(names) - set(drawn_names)
    assert drawn_names[0] == best_of(report).accelerator
    assert lines.note.endswith(f" Not compared: {left_out}; at most 3 accelerators are drawn.")


@pytest.mark.parametrize(
    ("least", "most", "sizes"),
    [
        (64, 1024, [64, 128, 256, 512, 576, 1024]),
        (72, 2304, [72, 128, 256, 512, 576, 1024, 2048, 2304]),
        (96, 100, [96, 100]),
        (8, 8, [8]),
    ],
)
def test_sizes_of_an_offer_are_its_ends_and_powers_of_two(least: int, most: int, sizes: list[int]) -> None:
    offer = {
        "accelerator": "gb200",
        "num_gpus": {"min": least, "max": most},
        "rent_usd_per_gpu_hour": 5.0,
    }
    assert sizes_of(job_with(offer), 0, 576, most=10) == sizes


def test_an_accelerator_that_is_rented_and_bought_is_drawn_over_the_sizes_of_both_offers(
    tmp_path: Path,
) -> None:
    """A few nodes are for sale, more are for rent: bought ones are the whole front, since they cost next to nothing."""
    both = [
        {"accelerator": "h100-sxm5-80gb", "num_gpus": {"min": 8, "max": 32}, "rent_usd_per_gpu_hour": 50.0},
        {"accelerator": "h100-sxm5-80gb", "num_gpus": {"min": 8, "max": 16}, "purchase_usd_per_node": 1.0},
    ]
    layouts = {"tensor_parallel": [1], "pipeline_parallel": [1], "checkpoint_schemes": ["async"]}
    asked = job_with(*both, search=layouts, objectives=["cost"])
    recommend(asked, seed=1, tracking=False, with_report=False, output=tmp_path / "answer")
    report = report_of_folder(tmp_path / "answer").report
    assert {design.plan.offer for design in report.answer.front} == {1}
    figures = {each.name: each for each in report.figures if isinstance(each, LinesFigure)}
    (line,) = figures["scaling"].lines
    assert (min(line.x), max(line.x)) == (8.0, 32.0)
    assert "Rented or bought, whichever is cheaper at a size: h100-sxm5-80gb." in figures["scaling-cost"].note


def test_of_many_sizes_those_that_split_well_are_drawn() -> None:
    """Sizes that are no power of two cost half more, as those of which the last replica gets less work."""
    powers = [2**power for power in range(6, 12)]
    costs = {size: float(size) * (1.0 if size in powers else 1.5) for size in range(64, 2_049, 16)}
    sizes = few_sizes(costs)
    assert {64, 2_048} <= sizes
    assert len(sizes) <= MOST_SIZES + 2
    # Each of ten groups spans 200 sizes; from the second on, no group but those that a power of two is in has one to draw.
    assert {512, 1_024} <= sizes
    assert few_sizes({}) == set()
    assert max(few_sizes({size: cost for size, cost in costs.items() if size < 2_048})) == 2_032


def costs_drawn(answer: Recommendation, best: Design, cloud: DesignCloud) -> dict[float, float]:
    """USD by size of the accelerators of a design."""
    figures = scaling(drawn().report.job, answer, best, cloud, FastestRuns(drawn().report.job, best))
    (costs,) = (each for each in figures if each.name == "scaling-cost")
    (line,) = (each for each in costs.lines if each.label == best.accelerator)
    return dict(zip(line.x, line.y, strict=True))


def test_the_recommended_size_is_drawn_where_a_neighbour_is_cheaper() -> None:
    best, cloud, answer = best_of(drawn().report), drawn().cloud, drawn().report.answer
    code = cloud.accelerators.index(best.accelerator)
    sizes = np.cumsum(np.full(len(cloud), 8.0))
    dearer_by_size = replace(
        cloud,
        numbers={**cloud.numbers, "num_gpus": sizes, "cost_usd": sizes},
        codes={**cloud.codes, "accelerator": np.full(len(cloud), code)},
        broken=np.zeros_like(cloud.broken),
    )
    place = len(cloud) // 2 + 5
    own, other = int(sizes[place]), int(sizes[place + 1])
    chosen = best.model_copy(update={"plan": best.plan.model_copy(update={"num_gpus": own})})
    drawn_sizes = costs_drawn(answer.model_copy(update={"front": ()}), chosen, dearer_by_size)
    assert own in drawn_sizes
    assert other not in drawn_sizes


def test_of_a_size_with_a_cheaper_design_the_front_has_not_the_cost() -> None:
    best, answer = best_of(drawn().report), drawn().report.answer
    dear = best.model_copy(update={"cost_usd": 2.0 * best.cost_usd})
    found = costs_drawn(answer.model_copy(update={"front": (dear,)}), best, drawn().cloud)
    assert found[best.plan.num_gpus] <= best.cost_usd * (1.0 + 1e-9)


def test_an_offer_of_two_sizes_has_its_curves_too(tmp_path: Path) -> None:
    (h100,) = (offer for offer in job().offers if offer.accelerator.id == "h100-sxm5-80gb")
    fewest = h100.num_gpus.min
    two_sizes = h100.model_copy(update={"num_gpus": GpuRange(min=fewest, max=2 * fewest)})
    few = job().model_copy(update={"offers": (two_sizes,), "limits": Limits()})
    recommend(few, seed=1, tracking=False, with_report=False, output=tmp_path / "answer")
    figures = {each.name: each for each in report_of_folder(tmp_path / "answer").report.figures}
    for name in ("scaling", "scaling-cost"):
        lines = figures[name]
        assert isinstance(lines, LinesFigure)
        assert [line.x for line in lines.lines] == [(fewest, 2 * fewest)]
    assert figures["scaling"].title.startswith("Every doubling pays off from ")


def test_scaling_is_what_a_sweep_or_the_study_finds_and_falls_with_every_size() -> None:
    lines = figure("scaling")
    assert isinstance(lines, LinesFigure)
    report = drawn().report
    best = best_of(report)
    own = lines.lines[0]
    assert own.label == best.accelerator
    assert all(later < earlier for earlier, later in pairwise(own.y))
    search = report.job.search.model_copy(update={"zero_stages": (best.plan.zero_stage,)})
    one = report.job.model_copy(update={"offers": (report.job.offers[best.plan.offer],), "search": search})
    size = int(own.x[1])
    sweep = Sweep.model_validate(
        {"job": one.model_dump(mode="json"), "num_gpus": [size], "checkpoint_schemes": ["async"]}
    )
    (point,) = run_sweep(sweep)
    assert point.result is not None
    table = read_designs(answered() / "designs.parquet")
    excess = np.stack([table[f"excess_{name}"] for name in ("memory", "host_memory", "progress")])
    num_gpus, days = (table[name].astype(np.float64) for name in ("num_gpus", "time_to_train_days"))
    rows = (excess.astype(np.float64) <= 0.0).all(axis=0) & (table["accelerator"] == best.accelerator)
    fastest = min(days[rows & (num_gpus <= size)].min(), point.result.scores.time_to_train_s[0] / 86_400.0)
    assert own.y[1] == pytest.approx(fastest, rel=1e-9)


def test_the_cheapest_size_is_that_of_the_cheapest_design_of_the_front() -> None:
    """Cost is an objective, so that the cheapest design of all is on the front; and the table has the least of each size."""
    lines, report = figure("scaling-cost"), drawn().report
    assert isinstance(lines, LinesFigure)
    cheapest = min(report.answer.front, key=lambda design: design.cost_usd)
    words = (
        f"Lowest cost: {text(cheapest.cost_usd, 'usd')} with {cheapest.plan.num_gpus} {cheapest.accelerator}"
    )
    assert lines.title == words
    table = read_designs(answered() / "designs.parquet")
    for line in lines.lines:
        for size, cost_usd in zip(line.x, line.y, strict=True):
            rows = table["is_feasible"] & (table["num_gpus"] == size) & (table["accelerator"] == line.label)
            assert cost_usd == pytest.approx(table["cost_usd"][rows].min(), rel=0.001)
    for design in report.answer.front:
        for line in lines.lines:
            if line.label == design.accelerator and design.plan.num_gpus in line.x:
                assert line.y[line.x.index(design.plan.num_gpus)] <= design.cost_usd


def test_the_cost_of_a_size_is_that_of_a_design_that_keeps_all_limits() -> None:
    report, cloud = drawn().report, drawn().cloud
    best, answer = best_of(report), report.answer.model_copy(update={"front": ()})
    is_own = (cloud.accelerator == cloud.accelerators.index(best.accelerator)) & (cloud.broken == 0)
    rows = np.flatnonzero(is_own & (cloud.num_gpus == best.plan.num_gpus))
    cheapest, second = rows[np.argsort(cloud.cost_usd[rows])[:2]]
    assert cloud.cost_usd[cheapest] < cloud.cost_usd[second]
    late = cloud.broken.copy()
    late[cheapest] = 1 << EXCESS_NAMES.index("deadline_days")
    figures = scaling(report.job, answer, best, replace(cloud, broken=late), FastestRuns(report.job, best))
    (costs,) = (each for each in figures if each.name == "scaling-cost")
    (own,) = (line for line in costs.lines if line.label == best.accelerator)
    assert own.y[own.x.index(best.plan.num_gpus)] == cloud.cost_usd[second]


def test_hardware_that_costs_nothing_has_no_place_among_costs() -> None:
    report, cloud = drawn().report, drawn().cloud
    best, answer = best_of(report), report.answer.model_copy(update={"front": ()})
    free = replace(cloud, numbers={**cloud.numbers, "cost_usd": np.zeros(len(cloud))})
    fastest = FastestRuns(report.job, best)
    given = best.model_copy(update={"cost_usd": 0.0})
    assert [each.name for each in scaling(report.job, answer, given, free, fastest)] == ["scaling"]
    own = cloud.accelerator == cloud.accelerators.index(best.accelerator)
    partly = replace(cloud, numbers={**cloud.numbers, "cost_usd": np.where(own, cloud.cost_usd, 0.0)})
    drawn_figures = {each.name: each for each in scaling(report.job, answer, best, partly, fastest)}
    costs = drawn_figures["scaling-cost"]
    assert {line.label for line in costs.lines} == {best.accelerator}
    assert min(usd for line in costs.lines for usd in line.y) > 0.0
    show_figure(costs)


@pytest.mark.parametrize(("name", "joins"), [("scaling", "-"), ("scaling-cost", "None")])
def test_pictures_join_the_points_of_a_curve_only_where_what_lies_between_follows(
    name: str, joins: str
) -> None:
    lines = figure(name)
    assert isinstance(lines, LinesFigure)
    (axes,) = drawing(lines, drawn().cloud).axes
    curves = [curve for curve in axes.get_lines() if curve.get_marker() == "o"]
    assert {curve.get_linestyle() for curve in curves} == {joins}
    assert len(curves) == len(lines.lines)


def test_no_design_of_the_front_is_faster_than_thecurve_of_times() -> None:
    lines = figure("scaling")
    assert isinstance(lines, LinesFigure)
    curves = {line.label: dict(zip(line.x, line.y, strict=True)) for line in lines.lines}
    shown = [
        (design.time_to_train_days, curves[design.accelerator].get(design.plan.num_gpus))
        for design in drawn().report.answer.front
        if design.accelerator in curves
    ]
    assert sum(days is not None for _, days in shown) > 2
    assert all(days is None or days <= own for own, days in shown)


@pytest.mark.parametrize(
    ("fastest", "end", "title"),
    [
        # A size that splits badly takes the run of fewer accelerators, and is no double of what it hardly exceeds.
        (
            [(1024, (1024, 48.7)), (2048, (1952, 22.7)), (3904, (3904, 12.0)), (4096, (3904, 12.0))],
            None,
            "Every doubling pays off from 1,024 to 3,904 x",
        ),
        (
            [(64, (64, 40.0)), (128, (128, 21.0)), (256, (256, 15.5)), (512, (256, 15.5))],
            128,
            "Beyond 128 x, doubling barely pays off",
        ),
        (
            [(64, (64, 40.0)), (128, (128, 20.0)), (256, (128, 20.0))],
            128,
            "Beyond 128 x, doubling barely pays off",
        ),
        (
            # Four times as many are two doublings, which pay off from a speed-up of 2 on.
            [(64, (64, 40.0)), (256, (256, 25.0))],
            64,
            "Beyond 64 x, doubling barely pays off",
        ),
        ([(64, (64, 40.0)), (256, (256, 19.0))], None, "Every doubling pays off from 64 to 256 x"),
        (
            [(600, (600, 9.0)), (700, (700, 8.0)), (800, (800, 7.0))],
            None,
            "600 to 800 x: 9.00 days to 7.00 days",
        ),
    ],
)
def test_the_mark_of_scaling_is_the_first_size_whose_double_is_less_than_half_as_useful(
    fastest: list[tuple[float, tuple[float, float]]], end: float | None, title: str
) -> None:
    curve = curve_of("x", fastest)
    assert curve.end_of_gain == end
    assert curve_title(curve) == title
    assert all(later > earlier for earlier, later in pairwise(size for size, _ in curve.runs))
    assert all(later < earlier for earlier, later in pairwise(days for _, days in curve.runs))
