"""Which input, changed by how much, turns the recommendation into another one? Each input moves alone over its range.

The designs of the front are judged again under every change, and the compromise among them is chosen anew. What the
model cannot tell from the recommended design does not count as another one. Designs beside the front are not tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Final

import numpy as np

from constraints.evaluation import Evaluation, judge
from planner import human
from planner.choice import chosen_row
from planner.design_view import layout
from planner.input_uncertainty import MOST_RIVALS
from planner.recommendation import Design, Recommendation
from planner.report_breakdowns import shown_name
from planner.report_data import Mark, Range, RangesFigure
from planner.report_units import text
from planner.sensitivity_view import input_text, input_words
from planner.uncertain_inputs import STEP_TIME, Lever, uncertain_inputs
from simulator.accuracy import Accuracy
from simulator.job import Job
from simulator.memory import MemoryTable
from simulator.plan import PlanTable
from simulator.simulate import outcomes_of, steps_and_memory
from simulator.step import StepTable

NUM_HALVINGS: Final = 7
"""How often the stretch in which the choice changes is halved: the mark is then right to 1/128 of the way."""
MOVES_STEPS: Final = ("network bandwidth of a node",)
"""Inputs on which the steps depend, so that these are simulated anew."""
OWN_OFFER: Final = "offers["
"""How the names of inputs begin that belong to one offer, such as its price."""


def flips(job: Job, answer: Recommendation, best: Design, accuracy: Accuracy) -> RangesFigure:
    """Returns the range of every input as shares of its middle, marked where the recommendation changes."""
    choice = _Choice.of(job, answer, best, accuracy.mean_absolute_error_fraction)
    ranges = [_range(choice, label, lever) for label, lever in _levers(job, choice, accuracy)]
    return RangesFigure(
        name="flips",
        title=_title([found for found in ranges if found.marks]),
        note=(
            "Each input alone, from the low to the high end of its range, as a change from the value that was used. "
            f"A mark is where another of {len(choice.designs)} designs of the front becomes the best compromise."
        ),
        quantity="change",
        mid=0.0,
        ranges=tuple(sorted(ranges, key=_order)),
    )


@dataclass(frozen=True, kw_only=True)
class _Choice:
    """The designs among which a changed job chooses, the recommended one first, with their simulated steps."""

    job: Job
    designs: tuple[Design, ...]
    plans: PlanTable
    steps: StepTable
    memory: MemoryTable
    error_fraction: float

    @classmethod
    def of(cls, job: Job, answer: Recommendation, best: Design, error_fraction: float) -> _Choice:
        """Takes the recommended design and at most `MOST_RIVALS` others of the front, evenly spread."""
        others = [design for design in answer.front if design.design_id != best.design_id]
        rows = np.unique(np.linspace(0, len(others) - 1, min(len(others), MOST_RIVALS)).astype(np.intp))
        designs = (best, *(others[row] for row in rows))
        plans = PlanTable.from_plans([design.plan for design in designs])
        steps, memory = steps_and_memory(job, plans)
        return cls(
            job=job,
            designs=designs,
            plans=plans,
            steps=steps,
            memory=memory,
            error_fraction=error_fraction,
        )

    def under(self, lever: Lever, value: float) -> Design | None:
        """Returns the design that is chosen instead of the recommended one; that one itself where it stays.

        None where no design of the front keeps the limits any more.
        """
        job, evaluation = self._judged(lever, value)
        rows = np.flatnonzero(evaluation.is_feasible & np.isfinite(evaluation.objectives(job)).all(axis=1))
        if len(rows) == 0:
            return None
        feasible = evaluation.take(rows)
        chosen = int(chosen_row(job, feasible))
        if rows[0] == 0 and self._is_tied(feasible.objectives(job), chosen):
            return self.designs[0]
        return self.designs[int(rows[chosen])]

    def broken(self, lever: Lever, value: float) -> list[str]:
        """Returns the limits that the recommended design breaks under a change."""
        _, evaluation = self._judged(lever, value)
        return [name for name, column in evaluation.excess.columns().items() if column[0]]

    def _judged(self, lever: Lever, value: float) -> tuple[Job, Evaluation]:
        job = lever.change(self.job, value)
        steps, memory = self._changed_steps(job, lever, value)
        return job, judge(job, self.plans, outcomes_of(job, self.plans, steps, memory))

    def _changed_steps(self, job: Job, lever: Lever, value: float) -> tuple[StepTable, MemoryTable]:
        if lever.input.name in MOVES_STEPS:
            return steps_and_memory(job, self.plans)
        if lever.input.name != STEP_TIME:
            return self.steps, self.memory
        # The error of a kind of steps is common to all designs on its accelerators, and says nothing of others.
        factors = np.where(self.plans.offer == self.plans.offer[0], value, 1.0)
        columns = {field.name: getattr(self.steps, field.name) * factors for field in fields(self.steps)}
        return replace(self.steps, **columns), self.memory

    def _is_tied(self, values: np.ndarray, chosen: int) -> bool:
        """Whether the model cannot tell a row from the first one."""
        return bool((np.abs(values[chosen] - values[0]) <= self.error_fraction * values[0]).all())


def _levers(job: Job, choice: _Choice, accuracy: Accuracy) -> Iterator[tuple[str, Lever]]:
    """Yields the inputs of the recommended design, and those that belong to the offers of its rivals, with their names."""
    own = choice.designs[0]
    whose = {design.plan.offer: _offer_words(choice, design) for design in reversed(choice.designs)}
    for offer in sorted(whose, key=lambda offer: offer != own.plan.offer):
        for lever in uncertain_inputs(job, offer, accuracy):
            belongs = lever.input.name.startswith(OWN_OFFER)
            if lever.input.mid > 0 and (belongs or offer == own.plan.offer):
                words = input_words(lever.input.name)
                yield (f"{words} of {whose[offer]}" if belongs and len(whose) > 1 else words), lever


def _offer_words(choice: _Choice, design: Design) -> str:
    """Returns the accelerator of a design, with its region where the same one is to be had in several."""
    offers = {(other.accelerator, other.plan.offer) for other in choice.designs}
    is_alone = sum(accelerator == design.accelerator for accelerator, _ in offers) == 1
    return design.accelerator if is_alone or not design.region else f"{design.accelerator} in {design.region}"


def _range(choice: _Choice, label: str, lever: Lever) -> Range:
    low, mid, high = lever.input.low, lever.input.mid, lever.input.high
    found = [_flip(choice, lever, end) for end in (low, high) if end != mid]
    marks = [mark for mark, _ in filter(None, found)]
    notes = [note for _, note in filter(None, found)]
    return Range(
        label=label,
        low_text=input_text(lever.input, low),
        high_text=input_text(lever.input, high),
        at_low=low / mid - 1.0,
        at_high=high / mid - 1.0,
        marks=tuple(marks),
        note="; ".join(notes) or lever.input.why,
    )


def _flip(choice: _Choice, lever: Lever, end: float) -> tuple[Mark, str] | None:
    """Where between the middle and an end of its range an input changes the choice; none where it does not."""
    mid, best = lever.input.mid, choice.designs[0]
    if choice.under(lever, end) == best:
        return None
    same, other = mid, end
    for _ in range(NUM_HALVINGS):
        half = 0.5 * (same + other)
        same, other = (half, other) if choice.under(lever, half) == best else (same, half)
    chosen = choice.under(lever, other)
    becomes = _words(chosen) if chosen else "no design of the front keeps the limits"
    if broken := choice.broken(lever, other):
        becomes += f", since the recommended one breaks {', '.join(human.words(name) for name in broken)}"
    change = other / mid - 1.0
    way = "below" if other < mid else "above"
    where = f"{way} {input_text(lever.input, other)} ({text(change, 'change')})"
    return Mark(value=change, label=where), f"{where}: {becomes}"


def _words(chosen: Design) -> str:
    """Returns a design in words."""
    return f"design {chosen.design_id}, {shown_name(chosen)}, {layout(chosen.plan)}"


def _title(flipping: list[Range]) -> str:
    if not flipping:
        return "No input within its range changes the recommendation"
    nearest = min(flipping, key=_nearest)
    mark = min(nearest.marks, key=lambda mark: abs(mark.value))
    count = "One input" if len(flipping) == 1 else f"{len(flipping)} inputs"
    return f"{count} can change the recommendation, the nearest is {nearest.label} {mark.label}"


def _order(found: Range) -> tuple[float, float]:
    """The nearest flip first, then the widest range."""
    return _nearest(found), (found.at_low or 0.0) - (found.at_high or 0.0)


def _nearest(found: Range) -> float:
    return min((abs(mark.value) for mark in found.marks), default=np.inf)
