"""What do you type to ask for a goodput? `capplan goodput` with the numbers of a run, or with a job and a plan.

Only click is imported here; everything heavier waits until the command runs, as in `planner.cli.commands`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import click
from click.core import ParameterSource

from planner.cli.finite_range import FiniteRange
from planner.cli.help import examples
from planner.cli.options import (
    CALIBRATION,
    job_values_options,
    json_option,
    parsed_interval,
    progress_options,
)
from planner.interval_text import Interval

if TYPE_CHECKING:
    from planner.goodput.answer import Goodput

POLICIES = ("skip", "wait", "widen")
"""The values of `planner.goodput.answer.Policy`, which is too heavy to be imported for `--help`."""
SECONDS_PER_DAY = 86_400.0
"""`simulator.units.DAY`."""
MOST_DAYS = 1e7
"""Below `planner.goodput.answer.LONGEST_S`."""

OPTION_NAMES = {
    "mtbf_s": "--mtbf-s",
    "interval_s": "--interval-s",
    "stall_s": "--stall-s",
    "commit_s": "--commit-s",
    "restart_s": "--restart-s",
    "tax_fraction": "--tax",
    "slots": "--slots",
    "policy": "--policy",
    "num_replications": "--replications",
    "seed": "--seed",
    "work_s": "--work-s",
}
"""Under which name each field of `planner.goodput.answer.RunInputs` is given."""
JOB_OPTIONS = {"plan": "--plan", "scheme": "--scheme", "overrides": "--set"}
"""Options that say something about a job."""


@click.command(
    short_help="Play a run with saves and failures, and find its best interval and scheme.",
    epilog=examples(
        "capplan goodput --mtbf-s 10980 --interval-s 371 --stall-s 0.8 --commit-s 60 --restart-s 390",
        "capplan goodput --mtbf-s 10980 --stall-s 5 --work-days 30",
        "capplan goodput --job job.yaml --plan tp=8,pp=4,dp=16 --scheme async",
    ),
)
@click.option("--mtbf-s", type=float, help="Mean up-time between failures; required without --job.")
@click.option(
    "--job", type=click.Path(), metavar="JOB.yaml", help="Take the numbers from this job and --plan."
)
@click.option(
    "--plan", metavar="KEY=VALUE,...|FILE", help="With --job: the decisions, as for capplan simulate."
)
@click.option("--scheme", metavar="NAME", help="With --job: the plan's checkpoint scheme, such as async.")
@job_values_options("With --job: replace a value of the job.")
@click.option(
    "--interval-s",
    "--interval",
    callback=parsed_interval,
    metavar="SECONDS|STEPSsteps|auto",
    help="Work between saves; auto (without --job the default): what gives most goodput. Steps need --job.",
)
@click.option("--stall-s", type=float, default=0.0, show_default=True, help="Training stopped per save.")
@click.option(
    "--commit-s",
    type=float,
    default=0.0,
    show_default=True,
    help="From the stall's end until the save can be restored.",
)
@click.option(
    "--restart-s",
    type=float,
    default=0.0,
    show_default=True,
    help="From a failure to the next useful work.",
)
@click.option(
    "--tax",
    type=float,
    default=0.0,
    show_default=True,
    help="Extra time per second of work while a save is on its way, such as 0.03.",
)
@click.option(
    "--slots", type=int, default=1, show_default=True, help="Saves that may be uncommitted at once."
)
@click.option(
    "--policy",
    type=click.Choice(POLICIES),
    default=POLICIES[0],
    show_default=True,
    help="When no slot is free: leave the save out, stand still, or save as soon as one is.",
)
@click.option("--work-s", type=float, help="Work to do, in seconds.")
@click.option(
    "--work-days",
    type=FiniteRange(0.0, MOST_DAYS, min_open=True),
    help="Work to do, in days; without either: what meets 1,000 failures, but 100 to 30,000 intervals.",
)
@click.option("--replications", type=int, default=400, show_default=True, help="Runs that are played.")
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="The same inputs, version and seed give the same answer.",
)
@json_option
@progress_options
def goodput(
    *,
    mtbf_s: float | None,
    job: str | None,
    plan: str | None,
    scheme: str | None,
    overrides: tuple[str, ...],
    interval_s: Interval | None,
    stall_s: float,
    commit_s: float,
    restart_s: float,
    tax: float,
    slots: int,
    policy: str,
    work_s: float | None,
    work_days: float | None,
    replications: int,
    seed: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Which share of its wall time does a run make good that saves every --interval-s and fails every --mtbf-s?

    The run is played event by event and compared with its closed form; docs/model.md has the conventions: failures
    are exponential in up-time, nothing fails during a restart, and work since the last committed save is lost.

    With --job and --plan the numbers are those of the job's run, but for the ones that are given, and all checkpoint
    schemes that the plan can use are compared.

    Exit codes: 0 an answer; 2 a value breaks a rule.
    """
    _check_combination(click.get_current_context().params)
    names = OPTION_NAMES if work_days is None else {**OPTION_NAMES, "work_s": "--work-days"}
    values: dict[str, object] = {
        "stall_s": stall_s,
        "commit_s": commit_s,
        "restart_s": restart_s,
        "tax_fraction": tax,
        "slots": slots,
        "policy": policy,
        "work_s": work_s if work_days is None else work_days * SECONDS_PER_DAY,
    }
    if job is None or plan is None:
        seconds = interval_s.seconds if interval_s else None
        played = {"mtbf_s": mtbf_s, "interval_s": seconds, "num_replications": replications, "seed": seed}
        _show(lambda: _of_numbers({**values, **played}, names), as_json=as_json, quiet=quiet)
        return
    asked = _Asked(job, plan, scheme, overrides, interval_s)
    numbers = {field: value for field, value in values.items() if _is_typed(field)}
    _show(lambda: _of_job(asked, numbers, names, replications, seed), as_json=as_json, quiet=quiet)


class _Asked(NamedTuple):
    """A job and a plan as they were typed."""

    job: str
    plan: str
    scheme: str | None
    overrides: tuple[str, ...]
    interval: Interval | None


def _check_combination(given: Mapping[str, object]) -> None:
    """Raises where the options do not say exactly one thing: a run in numbers, or a job with a plan."""
    has_numbers, has_job = given["mtbf_s"] is not None, given["job"] is not None
    interval = given["interval_s"]
    is_calibrated = click.get_current_context().meta.get(CALIBRATION) is not None
    options = JOB_OPTIONS | ({"overrides": "--calibration"} if is_calibrated else {})
    extra = [option for name, option in options.items() if given[name]]
    if has_numbers and has_job:
        raise click.UsageError(
            "--mtbf-s and --job exclude each other: failures follow from the job (--set changes it)"
        )
    if not has_numbers and not has_job:
        raise click.UsageError("Missing option '--mtbf-s', or '--job' with '--plan'.")
    if has_job and given["plan"] is None:
        raise click.UsageError("--job needs --plan, which says how the job is run")
    if extra and not has_job:
        raise click.UsageError(f"{extra[0]} needs --job, to which it belongs")
    if isinstance(interval, Interval) and interval.steps and not has_job:
        raise click.UsageError("an interval in steps needs --job, which knows how long a step takes")
    if given["work_s"] is not None and given["work_days"] is not None:
        raise click.UsageError("--work-s and --work-days contradict each other: give one of them")


def _is_typed(field: str) -> bool:
    """Returns whether a number was given on the command line rather than left at its default."""
    context = click.get_current_context()
    options = {"tax_fraction": ("tax",), "work_s": ("work_s", "work_days")}.get(field, (field,))
    return any(context.get_parameter_source(option) is ParameterSource.COMMANDLINE for option in options)


def _of_numbers(values: dict[str, object], names: dict[str, str]) -> Goodput:
    from planner.goodput.answer import play_goodput, run_inputs

    return play_goodput(run_inputs(values, names), interval_name=names["interval_s"])


def _of_job(
    asked: _Asked, numbers: dict[str, object], names: dict[str, str], replications: int, seed: int
) -> Goodput:
    from planner.goodput.job import play_job_goodput
    from planner.plan_saves import job_and_plan

    job, written = job_and_plan(
        asked.job, asked.overrides, asked.plan, scheme=asked.scheme, interval=asked.interval
    )
    return play_job_goodput(
        job, written, numbers, num_replications=replications, seed=seed, option_names=names
    )


def _show(answer_of: Callable[[], Goodput], *, as_json: bool, quiet: bool) -> None:
    from planner.cli.output import quiet_libraries, rendered, working, write
    from planner.goodput.view import show_goodput

    with quiet_libraries(), working("playing runs", is_shown=not quiet):
        answer = answer_of()
    if as_json:
        write(answer.model_dump_json(indent=2) + "\n")
    else:
        write(rendered(lambda console: show_goodput(answer, console)))
