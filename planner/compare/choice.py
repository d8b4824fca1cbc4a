"""Which input changes the recommendation? Each alone, with a new choice among the designs of both answers.

An answer keeps its front, and a job chooses from designs that keep its limits: so the choice under one changed input can be
made without a search. A design that neither answer kept is not found this way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from constraints.evaluation import evaluate
from constraints.layout import is_valid_layout
from constraints.limits import set_limits
from objectives.pareto import front_rows
from planner.compare.figures import (
    Cause,
    Metrics,
    change,
    figures_or_reason,
    known_in_all,
    only,
    without_rounding,
)
from planner.compare.inputs import Difference, OfferKey, differences, offer_keys, with_input
from planner.compare.sides import Side
from planner.compare.words import name_words
from planner.recommended.choice import chosen_row
from planner.recommended.design_words import layout
from planner.text import human
from planner.text.limit_words import CAN_BE_RUN
from simulator.domain.job import Job
from simulator.domain.plan import Plan, PlanTable


@dataclass(frozen=True, kw_only=True)
class KnownDesign:
    """A design of an answer, whose offer has a name instead of a place."""

    offer: OfferKey
    plan: Plan

    def in_job(self, job: Job) -> Plan | None:
        """Returns the plan with the place of its offer in a job; `None` where the job does not have it."""
        keys = offer_keys(job)
        return self.plan.model_copy(update={"offer": keys.index(self.offer)}) if self.offer in keys else None


def choices_of(first: Side, other: Side) -> tuple[list[Cause], list[str]]:
    """Returns what each input of the other side changes by the choice that it makes, and what a reader has to know.

    Nothing is returned where a design was given instead of chosen, or where all inputs are the same.
    """
    found = differences(first.job, other.job)
    if not (first.front and other.front and found):
        return [], []
    known = list(dict.fromkeys((*_known(first), *_known(other))))
    own, theirs = _choice(first.job, known), _choice(other.job, known)
    if own is None:
        feasible = (
            f"meets the limits of {first.name}" if set_limits(first.job) else f"{CAN_BE_RUN} as {first.name}"
        )
        return [], [f"none of the designs of the two answers {feasible}"]
    chosen = [_choice(with_input(first.job, difference, other.job), known) for difference in found]
    causes = [
        _cause(difference, first.job, other.job, own, design)
        for difference, design in zip(found, chosen, strict=True)
    ]
    notes = [*_differs(first, own), *_differs(other, theirs)]
    if any(design != own for design in (theirs, *chosen)):
        among = human.counted(len(known), "design")
        notes.append(f"what an input leads to is chosen among the {among} of both answers")
    if theirs not in (None, own, *chosen):
        notes += _needed_together(first.job, other.job, known, theirs)
    return causes, notes


def _needed_together(
    first: Job, other: Job, known: list[KnownDesign], theirs: KnownDesign | None
) -> list[str]:
    """Inputs without any of which the other design would not be chosen, where no input alone chooses it."""
    needed = [
        name_words(difference.name)
        for difference in differences(other, first)
        if _choice(with_input(other, difference, first), known) != theirs
    ]
    return (
        [f"different design due to several inputs: chosen only with {' and '.join(needed)}"] if needed else []
    )


def _differs(side: Side, own: KnownDesign | None) -> Iterator[str]:
    if own is not None and side.plan is not None and own.in_job(side.job) != side.plan:
        yield f"the other answer has a better design for {side.name}: {_words(own)}; search longer, or with another seed"


def _cause(
    difference: Difference, first: Job, other: Job, own: KnownDesign, chosen: KnownDesign | None
) -> Cause:
    """The design that one changed input chooses, beside the one that is chosen without it, both under that input."""
    if chosen is None:
        changed = with_input(first, difference, other)
        feasible = "meets the limits" if set_limits(changed) else CAN_BE_RUN
        note = f"with this input alone, none of the designs of the two answers {feasible}"
        return Cause(input=difference.name, effects={}, note=note)
    if chosen == own:
        return Cause(input=difference.name, effects={})
    job = with_input(first, difference, other)
    # What only decides the choice changes no figure; it may have taken the design off the market.
    before = _figures(own, first if difference.is_choosing else job)
    after = _figures(chosen, job)
    if isinstance(before, str) or isinstance(after, str):
        return Cause(
            input=difference.name, effects={}, note=before if isinstance(before, str) else str(after)
        )
    known = known_in_all([before, after])
    effects = without_rounding(change(only(known, before), only(known, after)), before)
    return Cause(input=difference.name, effects=effects, note=f"alone, it leads to {_words(chosen)}")


def _figures(design: KnownDesign, job: Job) -> Metrics | str:
    plan = design.in_job(job)
    return figures_or_reason(job, plan) if plan else f"{design.offer[0]} is not on offer"


def _choice(job: Job, known: list[KnownDesign]) -> KnownDesign | None:
    """The design that a job would choose; `None` where none can be run and had, and keeps the limits."""
    placed = [(design, plan) for design in known if (plan := design.in_job(job))]
    if not placed:  # where the answers have no accelerator in common, one without its own offers nothing
        return None
    plans = PlanTable.from_plans([plan for _, plan in placed])
    runs = np.flatnonzero(is_valid_layout(job, plans))
    evaluation = evaluate(job, plans.take(runs))
    kept = np.flatnonzero(evaluation.is_feasible)
    front = kept[front_rows(evaluation.objectives(job)[kept])]
    if not len(front):
        return None
    design, _ = placed[int(runs[front[chosen_row(job, evaluation.take(front))]])]
    return design


def _known(side: Side) -> Iterator[KnownDesign]:
    keys = offer_keys(side.job)
    for plan in side.front:
        yield KnownDesign(offer=keys[plan.offer], plan=plan.model_copy(update={"offer": 0}))


def _words(design: KnownDesign) -> str:
    return f"{human.count(design.plan.num_gpus)} x {design.offer[0]}, {layout(design.plan)}"
