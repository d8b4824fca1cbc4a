"""Does a plan meet each constraint of a job? Its value, the limit, and the headroom."""

from __future__ import annotations

import numpy as np

from constraints.evaluation import Evaluation, evaluate
from constraints.layout import LAYOUT_RULES, layout_excess
from constraints.limits import limited_quantities, usable_memory_bytes
from constraints.registry import CONSTRAINTS, LIMITS, Constraint
from planner.explain.explanation import Check, State
from planner.explain.violations import (
    AVAILABILITY,
    degree_figures,
    limit_figures,
    physics_figures,
)
from planner.layout_figures import Figures, in_words, layout_figures
from planner.text import human
from simulator.domain.job import Job
from simulator.domain.plan import Plan, PlanTable

PROBABILITIES = {
    "budget_probability": ("budget_usd", "budget_risk"),
    "deadline_probability": ("deadline_days", "deadline_risk"),
}
"""Limits on probabilities, the limit that must be met, and the score that gives the probability of violating it."""


def checks_of(job: Job, plan: Plan, num_gpus: int) -> tuple[Check, ...]:
    """Returns a check of every constraint; those that need a simulation are unknown for a layout that cannot run.

    Args:
        job: the question.
        plan: the decisions.
        num_gpus: accelerators that were asked for, to which the degrees of the plan have to multiply.
    """
    checks = [_degrees_check(plan, num_gpus), *_layout_checks(job, plan)]
    can_run = not any(check.state == "broken" and check.constraint != AVAILABILITY for check in checks)
    evaluation = evaluate(job, PlanTable.from_plans([plan])) if can_run else None
    physics = [one for one in CONSTRAINTS.values() if one.kind == "physics"]
    checks += [_physics_check(job, evaluation, one) if evaluation else _unknown(one) for one in physics]
    checks += [_limit_check(job, evaluation, one) if evaluation else _unknown(one) for one in LIMITS]
    return tuple(checks)


def _unknown(one: Constraint) -> Check:
    return _check(one, "not_known", {}, told="unknown, because the layout cannot run")


def _check(
    one: Constraint,
    state: State,
    figures: Figures,
    *,
    value: float | None = None,
    limit: float | None = None,
    slack: float | None = None,
    told: str = "",
) -> Check:
    """One check; what has no finite value is null in it."""
    way_out = f"; remedy: {one.way_out}" if state == "broken" else ""
    words = "; ".join(part for part in (in_words(figures), told) if part)
    return Check(
        constraint=one.name,
        state=state,
        value=value if value is not None and np.isfinite(value) else None,
        limit=limit,
        unit=one.unit,
        slack_fraction=slack if slack is not None and np.isfinite(slack) else None,
        figures=figures,
        sentence=f"{one.sentence}: {words}{way_out}",
    )


def _degrees_check(plan: Plan, num_gpus: int) -> Check:
    state = _state(is_kept=num_gpus == plan.num_gpus)
    return _check(CONSTRAINTS["degrees"], state, degree_figures(plan, num_gpus))


def _state(*, is_kept: bool) -> State:
    return "kept" if is_kept else "broken"


def _keeps(evaluation: Evaluation, name: str) -> bool:
    """Whether the design exceeds nothing that a constraint bounds."""
    return float(getattr(evaluation.excess, name)[0]) == 0.0


def _layout_checks(job: Job, plan: Plan) -> list[Check]:
    excess = layout_excess(job, PlanTable.from_plans([plan]))[0]
    return [
        _check(
            CONSTRAINTS[rule.name],
            _state(is_kept=far == 0.0),
            layout_figures(job, plan, rule.name),
        )
        for rule, far in zip(LAYOUT_RULES, excess, strict=True)
    ]


def _physics_check(job: Job, evaluation: Evaluation, one: Constraint) -> Check:
    figures = physics_figures(job, evaluation, one.name)
    is_kept = _keeps(evaluation, one.name)
    if one.name == "progress":
        wall_s = float(evaluation.outcomes.run.wall_time_s[0])
        return _check(one, _state(is_kept=is_kept), figures, value=wall_s)
    value, limit = (float(figure) for figure in tuple(figures.values())[:2])
    if one.name == "memory":  # some of what there is may have to stay free
        limit = float(usable_memory_bytes(job)[evaluation.plans.offer][0])
    return _compared(one, figures, value, limit, is_kept=is_kept)


def _limit_check(job: Job, evaluation: Evaluation, one: Constraint) -> Check:
    if one.name in PROBABILITIES:
        return _probability_check(job, evaluation, one)
    limit = getattr(job.limits, one.name)
    quantities = limited_quantities(job, evaluation.plans, evaluation.scores, evaluation.outcomes)
    value = float(quantities[one.name][0])
    if limit is None:
        return _check(one, "not_set", {}, value=value, told=_not_set(one.name, value))
    figures = limit_figures(job, evaluation, one.name)
    is_kept = _keeps(evaluation, one.name)
    return _compared(one, figures, value, float(limit), is_kept=is_kept)


def _probability_check(job: Job, evaluation: Evaluation, one: Constraint) -> Check:
    limit_name, risk = PROBABILITIES[one.name]
    wanted = getattr(job.limits, one.name)
    value = 1.0 - float(getattr(evaluation.scores, risk)[0])  # NaN without the limit
    if wanted is None:
        return _check(one, "not_set", {}, value=value, told=_not_set(one.name, value))
    is_kept = _keeps(evaluation, limit_name)
    # The quantile keeps the limit, and the risk ends at the least one that is told.
    value = max(value, float(wanted)) if is_kept else value
    figures: Figures = {"probability": value, f"limits.{one.name}": wanted}
    state = _state(is_kept=is_kept)
    return _check(one, state, figures, value=value, limit=wanted, slack=value / wanted - 1.0)


def _not_set(name: str, value: float) -> str:
    reached = f"the plan reaches {human.figure(value)}; " if np.isfinite(value) else ""
    return f"{reached}limits.{name} is not set"


def _compared(one: Constraint, figures: Figures, value: float, limit: float, *, is_kept: bool) -> Check:
    """A check of a quantity that must not exceed a limit."""
    slack = 1.0 - value / limit
    told = f"{human.percent(slack)} left" if is_kept else ""
    if not is_kept and np.isfinite(slack):
        told = f"exceeded by {human.digits(-slack * 100)} %"
    state = _state(is_kept=is_kept)
    return _check(one, state, figures, value=value, limit=limit, slack=slack, told=told)
