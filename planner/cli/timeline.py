"""What do you type to see a step and a run over time? `capplan timeline` with a job and the decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.options.shared import (
    PlannedJob,
    json_option,
    planned_job_options,
    progress_options,
    replay_option,
    seed_option,
)
from planner.cli.terminal.help import examples

if TYPE_CHECKING:
    from rich.console import Console

    from planner.one_design.simulated_design import SimulatedDesign
    from planner.timeline.run import TimelineAnswer
    from simulator.domain.job import Job
    from simulator.domain.plan import Plan
    from simulator.run_timeline import RunTimeline
    from simulator.step.timeline import StepTimeline

LAST_REPLAY = 399
"""`planner.uncertain.uncertainty.NUM_REPLAYS` less one: the spread of an answer comes from these replays."""
STEP, RUN, BOTH = DRAWN = ("step", "run", "both")
"""What a file may hold. A viewer shows everything on one time axis, where a step is invisible next to a run of days."""


@click.command(
    short_help="Show one step and one run of a plan over time.",
    epilog=examples(
        "capplan timeline job.yaml --plan tp=8,pp=4,dp=16,mbs=2",
        "capplan timeline job.yaml --plan plan.yaml --output step.json",
        "capplan timeline job.yaml --plan plan.yaml --what run --output run.json",
        "capplan timeline job.yaml --plan tp=8,dp=64 --replay 17 --seed 3 --json",
    ),
)
@planned_job_options
@seed_option("Seed of the replays, as for capplan simulate.")
@replay_option(LAST_REPLAY)
@click.option(
    "--output",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE.json",
    help="Also write every event, for ui.perfetto.dev or chrome://tracing.",
)
@click.option(
    "--what",
    type=click.Choice(DRAWN),
    default=STEP,
    show_default=True,
    help="What --output writes. With both, a viewer shows the run, and the step when zoomed in.",
)
@json_option
@progress_options
def timeline(
    *,
    planned: PlannedJob,
    seed: int,
    replay: int,
    file: Path | None,
    what: str,
    as_json: bool,
    quiet: bool,
) -> None:
    """Show one step of a plan, stage by stage, and one run of it: saves, failures, restarts.

    The step is the one behind the answer's step time; the run is one of the replays behind its spread. --output writes
    the step as a trace: its stages, and the traffic between them. --what run writes the run.

    Exit codes: 0 an answer; 2 broken input, or a plan that cannot be run.
    """
    from planner.cli.terminal.output import quiet_libraries, tell, working

    if file is not None:
        from planner.timeline.file import check_timeline_file

        check_timeline_file(file, "--output")
    with quiet_libraries(), working("playing the run", is_shown=not quiet):
        asked, written = planned.read()
        played = _played(asked, written, seed, replay)
    if file is not None and what != RUN and played.step is None:
        raise _no_step(what)
    tell(played.answer, partial(_show, played), as_json=as_json)
    if file is not None:
        _write(played, file, what)


@dataclass(frozen=True, kw_only=True)
class _Played:
    """One step and one run of a plan; `step` is `None` if it has too many passes to draw."""

    found: SimulatedDesign
    plan: Plan
    step: StepTimeline | None
    run: RunTimeline
    answer: TimelineAnswer


def _played(job: Job, written: Mapping[str, object], seed: int, replay: int) -> _Played:
    from planner.one_design.simulated_design import one_step, simulate_plan
    from planner.timeline.run import timeline_answer
    from simulator.run_timeline import run_timeline

    found = simulate_plan(job, written, seed, with_sensitivities=False)
    plan = _plan_that_runs(found)
    run = run_timeline(job, plan, seed=seed, replication=replay)
    answer = timeline_answer(job, plan, found.timeline, run)
    return _Played(found=found, plan=plan, step=one_step(job, found), run=run, answer=answer)


def _show(played: _Played, console: Console) -> None:
    from planner.job.named_model import told_changes
    from planner.recommended.design_words import layout
    from planner.text.text_blocks import headline, sentences
    from planner.timeline.run_view import show_run
    from planner.timeline.view import show_timeline

    broken = [rule.sentence for rule in played.found.violations if rule.kind == "physics"]
    headline(console, f"{played.found.job}: {layout(played.plan)}", is_good=not broken)
    sentences(console, [*told_changes(played.answer.model), *broken])
    if played.step:
        show_timeline(played.step, console)
    show_run(played.run, played.answer.run, console)


def _write(played: _Played, file: Path, what: str) -> None:
    from planner.cli.terminal.output import tell_timeline
    from planner.recommended.design_words import layout
    from planner.timeline.file import write_timeline

    write_timeline(
        file,
        job=played.found.job,
        plan=layout(played.plan),
        step=played.step if what != RUN else None,
        run=played.run if what != STEP else None,
        option="--output",
    )
    tell_timeline(file, _TOLD[what])


_TOLD = {
    STEP: "one step; --what run writes the run",
    RUN: "one run; --what step writes a step",
    BOTH: "a step at the very beginning, and one run",
}


def _no_step(what: str) -> Exception:
    from simulator.errors import InputError, Problem

    rule = "a step of more than 200,000 passes is not drawn: take --what run"
    return InputError([Problem(path="--what", value=what, rule=rule)])


def _plan_that_runs(found: SimulatedDesign) -> Plan:
    """Returns the plan of an answer; raises with the violated rules if it cannot be run."""
    from simulator.errors import InputError, Problem

    if found.design is None or found.plan is None:
        reasons = [violation.sentence for violation in found.violations]
        raise InputError([Problem(path="", value="", rule=reason) for reason in reasons], "--plan")
    return found.plan
