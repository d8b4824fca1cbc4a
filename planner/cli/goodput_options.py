"""Which arguments does `capplan goodput` take? The numbers of a run, or a job and a plan from which they follow."""

from __future__ import annotations

from dataclasses import dataclass

import click

from planner.cli.options.completed import schemes
from planner.cli.options.finite_range import FiniteRange
from planner.cli.options.gathered import gathered
from planner.cli.options.given import is_given
from planner.cli.options.shared import CALIBRATION, job_values_options, parsed_interval
from planner.text.interval_text import Interval
from simulator.units import DAY

POLICIES = ("skip", "wait", "widen")
"""The values of `planner.goodput.answer.Policy`, which is too slow to import for `--help`."""
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
"""The option that gives each field of `planner.goodput.answer.RunInputs`."""
_TYPED = {"tax_fraction": ("tax",), "work_s": ("work_s", "work_days")}
"""Parameters of each field that has another name than its parameters."""

_NUMBERS = (
    click.option("--mtbf-s", type=float, help="Mean time between failures; required without --job."),
    click.option(
        "--interval-s",
        "--interval",
        callback=parsed_interval,
        metavar="SECONDS|STEPSsteps|auto",
        help="Work between saves; auto (default without --job): the interval with the highest goodput. Steps need --job.",
    ),
    click.option(
        "--stall-s",
        type=float,
        default=0.0,
        show_default=True,
        help="Time that training stops for each save.",
    ),
    click.option(
        "--commit-s",
        type=float,
        default=0.0,
        show_default=True,
        help="Time from the end of the stall until the save can be restored.",
    ),
    click.option(
        "--restart-s",
        type=float,
        default=0.0,
        show_default=True,
        help="Time from a failure to the next useful work.",
    ),
    click.option(
        "--tax",
        type=float,
        default=0.0,
        show_default=True,
        help="Extra time per second of work while a save is in flight, such as 0.03.",
    ),
    click.option(
        "--slots",
        type=int,
        default=1,
        show_default=True,
        help="Most saves that may be uncommitted at the same time.",
    ),
    click.option(
        "--policy",
        type=click.Choice(POLICIES),
        default=POLICIES[0],
        show_default=True,
        help="If no slot is free: skip the save, stall, or save as soon as a slot is free.",
    ),
    click.option("--work-s", type=float, help="Work to do, in seconds."),
    click.option(
        "--work-days",
        type=FiniteRange(0.0, MOST_DAYS, min_open=True),
        help="Work to do, in days; default: enough for 1,000 failures, within 100 to 30,000 intervals.",
    ),
    click.option("--replications", type=int, default=400, show_default=True, help="Simulated runs."),
    click.option(
        "--seed",
        type=int,
        default=0,
        show_default=True,
        help="The same inputs, version and seed give the same answer.",
    ),
)
_JOB = (
    click.option(
        "--job", type=click.Path(), metavar="JOB.yaml", help="Take the values from this job and --plan."
    ),
    click.option(
        "--plan", metavar="KEY=VALUE,...|FILE", help="With --job: the decisions, as for capplan simulate."
    ),
    click.option(
        "--scheme",
        metavar="NAME",
        help="With --job: the plan's checkpoint scheme, such as async.",
        shell_complete=schemes,
    ),
    job_values_options("With --job: replace a value of the job."),
)


@dataclass(frozen=True, kw_only=True)
class RunNumbers:
    """The numbers of a run: the values of `number_options`."""

    mtbf_s: float | None
    interval_s: Interval | None
    stall_s: float
    commit_s: float
    restart_s: float
    tax: float
    slots: int
    policy: str
    work_s: float | None
    work_days: float | None
    replications: int
    seed: int

    @property
    def names(self) -> dict[str, str]:
        """Returns the option by which each field of a run was given."""
        return OPTION_NAMES if self.work_days is None else {**OPTION_NAMES, "work_s": "--work-days"}

    def values(self) -> dict[str, object]:
        """Returns the fields of a run, without those that a job expresses in other words."""
        return {
            "stall_s": self.stall_s,
            "commit_s": self.commit_s,
            "restart_s": self.restart_s,
            "tax_fraction": self.tax,
            "slots": self.slots,
            "policy": self.policy,
            "work_s": self.work_s if self.work_days is None else self.work_days * DAY,
        }

    def typed_values(self) -> dict[str, object]:
        """Returns those of the values that were typed rather than left at their defaults."""
        return {
            field: value
            for field, value in self.values().items()
            if any(is_given(name) for name in _TYPED.get(field, (field,)))
        }


@dataclass(frozen=True, kw_only=True)
class AskedJob:
    """A job and a plan as typed: the values of `job_options`."""

    job: str | None
    plan: str | None
    scheme: str | None
    overrides: tuple[str, ...]

    def extra(self) -> list[str]:
        """Returns the given options that only apply to a job."""
        is_calibrated = click.get_current_context().meta.get(CALIBRATION) is not None
        values = {
            "--plan": self.plan,
            "--scheme": self.scheme,
            "--calibration" if is_calibrated else "--set": self.overrides,
        }
        return [option for option, value in values.items() if value]


number_options = gathered(_NUMBERS, "run", RunNumbers)
"""Adds the numbers of a run to a command, which receives them as `run`."""


job_options = gathered(_JOB, "asked", AskedJob)
"""Adds a job and a plan to a command, which receives them as `asked`."""


def check_combination(run: RunNumbers, asked: AskedJob) -> None:
    """Raises unless the options give exactly one of the two: a run in numbers, or a job with a plan."""
    has_numbers, has_job = run.mtbf_s is not None, asked.job is not None
    if has_numbers and has_job:
        raise click.UsageError(
            "--mtbf-s and --job exclude each other: failures follow from the job (use --set to change them)"
        )
    if not has_numbers and not has_job:
        raise click.UsageError("Missing option '--mtbf-s', or '--job' with '--plan'.")
    if has_job and asked.plan is None:
        raise click.UsageError("--job needs --plan, which says how the job is run")
    if not has_job and (extra := asked.extra()):
        raise click.UsageError(f"{extra[0]} needs --job, to which it belongs")
    if run.interval_s and run.interval_s.steps and not has_job:
        raise click.UsageError("an interval in steps needs --job, which knows how long a step takes")
    if run.work_s is not None and run.work_days is not None:
        raise click.UsageError("--work-s and --work-days contradict each other: give one of them")
