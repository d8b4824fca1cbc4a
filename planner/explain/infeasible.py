"""Why can no design meet the limits, and what would help? The proof, and the smallest changes that work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from constraints.answers import designs_of_answers, has_any_number_of_spares, space_of_answers
from constraints.bounds import WHOLE, least_needs
from constraints.evaluation import Evaluation, evaluate
from constraints.feasibility import conflicting_limits
from constraints.limits import limited_quantities, set_limits, wanted_probability
from constraints.relaxation import FIRST_ROUND, LeastValue, LeastValues, rounded_up
from constraints.space import Space
from planner.explain.no_layout import no_layout
from planner.explain.no_memory import no_memory
from planner.notes.reasons import rule_text
from planner.recommended.designs import design_at
from planner.recommended.limit_uses import share_of_runs
from planner.recommended.recommendation import Infeasibility, Relaxation
from planner.text import human
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable, distinct_designs
from studies.progress import Stop, never_stop

SAME_FRACTION = 1e-6
"""Share by which a least value must fall for a removed limit to have mattered."""
NO_ID = -1
"""Designs of a relaxation are not part of the study's table."""
WITHOUT_LIMITS = ("num_gpus",)
"""What is minimized if the job sets no limit, to find out whether any design is possible at all."""


@dataclass(frozen=True, kw_only=True)
class _Case:
    """A job under investigation."""

    job: Job
    space: Space
    limits: Mapping[str, float]
    least: LeastValues

    def shown(self, names: tuple[str, ...]) -> str:
        """Limits in words: `budget_usd = 100,000 and deadline_days = 45 in 95.0 % of all runs`."""
        return " and ".join(
            human.settings({name: self.limits[name]}) + share_of_runs(wanted_probability(self.job, name))
            for name in names
        )

    def conflict_at_bounds(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Limits among these that even the bounds of possible layouts violate, proven by CP-SAT; empty for none."""
        needs = least_needs(self.space.bounds, names)
        is_possible = np.all([needs[name] <= whole for name, whole in WHOLE.items()], axis=0)
        return conflicting_limits(
            {name: needs[name][is_possible] for name in names}, {name: self.limits[name] for name in names}
        )

    def proven_at_bounds(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Limits among these that the bounds of all layouts violate, with memory and host memory if the conflict needs them."""
        limits = WHOLE | {name: self.limits[name] for name in names}
        return conflicting_limits(least_needs(self.space.bounds, names), limits)

    def num_admitted(self, names: tuple[str, ...]) -> int:
        """Layouts whose bounds meet these limits."""
        return self.space.under({name: self.limits[name] for name in names}).num_kept


def explain(job: Job, space: Space, *, should_stop: Stop = never_stop) -> Infeasibility | Evaluation:
    """Returns why no design meets the limits, or designs that do, if a heuristic search missed them.

    Exact: for every limit, all layouts whose bounds could win are simulated, run in every way that an answer may have
    (`constraints.answers`). Where it is stopped before the proof is complete, the answer is neither: an `Evaluation`
    without rows.
    """
    if len(space.all_layouts) == 0:
        return no_layout(job)
    if not space.bounds.fits_memory.any():
        return no_memory(job, space.num_layouts)
    space = space_of_answers(space)
    case = _Case(job=space.job, space=space, limits=set_limits(job), least=LeastValues(space, should_stop))
    answer = _answer(case)
    return evaluate(job, space.all_layouts.take(slice(0))) if case.least.was_stopped else answer


def _answer(case: _Case) -> Infeasibility | Evaluation:
    """The answer for a job with layouts that fit memory; invalid if the search for least values was stopped."""
    limits, least = case.limits, case.least
    values = [least.of(name, tuple(limits)) for name in limits or WITHOUT_LIMITS]
    helpful = [value for value in values if value is not None]
    missed = [value.design.plans for value in helpful if _is_kept(value, limits)]
    if missed:
        return evaluate(case.job, distinct_designs(PlanTable.concatenate(missed)))
    if helpful:
        return _one_conflict(case, helpful)
    return _several_conflicts(case) if least.can_keep(()) else _no_possible_design(case)


def _is_kept(least: LeastValue, limits: Mapping[str, float]) -> bool:
    return least.name not in limits or least.value <= limits[least.name]


def _one_conflict(case: _Case, helpful: list[LeastValue]) -> Infeasibility:
    """Relaxing a single limit is enough: proposes to change each such limit alone."""
    conflict = _minimal_conflict(case, tuple(case.limits))
    return Infeasibility(
        conflict=conflict,
        conflicts=(conflict,),
        resolutions=(_resolution(case, conflict),),
        reasons=tuple(_reason(case, value) for value in helpful),
        proof=_proof(case, (conflict,)),
        relaxations=tuple(
            Relaxation(
                limits={value.name: value.proposed_limit},
                example=design_at(case.job, value.design, 0, NO_ID),
            )
            for value in sorted(helpful, key=lambda value: value.value / case.limits[value.name])
        ),
    )


def _minimal_conflict(case: _Case, names: tuple[str, ...]) -> tuple[str, ...]:
    """A minimal conflict among these limits: no design meets all of it, but some design meets it without any one limit."""
    conflict = case.conflict_at_bounds(names) or names
    for name in conflict:
        rest = tuple(other for other in conflict if other != name)
        if not case.least.can_keep(rest):
            conflict = rest
    return conflict


def _reason(case: _Case, value: LeastValue) -> str:
    name = value.name
    others = tuple(other for other in case.limits if other != name)
    kept = f" among designs that meet {case.shown(others)}" if others else ""
    return (
        f"{case.shown((name,))} cannot be met: the lowest value{kept} is {human.figure(value.value)}"
        f"{_without_others(case, value) if others else ''}"
    )


def _without_others(case: _Case, value: LeastValue) -> str:
    free = case.least.of(value.name, ())
    assert free is not None, "a design that keeps some limits is a design"
    if free.value < value.value * (1.0 - SAME_FRACTION):
        return f"; without the other limits it is {human.figure(free.value)}"
    return "; removing the other limits does not lower it"


def _several_conflicts(case: _Case) -> Infeasibility:
    """Relaxing a single limit is not enough: proposes to change all that the nearest design violates."""
    nearest = case.least.nearest_design()
    if nearest is None:  # only where it was stopped
        return _no_possible_design(case)
    reached = limited_quantities(case.job, nearest.plans, nearest.scores, nearest.outcomes)
    changes = {
        name: float(reached[name][0]) for name in case.limits if getattr(nearest.excess, name)[0] > 0.0
    }
    conflicts = _all_conflicts(case)
    return Infeasibility(
        conflict=tuple(name for name in case.limits if any(name in conflict for conflict in conflicts)),
        conflicts=conflicts,
        resolutions=tuple(_resolution(case, conflict) for conflict in conflicts),
        reasons=(
            *(_conflict_reason(case, conflict) for conflict in conflicts),
            f"the nearest design reaches {human.settings(changes)}",
        ),
        proof=_proof(case, conflicts),
        relaxations=(
            Relaxation(
                limits={name: rounded_up(value) for name, value in changes.items()},
                example=design_at(case.job, nearest, 0, NO_ID),
            ),
        ),
    )


def _all_conflicts(case: _Case) -> tuple[tuple[str, ...], ...]:
    """All minimal conflicts, in the order of the limits.

    Reiter's tree of hitting sets (Artificial Intelligence 32, 1987): any conflict that is not known yet lies among the
    limits that are left when one limit of each known conflict is taken away.
    """
    places = {name: place for place, name in enumerate(case.limits)}
    conflicts: list[tuple[str, ...]] = []
    without: list[frozenset[str]] = [frozenset()]
    for removed in without:  # grows meanwhile
        conflict = next((known for known in conflicts if removed.isdisjoint(known)), ())
        if not conflict and (conflict := _conflict_without(case, removed)):
            conflicts.append(conflict)
        without += [more for name in conflict if (more := removed | {name}) not in without]
    return tuple(sorted(conflicts, key=lambda conflict: [places[name] for name in conflict]))


def _conflict_without(case: _Case, removed: frozenset[str]) -> tuple[str, ...]:
    """A minimal conflict of the limits that are not removed; empty for none, or where the search was stopped."""
    rest = tuple(name for name in case.limits if name not in removed)
    is_kept = not rest or case.least.can_keep(rest) or case.least.was_stopped
    return () if is_kept else _minimal_conflict(case, rest)


def _resolution(case: _Case, conflict: tuple[str, ...]) -> dict[str, float]:
    """For each limit of a conflict, the smallest value at which the others of that conflict can be met."""
    least = {name: case.least.of(name, set(conflict) - {name}) for name in conflict}
    return {name: value.proposed_limit for name, value in least.items() if value is not None}


def _conflict_reason(case: _Case, conflict: tuple[str, ...]) -> str:
    ends = human.settings(_resolution(case, conflict), joined_by="or")
    if len(conflict) > 1:
        return f"no design meets {case.shown(conflict)} together; {ends} would resolve this conflict"
    return f"{case.shown(conflict)} cannot be met by any design; {ends} would resolve this conflict"


def _proof(case: _Case, conflicts: tuple[tuple[str, ...], ...]) -> str:
    """The arguments of the proof, and the ways to run a layout that it covers."""
    caps = ", ".join(f"{cap:g}" for cap in case.job.power_caps)
    spares = " and ".join(
        "as many as needed" if is_taken else "none" for is_taken in case.job.search.with_spares
    )
    if has_any_number_of_spares(case.job):
        spares = "every number up to as many as needed"
    if any(offer.max_nodes is not None for offer in case.job.offers):
        spares += " and left of max_nodes"
    arguments = "; ".join(_arguments(case, conflicts))
    return (
        f"{arguments}; power caps considered: {caps} (search.power_caps); spare nodes: {spares} "
        "(search.with_spares)"
    )


def _arguments(case: _Case, conflicts: tuple[tuple[str, ...], ...]) -> list[str]:
    """The proof of minimal conflicts: by bounds, or if needed by simulating all layouts that pass the bounds."""
    num_layouts, limits = len(case.space.all_layouts), tuple(case.limits)
    at_bounds = [names for names in conflicts if case.conflict_at_bounds(names)]
    simulated = [names for names in conflicts if names not in at_bounds]
    if not case.conflict_at_bounds(limits):
        simulated = [limits]  # no conflict needs more
    arguments = []
    if at_bounds:
        broken = ", and none ".join(" and ".join(case.proven_at_bounds(names)) for names in at_bounds)
        arguments.append(
            f"CP-SAT: none of {num_layouts:,} layouts meets {broken}, even at bounds that no simulation beats"
        )
    for names in simulated:
        admitted = "the limits" if names == limits else " and ".join(names)
        arguments.append(
            f"exhaustion: of {num_layouts:,} layouts, all {case.num_admitted(names):,} whose bounds meet {admitted} were "
            "simulated"
        )
    return arguments


def _no_possible_design(case: _Case) -> Infeasibility:
    """No limit is the cause: every layout that fits the accelerators' memory violates a physical constraint."""
    layouts = case.space.all_layouts.take(case.space.bounds.fits_memory).take(slice(FIRST_ROUND))
    excess = evaluate(case.job, designs_of_answers(case.job, layouts)).excess
    broken = tuple(name for name in ("host_memory", "progress") if (getattr(excess, name) > 0.0).any())
    return Infeasibility(
        conflict=broken,
        reasons=tuple(
            f"{rule_text(case.job, name)}; allow other search.checkpoint_schemes, search.with_spares or more splits"
            for name in broken
        ),
        proof="simulation of all designs that fit the memory of the accelerators",
        relaxations=(),
    )
