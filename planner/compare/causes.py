"""What causes the difference? Every input alone, all of them together, and the other design.

A difference of a figure is taken apart: every input of the other side alone, under the design of the first; what all of
them together make beyond that; and the other design. The parts sum to the whole.
"""

from __future__ import annotations

from planner.compare.choice import choices_of
from planner.compare.comparison import Explanation
from planner.compare.figures import (
    Cause,
    Metrics,
    change,
    figures_or_reason,
    known_in_all,
    metrics_of,
    only,
    plus,
    without_rounding,
)
from planner.compare.inputs import (
    OfferKey,
    differences,
    offer_keys,
    offer_label,
    swapped,
    with_one_offer,
)
from planner.compare.sides import Side
from planner.recommended.recommendation import Design
from simulator.domain.job import Job


def explanation_of(first: Side, other: Side, before: Design, after: Design) -> Explanation:
    """Returns what makes the figures of two designs differ, each of its side."""
    assert first.plan is not None
    own = with_one_offer(first.job, first.job.offers[first.plan.offer])
    plan = first.plan.model_copy(update={"offer": 0})
    key = offer_keys(first.job)[first.plan.offer]
    moved, notes = _moved(own, key, other.job)
    label = offer_label(key, first.job, other.job)
    found = [each for each in differences(own, moved, label) if not each.is_choosing]
    alone = [figures_or_reason(swapped(own, difference, moved), plan) for difference in found]
    together = figures_or_reason(moved, plan)
    simulated = [case for case in (*alone, together) if not isinstance(case, str)]
    known = known_in_all([metrics_of(before), metrics_of(after), *simulated])
    base, theirs = only(known, metrics_of(before)), only(known, metrics_of(after))
    total = change(base, theirs)
    causes = tuple(_cause(each.name, case, base) for each, case in zip(found, alone, strict=True))
    if isinstance(together, str):
        note = f"the design of {first.name} cannot run with the inputs of {other.name} ({together})"
        design, interaction, notes = (
            total,
            {},
            [*notes, f"{note}, so the effects of inputs and design cannot be separated"],
        )
    else:
        sums = {name: sum(cause.effects.get(name, 0.0) for cause in causes) for name in base}
        interaction = {name: together[name] - base[name] - sums[name] for name in base}
        design = change(only(known, together), theirs)
    choices, told = choices_of(first, other)
    choices = [each.model_copy(update={"effects": only(known, each.effects)}) for each in choices]
    chosen = plus(cause.effects for cause in choices)
    return Explanation(
        side=other.name,
        causes=causes,
        interaction=without_rounding(interaction, base),
        design=without_rounding(design, base),
        total=total,
        choices=tuple(choices),
        choice_interaction=without_rounding(change(chosen, design), base) if choices else {},
        notes=(*notes, *told),
    )


def _moved(own: Job, key: OfferKey, other: Job) -> tuple[Job, list[str]]:
    """The other job with nothing on offer but what the first design takes, and what that leaves unsaid."""
    keys, (accelerator, _) = offer_keys(other), key
    if key in keys:
        return with_one_offer(other, other.offers[keys.index(key)]), []
    if (accelerator, 0) in keys:
        note = f"that side has fewer offers of {accelerator}; its first one replaces the offer of the design"
        return with_one_offer(other, other.offers[keys.index((accelerator, 0))]), [note]
    note = f"that side does not offer {accelerator}; its price and servers are kept for this comparison"
    return with_one_offer(other, own.offers[0]), [note]


def _cause(name: str, figures: Metrics | str, base: Metrics) -> Cause:
    """What an input alone changes of the base's figures, or why there is nothing to say."""
    if isinstance(figures, str):
        return Cause(input=name, effects={}, note=figures)
    effects = change(base, only(frozenset(base), figures))
    return Cause(input=name, effects=without_rounding(effects, base))
