"""How far is the search? One line on the terminal that renews itself and disappears in the end."""

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

from planner import human

if TYPE_CHECKING:
    from studies.progress import Progress as Moment
    from studies.progress import Report


_LEAST_RATE = 10.0
"""Slower work is told in pieces a second with digits behind the point."""


class _RateColumn(ProgressColumn):
    """How fast it goes, once that is known."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        if not speed:
            return Text("")
        rate = human.count(speed) if speed >= _LEAST_RATE else human.digits(speed)
        return Text(f"{rate}/s")


class _RemainingColumn(ProgressColumn):
    """How long it still takes at that rate; nothing where the end is not known."""

    def render(self, task: Task) -> Text:
        left_s = task.time_remaining
        return Text("" if left_s is None else f"{human.duration(max(1.0, left_s))} left")


@contextmanager
def progress_line(console: Console | None = None) -> Iterator[Report]:
    """Yields what the search reports to; the line stands on stderr unless another console is given."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        _RateColumn(),
        TimeElapsedColumn(),
        _RemainingColumn(),
        TextColumn("{task.fields[best]}"),
    )
    # Left alone, rich would catch stdout, which belongs to the answer.
    with Progress(
        *columns,
        console=console or Console(stderr=True),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    ) as progress:
        task = progress.add_task("reading the job", total=None, best="")

        stage = ""

        def report(moment: Moment) -> None:
            nonlocal stage
            if moment.stage != stage:  # another kind of work has a rate of its own
                stage = moment.stage
                progress.reset(task)
            progress.update(
                task,
                description=escape(moment.stage),
                completed=moment.num_done,
                total=moment.num_total,
                best=escape(moment.best),
            )

        yield report
