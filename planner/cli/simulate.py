"""What do you type to simulate one plan? `capplan simulate` with a job and the decisions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.deep import Deep, deep_options, play_deep, refuse_run_options
from planner.cli.options.shared import (
    PlannedJob,
    json_option,
    planned_job_options,
    progress_options,
    seed_option,
)
from planner.cli.terminal.help import examples

if TYPE_CHECKING:
    from planner.one_design.simulated_design import SimulatedDesign
    from simulator.step.timeline import StepTimeline


@click.command(
    short_help="Simulate one plan and list the constraints that it violates.",
    epilog=examples(
        "capplan simulate job.yaml --plan tp=8,pp=4,dp=16,mbs=2",
        "capplan simulate job.yaml --plan plan.yaml --scheme async --interval 100steps",
        "capplan simulate job.yaml --plan tp=8,dp=64 --timeline step.json --json",
        "capplan simulate job.yaml --plan tp=8,pp=4,dp=16 --depth deep --slow-link card:3=0.5",
        "capplan simulate job.yaml --plan tp=8,dp=8 --depth deep --network dragonfly.yaml",
    ),
)
@planned_job_options
@seed_option("The same job, plan, version and seed give the same answer.")
@click.option(
    "--timeline",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE.json",
    help="Also write every event of one step, for ui.perfetto.dev or chrome://tracing.",
)
@click.option("--no-sensitivities", is_flag=True, help="Skip the sensitivity of the results to the inputs.")
@deep_options
@json_option
@progress_options
def simulate(
    *,
    planned: PlannedJob,
    seed: int,
    file: Path | None,
    no_sensitivities: bool,
    deep: Deep,
    as_json: bool,
    quiet: bool,
) -> None:
    """Simulate one plan for the training run that JOB.yaml describes.

    Keys are the fields of a plan (docs/simulate.md), with the short forms tp, pp, vpp, cp, ep, dp and mbs. Omitted keys
    have their defaults; num_gpus follows from the degrees, or dp from num_gpus.

    --depth deep simulates one step operator by operator and message by message on the network of the offer or of a file,
    and reports who waits for whom, and which links are hot.

    Exit codes: 0 an answer, even if the plan violates limits or cannot run (is_feasible is then false); 2 broken input,
    such as an unknown key.
    """
    from planner.cli.terminal.output import quiet_libraries, tell, working
    from planner.input.plan_input import read_plan
    from planner.job.file import load_job

    if file is not None:
        from planner.timeline.file import check_timeline_file

        check_timeline_file(file)
    if deep.is_asked:
        refuse_run_options(planned, no_sensitivities=no_sensitivities)
        asked, written = load_job(planned.job, planned.overrides), read_plan(planned.plan)
        play_deep(asked, written, deep, file=file, as_json=as_json, quiet=quiet)
        return
    deep.refuse()
    with quiet_libraries(), working("simulating the plan", is_shown=not quiet):
        asked, written = planned.read()
        from planner.one_design.simulated_design import one_step, simulate_plan
        from planner.views.one_design_view import show_simulated

        answer = simulate_plan(asked, written, seed, with_sensitivities=not no_sensitivities)
        step = one_step(asked, answer)
    tell(answer, lambda console: show_simulated(answer, console, step), as_json=as_json)
    if file is not None:
        _write_timeline(answer, step, file)


def _write_timeline(answer: SimulatedDesign, step: StepTimeline | None, file: Path) -> None:
    """Writes the timeline, and reports on stderr where it is or why there is none."""
    from planner.cli.terminal.output import tell_timeline
    from planner.recommended.design_words import layout
    from planner.timeline.file import write_timeline

    if step is None or answer.plan is None:
        click.echo("No timeline: the plan has no step to show.", err=True)
        return
    write_timeline(file, job=answer.job, plan=layout(answer.plan), step=step)
    tell_timeline(file)
