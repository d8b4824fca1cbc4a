"""What do you type to compute a goodput? `capplan goodput` with the numbers of a run, or with a job and a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from planner.cli.goodput_options import AskedJob, RunNumbers, check_combination, job_options, number_options
from planner.cli.options.shared import json_option, progress_options
from planner.cli.terminal.help import examples

if TYPE_CHECKING:
    from planner.goodput.answer import Goodput


@click.command(
    short_help="Simulate a run with saves and failures, and find the best interval and scheme.",
    epilog=examples(
        "capplan goodput --mtbf-s 10980 --interval-s 371 --stall-s 0.8 --commit-s 60 --restart-s 390",
        "capplan goodput --mtbf-s 10980 --stall-s 5 --work-days 30",
        "capplan goodput --job job.yaml --plan tp=8,pp=4,dp=16 --scheme async",
    ),
)
@number_options
@job_options
@json_option
@progress_options
def goodput(*, run: RunNumbers, asked: AskedJob, as_json: bool, quiet: bool) -> None:
    """Compute the goodput of a run that saves every --interval-s and fails every --mtbf-s.

    The run is simulated event by event and compared with its closed form. Conventions (docs/model/run.md): failures are
    exponential in up-time, nothing fails during a restart, and work since the last committed save is lost.

    With --job and --plan, values that are not given come from the job's run, and all checkpoint schemes that the plan
    can use are compared.

    Exit codes: 0 an answer; 2 a value breaks a rule.
    """
    check_combination(run, asked)
    from planner.cli.terminal.output import quiet_libraries, tell, working

    with quiet_libraries(), working("playing runs", is_shown=not quiet):
        if asked.job is None or asked.plan is None:
            answer = _of_numbers(run)
        else:
            answer = _of_job(run, asked.job, asked.plan, asked.scheme, asked.overrides)
    from planner.goodput.view import show_goodput

    tell(answer, lambda console: show_goodput(answer, console), as_json=as_json)


def _of_numbers(run: RunNumbers) -> Goodput:
    from planner.goodput.answer import play_goodput, run_inputs

    values = {
        **run.values(),
        "mtbf_s": run.mtbf_s,
        "interval_s": run.interval_s.seconds if run.interval_s else None,
        "num_replications": run.replications,
        "seed": run.seed,
    }
    return play_goodput(run_inputs(values, run.names), interval_name=run.names["interval_s"])


def _of_job(run: RunNumbers, job: str, plan: str, scheme: str | None, overrides: tuple[str, ...]) -> Goodput:
    from planner.one_design.plan_saves import job_and_plan

    loaded, written = job_and_plan(job, overrides, plan, scheme=scheme, interval=run.interval_s)
    from planner.goodput.job import play_job_goodput

    return play_job_goodput(
        loaded,
        written,
        run.typed_values(),
        num_replications=run.replications,
        seed=run.seed,
        option_names=run.names,
    )
