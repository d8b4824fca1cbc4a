"""Which inputs drive the result? Each varies alone over its range, from its 5th to its 95th percentile.

`sensitivities` simulates one design again at both ends of every input. `front_tornado` does the same to many designs with
the responses of `objectives.input_uncertainty`, and says how their order by each objective changes. One at a time: what two
inputs do together is not seen. The interval between saves follows where the plan leaves it open.
"""

from __future__ import annotations

import math
from itertools import compress

import numpy as np

from objectives.drawn_runs import UnsureDesigns
from objectives.input_uncertainty import objectives_at_ends
from objectives.moved_designs import moved_designs
from objectives.scores import score
from planner.recommended.comparisons import TornadoBar
from planner.uncertain.uncertain_inputs import Lever, UncertainInput, levers
from simulator.domain.job import Job
from simulator.domain.plan import Plan, PlanTable
from simulator.record import Record, finite_or_none
from simulator.simulate import Outcomes, simulate
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
    """Distance of the two as a share of the result; 0 for an input that does not move it, null for a run that never ends."""

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
    """The inputs that move any result, the one that matters most to this one first."""


class Sensitivities(Record):
    """What drives the results: every input alone, from the low to the high end of its range."""

    inputs: tuple[UncertainInput, ...]
    """The inputs that move any of the results, and their ranges."""
    results: tuple[ResultSensitivity, ...]
    """The results, each with all of these inputs."""


def sensitivities(job: Job, plan: Plan) -> Sensitivities:
    """Returns how the results of a plan depend on what is not known exactly; the plan has a valid layout whose run ends."""
    plans = PlanTable.from_plans([plan])
    outcomes, every = simulate(job, plans), list(levers(job, plans))
    mid = _results(job, plans, outcomes)
    ends = [_ends(job, plans, outcomes, lever) for lever in every]
    found = [
        tuple(_swing(lever.input.name, *values) for values in zip(mid, at_low, at_high, strict=True))
        for lever, (at_low, at_high) in zip(every, ends, strict=True)
    ]
    moving = [any(swing.swing_fraction != 0.0 for swing in swings) for swings in found]
    return Sensitivities(
        inputs=tuple(lever.input for lever in compress(every, moving)),
        results=tuple(
            ResultSensitivity(
                result=name,
                mid=mid[k],
                swings=tuple(sorted((swings[k] for swings in compress(found, moving)), key=_order)),
            )
            for k, name in enumerate(RESULTS)
        ),
    )


def _ends(job: Job, plans: PlanTable, outcomes: Outcomes, lever: Lever) -> tuple[list[float], list[float]]:
    """The results at both ends of an input."""
    low, high = (
        _results(changed, plans, moved)
        for changed, moved in (
            moved_designs(job, plans, outcomes, lever.name, factor) for factor in (lever.low, lever.high)
        )
    )
    return low, high


def _results(job: Job, plans: PlanTable, outcomes: Outcomes) -> list[float]:
    """The results of the only design, in the order of `RESULTS`."""
    scores = score(job, plans, outcomes)
    columns = (
        scores.time_to_train_s / DAY,
        scores.cost_usd,
        scores.energy_j / JOULES_PER_KWH,
        scores.carbon_kgco2e,
        outcomes.run.goodput_fraction,
    )
    return [float(column[0]) for column in columns]


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
