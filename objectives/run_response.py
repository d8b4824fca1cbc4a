"""How do the time and energy of a run respond to the inputs of its simulation? Simulated at a few values of each.

Runs are not simulated again for every draw. The logarithms of wall time and energy are interpolated linearly over the
logarithm of each input, and the effects of several inputs are added. A test compares this with simulations in which all
inputs change at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from objectives.input_table import CAP_SLOWDOWN, INPUTS, LAYOUT_TIME, STEP_TIME, Moved
from objectives.moved_designs import capped_step_factors, moved_designs
from objectives.unsure_inputs import UnsureInput
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.simulate import Outcomes
from simulator.table import Floats

LARGEST_CHANGE = 10.0
"""Largest factor by which time or energy changes between the middle and an end; a run that never ends counts as this."""
END_SHARES = (0.5, 1.0, 2.0)
"""Where an input is simulated on either side of its middle, as multiples of the normal values of its low and high factor.
Draws beyond the last one, about one in a thousand, are clipped to it."""
LEAST_STEP_RANGE = 0.1
"""Least range of the logarithm of the step time over which runs are simulated."""


@dataclass(frozen=True, kw_only=True)
class Response:
    """How the runs of n designs respond to one input."""

    log_factors: Floats
    """`(m,)` logarithms of the ratio of the input to its middle value, ascending."""
    wall_logs: Floats
    """`(m, n)` logarithms of the ratio of the wall time to its value at the middle,"""
    energy_logs: Floats
    """and of the energy."""

    def of(self, factors: Floats) -> tuple[Floats, Floats]:
        """Returns the changes of the logarithms of wall time and energy at factors of the input, `(r, n)` each."""
        logs = np.log(factors)
        wall, energy = (
            np.column_stack(
                [np.interp(logs[:, row], self.log_factors, known[:, row]) for row in range(logs.shape[1])]
            )
            for known in (self.wall_logs, self.energy_logs)
        )
        return wall, energy


def responses(
    job: Job, plans: PlanTable, outcomes: Outcomes, inputs: Mapping[str, UnsureInput]
) -> dict[str, Response]:
    """Returns how the runs of `(n,)` designs respond to every uncertain input of their simulation, by its name."""
    names = (
        known.name
        for known in INPUTS.values()
        if known.moves is Moved.RUN and known.fields and not inputs[known.name].is_certain
    )
    return {name: _response(job, plans, outcomes, inputs[name]) for name in (STEP_TIME, *names)}


def step_factors(job: Job, plans: PlanTable, outcomes: Outcomes, factors: Mapping[str, Floats]) -> Floats:
    """Returns the ratio of step times to simulated ones, `(r, n)`: from the step error, and from computation under a cap."""
    capped = capped_step_factors(job, plans, outcomes.steps, factors[CAP_SLOWDOWN])
    return np.asarray(capped * factors[STEP_TIME] * factors[LAYOUT_TIME])


def _response(job: Job, plans: PlanTable, outcomes: Outcomes, unsure: UnsureInput) -> Response:
    logs = sorted({0.0, *(log for share in END_SHARES for log in _reach(unsure, share))})
    known = np.array([_logs_at(job, plans, outcomes, unsure.name, log) for log in logs])
    return Response(log_factors=np.array(logs), wall_logs=known[:, 0], energy_logs=known[:, 1])


def _reach(unsure: UnsureInput, share: float) -> tuple[float, float]:
    """Least and largest logarithm of an input at a multiple of its ends; power caps and errors of layouts shift steps, too."""
    low, high = unsure.reach(share)
    least = share * LEAST_STEP_RANGE if unsure.name == STEP_TIME else 0.0
    return min(low, -least), max(high, least)


def _logs_at(job: Job, plans: PlanTable, outcomes: Outcomes, name: str, log_factor: float) -> Floats:
    """Log ratios of wall time and energy at a value of an input to those at its middle, `(2, n)`."""
    if log_factor == 0.0:
        return np.zeros((2, len(plans)))
    _, moved = moved_designs(job, plans, outcomes, name, math.exp(log_factor))
    ratios = np.stack(
        [
            moved.run.wall_time_s / outcomes.run.wall_time_s,
            moved.energy.total_j / outcomes.energy.total_j,
        ]
    )
    bound = math.log(LARGEST_CHANGE)
    return np.clip(np.log(np.nan_to_num(ratios, nan=LARGEST_CHANGE)), -bound, bound)
