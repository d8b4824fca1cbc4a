"""What do you type to export a plan to another simulator? `capplan trace export-plan` with a job and the decisions."""

from __future__ import annotations

from pathlib import Path

import click

from planner.cli.options.shared import job_argument, plan_option, progress_options, set_option
from planner.cli.terminal.help import examples
from planner.cli.trace.answer import tell_chakra
from planner.cli.trace.options import chakra_output_options


@click.command(
    "export-plan",
    short_help="Write a step of a plan as Chakra traces, for ASTRA-sim.",
    epilog=examples(
        "capplan trace export-plan job.yaml --plan tp=8,pp=4,dp=4 --output astra",
        "capplan trace export-plan job.yaml --plan plan.yaml --format json --output astra",
    ),
)
@job_argument
@plan_option
@set_option
@chakra_output_options
@progress_options
def export_plan(
    *, job: str, plan: str, overrides: tuple[str, ...], form: str, folder: Path, quiet: bool
) -> None:
    """Write one step of a plan of JOB.yaml as Chakra execution traces.

    Writes one file per accelerator, step.RANK.et, with its operators, messages and collectives, and the groups of the
    collectives in step.groups.json. Operators have capplan's times; collectives are not split and have their sizes.
    capplan trace play can replay the files.

    Exit codes: 0 the files are written, even if the plan violates limits, which is reported; 2 broken input, or a plan
    that cannot be run.
    """
    from planner.cli.terminal.output import quiet_libraries, tell_violations, working
    from planner.explain.runnable_plan import checked_plan
    from planner.input.plan_input import read_plan
    from planner.job.file import load_job
    from planner.trace.export import export_step

    with quiet_libraries(), working("writing the traces", is_shown=not quiet):
        asked = load_job(job, overrides)
        checked, broken = checked_plan(asked, read_plan(plan))
        num_nodes = export_step(asked, checked, folder, suffix=f".{form}")
    tell_chakra(folder / f"step.0.{form}", checked.num_gpus, num_nodes)
    tell_violations(broken)
