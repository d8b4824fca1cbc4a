"""What do you type to run a study? `capplan study` with run or resume: the same answer, and no simulated design is lost."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.options.gathered import gathered
from planner.cli.options.shared import (
    STORE,
    Tracking,
    job_argument,
    json_option,
    progress_options,
    seed_option,
    set_option,
    store_option,
    tracking_options,
)
from planner.cli.terminal.exit_codes import OF_ANSWER
from planner.cli.terminal.help import examples

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.job.typed_command import TypedCommand
    from planner.study.durable import StudyAnswer
    from studies.files.identity import Keep


_WHERE = (
    click.option(
        "--workers",
        type=click.IntRange(min=1, max=1024),
        metavar="N",
        help="Simulate in N processes on this machine (needs capplan[dask]).",
    ),
    click.option(
        "--scheduler",
        metavar="ADDRESS",
        help="Simulate on the workers of this Dask scheduler, such as tcp://10.0.0.1:8786.",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Where:
    """Where designs are simulated: the values of `_WHERE`."""

    workers: int | None
    scheduler: str | None

    def check(self) -> None:
        """Raises `click.UsageError` if both places are named."""
        if self.workers and self.scheduler:
            raise click.UsageError("--workers and --scheduler exclude each other: give one of them")


@dataclass(frozen=True, kw_only=True)
class Search:
    """How a study is searched and reported: the values of `_search_options`."""

    folder: Path
    tracking: Tracking
    where: Where
    quiet: bool
    as_json: bool

    def check(self) -> None:
        """Raises if options contradict each other, or the store's address is invalid."""
        from studies.tracking.store_address import asked_store

        self.where.check()
        self.tracking.check()
        if not self.tracking.no_tracking:
            asked_store(self.tracking.tracking_uri)

    def delivery(self, name: str) -> str:
        """Returns the command that delivers a study later to the intended store."""
        store = [f"--store {shlex.quote(str(self.folder))}"] if self.folder != STORE else []
        return " ".join(["capplan study sync", shlex.quote(name), *store, *self.tracking.typed()])


_search_options = gathered(
    (
        store_option,
        tracking_options("Do not deliver to MLflow; sync can do so later."),
        gathered(_WHERE, "where", Where),
        progress_options,
        json_option,
    ),
    "search",
    Search,
)
"""Adds the options on how a study is searched to a command, which receives them as `search`."""


@click.command(
    short_help="Start a study of a job.",
    epilog=examples(
        "capplan study run job.yaml", "capplan study run job.yaml --seed 2 --no-tracking --store studies"
    ),
)
@job_argument
@set_option
@seed_option("The same job, version and seed are the same study.")
@click.option(
    "--keep",
    type=click.Choice(["all", "front"]),
    default="all",
    show_default=True,
    help="Designs that an exhaustive search keeps: all, or only the front and counts of each block.",
)
@_search_options
def run(*, job: str, overrides: tuple[str, ...], seed: int, keep: Keep, search: Search) -> int:
    """Start a study of the training run that JOB.yaml describes, and search until it is answered.

    Every simulated design is written to the study's file before it is used. The study is delivered to MLflow while it
    runs; if MLflow cannot be reached, `capplan study sync` delivers it later. --workers and --scheduler do not affect the
    result.
    """
    search.check()
    from planner.job.file import load_job

    asked = load_job(job, overrides)
    from planner.job.typed_command import TypedCommand
    from planner.study.durable import run_study_of

    start = partial(run_study_of, asked, seed=seed, keep=keep)
    return _answered(start, search, TypedCommand(job=job, overrides=overrides, seed=seed))


@click.command(
    short_help="Continue a study that was stopped or killed.",
    epilog=examples("capplan study resume job-1a2b3c4d"),
)
@click.argument("name")
@_search_options
def resume(*, name: str, search: Search) -> int:
    """Continue the study NAME where it stopped; the answer is the same as without the interruption.

    A complete study shows its answer again.
    """
    search.check()
    from planner.study.durable import resume_study
    from studies.files.store import StudyStore

    return _answered(partial(resume_study, StudyStore(search.folder).find(name)), search)


def _answered(start: Callable[..., StudyAnswer], search: Search, typed: TypedCommand | None = None) -> int:
    """Starts a study and prints its answer; returns the exit code.

    Args:
        start: `run_study_of` or `resume_study` with its first arguments bound.
        search: how the study is searched and where it is recorded.
        typed: the command as typed, from which the answer derives further commands.
    """
    from planner.cli.options.names import in_options
    from planner.cli.terminal.interrupt import stop_on_interrupt
    from planner.cli.terminal.output import progress, quiet_libraries
    from planner.study.machines import machines
    from planner.tracking.sending import Target
    from studies.files.store import StudyStore

    where, tracking = search.where, search.tracking
    uri, experiment = tracking.tracking_uri, tracking.experiment
    target = None if tracking.no_tracking else Target(tracking_uri=uri, experiment=experiment)
    with stop_on_interrupt() as should_stop:
        with (
            quiet_libraries(),
            progress(is_shown=not search.quiet) as report,
            machines(where.workers, where.scheduler) as engine_for,
        ):
            found = start(
                store=StudyStore(search.folder),
                progress=report,
                should_stop=should_stop,
                engine_for=engine_for,
                target=target,
            )
            remark = engine_for.idle_note(found.counts)
        if remark:
            click.echo(remark, err=True)
        if found.tracking_failure:
            told = f"{in_options(found.tracking_failure)}\nNothing is lost: the study is in {found.path}."
            click.echo(f"{told} Deliver later: {search.delivery(found.path.stem)}", err=True)
        _show(found, typed, as_json=search.as_json)
    return OF_ANSWER[found.answer.status]


def _show(found: StudyAnswer, typed: TypedCommand | None, *, as_json: bool) -> None:
    from planner.cli.terminal.output import rendered, write
    from planner.recommended.output import answer_json
    from planner.study.view import show_counts
    from planner.views.render import show

    if as_json:
        write(answer_json(found.answer))
        return
    write(rendered(lambda console: show(found.answer, console, command=typed)))
    write(rendered(lambda console: show_counts(found.path.stem, found.counts, console)))
