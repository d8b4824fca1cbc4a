"""What do tests of the planner share? A browser for each test file of pages, a trace, and rows that are simulated once."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from planner.measured.rows import Unmodelled
from planner.measured.runs import Row
from planner.validation import comparison
from planner.validation.comparison import Entry, entries_of
from simulator.domain.calibration import Calibration
from tests.simulator.deep.traces import write_small

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium; tests that use it are skipped on a machine without one."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("no Chromium on this machine")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def small(tmp_path: Path) -> str:
    """Folder of the smallest trace of the tests, in TrioSim's files."""
    return str(write_small(tmp_path / "small"))


EntriesOf = Callable[[Sequence[Row | Unmodelled], Calibration | None], list[Entry]]


@pytest.fixture(scope="session")
def simulated_rows() -> dict[str, list[Entry]]:
    """Results for measured rows, by their text."""
    return {}


@pytest.fixture
def rows_simulated_once(simulated_rows: dict[str, list[Entry]], monkeypatch: pytest.MonkeyPatch) -> EntriesOf:
    """Simulates equal rows only once: tests of texts about the shipped rows need the results, but not computed anew."""

    def found(rows: Sequence[Row | Unmodelled], calibration: Calibration | None) -> list[Entry]:
        key = repr((rows, calibration))
        if key not in simulated_rows:
            simulated_rows[key] = entries_of(rows, calibration)
        return simulated_rows[key]

    monkeypatch.setattr(comparison, "entries_of", found)
    return found
