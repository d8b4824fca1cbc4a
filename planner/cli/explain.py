"""What do you type to see what rules a design out? `capplan explain` with nothing, a constraint, or a job.

Only click is imported here; everything heavier waits until the command runs, as in `planner.cli.commands`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.help import examples
from planner.cli.options import json_option, progress_options, set_option

if TYPE_CHECKING:
    from rich.console import Console

    from planner.explain.explanation import PlanExplanation, SpaceExplanation
    from planner.layer_cut import LayerCut
    from simulator.record import Record

JOB_SUFFIXES = (".yaml", ".yml", ".json", ".toml")
INFEASIBLE = 3


@click.command(
    short_help="Say what each constraint means, and what it removes.",
    epilog=examples(
        "capplan explain memory",
        "capplan explain examples/llama-3.1-70b.yaml",
        "capplan explain examples/llama-3.1-70b.yaml --fewest-gpus",
        "capplan explain examples/bloom-176b.yaml --plan tp=4,pp=12,dp=8,mbs=2,recompute=full",
    ),
)
@click.argument("subject", required=False, metavar="[NAME|JOB.yaml]")
@click.option(
    "--plan",
    metavar="KEY=VALUE,...|FILE",
    help="Check this plan of the job, such as accelerator=h100-sxm5-80gb,tp=8,pp=4,dp=16.",
)
@click.option(
    "--balance",
    is_flag=True,
    help="Find the cut of the plan's layers into stages with the shortest step, and compare the present one.",
)
@click.option("--fewest-gpus", is_flag=True, help="Also find the smallest cluster that keeps every limit.")
@click.option(
    "--simulate-up-to",
    type=click.IntRange(min=0),
    metavar="DESIGNS",
    help="Count larger spaces by rules and bounds, without simulating all of them; 200,000 if not given.",
)
@set_option
@json_option
@progress_options
def explain(
    *,
    subject: str | None,
    plan: str | None,
    balance: bool,
    fewest_gpus: bool,
    simulate_up_to: int | None,
    overrides: tuple[str, ...],
    as_json: bool,
    quiet: bool,
) -> int:
    """List all constraints, explain the constraint NAME, or say what constraints do to the designs of JOB.yaml.

    With a job and --plan: every constraint with the plan's value, the limit, what is left of it, and whether it holds.
    With --balance, too: how many layers each pipeline stage should hold, and what that gains.
    With a job alone: how many designs each constraint removes, which limits bind, and why none is left where none is.

    Exit codes: 0 an answer; 3 proven that no design keeps the limits; 2 broken input.
    """
    from planner.cli.output import working

    if subject is None or not _is_job(subject):
        _refuse_options_of_jobs(plan, overrides, fewest_gpus or balance or simulate_up_to is not None)
        return _explain_constraints(subject, as_json=as_json)
    if plan is not None:
        if fewest_gpus or simulate_up_to is not None:
            raise click.UsageError(
                "--fewest-gpus and --simulate-up-to are about all designs: leave --plan out"
            )
        if balance:
            with working("cutting the layers", is_shown=not quiet):
                found = _cut(subject, overrides, plan)
            _print_cut(found, as_json=as_json)
            return 0
        with working("checking the plan", is_shown=not quiet):
            checked = _plan(subject, overrides, plan)
        _print_plan(checked, as_json=as_json)
        return 0
    if balance:
        raise click.UsageError("--balance cuts the layers of one plan: give --plan, too")
    with working("counting what the constraints remove", is_shown=not quiet):
        explained = _space(subject, overrides, simulate_up_to, with_fewest=fewest_gpus)
    _print_space(explained, as_json=as_json)
    return INFEASIBLE if explained.infeasibility else 0


def _is_job(subject: str) -> bool:
    return subject.lower().endswith(JOB_SUFFIXES) or Path(subject).is_file()


def _refuse_options_of_jobs(plan: str | None, overrides: tuple[str, ...], has_others: bool) -> None:
    if plan is not None or overrides or has_others:
        raise click.UsageError("--plan, --set, --balance, --fewest-gpus and --simulate-up-to need JOB.yaml")


def _explain_constraints(name: str | None, *, as_json: bool) -> int:
    from planner.cli.output import rendered, write
    from planner.explain.answer import constraint_texts
    from planner.explain.explanation import ConstraintList
    from planner.explain.view import show_constraints

    texts = constraint_texts(name)
    if as_json:
        write(ConstraintList(constraints=tuple(texts)).model_dump_json(indent=2) + "\n")
    else:
        write(rendered(lambda console: show_constraints(texts, console)))
    return 0


def _plan(job: str, overrides: tuple[str, ...], plan: str) -> PlanExplanation:
    from planner.cli.output import quiet_libraries
    from planner.explain.answer import explain_plan
    from planner.job.file import load_job
    from planner.plan_input import read_plan

    with quiet_libraries():
        return explain_plan(load_job(job, overrides), read_plan(plan))


def _cut(job: str, overrides: tuple[str, ...], plan: str) -> LayerCut:
    from planner.cli.output import quiet_libraries
    from planner.job.file import load_job
    from planner.layer_cut import cut_layers
    from planner.plan_input import read_plan

    with quiet_libraries():
        return cut_layers(load_job(job, overrides), read_plan(plan))


def _print_cut(found: LayerCut, *, as_json: bool) -> None:
    from planner.layer_cut_view import show_layer_cut

    _print(found, lambda console: show_layer_cut(found, console), as_json=as_json)


def _print_plan(checked: PlanExplanation, *, as_json: bool) -> None:
    from planner.explain.view import show_plan

    _print(checked, lambda console: show_plan(checked, console), as_json=as_json)


def _space(
    job: str, overrides: tuple[str, ...], simulate_up_to: int | None, *, with_fewest: bool
) -> SpaceExplanation:
    from planner.cli.output import quiet_libraries
    from planner.explain.answer import SIMULATED_DESIGNS, explain_space
    from planner.job.file import load_job

    with quiet_libraries():
        return explain_space(
            load_job(job, overrides),
            simulate_up_to=SIMULATED_DESIGNS if simulate_up_to is None else simulate_up_to,
            with_fewest=with_fewest,
        )


def _print_space(explained: SpaceExplanation, *, as_json: bool) -> None:
    from planner.explain.view import show_space

    _print(explained, lambda console: show_space(explained, console), as_json=as_json)


def _print(answer: Record, show: Callable[[Console], None], *, as_json: bool) -> None:
    from planner.cli.output import rendered, write

    write(answer.model_dump_json(indent=2) + "\n" if as_json else rendered(show))
