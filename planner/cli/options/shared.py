"""Which arguments do several commands share? A job file, values that replace its own, a plan, and a seed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.options.completed import schemes
from planner.cli.options.gathered import Command, gathered
from planner.cli.terminal.output import VERBOSE
from planner.text.interval_text import Interval, parse_interval

if TYPE_CHECKING:
    from simulator.domain.job import Job

LARGEST_SEED = 2**32 - 1
"""The same as `planner.input.arguments.LARGEST_SEED`, which is too slow to import for `--help`."""

job_argument = click.argument("job", type=click.Path(), metavar="JOB.yaml")
CALIBRATION = "calibration file"
"""Key in `click.Context.meta` under which the calibration option stores the file."""


def _remember_calibration(context: click.Context, _: click.Parameter, value: Path | None) -> None:
    context.meta[CALIBRATION] = value


def _with_calibration(
    context: click.Context, _: click.Parameter, overrides: tuple[str, ...]
) -> tuple[str, ...]:
    """Returns a job's overrides, the calibration first; its path is absolute, as relative ones start at the job's folder."""
    file: Path | None = context.meta.get(CALIBRATION)
    return overrides if file is None else (f"calibration={json.dumps(str(file.absolute()))}", *overrides)


calibration_option = click.option(
    "--calibration",
    type=click.Path(path_type=Path),
    metavar="FILE.yaml",
    is_eager=True,
    expose_value=False,
    callback=_remember_calibration,
    help="Constants measured on the cluster, from capplan calibrate.",
)


def _with_own_figures(context: click.Context, _: click.Parameter, files: tuple[Path, ...]) -> None:
    if files:
        from simulator.catalog import overlaid, read_own_figures

        context.with_resource(overlaid(read_own_figures(files)))


own_figures_option = click.option(
    "--with",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    expose_value=False,
    callback=_with_own_figures,
    help="Your own hardware, in a file with the columns of the catalogue, as `catalog` of a job names it; may be repeated.",
)
"""Adds --with to a command without a job, during which the figures of the files replace those of the catalogue."""


def job_values_options(
    meaning: str = "Replace a value of the job, such as limits.budget_usd=4e6; may be repeated.",
) -> Callable[[Command], Command]:
    """Returns --set and --calibration; the latter is one more override of the job."""
    values = click.option(
        "--set", "overrides", multiple=True, metavar="FIELD=VALUE", callback=_with_calibration, help=meaning
    )
    return lambda command: values(calibration_option(command))


set_option = job_values_options()
json_option = click.option("--json", "as_json", is_flag=True, help="Print the answer as one JSON object.")

STORE = Path("capplan-studies")
"""The same as `studies.files.store.DEFAULT_FOLDER`, which is too slow to import for `--help`."""
store_option = click.option(
    "--store",
    "folder",
    type=click.Path(path_type=Path),
    default=STORE,
    show_default=True,
    metavar="DIR",
    help="Folder of the studies.",
)
tracking_uri_option = click.option(
    "--tracking-uri",
    metavar="URI",
    help="MLflow store; default: MLFLOW_TRACKING_URI, else capplan-studies/mlflow.db.",
)
EXPERIMENT = "capplan"


def _not_blank(_: click.Context, __: click.Parameter, name: str) -> str:
    """Returns a name; refuses a blank one, by which nobody could find anything."""
    if not name.strip():
        raise click.BadParameter("must not be empty")
    return name


experiment_option = click.option(
    "--experiment",
    default=EXPERIMENT,
    show_default=True,
    callback=_not_blank,
    help="MLflow experiment of the study.",
)


@dataclass(frozen=True, kw_only=True)
class Tracking:
    """Where MLflow records a study: the values of `tracking_options`."""

    tracking_uri: str | None
    experiment: str
    no_tracking: bool

    def check(self) -> None:
        """Raises `click.UsageError` if a store is named together with `--no-tracking`."""
        if self.tracking_uri and self.no_tracking:
            raise click.UsageError("--tracking-uri and --no-tracking contradict each other: give one of them")

    def typed(self) -> tuple[str, ...]:
        """Returns the options as typed, with `***` for passwords."""
        from studies.tracking.mlflow_session import without_password

        uri = without_password(self.tracking_uri) if self.tracking_uri else ""
        return (
            *([f"--tracking-uri {shlex.quote(uri)}"] if uri else []),
            *([f"--experiment {shlex.quote(self.experiment)}"] if self.experiment != EXPERIMENT else []),
            *(["--no-tracking"] if self.no_tracking else []),
        )


def tracking_options(without: str) -> Callable[[Command], Command]:
    """Returns a decorator that adds the options of MLflow to a command, which receives them as `tracking`.

    Args:
        without: what `--no-tracking` does.
    """
    off = click.option("--no-tracking", is_flag=True, help=without)
    options = (tracking_uri_option, experiment_option, off)
    return gathered(options, "tracking", Tracking)


def parsed_interval(_context: click.Context, _option: click.Parameter, value: str | None) -> Interval | None:
    """Returns the typed interval between saves; `None` if none was typed."""
    try:
        return None if value is None else parse_interval(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} {error}") from None


plan_option = click.option(
    "--plan",
    required=True,
    metavar="KEY=VALUE,...|FILE",
    help="The plan, such as accelerator=mi300x,tp=8,pp=4,dp=16,mbs=2, or a file with it.",
)
scheme_option = click.option(
    "--scheme", metavar="NAME", help="The plan's checkpoint scheme, such as async.", shell_complete=schemes
)
interval_option = click.option(
    "--interval",
    callback=parsed_interval,
    metavar="SECONDS|STEPSsteps|auto",
    help="Training between saves, such as 600 or 100steps; auto: the interval with the least loss.",
)


def _remember_verbose(context: click.Context, _: click.Parameter, value: bool) -> None:
    context.meta[VERBOSE] = value


def progress_options(command: Command) -> Command:
    """Adds --quiet, which the command receives as an argument, and --verbose, which `planner.cli.terminal.output` reads."""
    quiet = click.option("--quiet", is_flag=True, help="Show no progress.")
    verbose = click.option(
        "--verbose",
        is_flag=True,
        expose_value=False,
        callback=_remember_verbose,
        help="Report progress on stderr, one line per stage, and show warnings of libraries.",
    )
    return quiet(verbose(command))


def seed_option(meaning: str) -> Callable[[Command], Command]:
    """Returns the seed option; its help says what equal seeds guarantee."""
    return click.option(
        "--seed", type=click.IntRange(0, LARGEST_SEED), default=0, show_default=True, help=meaning
    )


def replay_option(last: int) -> Callable[[Command], Command]:
    """Returns the option that chooses a replay, from 0 to `last`."""
    return click.option(
        "--replay",
        type=click.IntRange(0, last),
        default=0,
        show_default=True,
        help="Which of the replays behind the spread of an answer.",
    )


@dataclass(frozen=True, kw_only=True)
class PlannedJob:
    """A job, a plan, and how it saves checkpoints: the values of `planned_job_options`."""

    job: str
    """Path of the job file."""
    plan: str
    """Decisions, or a file of them."""
    scheme: str | None
    interval: Interval | None
    overrides: tuple[str, ...]
    """Values that replace those of the job."""

    def read(self) -> tuple[Job, dict[str, object]]:
        """Returns the job and the plan as written; raises like `planner.one_design.plan_saves.job_and_plan`."""
        from planner.one_design.plan_saves import job_and_plan

        return job_and_plan(self.job, self.overrides, self.plan, scheme=self.scheme, interval=self.interval)


planned_job_options = gathered(
    (job_argument, plan_option, scheme_option, interval_option, set_option), "planned", PlannedJob
)
"""Adds a job, a plan and how it saves to a command, which receives them as `planned`."""
