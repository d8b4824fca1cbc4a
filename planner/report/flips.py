"""Which change of which input changes the recommendation? Each input varies alone over its range.

Under every change the rivals are evaluated again, and the compromise among them is chosen again. A design that is
indistinguishable from the recommended one does not count as a change. A price that is a single quote has no range; it is
varied widely to find the price at which another design wins.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from constraints.evaluation import Evaluation, evaluate, judge
from constraints.limits import set_limits
from objectives.input_table import HARDWARE_PRICE, INPUTS, LAYOUT_TIME, Shared
from objectives.moved_designs import moved_designs
from planner.recommended.choice import chosen_row
from planner.recommended.recommendation import Design, Recommendation
from planner.report.data import Mark, Range, RangesFigure
from planner.report.fastest import FastestRuns
from planner.report.rivals import Rival, rivals
from planner.report.units import text
from planner.text import human
from planner.text.limit_words import CAN_BE_RUN
from planner.uncertain.uncertain_inputs import Lever, levers
from planner.views.sensitivity_view import input_text, input_words
from simulator.accuracy.published_runs import Accuracy
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.table import Floats

NUM_HALVINGS: Final = 10
"""Bisection steps for the point where the choice changes: the mark is exact to 1/1024 of the range."""
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
        found
        for lever in levers(job, choice.plans)
        if lever.name != LAYOUT_TIME and (found := _range(choice, lever)) is not None
    ]
    return RangesFigure(
        name="flips",
        title=_title([found for found in ranges if found.marks]),
        note=(
            "Each input varies alone, from its 5th to its 95th percentile, shown as a change from the value used; a "
            "price without a range varies from a quarter to four times. A mark shows where another, distinguishable design "
            f"becomes the best compromise. Considered: {choice.tried}. Inputs that affect neither an objective nor a limit are "
            f"left out.{_together(answer)}"
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
        "steps on the same accelerators vary together. There each layout also has an error of its own, and "
        "indistinguishable designs count as different ones."
    )


@dataclass(frozen=True, kw_only=True)
class _Case:
    """The rivals with one input changed."""

    factor: float
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

    def case(self, lever: Lever, factor: float) -> _Case:
        """Returns the designs evaluated with one input so many times as large for those that share it."""
        if factor == 1.0:
            return _Case(factor=factor, job=self.job, evaluation=self.evaluation)
        shares = np.isin(self.plans.offer, lever.offers)
        part, others = self.evaluation.take(shares), self.evaluation.take(~shares)
        job, outcomes = moved_designs(self.job, part.plans, part.outcomes, lever.name, factor)
        moved = Evaluation.concatenate([judge(job, part.plans, outcomes), others])
        rows = np.argsort(~shares, kind="stable")
        return _Case(factor=factor, job=self.job, evaluation=moved.take(np.argsort(rows)))

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

    def _is_tied(self, values: np.ndarray, chosen: int) -> bool:
        """Whether a row is indistinguishable from the first one."""
        return bool((np.abs(values[chosen] - values[0]) <= self.error_fraction * values[0]).all())


def _label(job: Job, lever: Lever) -> str:
    """Words for an input, with what shares it where the job has several of these."""
    words, known = input_words(lever.input), INPUTS[lever.name]
    owners = {known.owner(job, offer) for offer in range(len(job.offers))}
    if known.name == HARDWARE_PRICE:
        return f"{words} of {_offer_words(job, lever.offers[0])}" if len(job.offers) > 1 else words
    if len(owners) == 1:
        return words
    return f"{words} of {lever.owner}" if known.shared is Shared.SITE else f"{words}, {lever.owner}"


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
    return lever.name == HARDWARE_PRICE and lever.low == lever.high


def _ends(lever: Lever) -> tuple[float, ...]:
    """The ends of the range over which an input is tried, as factors."""
    if _is_quote(lever):
        return QUOTE_FACTORS
    return tuple(factor for factor in (lever.low, lever.high) if factor != 1.0)


def _range(choice: _Choice, lever: Lever) -> Range | None:
    """Where an input changes the choice; `None` if it affects neither an objective of any design nor a limit."""
    middle, *ends = (choice.case(lever, factor) for factor in (1.0, *_ends(lever)))
    if not any(middle.differs_from(end) for end in ends):
        return None
    found = list(filter(None, (_flip(choice, lever, end) for end in ends)))
    low, high = (lever.value(side(1.0, *(end.factor for end in ends))) for side in (min, max))
    return Range(
        label=_label(choice.job, lever),
        low_text=input_text(lever.input, low),
        high_text=input_text(lever.input, high),
        at_low=low / lever.input.mid - 1.0,
        at_high=high / lever.input.mid - 1.0,
        marks=tuple(mark for mark, _ in found),
        note="; ".join(note for _, note in found) or (QUOTE_WORDS if _is_quote(lever) else lever.input.why),
    )


def _flip(choice: _Choice, lever: Lever, end: _Case) -> tuple[Mark, str] | None:
    """The point between the middle and an end of its range where an input changes the choice; `None` if there is none."""
    best = choice.designs[0]
    if choice.chosen(end) == best:
        return None
    same, other = 1.0, end
    for _ in range(NUM_HALVINGS):
        half = choice.case(lever, 0.5 * (same + other.factor))
        same, other = (half.factor, other) if choice.chosen(half) == best else (same, half)
    chosen = choice.chosen(other)
    none = f"no considered design {'meets the limits' if set_limits(other.job) else CAN_BE_RUN}"
    becomes = chosen.words if chosen else none
    if other.broken:
        becomes += (
            f", because the recommended one violates {', '.join(human.words(name) for name in other.broken)}"
        )
    value = lever.value(other.factor)
    change = value / lever.input.mid - 1.0
    way = "below" if change < 0.0 else "above"
    where = f"{way} {input_text(lever.input, value)} ({text(change, 'change')})"
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
