"""Does the progress line keep its figures whole on a narrow terminal?"""

from __future__ import annotations

import io
from itertools import count

import pytest
from rich.console import Console

from planner.progress_line import progress_line, shortened
from studies.progress import Progress


@pytest.mark.parametrize("width", [80, 100, 120])
def test_figures_are_never_cut(width: int) -> None:
    ticks = count()
    shown = io.StringIO()
    console = Console(
        width=width, file=shown, force_terminal=True, color_system=None, get_time=lambda: float(next(ticks))
    )
    with progress_line(console) as report:
        for done in (100, 2568):
            stage, best = "simulating a coarse sample of the designs", "best 31.4 days, $1.85 M"
            report(Progress(stage=stage, num_done=done, num_total=60_123, best=best))
    last = shown.getvalue().split("\x1b[2K")[-2]
    assert "2568/60123" in last
    assert "left best 31.4 days, $1.85 M" in last
    assert "simulat" in last


@pytest.mark.parametrize(("width", "text"), [(10, "simulating"), (5, "simu…"), (1, "…")])
def test_a_text_that_is_cut_says_so(width: int, text: str) -> None:
    assert shortened("simulating", width) == text
