"""Which change of which input changes the recommendation? Each input varies alone over its range.

Under every change the rivals are evaluated again, and the compromise among them is chosen again. A design that is
indistinguishable from the recommended one does not count as a change. A price that is a single quote has no range; it is
varied widely to find the price at which another design wins.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from constraints.evaluation import Evaluation, evaluate, judge
from constraints.limits import set_limits
from objectives.run_response import slow_down_steps
from planner.recommended.choice import chosen_row
from planner.recommended.recommendation import Design, Recommendation
from planner.report.data import Mark, Range, RangesFigure
from planner.report.fastest import FastestRuns
from planner.report.rivals import Rival, offers_tried, rivals
from planner.report.units import text
from planner.text import human
from planner.text.limit_words import CAN_BE_RUN
from planner.uncertain.uncertain_inputs import STEP_TIME, Lever, Moved, uncertain_inputs
from planner.uncertain.uncertainty import step_range
from planner.views.sensitivity_view import input_text, input_words
from simulator.accuracy.published_runs import Accuracy
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.simulate import Outcomes, outcomes_of, steps_and_memory
from simulator.table import Floats

NUM_HALVINGS: Final = 10
"""Bisection steps for the point where the choice changes: the mark is exact to 1/1024 of the range."""
OWN_OFFER: Final = "offers["
"""Prefix of the names of inputs of one offer, such as its price."""
SITE: Final = ".site."
"""Part of the names of inputs of an offer's own site."""
JOBS_SITE: Final = "site."
"""Prefix of the names of inputs of the job's site, which does not apply to offers with their own site."""
QUOTE_FACTORS: Final = (0.25, 4.0)
"""Factors over which a price without a range is varied."""
QUOTE_WORDS: Final = "a price without a range, varied from a quarter to four times"
SAME_FRACTION: Final = 1e-9
"""Smaller relative changes of an objective are rounding."""


def flips(
    job: Job, answer: Recommendation, best: Design, accuracy: Accuracy, fastest: FastestRuns
) -> RangesFigure:
    """Returns the range of every input relative to its middle, with marks where the recommendation changes.

    Args:
        job: the job.
        answer: the answer to the job.
        best: the recommended design.
        accuracy: error of simulated steps on its accelerators.
        fastest: the fastest runs of the job.
    """
    designs = rivals(job, answer, best, fastest)
    choice = _Choice.of(job, designs, accuracy.mean_absolute_error_fraction)
    ranges = [
        found for label, lever in _levers(job, best) if (found := _range(choice, label, lever)) is not None
    ]
    return RangesFigure(
        name="flips",
        title=_title([found for found in ranges if found.marks]),
        note=(
            "Each input varies alone over its range, shown as a change from the value used; a price without a range varies "
            "from a quarter to four times. A mark shows where another, distinguishable design becomes the best compromise. "
            f"Considered: {choice.tried}. Inputs that affect neither an objective nor a limit are left out."
            f"{_together(answer)}"
        ),
        quantity="change",
        mid=0.0,
        ranges=tuple(sorted(ranges, key=_order)),
    )


def _together(answer: Recommendation) -> str:
    """Why draws of all inputs change the recommendation more often than single inputs do."""
    unsure = answer.input_uncertainty
    if unsure is None or len(unsure.designs) < 2:
        return ""
    return (
        f" With all inputs drawn together, {human.percent(unsure.recommended_fraction)} of "
        f"{human.count(unsure.num_draws)} draws recommend the same design (“Uncertain inputs and what-if cases”). Here all "
        "steps on the same accelerators vary together within their 80 % interval. There the drawn errors are partly "
        "independent between layouts, and indistinguishable designs count as different ones."
    )


@dataclass(frozen=True, kw_only=True)
class _Case:
    """The rivals with one input changed."""

    value: float
    job: Job
    evaluation: Evaluation

    @property
    def objectives(self) -> Floats:
        """The objectives of every rival, `(n, k)`."""
        return self.evaluation.objectives(self.job)

    @property
    def broken(self) -> list[str]:
        """The limits that the recommended design breaks."""
        return [name for name, column in self.evaluation.excess.columns().items() if column[0]]

    def differs_from(self, other: _Case) -> bool:
        """Whether an objective of any design differs, or other designs meet the limits."""
        is_same = np.allclose(self.objectives, other.objectives, rtol=SAME_FRACTION, atol=0.0, equal_nan=True)
        return not is_same or not np.array_equal(self.evaluation.is_feasible, other.evaluation.is_feasible)


@dataclass(frozen=True, kw_only=True)
class _Choice:
    """The designs among which a changed job chooses, the recommended one first, and their evaluation without a change."""

    job: Job
    designs: tuple[Rival, ...]
    evaluation: Evaluation
    error_fraction: float

    @classmethod
    def of(cls, job: Job, designs: tuple[Rival, ...], error_fraction: float) -> _Choice:
        """Simulates the recommended design and its rivals."""
        evaluation = evaluate(job, PlanTable.from_plans([design.plan for design in designs]))
        every = cls(job=job, designs=designs, evaluation=evaluation, error_fraction=error_fraction)
        return every._without_winners()

    @property
    def plans(self) -> PlanTable:
        """The designs as a table."""
        return self.evaluation.plans

    @property
    def tried(self) -> str:
        """How many other designs are considered, in words."""
        others = self.designs[1:]
        num_front = sum(design.design_id is not None for design in others)
        num_offers = len({design.plan.offer for design in self.designs})
        return (
            f"other designs on the front ({human.count(num_front)}), and the fastest layouts of several sizes, with and "
            f"without spares ({human.count(len(others) - num_front)}), on {num_offers} of {len(self.job.offers)} offers"
        )

    def _without_winners(self) -> _Choice:
        """Leaves out designs that are better without any change, which a search that was stopped early can miss."""
        is_beside = np.array([design.design_id is None for design in self.designs])
        keep = np.ones(len(self.designs), dtype=np.bool_)
        for row in np.flatnonzero(is_beside & self.evaluation.is_feasible):
            pair = self.evaluation.take(np.array([0, row]))
            keep[row] = not np.isfinite(pair.objectives(self.job)).all() or chosen_row(self.job, pair) == 0
        return replace(
            self,
            designs=tuple(design for design, is_kept in zip(self.designs, keep, strict=True) if is_kept),
            evaluation=self.evaluation.take(keep),
        )

    def case(self, lever: Lever, value: float) -> _Case:
        """Returns the designs evaluated with one value of an input."""
        job = lever.change(self.job, value)
        if job == self.job and (value == 1.0 or lever.input.name != STEP_TIME):
            return _Case(value=value, job=job, evaluation=self.evaluation)
        outcomes = self._changed_outcomes(job, lever, value)
        return _Case(value=value, job=job, evaluation=judge(job, self.plans, outcomes))

    def chosen(self, case: _Case) -> Rival | None:
        """Returns the design that is chosen in a case; the recommended one if the choice does not change.

        None if no design meets the limits.
        """
        evaluation, values = case.evaluation, case.objectives
        rows = np.flatnonzero(evaluation.is_feasible & np.isfinite(values).all(axis=1))
        if len(rows) == 0:
            return None
        chosen = int(chosen_row(case.job, evaluation.take(rows)))
        if rows[0] == 0 and self._is_tied(values[rows], chosen):
            return self.designs[0]
        return self.designs[int(rows[chosen])]

    def _changed_outcomes(self, job: Job, lever: Lever, value: float) -> Outcomes:
        before = self.evaluation.outcomes
        if lever.moves is Moved.WORTH:
            return before
        if lever.moves is Moved.STEP:
            return outcomes_of(job, self.plans, *steps_and_memory(job, self.plans))
        if lever.input.name != STEP_TIME:
            return outcomes_of(job, self.plans, before.steps, before.memory)
        # The step error is common to all designs on these accelerators, and does not apply to others.
        accelerators = np.array([offer.accelerator.id for offer in self.job.offers])[self.plans.offer]
        factors = np.where(accelerators == accelerators[0], value, 1.0)
        return outcomes_of(job, self.plans, slow_down_steps(before.steps, factors), before.memory)

    def _is_tied(self, values: np.ndarray, chosen: int) -> bool:
        """Whether a row is indistinguishable from the first one."""
        return bool((np.abs(values[chosen] - values[0]) <= self.error_fraction * values[0]).all())


def _levers(job: Job, best: Design) -> Iterator[tuple[str, Lever]]:
    """Yields the inputs of the recommended design, and those of the other offers and their sites, with their names."""
    offers, seen = offers_tried(job, best), set[tuple[str, str]]()
    step = step_range(job, PlanTable.from_plans([best.plan]), 0)
    for offer in offers:
        for lever in uncertain_inputs(job, offer, step):
            whose = _owner(job, offer, lever.input.name, belongs=lever.changes_offer_only)
            is_new = (lever.input.name, whose) not in seen and (bool(whose) or offer == best.plan.offer)
            seen.add((lever.input.name, whose))
            if lever.input.name == STEP_TIME:  # only that of the recommended accelerators is moved
                whose = f", {job.offers[offer].accelerator.id}"
            if lever.input.mid > 0 and is_new:
                yield input_words(lever.input.name) + (whose if len(offers) > 1 else ""), lever


def _owner(job: Job, offer: int, name: str, *, belongs: bool) -> str:
    """Words for the owner of an input: an offer, or the job's site if other offers are at other sites."""
    if name.startswith(JOBS_SITE):
        return f" of {job.site.region}" if any(each.site for each in job.offers) else ""
    if name.startswith(OWN_OFFER):
        return f" of {_site_words(job, offer) if SITE in name else _offer_words(job, offer)}"
    return f", {_offer_words(job, offer)}" if belongs else ""


def _site_words(job: Job, offer: int) -> str:
    """Returns the region of an offer's own site, and also the offer if others have a site of their own there."""
    region = job.site_of(job.offers[offer]).region
    is_alone = sum(each.site is not None and each.site.region == region for each in job.offers) == 1
    return region if is_alone else f"{region} for {_offer_words(job, offer)}"


def _offer_words(job: Job, offer: int) -> str:
    """Returns the accelerator of an offer, with region and number, as in job files, if several offers have the same one."""
    name, region = job.offers[offer].accelerator.id, job.site_of(job.offers[offer]).region
    alike = [other for other in job.offers if other.accelerator.id == name]
    if len(alike) == 1:
        return name
    is_alone = sum(job.site_of(other).region == region for other in alike) == 1
    return f"{name} in {region}" if is_alone else f"{name} in {region} (offer {offer})"


def _is_quote(lever: Lever) -> bool:
    """Whether an input is one price without a range."""
    return lever.input.name.startswith(OWN_OFFER) and lever.input.low == lever.input.high


def _ends(lever: Lever) -> list[float]:
    """The ends of the range over which an input is tried."""
    found = lever.input
    if _is_quote(lever):
        return [factor * found.mid for factor in QUOTE_FACTORS]
    return [end for end in (found.low, found.high) if end != found.mid]


def _range(choice: _Choice, label: str, lever: Lever) -> Range | None:
    """Where an input changes the choice; `None` if it affects neither an objective of any design nor a limit."""
    mid = lever.input.mid
    middle, *ends = (choice.case(lever, value) for value in (mid, *_ends(lever)))
    if not any(middle.differs_from(end) for end in ends):
        return None
    found = list(filter(None, (_flip(choice, lever, end) for end in ends)))
    low, high = min(end.value for end in ends), max(end.value for end in ends)
    return Range(
        label=label,
        low_text=input_text(lever.input, min(low, mid)),
        high_text=input_text(lever.input, max(high, mid)),
        at_low=min(low / mid - 1.0, 0.0),
        at_high=max(high / mid - 1.0, 0.0),
        marks=tuple(mark for mark, _ in found),
        note="; ".join(note for _, note in found) or (QUOTE_WORDS if _is_quote(lever) else lever.input.why),
    )


def _flip(choice: _Choice, lever: Lever, end: _Case) -> tuple[Mark, str] | None:
    """The point between the middle and an end of its range where an input changes the choice; `None` if there is none."""
    mid, best = lever.input.mid, choice.designs[0]
    if choice.chosen(end) == best:
        return None
    same, other = mid, end
    for _ in range(NUM_HALVINGS):
        half = choice.case(lever, 0.5 * (same + other.value))
        same, other = (half.value, other) if choice.chosen(half) == best else (same, half)
    chosen = choice.chosen(other)
    none = f"no considered design {'meets the limits' if set_limits(other.job) else CAN_BE_RUN}"
    becomes = chosen.words if chosen else none
    if other.broken:
        becomes += (
            f", because the recommended one violates {', '.join(human.words(name) for name in other.broken)}"
        )
    change = other.value / mid - 1.0
    way = "below" if other.value < mid else "above"
    where = f"{way} {input_text(lever.input, other.value)} ({text(change, 'change')})"
    return Mark(value=change, label=where), f"{where}: {becomes}"


def _title(flipping: list[Range]) -> str:
    if not flipping:
        return "No single input changes the recommendation"
    nearest = min(flipping, key=_nearest)
    mark = min(nearest.marks, key=lambda mark: abs(mark.value))
    count = "One input" if len(flipping) == 1 else f"{len(flipping)} inputs"
    return f"{count} can change the recommendation; the closest change is {nearest.label} {mark.label}"


def _order(found: Range) -> tuple[float, float]:
    """The nearest flip first, then the widest range."""
    return _nearest(found), (found.at_low or 0.0) - (found.at_high or 0.0)


def _nearest(found: Range) -> float:
    return min((abs(mark.value) for mark in found.marks), default=np.inf)
