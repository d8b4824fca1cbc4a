"""How do the time and energy of a run respond to the inputs of its simulation? Simulated at a few values of each.

Runs are not simulated again for every draw. The logarithms of wall time and energy are interpolated linearly over the
logarithm of each input, and the effects of several inputs are added. A test compares this with simulations in which all
inputs change at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from objectives.unsure_inputs import LAYOUT_TIME, STEP_TIME, UnsureInput
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.machine.offer_table import OfferTable
from simulator.machine.power import slowdown_under_cap
from simulator.record import Record
from simulator.simulate import Outcomes, outcomes_of
from simulator.step.step import StepTable
from simulator.table import Floats

LARGEST_CHANGE = 10.0
"""Largest factor by which time or energy changes between the middle and an end; a run that never ends counts as this."""
END_SHARES = (0.5, 1.0, 2.0)
"""Where an input is simulated on either side of its middle, as multiples of the normal values of its low and high factor.
Draws beyond the last one, about one in a thousand, are clipped to it."""
LEAST_STEP_RANGE = 0.1
"""Least range of the logarithm of the step time over which runs are simulated."""
_MOST_FAILURES = 10_000.0
"""Largest rate that `Reliability` accepts."""


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


def slow_down_steps(steps: StepTable, factor: float | Floats) -> StepTable:
    """Returns steps with the time of every part multiplied by a factor, or by one for each step, `(n,)`."""
    return replace(steps, **{name: getattr(steps, name) * factor for name in steps.names()})


def _changed_reliability(job: Job, **fields: object) -> Job:
    return job.model_copy(update={"reliability": job.reliability.model_copy(update=fields)})


def _with_failure_rate(job: Job, factor: float) -> Job:
    """Returns the job with the failure rates of nodes and of their domains multiplied by a factor."""
    now = job.reliability
    names = ("failures_per_1000_node_days", "domain_failures_per_1000_domain_days")
    rates = {name: min(getattr(now, name) * factor, _MOST_FAILURES) for name in names}
    return _changed_reliability(job, **rates)


def _with_interruption_rate(job: Job, factor: float) -> Job:
    """Returns the job with the rate at which landlords reclaim nodes multiplied by a factor."""
    name = "interruptions_per_1000_node_days"
    offers = tuple(offer.model_copy(update={name: getattr(offer, name) * factor}) for offer in job.offers)
    return job.model_copy(update={"offers": offers})


def _with_restart_time(job: Job, factor: float) -> Job:
    """Returns the job with the time to recover from failures multiplied by a factor."""
    restart = job.reliability.restart
    times = [name for name in type(restart).model_fields if name.endswith("_s")]
    return _changed_reliability(job, restart=_scaled(restart, times, factor))


def _with_straggler_excess(job: Job, factor: float) -> Job:
    """Returns the job with the time that stragglers add to a step multiplied by a factor."""
    log_mean = job.reliability.straggler_log_mean
    return (
        job if log_mean is None else _changed_reliability(job, straggler_log_mean=log_mean + math.log(factor))
    )


def _with_storage_bandwidth(job: Job, factor: float) -> Job:
    """Returns the job with the storage bandwidths multiplied by a factor."""
    rates = [name for name in type(job.storage).model_fields if "_bytes_per_s" in name]
    return job.model_copy(update={"storage": _scaled(job.storage, rates, factor)})


def _scaled(record: Record, names: Sequence[str], factor: float) -> Record:
    return record.model_copy(update={name: getattr(record, name) * factor for name in names})


CHANGES: Mapping[str, Callable[[Job, float], Job]] = {
    "failure_rate": _with_failure_rate,
    "interruption_rate": _with_interruption_rate,
    "restart_time": _with_restart_time,
    "straggler_excess": _with_straggler_excess,
    "storage_bandwidth": _with_storage_bandwidth,
}
"""How each input other than the step time changes a job."""


def responses(
    job: Job, plans: PlanTable, outcomes: Outcomes, inputs: Mapping[str, UnsureInput]
) -> dict[str, Response]:
    """Returns how the runs of `(n,)` designs respond to every uncertain input of their simulation, by its name."""
    names = (STEP_TIME, *(name for name in CHANGES if not inputs[name].is_certain))
    return {name: _response(job, plans, outcomes, name, inputs[name]) for name in names}


def step_factors(job: Job, plans: PlanTable, outcomes: Outcomes, factors: Mapping[str, Floats]) -> Floats:
    """Returns the ratio of step times to simulated ones, `(r, n)`: from the step error, and from computation under a cap."""
    offers = OfferTable.from_job(job).take(plans.offer)
    slowdown = slowdown_under_cap(offers, plans.power_cap_fraction)
    computing = outcomes.steps.compute_s / outcomes.steps.step_time_s
    capped = 1.0 + computing * (slowdown ** (factors["cap_slowdown"] - 1.0) - 1.0)
    return np.asarray(capped * factors[STEP_TIME] * factors[LAYOUT_TIME])


def _response(job: Job, plans: PlanTable, outcomes: Outcomes, name: str, unsure: UnsureInput) -> Response:
    logs = sorted({0.0, *(log for share in END_SHARES for log in _reach(name, unsure, share))})
    known = np.array([_logs_at(job, plans, outcomes, name, log) for log in logs])
    return Response(log_factors=np.array(logs), wall_logs=known[:, 0], energy_logs=known[:, 1])


def _reach(name: str, unsure: UnsureInput, share: float) -> tuple[float, float]:
    """Least and largest logarithm of an input at a multiple of its ends; power caps and errors of layouts shift steps, too."""
    low, high = unsure.reach(share)
    least = share * LEAST_STEP_RANGE if name == STEP_TIME else 0.0
    return min(low, -least), max(high, least)


def _logs_at(job: Job, plans: PlanTable, outcomes: Outcomes, name: str, log_factor: float) -> Floats:
    """Log ratios of wall time and energy at a value of an input to those at its middle, `(2, n)`."""
    steps, factor = outcomes.steps, math.exp(log_factor)
    if log_factor == 0.0:
        return np.zeros((2, len(plans)))
    if name == STEP_TIME:
        steps = slow_down_steps(steps, factor)
    else:
        job = CHANGES[name](job, factor)
    moved = outcomes_of(job, plans, steps, outcomes.memory)
    ratios = np.stack(
        [
            moved.run.wall_time_s / outcomes.run.wall_time_s,
            moved.energy.total_j / outcomes.energy.total_j,
        ]
    )
    bound = math.log(LARGEST_CHANGE)
    return np.clip(np.log(np.nan_to_num(ratios, nan=LARGEST_CHANGE)), -bound, bound)
