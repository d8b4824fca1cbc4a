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
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

if TYPE_CHECKING:
    from studies.progress import Progress as Moment
    from studies.progress import Report


@contextmanager
def progress_line(console: Console | None = None) -> Iterator[Report]:
    """Yields what the search reports to; the line stands on stderr unless another console is given."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
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

        def report(moment: Moment) -> None:
            progress.update(
                task,
                description=escape(moment.stage),
                completed=moment.num_done,
                total=moment.num_total,
                best=escape(moment.best),
            )

        yield report
