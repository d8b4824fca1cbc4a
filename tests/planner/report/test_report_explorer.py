"""Can the designs of a report be explored? Pointing, axes, filters and keys."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser

from planner.report.files import write_page
from planner.report.front import front_figure
from planner.report.plots import drawing
from planner.text import human
from studies.files.design_log import read_designs
from tests.planner.report_studies import answered, drawn, large
from tests.planner.report_window import opened, picture, place_of

KEEP_DRAWN = """() => {
  const { clearRect, fillRect, fillText } = CanvasRenderingContext2D.prototype;
  const isPicture = (context) => context.canvas.id === "cloud";
  window.drawn = { numSquares: 0, texts: [] };
  CanvasRenderingContext2D.prototype.clearRect = function (...place) {
    if (isPicture(this)) window.drawn = { numSquares: 0, texts: [] };
    return clearRect.apply(this, place);
  };
  CanvasRenderingContext2D.prototype.fillRect = function (x, y, width, height) {
    const box = this.canvas.getBoundingClientRect();
    const across = x + width / 2, down = y + height / 2;
    const isInside = across >= 70 && across <= box.width - 36 && down >= 26 && down <= box.height - 44;
    if (isPicture(this) && isInside) window.drawn.numSquares += 1;
    return fillRect.call(this, x, y, width, height);
  };
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
    const { width } = this.measureText(text);
    const left = x - { left: 0, center: width / 2, right: width }[this.textAlign];
    if (isPicture(this)) window.drawn.texts.push({ text, left, right: left + width, y });
    return fillText.call(this, text, x, y);
  };
}"""
"""Keeps what is on the picture since it was last cleared: squares of designs within its margins, and texts in pixels."""
TIMES = {"days", "h", "min"}
NEXT_FRAME = "new Promise(requestAnimationFrame)"
"""Settled when the page has drawn what was chosen."""


def test_pointing_at_a_design_of_the_front_shows_that_design(browser: Browser) -> None:
    with opened(browser) as page:
        for design in drawn().report.answer.front:
            page.mouse.move(*place_of(page, design.design_id))
            assert page.locator("#tip").get_attribute("data-design") == str(design.design_id)
            shown = page.locator("#tip").inner_text()
            assert f"cost {human.dollars(design.cost_usd)}" in shown
            assert f"time to train {human.days(design.time_to_train_days)}" in shown
            assert f"carbon {human.carbon(design.carbon_kgco2e)}" in shown


@pytest.mark.long
def test_designs_of_the_front_lie_where_their_figures_are_on_both_axes(browser: Browser) -> None:
    """Places are straight in the figures, or in their logarithms, to a pixel; across they rise, up they fall."""
    front = drawn().report.answer.front
    with opened(browser) as page:
        for is_log in (True, False):
            page.locator("#log-scale").set_checked(is_log)
            page.locator("#axis-y").select_option("carbon_kgco2e")
            places = [place_of(page, design.design_id) for design in front]
            fields = ("time_to_train_days", "carbon_kgco2e")
            for axis, (field, sign) in enumerate(zip(fields, (1.0, -1.0), strict=True)):
                values = np.array([getattr(design, field) for design in front])
                numbers = np.log(values) if is_log else values
                pixels = np.array([place[axis] for place in places])
                slope, offset = np.polyfit(numbers, pixels, 1)
                assert slope * sign > 0.0
                np.testing.assert_allclose(slope * numbers + offset, pixels, atol=1.0)


@pytest.mark.long
def test_pointing_at_another_design_shows_its_figures_and_the_limit_that_it_breaks(browser: Browser) -> None:
    table = read_designs(answered() / "designs.parquet")
    on_front = {design.design_id for design in drawn().report.answer.front}
    seen: set[int] = set()
    with opened(browser) as page:
        page.locator("#show-errors").uncheck()
        page.locator("#show-far").check()  # designs that break the budget lie beyond the edges
        page.evaluate("document.getElementById('scatter').scrollIntoView()")
        box = page.locator("#scatter").bounding_box()
        assert box is not None
        for across in np.linspace(0.1, 0.95, 23):
            for down in np.linspace(0.06, 0.9, 12):
                page.mouse.move(box["x"] + across * box["width"], box["y"] + down * box["height"])
                if page.locator("#tip").is_hidden():
                    continue
                number = int(page.locator("#tip").get_attribute("data-design") or -1)
                if number not in on_front | seen:
                    seen.add(number)
                    shown = page.locator("#tip").inner_text()
                    assert f"cost {human.dollars(table['cost_usd'][number])}" in shown
                    assert ("violates budget" in shown) == (not table["is_feasible"][number])
    assert len(seen) >= 3
    assert not table["is_feasible"][sorted(seen)].all()


def test_as_many_designs_lie_beyond_the_edges_as_beyond_those_of_the_picture(browser: Browser) -> None:
    figure = front_figure(drawn().report.answer, drawn().report.step_intervals)
    (axes,) = drawing(figure, drawn().cloud).axes
    with opened(browser) as page:
        for axis, field in (("x", figure.x_field), ("y", figure.y_field)):
            page.locator(f"#axis-{axis}").select_option(field)
        for is_log in (True, False):
            page.locator("#log-scale").set_checked(is_log)
            page.evaluate(NEXT_FRAME)
            told = page.locator("#num-beyond").inner_text()
            assert (
                told.partition(" of the designs")[0]
                == axes.get_title(loc="right").partition(" more designs")[0]
            )
        page.locator("#show-far").check()
        page.evaluate(NEXT_FRAME)
        assert page.locator("#num-beyond").inner_text().startswith("All selected designs")


@pytest.mark.short(1)
@pytest.mark.parametrize(("key", "units"), [("peak_memory_bytes", {"GiB"}), ("time_to_train_days", TIMES)])
def test_numbers_on_an_axis_are_round_in_the_unit_that_is_shown(
    browser: Browser, key: str, units: set[str]
) -> None:
    """Equal steps of 1, 2, 2.5 or 5 times a power of ten, all of one unit."""
    with opened(browser) as page:
        page.locator("#log-scale").set_checked(False)
        page.evaluate(KEEP_DRAWN)
        page.locator("#axis-y").select_option("carbon_kgco2e")
        page.locator("#axis-x").select_option(key)
        page.locator("#show-broken").uncheck()
        page.evaluate(NEXT_FRAME)
        texts = [each["text"] for each in page.evaluate("() => window.drawn.texts")]
        shown = ["1 days" if text == "1 day" else text for text in texts]
    found = [text.split(" ") for text in shown if text.split(" ")[-1] in units]
    assert len({unit for _, unit in found}) == 1
    numbers = sorted({float(number) for number, _ in found})
    assert len(numbers) > 1
    steps = np.diff(numbers)
    assert steps == pytest.approx(steps[0])
    assert f"{steps[0]:.6e}"[:3] in {"1.0", "2.0", "2.5", "5.0"}
    assert numbers[0] / steps[0] == pytest.approx(round(numbers[0] / steps[0]))


@pytest.mark.long
@pytest.mark.parametrize("width", [400, 1400])
def test_no_number_of_an_axis_is_cut_or_overlaps_another(browser: Browser, width: int) -> None:
    with opened(browser, width=width) as page:
        page.evaluate(KEEP_DRAWN)
        for key in ("carbon_kgco2e", "energy_kwh", "time_to_train_days"):
            for is_log in (True, False):
                page.locator("#log-scale").set_checked(is_log)
                page.locator("#axis-x").select_option(key)
                page.locator("#axis-y").select_option(key)
                page.locator("#show-broken").click()
                page.evaluate(NEXT_FRAME)
                places = page.evaluate("() => window.drawn.texts")
                assert min(each["left"] for each in places) >= 0.0
                for y in {each["y"] for each in places}:
                    line = sorted((each["left"], each["right"]) for each in places if each["y"] == y)
                    assert all(before[1] < after[0] for before, after in pairwise(line))


@pytest.mark.long
def test_another_axis_is_another_picture(browser: Browser) -> None:
    with opened(browser) as page:
        pictures = {picture(page, "cloud")}
        for axis, key in (("x", "carbon_kgco2e"), ("y", "goodput_fraction"), ("x", "num_gpus")):
            page.locator(f"#axis-{axis}").select_option(key)
            pictures.add(picture(page, "cloud"))
        page.locator("#log-scale").click()
        pictures.add(picture(page, "cloud"))
        page.locator("#show-beaten").uncheck()
        pictures.add(picture(page, "cloud"))
        assert len(pictures) == 6


@pytest.mark.long
def test_the_picture_is_drawn_around_the_front_and_counts_what_lies_beyond(browser: Browser) -> None:
    cloud, front = drawn().cloud, drawn().report.answer.front
    with opened(browser) as page:
        box = page.locator("#scatter").bounding_box()
        assert box is not None
        page.locator("#log-scale").set_checked(False)
        places = [place_of(page, design.design_id) for design in front]
        spans = [max(column) - min(column) for column in zip(*places, strict=True)]
        # The front has half of its extent on either side; error bars take a part of that extent, axes one of the box.
        assert spans[0] > 0.2 * box["width"]
        assert spans[1] > 0.2 * box["height"]
        told = page.locator("#num-beyond").inner_text()
        num_beyond = int(told.split()[0].replace(",", ""))
        assert 0 < num_beyond <= len(cloud) - len(front)
        page.locator("#show-far").check()
        page.locator("#num-beyond", has_text="All selected designs").wait_for()
        page.locator("#show-far").uncheck()
        page.locator("#num-beyond", has_text=told).wait_for()
        page.locator("#show-beaten").uncheck()
        page.locator("#show-broken").uncheck()
        page.locator("#num-beyond", has_text="All selected designs").wait_for()


def test_what_is_drawn_and_what_lies_beyond_are_the_designs_on_the_page(browser: Browser) -> None:
    num_front = len(drawn().report.answer.front)
    with opened(browser) as page:
        page.evaluate(KEEP_DRAWN)
        page.locator("#show-far").check()
        page.locator("#num-beyond", has_text="All selected designs").wait_for()
        assert page.evaluate("() => window.drawn.numSquares") == len(drawn().cloud) - num_front
        page.locator("#show-far").uncheck()
        page.locator("#num-beyond", has_text="on this page lie outside the picture").wait_for()
        num_beyond = int(page.locator("#num-beyond").inner_text().split()[0].replace(",", ""))
        assert page.evaluate("() => window.drawn.numSquares") == len(drawn().cloud) - num_front - num_beyond
        assert page.locator("#front-note").inner_text().count("On this page: ") == 1


def test_dragging_keeps_the_designs_within_and_escape_brings_all_back(browser: Browser) -> None:
    best = drawn().report.answer.recommendation
    assert best is not None
    with opened(browser) as page:
        lines = picture(page, "parallel-lines")
        x, y = place_of(page, best.design_id)
        page.mouse.move(x - 15, y - 15)
        page.mouse.down()
        page.mouse.move(x, y)
        page.mouse.move(x + 15, y + 15)
        page.mouse.up()
        assert "of them on the front" in page.locator("#num-kept").inner_text()
        low, high = (float(page.locator(f"#{end}-cost_usd").input_value()) for end in ("low", "high"))
        assert low < best.cost_usd < high
        assert picture(page, "parallel-lines") != lines
        page.locator("#scatter").focus()
        page.keyboard.press("Escape")
        assert page.locator("#num-kept").inner_text() == "No filters."


def test_typed_filters_count_what_the_table_counts(browser: Browser) -> None:
    table = read_designs(answered() / "designs.parquet")
    cost_usd, num_gpus = (table[name].astype(np.float64) for name in ("cost_usd", "num_gpus"))
    middle = float(np.median(cost_usd))
    with opened(browser) as page:
        page.get_by_text("Enter filters as numbers").click()
        page.locator("#high-cost_usd").fill(repr(middle))
        page.locator("#high-cost_usd").press("Enter")
        page.locator("#low-num_gpus").fill("64")
        page.locator("#low-num_gpus").press("Enter")
        expected = np.count_nonzero((cost_usd <= middle) & (num_gpus >= 64))
        assert page.locator("#num-kept").inner_text().startswith(f"{expected} of {len(cost_usd)} designs")
        page.locator("#clear-filters").click()
        assert page.locator("#high-cost_usd").input_value() == ""


def test_a_range_along_a_scale_is_a_filter_and_a_click_takes_it_away(browser: Browser) -> None:
    with opened(browser) as page:
        page.locator("#parallel").scroll_into_view_if_needed()
        box = page.locator("#parallel").bounding_box()
        assert box is not None
        y = box["y"] + 26 + 58
        page.mouse.move(box["x"] + 300, y)
        page.mouse.down()
        page.mouse.move(box["x"] + 500, y)
        page.mouse.up()
        assert page.locator("#low-cost_usd").input_value() != ""
        page.mouse.click(box["x"] + 400, y)
        assert page.locator("#num-kept").inner_text() == "No filters."


@pytest.mark.long
def test_keys_alone_reach_everything_and_walk_through_the_front(browser: Browser) -> None:
    front = sorted(drawn().report.answer.front, key=lambda design: design.time_to_train_days)
    with opened(browser) as page:
        reached = set()
        for _ in range(120):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
            if page.evaluate("document.activeElement.id") == "scatter":
                page.keyboard.press("Home")
                walked = [page.locator("#chosen").get_attribute("data-design")]
                for _ in front[1:]:
                    page.keyboard.press("ArrowRight")
                    walked.append(page.locator("#chosen").get_attribute("data-design"))
                assert walked == [str(design.design_id) for design in front]
        assert {
            "axis-x",
            "axis-y",
            "show-beaten",
            "show-far",
            "log-scale",
            "scatter",
            "save-job",
            "SUMMARY",
            "A",
        } <= reached


def test_the_legend_of_the_front_names_what_is_drawn(browser: Browser) -> None:
    roles = {
        point.role for point in front_figure(drawn().report.answer, drawn().report.step_intervals).points
    }
    with opened(browser) as page:
        shown = page.locator("#front .legend").inner_text()
        assert ("indistinguishable from it" in shown) == ("tied" in roles)
        assert "recommended" in shown


@pytest.mark.long
def test_a_design_of_the_table_is_shown_in_the_picture(browser: Browser) -> None:
    design = drawn().report.answer.front[-1]
    with opened(browser) as page:
        page.locator("#front-table summary").click()
        page.get_by_role("button", name=f"Show design {design.design_id} in the picture").click()
        assert page.locator("#chosen").get_attribute("data-design") == str(design.design_id)
        assert page.locator("#scatter").is_visible()


@pytest.mark.long
def test_a_page_of_a_hundred_thousand_designs_opens_shows_and_redraws(
    browser: Browser, tmp_path: Path
) -> None:
    """How quickly is a matter of `benchmarks.report_page`; here it is without errors and requests."""
    shown = large(100_000, 1_000)
    file = write_page(shown, tmp_path / "large.html")
    assert file.stat().st_size < 5e6
    design = shown.report.answer.front[500]
    with opened(browser, file=file) as page:
        page.mouse.move(*place_of(page, design.design_id))
        pointed = int(page.locator("#tip").get_attribute("data-design") or -1)
        # Neighbours lie a tenth of a per cent apart, some of them below one pixel.
        assert abs(pointed - design.design_id) <= 10
        before = picture(page, "cloud")
        page.locator("#axis-y").select_option("carbon_kgco2e")
        assert picture(page, "cloud") != before
        page.get_by_text("Enter filters as numbers").click()
        page.locator("#high-cost_usd").fill(repr(design.cost_usd))
        page.locator("#high-cost_usd").press("Enter")
        kept = page.locator("#num-kept").inner_text()
        assert kept.endswith("500 of them on the front.")
