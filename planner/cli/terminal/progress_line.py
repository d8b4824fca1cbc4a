"""How far is the search? One line on the terminal that is redrawn and disappears at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from planner.text import human

if TYPE_CHECKING:
    from studies.progress import Progress as Moment
    from studies.progress import Report


_WIDE = 110
"""Columns from which a terminal has room for a bar."""
_BAR_COLUMNS = 20
_FIGURE_COLUMNS = 46
"""Most columns that the spinner, `600123/600123`, the rate and both times take, with the blanks between them."""
_LEAST_WORDS = 8
_LEAST_RATE = 10.0
"""Pieces a second below which the rate is shown with decimals."""


class _CountColumn(MofNCompleteColumn):
    """The count of pieces done; empty if they cannot be counted, such as while a store opens."""

    def render(self, task: Task) -> Text:
        return Text("") if task.total is None and not task.completed else super().render(task)


class _RateColumn(ProgressColumn):
    """The rate, once it is known."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        if not speed:
            return Text("")
        rate = human.count(speed) if speed >= _LEAST_RATE else human.digits(speed)
        return Text(f"{rate}/s")


class _RemainingColumn(ProgressColumn):
    """The time left at that rate; empty if the end is unknown or reached."""

    def render(self, task: Task) -> Text:
        left_s = None if task.finished else task.time_remaining
        return Text("" if left_s is None else f"{human.duration(max(1.0, left_s))} left")


def shortened(text: str, width: int) -> str:
    """Returns a text cut to at most `width` columns, with an ellipsis if anything is left out."""
    return text if len(text) <= width else f"{text[: max(0, width - 1)].rstrip()}…"


@contextmanager
def progress_line(console: Console | None = None) -> Iterator[Report]:
    """Yields the progress callback of the search; the line goes to stderr unless another console is given."""
    console = console or Console(stderr=True)
    is_wide = console.width >= _WIDE
    bar = (BarColumn(bar_width=_BAR_COLUMNS),) if is_wide else ()
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        *bar,
        _CountColumn(),
        _RateColumn(),
        TimeElapsedColumn(),
        _RemainingColumn(),
        TextColumn("{task.fields[best]}"),
    )
    # By default rich shrinks all columns alike; here words are cut and figures stay whole.
    room = console.width - _FIGURE_COLUMNS - (_BAR_COLUMNS + 1 if is_wide else 0)
    # By default rich redirects stdout, which belongs to the answer.
    with Progress(
        *columns,
        console=console,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    ) as progress:
        task = progress.add_task("starting", total=None, best="")

        stage = ""

        def report(moment: Moment) -> None:
            nonlocal stage
            if moment.stage != stage:  # each kind of work has its own rate
                stage = moment.stage
                progress.reset(task)
            progress.update(
                task,
                description=escape(shortened(moment.stage, max(_LEAST_WORDS, room - 1 - len(moment.best)))),
                completed=moment.num_done,
                total=moment.num_total,
                best=escape(moment.best if room - 1 - len(moment.best) >= _LEAST_WORDS else ""),
            )

        yield report
