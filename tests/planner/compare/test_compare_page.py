"""Does the page of a comparison work in a browser? On a phone and a screen: nothing cut off, nothing from the network."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from planner.cli import commands as cli
from tests.planner.page_checks import CUT_OFF, OVERLAPS

BLOOM = str(Path(__file__).parents[3] / "examples" / "bloom-176b.yaml")
SIDES = (f"{BLOOM}@tp=4,pp=12,dp=8,mbs=2,recompute=full", f"{BLOOM}@tp=8,pp=6,dp=8,mbs=2,recompute=full")
CUT_TEXT = """() => [...document.querySelectorAll("main :is(td, th, p, h1, h2, summary)")].filter(
  (element) => element.checkVisibility() && element.scrollWidth > element.clientWidth + 1 && element.clientWidth
).map((element) => element.textContent.slice(0, 60))"""
"""Texts that are wider than the place that they have."""
SCROLLED = """() => [...document.querySelectorAll(".wide")].filter((element) => element.scrollWidth > element.clientWidth + 1)
  .map((element) => element.textContent.slice(0, 60))"""
"""Tables of which a part lies beyond their right end."""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("compared") / "page.html"
    assert cli.main(["compare", *SIDES, "--html", str(path), "--quiet"]) == 0
    return path


@pytest.mark.short(1)
@pytest.mark.parametrize("width", [400, 1400])
def test_the_page_opens_offline_and_nothing_is_cut_off(browser: Browser, file: Path, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900})
    troubles: list[str] = []
    page.on("console", lambda message: troubles.append(message.text))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("request", lambda request: troubles.append(request.url))
    page.goto(file.as_uri())
    for closed in page.locator("details").all():
        closed.locator("summary").click()
    assert page.evaluate("() => document.documentElement.scrollWidth") <= width
    # On a phone each cell says its head, and the heads themselves stand outside the window, for screen readers.
    assert [text for text in page.evaluate(CUT_OFF) if not text.startswith(("THEAD", "TR", "TH"))] == []
    for check in (OVERLAPS, CUT_TEXT, SCROLLED):
        assert page.evaluate(check) == []
    assert page.get_by_role("heading", name="Why B differs from A").is_visible()
    assert troubles == [file.as_uri()]
    page.close()
