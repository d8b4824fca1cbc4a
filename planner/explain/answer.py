"""Which constraints exist, does a plan meet each, and how many designs of a space do they leave?

constraint_texts()                  every constraint in words
explain_plan(job, {"tp": 8, ...})   one plan against each of them
explain_space(job)                  how many designs each one removes, and which limits bind
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from constraints.answers import caps_of_answers, space_of_answers
from constraints.bounds import WHOLE, least_needs
from constraints.feasibility import fewest_accelerators
from constraints.limits import LIMIT_NAMES, set_limits
from constraints.registry import CONSTRAINTS, Constraint
from constraints.relaxation import LeastValues
from constraints.removal import count_designs
from constraints.space import Space, pruned_space
from planner.explain.explanation import (
    Binding,
    FewestAccelerators,
    PlanExplanation,
    SpaceExplanation,
)
from planner.explain.infeasible import NO_ID, SAME_FRACTION
from planner.explain.infeasible import explain as why_infeasible
from planner.explain.plan_checks import checks_of
from planner.explain.right_product import right_products
from planner.explain.runnable_plan import obstacles
from planner.explain.untried import untried
from planner.explain.violations import layout_violations
from planner.input.arguments import check_switches
from planner.input.given import valid_job
from planner.input.plan_input import plan_of
from planner.input.problems import nearest
from planner.recommended.comparisons import OtherChoice
from planner.recommended.designs import design_at
from planner.recommended.recommendation import Infeasibility
from planner.recommended.same_accelerators import one_change
from simulator.argument_names import Argument
from simulator.domain.job import Job, Objective
from simulator.domain.plan import Plan
from simulator.errors import InputError, Problem

SIMULATED_DESIGNS = 200_000
"""Default limit on the designs of a space that are simulated to be counted; takes some seconds."""
QUANTITIES = {
    Objective.TIME: "deadline_days",
    Objective.COST: "budget_usd",
    Objective.CARBON: "carbon_kgco2e",
}
"""Objectives whose least value is searched by bounds, and the limit on the same quantity."""


def constraint_texts(name: str | None = None) -> tuple[Constraint, ...]:
    """Returns every constraint in words, or the one of a name.

    Raises:
        InputError: there is no constraint of that name.

    Example:
        >>> constraint_texts("feed_forward")[0].formula
        't | ffn_hidden_size, and that of vision'
    """
    if name is not None and name not in CONSTRAINTS:
        rule = f"is no constraint; {nearest(name, tuple(CONSTRAINTS))}"
        raise InputError([Problem(path=Argument("constraint"), value=repr(name), rule=rule)])
    return tuple(CONSTRAINTS.values()) if name is None else (CONSTRAINTS[name],)


def explain_plan(job: Job, plan: Plan | Mapping[str, object]) -> PlanExplanation:
    """Returns how one plan stands against every constraint of a job.

    Args:
        job: the question.
        plan: the decisions, or a mapping of them as for `simulate_plan`.

    Raises:
        InputError: the mapping has an unknown key or a value of the wrong type, or names no offer of the job.
    """
    job = valid_job(job)
    checked, num_gpus = plan_of(job, plan)
    checks = checks_of(job, checked, num_gpus)
    is_feasible = all(check.state in ("kept", "not_set") for check in checks)
    return PlanExplanation(
        job=job.name,
        model=job.workload.model.name,
        plan=checked,
        is_feasible=is_feasible,
        checks=checks,
        ways_out=() if is_feasible else _ways_out(job, checked, num_gpus),
        untried=untried(job, checked),
    )


def _ways_out(job: Job, plan: Plan, num_gpus: int) -> tuple[OtherChoice, ...]:
    """Single changes with which a plan meets every constraint on the accelerators that were asked for, or with its own."""
    if num_gpus != plan.num_gpus:
        return right_products(job, plan, num_gpus)
    found = one_change(job, plan, can_run=not obstacles(job, plan))
    admitted = [choice for choice in found.choices() if not choice.violated]
    return tuple(choice for choice in admitted if not layout_violations(job, choice.plan))


def explain_space(
    job: Job,
    *,
    simulate_up_to: int = SIMULATED_DESIGNS,
    with_fewest: bool = False,
) -> SpaceExplanation:
    """Returns how many designs each constraint of a job removes, and which limits bind.

    A limit binds where the least time, cost or carbon of all designs that keep the limits would be smaller without it.
    These least values are exact: layouts are simulated in the order of their bounds until none can win. They include what
    only refinement tries (`constraints.answers`), which the counts do not.

    Args:
        job: the question.
        simulate_up_to: a space of more designs is counted by rules and bounds, without simulating all of it.
        with_fewest: whether the smallest cluster that keeps the limits is looked for.

    Raises:
        InputError: `job` is no job, or a value of a changed copy breaks a rule.
    """
    job = valid_job(job)
    check_switches(with_fewest=with_fewest)
    space = pruned_space(job)
    counted = count_designs(job, space, simulate_up_to=simulate_up_to)
    whole = space_of_answers(space)
    least = LeastValues(whole)
    reason = None if len(whole.layouts) and least.can_keep(set_limits(job)) else _infeasibility(job, space)
    return SpaceExplanation(
        job=job.name,
        model=job.workload.model.name,
        num_tried=counted.num_tried,
        num_valid=counted.num_valid,
        num_admitted=counted.num_admitted,
        num_feasible=counted.num_feasible,
        removed=counted.removals,
        binding=() if reason else _binding(job, whole, least),
        has_limits=bool(set_limits(job)),
        fewest=_fewest(job, whole, least) if with_fewest and reason is None else None,
        infeasibility=reason,
    )


def _infeasibility(job: Job, space: Space) -> Infeasibility | None:
    """The proof; none where there are designs after all."""
    finding = why_infeasible(job, space)
    return finding if isinstance(finding, Infeasibility) else None


def _binding(job: Job, whole: Space, least: LeastValues) -> tuple[Binding, ...]:
    limits = set_limits(job)
    found = []
    for quantity, values in _least_by_quantity(job, whole, least):
        without = {name: values.of(quantity, [other for other in limits if other != name]) for name in limits}
        held = values.of(quantity, limits)  # known by now where a limit does not bind
        for name, free in without.items():
            if held and free and name != quantity and free.value < held.value * (1.0 - SAME_FRACTION):
                found.append(
                    Binding(constraint=name, quantity=quantity, least=held.value, least_without=free.value)
                )
    return tuple(sorted(found, key=lambda one: (LIMIT_NAMES.index(one.constraint), one.quantity)))


def _least_by_quantity(job: Job, whole: Space, least: LeastValues) -> Iterator[tuple[str, LeastValues]]:
    """Yields what may be bound and its least values, under lower caps too where these make it smaller."""
    quantities = [QUANTITIES[one] for one in QUANTITIES if one in job.objectives]
    wider = space_of_answers(whole, quantities)
    of_more_caps = least if wider is whole else LeastValues(wider)
    for quantity in quantities:
        is_capped = caps_of_answers(whole.job, (quantity,)) == wider.job.power_caps
        yield quantity, of_more_caps if is_capped else least


def _fewest(job: Job, space: Space, least: LeastValues) -> FewestAccelerators | None:
    limits = set_limits(job)
    found = least.of("num_gpus", limits)
    needs = least_needs(space.bounds, limits)
    bound = fewest_accelerators(space.all_layouts.num_gpus, needs, WHOLE | limits)
    if found is None or bound is None:
        return None
    num_smaller = int((space.layouts.num_gpus < found.value).sum())
    simulated = (
        f"; all {num_smaller:,} smaller layouts that pass the bounds were simulated, and none meets them"
    )
    return FewestAccelerators(
        num_gpus=int(found.value),
        bound=bound,
        design=design_at(job, found.design, 0, NO_ID),
        proof=(
            f"CP-SAT: no layout of fewer than {bound:,} accelerators fits its memory and meets the limits even at "
            f"bounds that no simulation beats{simulated if num_smaller else ''}"
        ),
    )
