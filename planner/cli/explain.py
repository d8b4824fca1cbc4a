"""What do you type to see what rules a design out? `capplan explain` with nothing, a constraint, or a job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from planner.cli.options.gathered import gathered
from planner.cli.options.shared import json_option, progress_options, set_option
from planner.cli.terminal.exit_codes import INFEASIBLE, OK
from planner.cli.terminal.help import examples

if TYPE_CHECKING:
    from rich.console import Console

    from simulator.domain.job import Job
    from simulator.record import Record

_QUESTION = (
    click.option(
        "--plan",
        metavar="KEY=VALUE,...|FILE",
        help="Check this plan of the job, such as accelerator=h100-sxm5-80gb,tp=8,pp=4,dp=16.",
    ),
    click.option(
        "--balance",
        is_flag=True,
        help="Find the split of the plan's layers into stages with the shortest step, and compare it with the present one.",
    ),
    click.option(
        "--fewest-gpus", is_flag=True, help="Also find the smallest cluster that meets every limit."
    ),
    click.option(
        "--simulate-up-to",
        type=click.IntRange(min=0),
        metavar="DESIGNS",
        help="Most designs to simulate; larger spaces are counted by rules and bounds only. Default: 200,000.",
    ),
    set_option,
)


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked about a job: the values of `_QUESTION`."""

    plan: str | None
    balance: bool
    fewest_gpus: bool
    simulate_up_to: int | None
    overrides: tuple[str, ...]

    def check(self, *, has_job: bool) -> None:
        """Raises `click.UsageError` where options do not go together."""
        is_of_space = self.fewest_gpus or self.simulate_up_to is not None
        if not has_job and (self.plan is not None or self.overrides or self.balance or is_of_space):
            raise click.UsageError(
                "--plan, --set, --balance, --fewest-gpus and --simulate-up-to need JOB.yaml"
            )
        if self.plan is not None and is_of_space:
            raise click.UsageError(
                "--fewest-gpus and --simulate-up-to are about all designs: leave --plan out"
            )
        if has_job and self.plan is None and self.balance:
            raise click.UsageError("--balance cuts the layers of one plan: give --plan, too")


@click.command(
    short_help="Explain each constraint, and count the designs that it excludes.",
    epilog=examples(
        "capplan explain memory",
        "capplan explain examples/llama-3.1-70b.yaml",
        "capplan explain examples/llama-3.1-70b.yaml --fewest-gpus",
        "capplan explain examples/bloom-176b.yaml --plan tp=4,pp=12,dp=8,mbs=2,recompute=full",
    ),
)
@click.argument("subject", required=False, metavar="[NAME|JOB.yaml]")
@gathered(_QUESTION, "question", Question)
@json_option
@progress_options
def explain(*, subject: str | None, question: Question, as_json: bool, quiet: bool) -> int:
    """List all constraints, explain the constraint NAME, or show how constraints affect the designs of JOB.yaml.

    With a job and --plan: every constraint with the plan's value, the limit, the headroom, and whether it is met.
    With --balance as well: how many layers each pipeline stage should hold, and the gain.
    With a job alone: how many designs each constraint removes, which limits bind, and why no design is left, if so.

    Exit codes: 0 an answer; 3 proven that no design meets the limits; 2 broken input.
    """
    from planner.cli.terminal.output import tell

    if subject is None or not _is_job(subject):
        question.check(has_job=False)
        found = _of_constraints(subject)
    else:
        question.check(has_job=True)
        found = _of_job(subject, question, quiet=quiet)
    tell(found.answer, found.show, as_json=as_json)
    return found.code


class _Explanation(NamedTuple):
    """An answer, and how it is shown to a person."""

    answer: Record
    show: Callable[[Console], None]
    code: int = OK


def _is_job(subject: str) -> bool:
    """Returns whether the path of a job is meant; a folder may have the name of a constraint, which then is meant."""
    from planner.input.yaml_text import FILE_SUFFIXES

    if subject.lower().endswith(FILE_SUFFIXES) or "/" in subject:
        return True
    try:
        path = Path(subject)
        if not path.is_dir():
            return path.exists()
    except OSError:  # too long for a file name
        return False
    from constraints.registry import CONSTRAINTS

    return subject not in CONSTRAINTS


def _of_constraints(name: str | None) -> _Explanation:
    from planner.explain.answer import constraint_texts
    from planner.explain.explanation import ConstraintList
    from planner.explain.view import show_constraints

    texts = constraint_texts(name)
    answer = ConstraintList(constraints=tuple(texts))
    return _Explanation(answer, lambda console: show_constraints(texts, console))


def _of_job(path: str, question: Question, *, quiet: bool) -> _Explanation:
    from planner.cli.terminal.output import quiet_libraries, working
    from planner.job.file import load_job

    if question.plan is None:
        doing = "counting what the constraints remove"
    else:
        doing = "cutting the layers" if question.balance else "checking the plan"
    with working(doing, is_shown=not quiet), quiet_libraries():
        job = load_job(path, question.overrides)
        if question.plan is None:
            return _of_space(job, question)
        return _of_cut(job, question.plan) if question.balance else _of_plan(job, question.plan)


def _of_plan(job: Job, plan: str) -> _Explanation:
    from planner.explain.answer import explain_plan
    from planner.explain.view import show_plan
    from planner.input.plan_input import read_plan

    found = explain_plan(job, read_plan(plan))
    return _Explanation(found, lambda console: show_plan(found, console))


def _of_cut(job: Job, plan: str) -> _Explanation:
    from planner.input.plan_input import read_plan
    from planner.layer_cut import cut_layers
    from planner.views.layer_cut_view import show_layer_cut

    found = cut_layers(job, read_plan(plan))
    return _Explanation(found, lambda console: show_layer_cut(found, console))


def _of_space(job: Job, question: Question) -> _Explanation:
    from planner.explain.answer import SIMULATED_DESIGNS, explain_space
    from planner.explain.view import show_space

    up_to = SIMULATED_DESIGNS if question.simulate_up_to is None else question.simulate_up_to
    found = explain_space(job, simulate_up_to=up_to, with_fewest=question.fewest_gpus)
    code = INFEASIBLE if found.infeasibility else OK
    return _Explanation(found, lambda console: show_space(found, console), code)
