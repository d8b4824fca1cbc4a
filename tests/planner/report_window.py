"""How do tests view a report in a browser? In a separate window that may load nothing but the page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page

from tests.planner.report_studies import answered


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
    """Position of a design of the front in the window."""
    page.locator("#scatter").scroll_into_view_if_needed()
    box = page.locator("#scatter").bounding_box()
    assert box is not None
    place = page.evaluate("(id) => capplanReport.placeOf(id)", design_id)
    return box["x"] + place["x"], box["y"] + place["y"]
