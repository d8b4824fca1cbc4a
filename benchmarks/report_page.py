"""How large and how quick is the page of a study of 100,000 designs? Python -m benchmarks.report_page [--designs N].

Simulates N random designs of the Llama 3.1 70B example on up to 16,384 accelerators, writes their page, and times three things
in a headless Chromium: until the page has drawn everything, until another axis is drawn, and until a design under the pointer
is shown. Each figure is the median of five; the page is reopened each time.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.search_jobs import WIDE
from planner.answer.recommend import recommend
from planner.job.file import load_job
from planner.recommended.output import PAGE_FILE
from simulator.units import MEGA, MILLISECOND

ROOT = Path(__file__).parents[1]
NUM_TRIES = 5
LARGEST_PAGE_BYTES = 5.0 * MEGA
LONGEST_S = 2.0
NEXT_FRAME = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
"""Resolves when what was asked for before it has been drawn."""


def page_of(num_designs: int, folder: Path) -> Path:
    """Returns the page of a study of so many designs."""
    overrides = [
        *WIDE,
        "search.algorithm=random",
        f"search.max_evaluations={num_designs}",
        "search.num_refinements=0",
        "offers[0].num_gpus.max=16384",
        "offers[1].num_gpus.max=16384",
        "limits.budget_usd=4e6",
        "limits.deadline_days=120",
        "search.micro_batch_sizes=[1,2,4,8,16]",
        f"search.stagnation_evaluations={num_designs}",
    ]
    job = load_job(ROOT / "examples" / "llama-3.1-70b.yaml", overrides)
    answer = recommend(job, seed=1, tracking=False, output=folder)
    print(f"{answer.num_evaluated:,} designs simulated, {len(answer.front)} on the front")
    return folder / PAGE_FILE


def timings_s(path: Path) -> dict[str, float]:
    """Returns the seconds that a reader waits, by what for."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    opened, redrawn, shown = [], [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for _ in range(NUM_TRIES):
            page = browser.new_page(viewport={"width": 1400, "height": 900}, reduced_motion="reduce")
            start = time.perf_counter()
            page.goto(path.as_uri())
            page.wait_for_selector("html[data-ready]")
            page.evaluate(NEXT_FRAME)
            opened.append(time.perf_counter() - start)
            start = time.perf_counter()
            page.locator("#axis-y").select_option("carbon_kgco2e")
            page.evaluate(NEXT_FRAME)
            redrawn.append(time.perf_counter() - start)
            page.locator("#scatter").scroll_into_view_if_needed()
            box = page.locator("#scatter").bounding_box()
            assert box is not None
            start = time.perf_counter()
            page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.5 * box["height"])
            page.evaluate(NEXT_FRAME)
            shown.append(time.perf_counter() - start)
            page.close()
        browser.close()
    times = {"opened": opened, "another axis": redrawn, "pointed at": shown}
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    """Prints what was measured, and whether it is within what the report promises."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--designs", type=int, default=100_000)
    num_designs = parser.parse_args().designs
    with tempfile.TemporaryDirectory() as name:
        path = page_of(num_designs, Path(name) / "study")
        size = path.stat().st_size
        print(f"page: {size / MEGA:.2f} MB (at most {LARGEST_PAGE_BYTES / MEGA:.0f} MB)")
        for what, seconds in timings_s(path).items():
            print(f"{what}: {seconds / MILLISECOND:.0f} ms (at most {LONGEST_S / MILLISECOND:.0f} ms)")


if __name__ == "__main__":
    main()
