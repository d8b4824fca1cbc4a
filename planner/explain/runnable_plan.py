"""Can a plan run? The rules that keep it from running, as opposed to those that say what can be had or afforded."""

from __future__ import annotations

from collections.abc import Mapping

from constraints.evaluation import evaluate
from planner.explain.violations import (
    AVAILABILITY,
    Violation,
    degrees_violation,
    layout_violations,
    limit_violations,
)
from planner.input.plan_input import PLAN, plan_of
from simulator.domain.job import Job
from simulator.domain.plan import Plan, PlanTable
from simulator.errors import InputError, Problem


def obstacles(job: Job, plan: Plan, num_gpus: int | None = None) -> list[Violation]:
    """Returns what keeps a plan from running; nothing for one that can run, on offer or not.

    Args:
        job: the job.
        plan: the decisions.
        num_gpus: accelerators that were asked for; left out: as many as the plan has.
    """
    if num_gpus is not None and num_gpus != plan.num_gpus:
        return [degrees_violation(plan, num_gpus)]
    return [rule for rule in layout_violations(job, plan) if rule.constraint != AVAILABILITY]


def plan_that_runs(job: Job, written: Plan | Mapping[str, object], *, source: str = PLAN) -> Plan:
    """Returns the plan that a mapping describes.

    Args:
        job: supplies the offers.
        written: as for `plan_of`.
        source: where the plan comes from, for error messages.

    Raises:
        InputError: it cannot be read, or cannot run.
    """
    try:
        plan, num_gpus = plan_of(job, written)
    except InputError as error:
        raise InputError(list(error.problems), source) from None
    if broken := obstacles(job, plan, num_gpus):
        raise InputError([Problem(path="", value="", rule=rule.sentence) for rule in broken], source)
    return plan


def checked_plan(job: Job, written: Plan | Mapping[str, object]) -> tuple[Plan, tuple[str, ...]]:
    """Returns a plan that can run, and sentences that say which limits it breaks.

    Raises:
        InputError: the layout cannot run.
    """
    plan = plan_that_runs(job, written)
    over_limits = limit_violations(job, evaluate(job, PlanTable.from_plans([plan])))
    return plan, tuple(each.sentence for each in (*layout_violations(job, plan), *over_limits))
