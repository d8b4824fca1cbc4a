"""What do you type to ask for a goodput? `capplan goodput` with the numbers of a run, without a job.

Only click is imported here; everything heavier waits until the command runs, as in `planner.cli`.
"""

from __future__ import annotations

import click

POLICIES = ("skip", "wait", "widen")
"""The values of `planner.goodput.Policy`, which is too heavy to be imported for `--help`."""
AUTO = "auto"
SECONDS_PER_DAY = 86_400.0
"""`simulator.units.DAY`."""
MOST_DAYS = 1e7
"""Below `planner.goodput.LONGEST_S`."""

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
"""Under which name each field of `planner.goodput.RunInputs` is given."""


def _seconds_or_auto(_context: click.Context, _option: click.Parameter, value: str) -> float | None:
    """Returns a number of seconds; `None` for `auto`."""
    if value == AUTO:
        return None
    try:
        return float(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} must be a number of seconds above 0, or {AUTO}") from None


@click.command(short_help="Play a run with saves and failures, and find its best interval.")
@click.option("--mtbf-s", type=float, required=True, help="Mean up-time between failures.")
@click.option(
    "--interval-s",
    callback=_seconds_or_auto,
    default=AUTO,
    show_default=True,
    metavar="SECONDS|auto",
    help="Work between saves; auto: the interval of the largest goodput.",
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
    type=click.FloatRange(0.0, MOST_DAYS, min_open=True),
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
@click.option("--json", "as_json", is_flag=True, help="Print the answer as one JSON object.")
def goodput(
    *,
    mtbf_s: float,
    interval_s: float | None,
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
) -> None:
    """Which share of its wall time does a run make good that saves every --interval-s and fails every --mtbf-s?

    The run is played event by event and compared with its closed form; docs/model.md has the conventions: failures
    are exponential in up-time, nothing fails during a restart, and work since the last committed save is lost.

    Exit codes: 0 an answer; 2 a value breaks a rule.
    """
    if work_s is not None and work_days is not None:
        raise click.UsageError("--work-s and --work-days contradict each other: give one of them")
    values: dict[str, object] = {
        "mtbf_s": mtbf_s,
        "interval_s": interval_s,
        "stall_s": stall_s,
        "commit_s": commit_s,
        "restart_s": restart_s,
        "tax_fraction": tax,
        "slots": slots,
        "policy": policy,
        "num_replications": replications,
        "seed": seed,
        "work_s": work_s if work_days is None else work_days * SECONDS_PER_DAY,
    }
    names = OPTION_NAMES if work_days is None else {**OPTION_NAMES, "work_s": "--work-days"}
    _answer(values, names, as_json=as_json)


def _answer(values: dict[str, object], names: dict[str, str], *, as_json: bool) -> None:
    from planner.cli import _check_installation, _quiet_libraries, _rendered, _write

    _check_installation()
    from planner.goodput import play_goodput, run_inputs
    from planner.goodput_view import show_goodput

    with _quiet_libraries():
        answer = play_goodput(run_inputs(values, names), interval_name=names["interval_s"])
    if as_json:
        _write(answer.model_dump_json(indent=2) + "\n")
    else:
        _write(_rendered(lambda console: show_goodput(answer, console)))
