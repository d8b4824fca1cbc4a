"""Can a report's page be read in a browser? Widths, colours, print, no script, and nothing from the network."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from planner.answer.recommend import recommend
from planner.report.files import write_page
from simulator.domain.limits import Limits
from tests.planner.page_checks import (
    CONTRASTS,
    CUT_OFF,
    MISPLACED,
    OVERLAPS,
    SCROLLS,
    TEXT_ON_MARKS,
    WIDE_TABLES,
)
from tests.planner.report_studies import NOON, answered, drawn, job
from tests.planner.report_window import opened, picture


@pytest.mark.short(2)
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


@pytest.mark.long
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


@pytest.mark.long
def test_on_paper_no_table_is_cut_off_and_designs_keep_their_numbers(browser: Browser) -> None:
    paper = 718  # pixels: A4 with a centimetre around it, at 96 to the inch
    with opened(browser, width=paper) as page:
        page.emulate_media(media="print")
        assert page.evaluate(WIDE_TABLES) == []
        shown = page.locator("#front-table .pick").all()
        numbers = [str(design.design_id) for design in drawn().report.answer.front]
        assert [button.inner_text() for button in shown] == numbers
        assert all(button.is_visible() for button in shown)


@pytest.mark.short(1)
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


def test_the_job_can_be_saved_from_the_page(browser: Browser, tmp_path: Path) -> None:
    with opened(browser) as page:
        with page.expect_download() as download:
            page.locator("#save-job").click()
        download.value.save_as(tmp_path / "job.json")
        assert download.value.suggested_filename == "job.json"
        assert json.loads((tmp_path / "job.json").read_text()) == json.loads(
            (answered() / "job.json").read_text()
        )


def test_the_page_of_an_impossible_job_opens_too(browser: Browser, tmp_path: Path) -> None:
    tight = job().model_copy(update={"limits": Limits(budget_usd=10.0)})
    recommend(tight, seed=1, tracking=False, output=tmp_path / "none", clock=lambda: NOON)
    with opened(browser, file=tmp_path / "none" / "report.html", width=400) as page:
        assert page.get_by_text("No design meets all limits.").is_visible()
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


@pytest.mark.short(1)
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
