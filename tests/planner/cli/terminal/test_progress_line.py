"""Does the progress line show its figures in full on a narrow terminal?"""

from __future__ import annotations

import io
from itertools import count

import pytest
from rich.console import Console

from planner.cli.terminal.progress_line import progress_line, shortened
from studies.progress import Progress


def last_line(width: int, *moments: Progress) -> str:
    """What the line says in the end, when every look at the clock finds it a second later."""
    ticks, shown = count(), io.StringIO()
    console = Console(
        width=width, file=shown, force_terminal=True, color_system=None, get_time=lambda: float(next(ticks))
    )
    with progress_line(console) as report:
        for moment in moments:
            report(moment)
    return shown.getvalue().split("\x1b[2K")[-2]


@pytest.mark.parametrize("width", [80, 100, 120])
def test_figures_are_never_cut(width: int) -> None:
    stage, best = "simulating a coarse sample of the designs", "best 31.4 days, $1.85 M"
    moments = [Progress(stage=stage, num_done=n, num_total=60_123, best=best) for n in (100, 2568)]
    last = last_line(width, *moments)
    assert "2568/60123" in last
    assert "left best 31.4 days, $1.85 M" in last
    assert "simulat" in last


def test_what_cannot_be_counted_has_no_count() -> None:
    line = last_line(100, Progress(stage="opening the MLflow store", num_done=0, num_total=None))
    assert "opening the MLflow store" in line
    assert "0/?" not in line


@pytest.mark.parametrize(("num_done", "is_left"), [(100, True), (200, False)])
def test_nothing_is_left_at_the_end(num_done: int, is_left: bool) -> None:
    line = last_line(
        100, *(Progress(stage="searching", num_done=n, num_total=200) for n in (10, 50, num_done))
    )
    assert f"{num_done}/200" in line
    assert ("left" in line) is is_left


@pytest.mark.parametrize(("width", "text"), [(10, "simulating"), (5, "simu…"), (1, "…")])
def test_a_text_that_is_cut_says_so(width: int, text: str) -> None:
    assert shortened("simulating", width) == text
