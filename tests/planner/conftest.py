"""What do tests of the planner share? A browser for each file of pages, and pictures that are drawn once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from planner.report import files
from planner.report.data import Figure
from planner.report.designs import DesignCloud
from planner.report.plots import save_picture

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium; tests that ask for it are left out on a machine without one."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("no Chromium on this machine")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="session")
def drawings() -> dict[tuple[object, ...], bytes]:
    """Pictures by what they show."""
    return {}


@pytest.fixture
def pictures_drawn_once(drawings: dict[tuple[object, ...], bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests of what becomes of a study need its pictures, not to draw those of equal studies again."""

    def saved(figure: Figure, cloud: DesignCloud, path: Path) -> None:
        columns = (cloud.design_id, cloud.broken, *cloud.numbers.values(), *cloud.codes.values())
        shown = (path.suffix, repr(figure), *cloud.words.items(), *(column.tobytes() for column in columns))
        if shown in drawings:
            path.write_bytes(drawings[shown])
        else:
            save_picture(figure, cloud, path)
            drawings[shown] = path.read_bytes()

    monkeypatch.setattr(files, "save_picture", saved)
