"""Which constraints are there, how does a plan stand against each, and what do they leave of a space of designs?

constraint_texts()                  every constraint in words
explain_plan(job, {"tp": 8, ...})   one plan against each of them
explain_space(job)                  how many designs each one removes, and which limits bind
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

import numpy as np

from constraints.answers import space_of_answers
from constraints.bounds import WHOLE, least_needs
from constraints.evaluation import Evaluation, evaluate
from constraints.feasibility import fewest_accelerators
from constraints.layout import LAYOUT_RULES, layout_excess
from constraints.limits import LIMIT_NAMES, limited_quantities, set_limits
from constraints.registry import CONSTRAINTS, LIMITS, Constraint
from constraints.relaxation import LeastValues
from constraints.removal import count_designs
from constraints.space import Space, pruned_space
from planner import human
from planner.designs import design_at
from planner.explanation import (
    Binding,
    Check,
    ConstraintText,
    FewestAccelerators,
    PlanExplanation,
    RemovedDesigns,
    SpaceExplanation,
    State,
)
from planner.infeasible import NO_ID
from planner.infeasible import explain as why_infeasible
from planner.plan_input import plan_of
from planner.problems import nearest
from planner.recommendation import Infeasibility
from planner.violations import AVAILABILITY, Figures, in_words, layout_figures, limit_figures, physics_figures
from simulator.errors import InputError, Problem
from simulator.job import Job, Objective
from simulator.plan import Plan, PlanTable
from studies.progress import Stop, never_stop

SIMULATED_DESIGNS = 200_000
"""Designs of a space that are simulated to be counted, unless the caller says otherwise: some seconds."""
SAME_FRACTION = 1e-6
"""Share by which a least value must fall for a limit to bind."""
QUANTITIES = {
    Objective.TIME: "deadline_days",
    Objective.COST: "budget_usd",
    Objective.CARBON: "carbon_kgco2e",
}
"""Objectives whose least value is searched by bounds, and the limit on the same quantity."""
PROBABILITIES = {
    "budget_probability": ("budget_usd", "budget_risk"),
    "deadline_probability": ("deadline_days", "deadline_risk"),
}
"""Limits on probabilities, the limit that has to be kept, and the score that says how likely it is broken."""


def constraint_texts(name: str | None = None) -> tuple[ConstraintText, ...]:
    """Returns every constraint in words, or the one of a name.

    Raises:
        InputError: there is no constraint of that name.

    Example:
        >>> constraint_texts("feed_forward")[0].formula
        't | ffn_hidden_size'
    """
    if name is not None and name not in CONSTRAINTS:
        rule = f"is no constraint; {nearest(name, tuple(CONSTRAINTS))}"
        raise InputError([Problem(path="constraint", value=repr(name), rule=rule)])
    chosen = CONSTRAINTS.values() if name is None else (CONSTRAINTS[name],)
    return tuple(ConstraintText.model_validate(asdict(one)) for one in chosen)


def explain_plan(job: Job, plan: Plan | Mapping[str, object]) -> PlanExplanation:
    """Returns how one plan stands against every constraint of a job.

    Args:
        job: the question.
        plan: the decisions, or a mapping of them as for `simulate_plan`.

    Raises:
        InputError: the mapping has an unknown key or a value of the wrong type, or names no offer of the job.
    """
    written = plan.model_dump(mode="json") if isinstance(plan, Plan) else plan
    checked, num_gpus = plan_of(job, written)
    checks = [_degrees_check(checked, num_gpus)]
    checks += _layout_checks(job, checked)
    can_run = not any(check.state == "broken" and check.constraint != AVAILABILITY for check in checks)
    evaluation = evaluate(job, PlanTable.from_plans([checked])) if can_run else None
    physics = [one for one in CONSTRAINTS.values() if one.kind == "physics"]
    checks += [_physics_check(job, evaluation, one) if evaluation else _unknown(one) for one in physics]
    checks += [_limit_check(job, evaluation, one) if evaluation else _unknown(one) for one in LIMITS]
    is_feasible = all(check.state in ("kept", "not_set") for check in checks)
    return PlanExplanation(job=job.name, plan=checked, is_feasible=is_feasible, checks=tuple(checks))


def _unknown(one: Constraint) -> Check:
    return _check(one, "not_known", {}, told="not known, since the layout cannot run")


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
    way_out = f"; way out: {one.way_out}" if state == "broken" else ""
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
    names = ("tensor_parallel", "pipeline_parallel", "context_parallel", "data_parallel")
    figures: Figures = {name: getattr(plan, name) for name in names} | {"num_gpus": num_gpus}
    state: State = "kept" if num_gpus == plan.num_gpus else "broken"
    return _check(CONSTRAINTS["degrees"], state, figures)


def _layout_checks(job: Job, plan: Plan) -> list[Check]:
    excess = layout_excess(job, PlanTable.from_plans([plan]))[0]
    return [
        _check(
            CONSTRAINTS[rule.name],
            "kept" if far == 0.0 else "broken",
            layout_figures(job, plan, rule.name),
        )
        for rule, far in zip(LAYOUT_RULES, excess, strict=True)
    ]


def _physics_check(job: Job, evaluation: Evaluation, one: Constraint) -> Check:
    figures = physics_figures(job, evaluation, one.name)
    is_kept = float(getattr(evaluation.excess, one.name)[0]) == 0.0
    if one.name == "progress":
        wall_s = float(evaluation.outcomes.run.wall_time_s[0])
        return _check(one, "kept" if is_kept else "broken", figures, value=wall_s)
    value, limit = (float(figure) for figure in figures.values())
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
    is_kept = float(getattr(evaluation.excess, one.name)[0]) == 0.0
    return _compared(one, figures, value, float(limit), is_kept=is_kept)


def _probability_check(job: Job, evaluation: Evaluation, one: Constraint) -> Check:
    limit_name, risk = PROBABILITIES[one.name]
    wanted = getattr(job.limits, one.name)
    value = 1.0 - float(getattr(evaluation.scores, risk)[0])  # NaN without the limit
    if wanted is None:
        return _check(one, "not_set", {}, value=value, told=_not_set(one.name, value))
    is_kept = float(getattr(evaluation.excess, limit_name)[0]) == 0.0
    # The quantile keeps the limit, and the risk ends at the least one that is told.
    value = max(value, float(wanted)) if is_kept else value
    figures: Figures = {"probability": value, f"limits.{one.name}": wanted}
    state: State = "kept" if is_kept else "broken"
    return _check(one, state, figures, value=value, limit=wanted, slack=value / wanted - 1.0)


def _not_set(name: str, value: float) -> str:
    reached = f"the plan comes to {human.figure(value)}; " if np.isfinite(value) else ""
    return f"{reached}limits.{name} is not set"


def _compared(one: Constraint, figures: Figures, value: float, limit: float, *, is_kept: bool) -> Check:
    """A check of a quantity that must not exceed a limit."""
    slack = 1.0 - value / limit
    told = f"{human.percent(slack)} left" if is_kept else ""
    if not is_kept and np.isfinite(slack):
        told = f"{human.digits(-slack * 100)} % too much"
    state: State = "kept" if is_kept else "broken"
    return _check(one, state, figures, value=value, limit=limit, slack=slack, told=told)


def explain_space(
    job: Job,
    *,
    simulate_up_to: int = SIMULATED_DESIGNS,
    with_fewest: bool = False,
    should_stop: Stop = never_stop,
) -> SpaceExplanation:
    """Returns how many designs each constraint of a job removes, and which limits bind.

    A limit binds where the least time, cost or carbon of all designs that keep the limits would be smaller without it.
    These least values are exact: layouts are simulated in the order of their bounds until none can win. They include what
    only refinement tries (`constraints.answers`), which the counts do not.

    Args:
        job: the question.
        simulate_up_to: a space of more designs is counted by rules and bounds, without simulating all of it.
        with_fewest: whether the smallest cluster that keeps the limits is looked for.
        should_stop: asked between batches of simulations.
    """
    space = pruned_space(job)
    counted = count_designs(job, space, simulate_up_to=simulate_up_to, should_stop=should_stop)
    whole = space_of_answers(space)
    least = LeastValues(whole, should_stop)
    reason = None if len(whole.layouts) and least.can_keep(set_limits(job)) else _infeasibility(job, space)
    return SpaceExplanation(
        job=job.name,
        num_tried=counted.num_tried,
        num_valid=counted.num_valid,
        num_admitted=counted.num_admitted,
        num_feasible=counted.num_feasible,
        removed=tuple(RemovedDesigns.model_validate(asdict(one)) for one in counted.removals),
        binding=() if reason else _binding(job, least),
        fewest=_fewest(job, whole, least) if with_fewest and reason is None else None,
        infeasibility=reason,
    )


def _infeasibility(job: Job, space: Space) -> Infeasibility | None:
    """The proof; none where it was stopped."""
    finding = why_infeasible(job, space)
    return finding if isinstance(finding, Infeasibility) else None


def _binding(job: Job, least: LeastValues) -> tuple[Binding, ...]:
    limits = set_limits(job)
    found = []
    for quantity in (QUANTITIES[one] for one in QUANTITIES if one in job.objectives):
        held = least.of(quantity, limits)
        for name in limits:
            free = least.of(quantity, [other for other in limits if other != name])
            if held and free and name != quantity and free.value < held.value * (1.0 - SAME_FRACTION):
                found.append(
                    Binding(constraint=name, quantity=quantity, least=held.value, least_without=free.value)
                )
    return tuple(sorted(found, key=lambda one: (LIMIT_NAMES.index(one.constraint), one.quantity)))


def _fewest(job: Job, space: Space, least: LeastValues) -> FewestAccelerators | None:
    limits = set_limits(job)
    found = least.of("num_gpus", limits)
    needs = least_needs(space.bounds, limits)
    bound = fewest_accelerators(space.all_layouts.num_gpus, needs, WHOLE | limits)
    if found is None or bound is None:
        return None
    num_smaller = int((space.layouts.num_gpus < found.value).sum())
    simulated = (
        f"; all {num_smaller:,} layouts of fewer that the bounds admit were simulated, and none keeps them"
    )
    return FewestAccelerators(
        num_gpus=int(found.value),
        bound=bound,
        design=design_at(job, found.design, 0, NO_ID),
        proof=(
            f"CP-SAT: no layout of fewer than {bound:,} accelerators fits its memory and keeps the limits even at the "
            f"bounds that no simulation beats{simulated if num_smaller else ''}"
        ),
    )
