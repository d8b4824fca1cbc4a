"""What do you type to look at studies? `capplan study` with status, list and front, even while a study runs."""

from __future__ import annotations

from pathlib import Path

import click

from planner.cli.options.shared import json_option, store_option
from planner.cli.terminal.help import examples


@click.command(
    short_help="Show the state of a study.",
    epilog=examples("capplan study status job-1a2b3c4d", "capplan study status 1a2b --json"),
)
@click.argument("name")
@store_option
@json_option
def status(*, name: str, folder: Path, as_json: bool) -> None:
    """Show the progress and results of the study NAME, even while it is running."""
    from planner.cli.terminal.output import tell
    from planner.study.reports import status_of
    from planner.study.view import show_status
    from studies.files.store import StudyStore, called

    path = StudyStore(folder).find(name)
    found = status_of(path)
    tell(found, lambda console: show_status(found, console, called(path)), as_json=as_json)


@click.command(
    "list",
    short_help="List all studies.",
    epilog=examples("capplan study list", "capplan study list --store studies --json"),
)
@store_option
@json_option
def list_(*, folder: Path, as_json: bool) -> None:
    """List the studies of the folder with their states."""
    from planner.cli.terminal.output import tell
    from planner.study.reports import StudyList, list_studies
    from planner.study.view import show_list
    from studies.files.store import StudyStore

    found = list_studies(StudyStore(folder))
    answer = StudyList(studies=tuple(found))
    tell(answer, lambda console: show_list(found, folder, console), as_json=as_json)


@click.command(
    short_help="Show the current front of a study.", epilog=examples("capplan study front job-1a2b3c4d")
)
@click.argument("name")
@store_option
@json_option
def front(*, name: str, folder: Path, as_json: bool) -> None:
    """Show the Pareto front of the study NAME, even while it is running."""
    from planner.cli.terminal.output import tell
    from planner.study.reports import front_of
    from planner.study.view import show_front
    from studies.files.store import StudyStore

    found = front_of(StudyStore(folder).find(name))
    tell(found, lambda console: show_front(found, console), as_json=as_json)
