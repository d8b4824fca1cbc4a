"""Which arguments do several commands have in common? A job file, values that replace its own, a plan, and a seed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from planner.cli_output import VERBOSE
from planner.interval_text import Interval, parse_interval

LARGEST_SEED = 2**32 - 1

Command = TypeVar("Command", bound=Callable[..., Any])

job_argument = click.argument("job", type=click.Path(), metavar="JOB.yaml")
CALIBRATION = "calibration file"
"""Where the option of a calibration leaves it, in `click.Context.meta`."""


def _remember_calibration(context: click.Context, _: click.Parameter, value: Path | None) -> None:
    context.meta[CALIBRATION] = value


def _with_calibration(
    context: click.Context, _: click.Parameter, overrides: tuple[str, ...]
) -> tuple[str, ...]:
    """Returns the values that replace those of a job, the calibration first: paths in jobs start at the job's folder."""
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


def job_values_options(
    meaning: str = "Replace a value of the job, such as limits.budget_usd=4e6; may be repeated.",
) -> Callable[[Command], Command]:
    """Returns --set, and --calibration, which is one more value of the job."""
    values = click.option(
        "--set", "overrides", multiple=True, metavar="FIELD=VALUE", callback=_with_calibration, help=meaning
    )
    return lambda command: values(calibration_option(command))


set_option = job_values_options()
json_option = click.option("--json", "as_json", is_flag=True, help="Print the answer as one JSON object.")

store_option = click.option(
    "--store",
    "folder",
    type=click.Path(path_type=Path),
    default=Path("capplan-studies"),
    show_default=True,
    metavar="DIR",
    help="Folder of the studies.",
)
tracking_uri_option = click.option(
    "--tracking-uri",
    metavar="URI",
    help="MLflow store; otherwise MLFLOW_TRACKING_URI, otherwise capplan-studies/mlflow.db.",
)
experiment_option = click.option(
    "--experiment", default="capplan", show_default=True, help="MLflow experiment of the study."
)


def parsed_interval(_context: click.Context, _option: click.Parameter, value: str | None) -> Interval | None:
    """Returns what was typed as an interval between saves; `None` where nothing was."""
    try:
        return None if value is None else parse_interval(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} {error}") from None


plan_option = click.option(
    "--plan",
    required=True,
    metavar="KEY=VALUE,...|FILE",
    help="The decisions, such as accelerator=h100-sxm5-80gb,tp=8,pp=4,dp=16,mbs=2, or a file of them.",
)
scheme_option = click.option("--scheme", metavar="NAME", help="The plan's checkpoint scheme, such as async.")
interval_option = click.option(
    "--interval",
    callback=parsed_interval,
    metavar="SECONDS|STEPSsteps|auto",
    help="Training between saves, such as 600 or 100steps; auto: what loses least.",
)


def _remember_verbose(context: click.Context, _: click.Parameter, value: bool) -> None:
    context.meta[VERBOSE] = value


def progress_options(command: Command) -> Command:
    """Adds --quiet, which the command gets as an argument, and --verbose, which `planner.cli_output` looks up."""
    quiet = click.option("--quiet", is_flag=True, help="Show no progress.")
    verbose = click.option(
        "--verbose",
        is_flag=True,
        expose_value=False,
        callback=_remember_verbose,
        help="Say on stderr what is being done, a line a stage, and show warnings of libraries.",
    )
    return quiet(verbose(command))


def seed_option(meaning: str) -> Callable[[Command], Command]:
    """Returns the option of a seed with what the same seed promises."""
    return click.option(
        "--seed", type=click.IntRange(0, LARGEST_SEED), default=0, show_default=True, help=meaning
    )


def replay_option(last: int) -> Callable[[Command], Command]:
    """Returns the option of a replay up to a last one."""
    return click.option(
        "--replay",
        type=click.IntRange(0, last),
        default=0,
        show_default=True,
        help="Which of the replays that the spread of an answer is made of.",
    )


def planned_job_options(command: Command) -> Command:
    """Adds what says of which job, with which values, which plan is meant, and how it saves."""
    for option in (set_option, interval_option, scheme_option, plan_option, job_argument):
        command = option(command)
    return command
