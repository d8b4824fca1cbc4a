"""Does the page work in a browser? Hovering, axes, filters, keys, widths, colours, print, and nothing from the network."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from planner import human
from planner.answer import recommend
from planner.report_files import write_page
from planner.report_front import front_figure
from simulator.limits import Limits
from studies.design_log import read_designs
from tests.planner.report_studies import NOON, answered, drawn, job, large

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")

OVERLAPS = """() => {
  const found = [];
  const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode;
    if (!node.textContent.trim() || node.parentElement.closest("script, noscript, option")) continue;
    if (!node.parentElement.checkVisibility()) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const holder = node.parentElement.closest(".scroll");
    const seen = holder ? holder.getBoundingClientRect() : { left: -1e9, right: 1e9, top: -1e9, bottom: 1e9 };
    for (const box of range.getClientRects()) {
      const left = Math.max(box.left, seen.left), right = Math.min(box.right, seen.right);
      const top = Math.max(box.top, seen.top), bottom = Math.min(box.bottom, seen.bottom);
      if (right > left && bottom > top) found.push({ text: node.textContent.trim(), node, left, right, top, bottom });
    }
  }
  const pairs = [];
  for (let i = 0; i < found.length; i += 1) {
    for (let j = i + 1; j < found.length; j += 1) {
      const [one, other] = [found[i], found[j]];
      const across = Math.min(one.right, other.right) - Math.max(one.left, other.left);
      const down = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
      if (one.node !== other.node && across > 1 && down > 4) pairs.push(`${one.text} | ${other.text}`);
    }
  }
  return pairs;
}"""
"""Texts that lie on each other; lines of text may touch by their leading."""
SCROLLS = """() => [...document.querySelectorAll(".scroll")]
  .filter((element) => element.scrollWidth > element.clientWidth + 1)
  .map((element) => element.getAttribute("aria-label"))"""
"""Tables of which a part lies beyond their right end."""
WIDE_TABLES = """() => [...document.querySelectorAll("table")]
  .filter((table) => table.getBoundingClientRect().right > innerWidth + 1)
  .map((table) => table.caption.textContent)"""
"""Tables that stick out of the paper."""
TEXT_ON_MARKS = """() => {
  const found = [];
  for (const picture of document.querySelectorAll(".picture")) {
    const marks = [...picture.querySelectorAll(".dot, .bin, .reach, .part, .flip, .limit, .field .mark")];
    const boxes = marks.map((mark) => mark.getBoundingClientRect());
    for (const text of picture.querySelectorAll(".axis span, .ruler span, .row-label span, .mark-row span, .row-note")) {
      const one = text.getBoundingClientRect();
      for (const other of boxes) {
        const across = Math.min(one.right, other.right) - Math.max(one.left, other.left);
        const down = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
        if (across > 1 && down > 2) found.push(`${picture.parentElement.id}: ${text.textContent}`);
      }
    }
  }
  return found;
}"""
"""Labels that lie on bars, dots and lines of their picture."""
MISPLACED = """() => [...document.querySelectorAll(".axis span")].filter((label) => {
  const axis = label.parentElement.getBoundingClientRect(), box = label.getBoundingClientRect();
  return Math.abs((box.left + box.right) / 2 - axis.left - parseFloat(label.style.left) / 100 * axis.width) > 1;
}).map((label) => label.textContent)"""
"""Labels of axes that do not stand centred below the place that they name."""
CUT_OFF = """() => [...document.querySelectorAll("body *")].filter((element) => {
  if (element.closest(".scroll, pre, .skip, script, style") || !element.checkVisibility()) return false;
  const box = element.getBoundingClientRect();
  return box.width && (box.right > innerWidth + 1 || box.left < -1);
}).map((element) => `${element.tagName} ${element.className} ${element.textContent.slice(0, 40)}`)"""
"""Elements that stick out of the window, but for tables that scroll by themselves."""
CONTRASTS = """() => {
  const style = getComputedStyle(document.documentElement);
  const light = (name) => {
    const hex = style.getPropertyValue(name).trim().slice(1);
    const parts = [0, 2, 4].map((start) => parseInt(hex.slice(start, start + 2), 16) / 255);
    const linear = parts.map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const ratio = (one, other) => (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
  return ["--ink", "--soft", "--accent"].flatMap((ink) =>
    ["--paper", "--raised"].map((paper) => ratio(light(ink), light(paper))));
}"""
"""Contrast of every colour of text with what it stands on, as WCAG 2 defines it."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@contextmanager
def opened(
    browser: Browser,
    *,
    file: Path | None = None,
    width: int = 1400,
    scheme: str = "light",
    script: bool = True,
) -> Iterator[Page]:
    """The report in a window; errors and requests for anything but the page fail the test."""
    address = (file or answered() / "report.html").as_uri()
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if scheme == "dark" else "light",
        reduced_motion="reduce",
        java_script_enabled=script,
    )
    page, troubles = context.new_page(), []
    page.on("console", lambda message: troubles.append(message.text))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("dialog", lambda dialog: troubles.append(dialog.message))
    page.on("request", lambda request: troubles.append(request.url) if request.url != address else None)
    page.goto(address)
    if script:
        page.wait_for_selector("html[data-ready]")
    yield page
    context.close()
    assert troubles == []


def picture(page: Page, canvas: str) -> str:
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return str(page.evaluate("(id) => document.getElementById(id).toDataURL()", canvas))


def place_of(page: Page, design_id: int) -> tuple[float, float]:
    """Where a design of the front lies in the window."""
    page.locator("#scatter").scroll_into_view_if_needed()
    box = page.locator("#scatter").bounding_box()
    assert box is not None
    place = page.evaluate("(id) => capplanReport.placeOf(id)", design_id)
    return box["x"] + place["x"], box["y"] + place["y"]


def test_pointing_at_a_design_of_the_front_shows_that_design(browser: Browser) -> None:
    with opened(browser) as page:
        for design in drawn().report.answer.front:
            page.mouse.move(*place_of(page, design.design_id))
            assert page.locator("#tip").get_attribute("data-design") == str(design.design_id)
            shown = page.locator("#tip").inner_text()
            assert f"cost {human.dollars(design.cost_usd)}" in shown
            assert f"time to train {human.days(design.time_to_train_days)}" in shown
            assert f"carbon {human.carbon(design.carbon_kgco2e)}" in shown


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


def test_pointing_at_another_design_shows_its_figures_and_the_limit_that_it_breaks(browser: Browser) -> None:
    table = read_designs(answered() / "designs.parquet")
    on_front = {design.design_id for design in drawn().report.answer.front}
    seen = set()
    with opened(browser) as page:
        page.locator("#show-errors").uncheck()
        page.evaluate("document.getElementById('scatter').scrollIntoView()")
        box = page.locator("#scatter").bounding_box()
        assert box is not None
        for across in np.linspace(0.1, 0.95, 30):
            for down in np.linspace(0.06, 0.9, 12):
                page.mouse.move(box["x"] + across * box["width"], box["y"] + down * box["height"])
                if page.locator("#tip").is_hidden():
                    continue
                number = int(page.locator("#tip").get_attribute("data-design") or -1)
                if number not in on_front | seen:
                    seen.add(number)
                    shown = page.locator("#tip").inner_text()
                    assert f"cost {human.dollars(table['cost_usd'][number])}" in shown
                    assert ("breaks budget" in shown) == (not table["is_feasible"][number])
    assert len(seen) >= 3


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
        page.locator("#num-beyond", has_text="All designs").wait_for()
        page.locator("#show-far").uncheck()
        page.locator("#num-beyond", has_text=told).wait_for()
        page.locator("#show-beaten").uncheck()
        page.locator("#show-broken").uncheck()
        page.locator("#num-beyond", has_text="All designs").wait_for()


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
    middle = float(np.median(table["cost_usd"]))
    with opened(browser) as page:
        page.get_by_text("Type the filters").click()
        page.locator("#high-cost_usd").fill(repr(middle))
        page.locator("#high-cost_usd").press("Enter")
        page.locator("#low-num_gpus").fill("64")
        page.locator("#low-num_gpus").press("Enter")
        expected = np.count_nonzero((table["cost_usd"] <= middle) & (table["num_gpus"] >= 64))
        assert (
            page.locator("#num-kept")
            .inner_text()
            .startswith(f"{expected} of {len(table['cost_usd'])} designs")
        )
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


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1400])
def test_nothing_overlaps_or_is_cut_off(browser: Browser, width: int, scheme: str) -> None:
    with opened(browser, width=width, scheme=scheme) as page:
        assert page.evaluate(OVERLAPS) == []
        assert page.evaluate(CUT_OFF) == []
        assert page.evaluate("document.documentElement.scrollWidth") == width
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        assert page.evaluate(OVERLAPS) == []
        assert page.evaluate(TEXT_ON_MARKS) == []
        assert page.evaluate(MISPLACED) == []
        assert page.evaluate(SCROLLS) == []
        assert page.evaluate(CUT_OFF) == []
        assert page.evaluate("document.documentElement.scrollWidth") == width


def test_text_can_be_read_in_light_and_in_dark(browser: Browser) -> None:
    papers = set()
    for scheme in ("light", "dark"):
        with opened(browser, scheme=scheme) as page:
            assert min(page.evaluate(CONTRASTS)) >= 4.5  # level AA of WCAG 2
            papers.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
            papers.add(picture(page, "cloud"))
    assert len(papers) == 4


def test_a_change_of_colours_redraws_the_picture(browser: Browser) -> None:
    with opened(browser) as page:
        before = picture(page, "cloud")
        page.emulate_media(color_scheme="dark")
        assert picture(page, "cloud") != before


def test_on_paper_there_is_no_navigation_and_no_dark(browser: Browser) -> None:
    with opened(browser, scheme="dark") as page:
        page.emulate_media(media="print", color_scheme="dark")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert page.locator("nav").is_hidden()
        assert page.locator("#cost").is_visible()


def test_on_paper_no_table_is_cut_off_and_designs_keep_their_numbers(browser: Browser) -> None:
    paper = 718  # pixels: A4 with a centimetre around it, at 96 to the inch
    with opened(browser, width=paper) as page:
        page.emulate_media(media="print")
        assert page.evaluate(WIDE_TABLES) == []
        shown = page.locator("#front-table .pick").all()
        numbers = [str(design.design_id) for design in drawn().report.answer.front]
        assert [button.inner_text() for button in shown] == numbers
        assert all(button.is_visible() for button in shown)


@pytest.mark.parametrize("script", [True, False])
def test_on_paper_everything_is_open_and_closes_again(browser: Browser, *, script: bool) -> None:
    with opened(browser, script=script) as page:
        table = page.locator("#cost table")
        assert table.is_hidden()
        page.emulate_media(media="print")
        assert table.is_visible()
        assert page.locator("#s-inputs table").last.is_visible()
        page.emulate_media(media="screen")
        assert table.is_hidden()


def test_without_a_script_all_figures_but_the_front_are_there(browser: Browser) -> None:
    with opened(browser, script=False) as page:
        assert page.locator("#cost .track").first.is_visible()
        assert page.locator("#front .controls").is_hidden()
        assert "needs JavaScript" in page.locator("noscript").inner_text()
        assert page.locator("#front-table").is_visible()


def test_the_legend_of_the_front_names_what_is_drawn(browser: Browser) -> None:
    roles = {point.role for point in front_figure(drawn().report.answer, drawn().report.errors).points}
    with opened(browser) as page:
        shown = page.locator("#front .legend").inner_text()
        assert ("cannot be told from it" in shown) == ("tied" in roles)
        assert "recommended" in shown


def test_the_job_can_be_saved_from_the_page(browser: Browser, tmp_path: Path) -> None:
    with opened(browser) as page:
        with page.expect_download() as download:
            page.locator("#save-job").click()
        download.value.save_as(tmp_path / "job.json")
        assert download.value.suggested_filename == "job.json"
        assert json.loads((tmp_path / "job.json").read_text()) == json.loads(
            (answered() / "job.json").read_text()
        )


def test_a_design_of_the_table_is_shown_in_the_picture(browser: Browser) -> None:
    design = drawn().report.answer.front[-1]
    with opened(browser) as page:
        page.locator("#front-table summary").click()
        page.get_by_role("button", name=f"Show design {design.design_id} in the picture").click()
        assert page.locator("#chosen").get_attribute("data-design") == str(design.design_id)
        assert page.locator("#scatter").is_visible()


def test_the_page_of_an_impossible_job_opens_too(browser: Browser, tmp_path: Path) -> None:
    tight = job().model_copy(update={"limits": Limits(budget_usd=10.0)})
    recommend(tight, seed=1, tracking=False, output=tmp_path / "none", clock=lambda: NOON)
    with opened(browser, file=tmp_path / "none" / "report.html", width=400) as page:
        assert page.get_by_text("No design keeps all limits.").is_visible()
        assert page.evaluate(OVERLAPS) == []
        assert page.evaluate(CUT_OFF) == []
        assert page.locator("#save-job").is_visible()


def test_a_name_that_is_a_script_is_shown_and_not_run(browser: Browser, tmp_path: Path) -> None:
    name = "<script>alert(1)</script><img src=x onerror=alert(2)>"
    report = drawn().report
    answer = report.answer.model_copy(update={"job": name, "why": (name,)})
    asked = report.job.model_copy(update={"name": name})
    shown = replace(drawn(), report=report.model_copy(update={"answer": answer, "job": asked}))
    with opened(browser, file=write_page(shown, tmp_path / "page.html")) as page:
        assert page.locator("h1").inner_text() == name


@pytest.mark.parametrize("width", [400, 1400])
def test_long_names_and_large_numbers_neither_overlap_nor_are_cut_off(
    browser: Browser, width: int, tmp_path: Path
) -> None:
    report = drawn().report
    best = report.answer.recommendation
    assert best is not None
    large = best.model_copy(
        update={
            "accelerator": "a-vendor's-accelerator-with-a-very-long-name-192gb",
            "region": "somewhere-far-away-in-the-north-2",
            "time_to_train_days": 888.8,
            "cost_usd": 9.87e9,
            "carbon_kgco2e": 9.87e8,
            "energy_kwh": 9.87e9,
            "peak_power_w": 9.87e9,
        }
    )
    answer = report.answer.model_copy(update={"recommendation": large, "why": ("why" * 60,)})
    asked = report.job.model_copy(update={"name": "n" * 100})
    shown = replace(drawn(), report=report.model_copy(update={"answer": answer, "job": asked}))
    with opened(browser, file=write_page(shown, tmp_path / "page.html"), width=width) as page:
        assert page.evaluate(OVERLAPS) == []
        assert page.evaluate(CUT_OFF) == []
        assert page.evaluate("document.documentElement.scrollWidth") == width


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
        page.get_by_text("Type the filters").click()
        page.locator("#high-cost_usd").fill(repr(design.cost_usd))
        page.locator("#high-cost_usd").press("Enter")
        kept = page.locator("#num-kept").inner_text()
        assert kept.endswith("500 of them on the front.")
