"""What do you type to run studies that survive crashes? `capplan study` with run, resume, status, list, front and more."""

from __future__ import annotations

import click

from planner.cli.study.files import export, merge, sync
from planner.cli.study.look import front, list_, status
from planner.cli.study.search import resume, run
from planner.cli.terminal.help import examples


@click.group(
    epilog=examples("capplan study run job.yaml", "capplan study list"),
    short_help="Run, resume, compare and deliver studies that survive crashes.",
)
def study() -> None:
    """Manage studies with a journal: if one is killed, no simulated design is lost, and it can be resumed.

    NAME is the name of a study as `list` shows it, its hash, the first four or more characters of either, or the path of
    its file, with or without .study.

    Exit codes: as `capplan recommend`; 1 also for a study that cannot be read or written.
    """


for command in (run, resume, status, list_, front, export, merge, sync):
    study.add_command(command)
