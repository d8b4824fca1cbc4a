"""What do you type to start a plan with Megatron-LM? `capplan launch` with a job and the decisions."""

from __future__ import annotations

import click

from planner.cli.options.shared import PlannedJob, json_option, planned_job_options, progress_options
from planner.cli.terminal.help import examples


@click.command(
    short_help="Print the script that starts a plan with Megatron-LM.",
    epilog=examples(
        "capplan launch job.yaml --plan tp=8,pp=4,dp=16,mbs=2 > run.sh",
        "capplan launch job.yaml --plan plan.yaml --scheme async --interval 100steps",
        "capplan launch job.yaml --plan plan.yaml --json",
    ),
)
@planned_job_options
@json_option
@progress_options
def launch(*, planned: PlannedJob, as_json: bool, quiet: bool) -> None:
    """Print a batch script for Slurm that starts a plan of JOB.yaml with Megatron-LM.

    What Megatron-LM does not have is replaced by the nearest that it has; the script begins with a list of these, and with
    the time and memory of what is run. Data, tokenizer and learning rates are arguments of the script (docs/launch.md).

    Exit codes: 0 a script; 2 broken input, a plan that cannot run, or a network that Megatron-LM does not have.
    """
    from planner.cli.terminal.output import quiet_libraries, tell_violations, working, write

    with quiet_libraries(), working("simulating the plan", is_shown=not quiet):
        job, written = planned.read()
        from planner.launch.answer import launch_plan
        from planner.launch.script import launch_script

        answer = launch_plan(job, written)
    write(answer.model_dump_json(indent=2) + "\n" if as_json else launch_script(answer))
    told = f"The plan as {answer.framework} runs it" if answer.differences else "The plan"
    tell_violations(answer.as_run.violations, told)
