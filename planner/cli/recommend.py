"""What do you type to have a cluster recommended? `capplan recommend` with a job."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.options.gathered import gathered
from planner.cli.options.shared import (
    Tracking,
    job_argument,
    json_option,
    progress_options,
    seed_option,
    set_option,
    tracking_options,
)
from planner.cli.terminal.help import examples

if TYPE_CHECKING:
    from planner.recommended.output import FrontFormat

FRONT_FORMATS = ("csv", "parquet")
_FILES = (
    click.option(
        "--output",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Also write the answer, the front, all evaluated designs and a report into a new folder.",
    ),
    click.option(
        "--format",
        "front_format",
        type=click.Choice(FRONT_FORMATS),
        help="Format of the front under --output; default: csv.",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Files:
    """The files that are written in addition to the answer: the values of `_FILES`."""

    output: Path | None
    front_format: FrontFormat | None

    def check(self) -> None:
        """Raises `click.UsageError` if a format is given without a folder."""
        if self.front_format and self.output is None:
            raise click.UsageError(
                "--format sets the format of the front under --output: give --output DIR, too"
            )

    def written(self) -> list[Path]:
        """Returns the files that exist once the answer is written; of an answer without any design there are none."""
        if self.output is None or not self.output.exists():
            return []
        return sorted(path for path in self.output.iterdir() if path.is_file())


@click.command(
    short_help="Recommend a cluster and a layout for a training run.",
    epilog=examples(
        "capplan recommend job.yaml",
        "capplan recommend job.yaml --set limits.budget_usd=4e6 --set site=sweden",
        "capplan recommend job.yaml --json --no-tracking > answer.json",
        "capplan recommend job.yaml --brief --output answer --format parquet",
    ),
)
@job_argument
@set_option
@seed_option("The same job, version and seed give the same answer.")
@json_option
@click.option(
    "--brief", "is_brief", is_flag=True, help="Print only the design and its figures, or why there is none."
)
@gathered(_FILES, "files", Files)
@tracking_options("Do not record the study in MLflow.")
@progress_options
def recommend(
    *,
    job: str,
    overrides: tuple[str, ...],
    seed: int,
    as_json: bool,
    is_brief: bool,
    files: Files,
    tracking: Tracking,
    quiet: bool,
) -> int:
    """Recommend a cluster and a layout for the training run that JOB.yaml describes.

    Exit codes: 0 a recommendation; 3 proven that no design meets the limits; 2 broken input; 130 interrupted
    (Ctrl-C once: the best design so far; twice: nothing); 1 anything else.
    """
    files.check()
    tracking.check()
    if as_json and is_brief:
        raise click.UsageError("--brief shortens the answer for people: leave out --json, or --brief")
    from planner.job.file import load_job

    asked = load_job(job, overrides)
    from planner import recommend as answer_to
    from planner.cli.terminal.exit_codes import OF_ANSWER
    from planner.cli.terminal.interrupt import stop_on_interrupt
    from planner.cli.terminal.output import progress, quiet_libraries, rendered, write
    from planner.job.typed_command import TypedCommand
    from planner.recommended.output import answer_json
    from planner.views.render import show

    with stop_on_interrupt() as should_stop:
        with quiet_libraries(), progress(is_shown=not quiet) as report:
            answer = answer_to(
                asked,
                seed=seed,
                tracking=not tracking.no_tracking,
                tracking_uri=tracking.tracking_uri,
                experiment=tracking.experiment,
                output=files.output,
                front_format=files.front_format or "csv",
                progress=report,
                should_stop=should_stop,
            )
        typed = TypedCommand(job=job, overrides=overrides, seed=seed, options=tracking.typed())
        if as_json:
            write(answer_json(answer))
        else:
            write(
                rendered(
                    lambda console: show(
                        answer, console, command=typed, files=files.written(), is_brief=is_brief
                    )
                )
            )
    return OF_ANSWER[answer.status]
