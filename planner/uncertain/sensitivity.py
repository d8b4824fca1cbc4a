"""Which inputs drive the result? Each varies alone over its range.

`sensitivities` simulates one design again at both ends of every input. `front_tornado` does the same to many designs with
the responses of `objectives.input_uncertainty`, and says how their order by each objective changes. One at a time: what two
inputs do together is not seen. The interval between saves follows where the plan leaves it open.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from objectives.drawn_runs import UnsureDesigns
from objectives.input_uncertainty import objectives_at_ends
from objectives.run_response import slow_down_steps
from objectives.scores import score
from planner.recommended.comparisons import TornadoBar
from planner.uncertain.uncertain_inputs import (
    STEP_TIME,
    Lever,
    Moved,
    StepRange,
    UncertainInput,
    uncertain_inputs,
)
from simulator.domain.job import Job
from simulator.domain.plan import Plan, PlanTable
from simulator.record import Record, finite_or_none
from simulator.simulate import Outcomes, outcomes_of, steps_and_memory
from simulator.table import Floats, Integers
from simulator.units import DAY, JOULES_PER_KWH

RESULTS = ("time_to_train_days", "cost_usd", "energy_kwh", "carbon_kgco2e", "goodput_fraction")
"""Fields of `Design` that are looked at."""
ROUNDING = 1e-9
"""Smaller swings, as shares of the result, are rounding and count as none."""
LEAST_SHOWN_FRACTION = 1e-3
"""Smaller swings, as shares of the result, are left out of what people read."""


class Swing(Record):
    """How far one input moves one result."""

    input: str
    """Name of the input."""
    at_low: float | None
    """The result at the low end of the input; null where the run never ends."""
    at_high: float | None
    """The result at its high end."""
    swing_fraction: float | None
    """Distance of the two as a share of the result; 0 for an input that does not matter, null for a run that never ends."""

    @property
    def is_worth_showing(self) -> bool:
        """Whether people want to see it, which they do not where the input hardly moves the result."""
        return self.swing_fraction is None or self.swing_fraction >= LEAST_SHOWN_FRACTION


class ResultSensitivity(Record):
    """What drives one result."""

    result: str
    """Field of [Design](answer.md#design)."""
    mid: float
    """Its value with all inputs at the middle."""
    swings: tuple[Swing, ...]
    """Every input, the one that matters most first."""


class Sensitivities(Record):
    """What drives the results: every input alone, from the low to the high end of its range."""

    inputs: tuple[UncertainInput, ...]
    """The inputs and their ranges."""
    results: tuple[ResultSensitivity, ...]
    """The results, each with all inputs."""


def sensitivities(job: Job, plan: Plan, step: StepRange) -> Sensitivities:
    """Returns how the results of a plan depend on what is not known exactly.

    Args:
        job: the job.
        plan: a plan with a valid layout whose run ends.
        step: range of the time of steps of its kind.
    """
    levers = uncertain_inputs(job, plan.offer, step)
    ends = [_Case.of(job, lever, value) for lever in levers for value in (lever.input.low, lever.input.high)]
    values = _evaluated(plan, [_Case(job=job), *ends])
    mid, low, high = values[0], values[1::2], values[2::2]
    return Sensitivities(
        inputs=tuple(lever.input for lever in levers),
        results=tuple(
            _result(name, float(mid[k]), levers, low[:, k], high[:, k]) for k, name in enumerate(RESULTS)
        ),
    )


def _result(name: str, mid: float, levers: Sequence[Lever], low: Floats, high: Floats) -> ResultSensitivity:
    swings = [
        _swing(lever.input.name, mid, float(at_low), float(at_high))
        for lever, at_low, at_high in zip(levers, low, high, strict=True)
    ]
    return ResultSensitivity(result=name, mid=mid, swings=tuple(sorted(swings, key=_order)))


def _swing(name: str, mid: float, at_low: float, at_high: float) -> Swing:
    is_known = math.isfinite(at_low) and math.isfinite(at_high)
    swing = abs(at_high - at_low) / mid if is_known and mid > 0 else 0.0
    return Swing(
        input=name,
        at_low=finite_or_none(at_low),
        at_high=finite_or_none(at_high),
        swing_fraction=(swing if swing > ROUNDING else 0.0) if is_known else None,
    )


def _order(swing: Swing) -> float:
    return -math.inf if swing.swing_fraction is None else -swing.swing_fraction


@dataclass(frozen=True, kw_only=True)
class _Case:
    """A job with one changed input."""

    job: Job
    step_factor: float = 1.0
    changes_offer_only: bool = True
    changes_run: bool = False
    """Whether the run is another one by something else than the offer and the step."""

    @classmethod
    def of(cls, job: Job, lever: Lever, value: float) -> _Case:
        """Returns the case of an input at one end."""
        if lever.input.name == STEP_TIME:
            return cls(job=job, step_factor=value)
        return cls(
            job=lever.change(job, value),
            changes_offer_only=lever.changes_offer_only,
            changes_run=not lever.changes_offer_only and lever.moves is not Moved.WORTH,
        )


def _evaluated(plan: Plan, cases: Sequence[_Case]) -> Floats:
    """Returns the results of every case, `(cases, results)`.

    All are simulated as one batch, in which every case has an offer of its own. Cases that differ in something else are
    priced one by one, because that is the same for all rows of a batch; where the run depends on it, they run one by one.
    """
    offers = tuple(case.job.offers[plan.offer] for case in cases)
    base = cases[0].job.model_copy(update={"offers": offers})
    rows = np.arange(len(cases))
    row = PlanTable.from_plans([plan]).take(np.zeros(len(cases), dtype=np.intp))
    plans = replace(row, offer=rows)
    steps, memory = steps_and_memory(base, plans)
    steps = slow_down_steps(steps, np.array([case.step_factor for case in cases]))
    outcomes = outcomes_of(base, plans, steps, memory)
    is_shared = np.array([case.changes_offer_only for case in cases])
    values = np.empty((len(cases), len(RESULTS)))
    for group in (rows[is_shared], *rows[~is_shared, None]):
        case, some = cases[group[0]], plans.take(group)
        job = case.job.model_copy(update={"offers": offers})
        ran = outcomes.take(group)
        if case.changes_run:
            ran = outcomes_of(job, some, ran.steps, ran.memory)
        values[group] = _results(job, some, ran)
    return values


def _results(job: Job, plans: PlanTable, outcomes: Outcomes) -> Floats:
    scores = score(job, plans, outcomes)
    columns = (
        scores.time_to_train_s / DAY,
        scores.cost_usd,
        scores.energy_j / JOULES_PER_KWH,
        scores.carbon_kgco2e,
        outcomes.run.goodput_fraction,
    )
    return np.column_stack(columns)


def front_tornado(designs: UnsureDesigns, ids: Integers) -> tuple[TornadoBar, ...]:
    """Returns what every unsure input alone does to each objective of each design, and to its place among them.

    Args:
        designs: `(n,)` of one job; ranges are those of its prices and of `input_factors`.
        ids: `(n,)` their numbers.

    Returns:
        One bar for each design, objective or other drawn figure, and input that moves it, by design and figure, the largest
        swing first.
    """
    ends = objectives_at_ends(designs)
    places = _places(ends.middle), _places(ends.low), _places(ends.high)
    bars = []
    for row, design_id in enumerate(ids.tolist()):
        for k, column in enumerate(ends.columns):
            swings = np.abs(ends.high[:, row, k] - ends.low[:, row, k])
            moving = np.flatnonzero(swings > ROUNDING * np.abs(ends.middle[row, k]))
            bars += [
                TornadoBar(
                    input=ends.names[lever],
                    objective=column,
                    design_id=design_id,
                    middle=float(ends.middle[row, k]),
                    at_low=float(ends.low[lever, row, k]),
                    at_high=float(ends.high[lever, row, k]),
                    place=int(places[0][row, k]),
                    place_at_low=int(places[1][lever, row, k]),
                    place_at_high=int(places[2][lever, row, k]),
                )
                for lever in moving[np.argsort(-swings[moving], kind="stable")]
            ]
    return tuple(bars)


def _places(values: Floats) -> Integers:
    """Place of each design by each objective, `(..., n, k)`: one more than the designs that have less of it."""
    less = values[..., None, :, :] < values[..., :, None, :]
    return np.asarray(less.sum(axis=-2) + 1)
