"""What does a report look like? The pictures of docs/report.md, taken in a browser: python -m docs.report_pictures.

Needs Chromium and takes half a minute. Look at the pictures before you commit them.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from planner.answer.recommend import recommend
from planner.job.file import load_job
from planner.recommended.output import PAGE_FILE

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).parents[1]
FOLDER = Path(__file__).with_name("pictures")
LARGEST_BYTES = 300_000


class Shot(NamedTuple):
    """One picture."""

    name: str
    width: int
    height: int
    scheme: str
    at: str
    """CSS selector of the element at the top of the picture."""


SHOTS = (
    Shot("report-recommendation", 1400, 1050, "light", "body"),
    Shot("report-front", 1400, 1250, "light", "#s-front"),
    Shot("report-change", 1400, 1150, "dark", "#s-change"),
    Shot("report-phone", 400, 860, "light", "body"),
    Shot("report-phone-front", 400, 860, "dark", "#front"),
)


def taken(page_file: Path, browser: Browser) -> Iterator[Path]:
    """Takes the pictures one by one, and yields their files."""
    for shot in SHOTS:
        page = browser.new_page(
            viewport={"width": shot.width, "height": shot.height},
            color_scheme="dark" if shot.scheme == "dark" else "light",
            reduced_motion="reduce",
        )
        page.goto(page_file.as_uri())
        page.wait_for_selector("html[data-ready]")
        page.locator(shot.at).first.evaluate("(element) => element.scrollIntoView()")
        path = FOLDER / f"{shot.name}.png"
        page.screenshot(path=path)
        page.close()
        yield path


def main() -> int:
    """Answers the example and takes the pictures; returns 1 if a picture is too large to be kept."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    job = load_job(ROOT / "examples" / "llama-3.1-70b.yaml")
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        recommend(job, seed=0, tracking=False, output=Path(name) / "answer")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        paths = list(taken(Path(name) / "answer" / PAGE_FILE, browser))
        browser.close()
    return int(any(path.stat().st_size > LARGEST_BYTES for path in paths))


if __name__ == "__main__":
    sys.exit(main())
