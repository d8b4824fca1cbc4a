"""How do the time and the energy of a run follow the inputs of its simulation? Simulated at a few values of each.

Runs are not simulated anew for every draw. Between the values the logarithms of wall time and energy are straight lines
over the logarithm of the input, and inputs act on them one by one: a test compares with runs that are simulated with all
of them changed.
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
"""Factor by which time or energy changes at most between the middle and an end; a run that never ends counts as this."""
END_SHARES = (0.5, 1.0, 2.0)
"""Where an input is simulated on either side of its middle, as shares of the normal values of its low and high factor; draws
beyond the last of them, one in a thousand, count as there."""
LEAST_STEP_RANGE = 0.1
"""Range of the logarithm of the step time within which runs are simulated at least."""
_MOST_FAILURES = 10_000.0
"""Largest rate that `Reliability` takes."""


@dataclass(frozen=True, kw_only=True)
class Response:
    """How the runs of n designs follow one input."""

    log_factors: Floats
    """`(m,)` logarithms of the input over its middle, rising."""
    wall_logs: Floats
    """`(m, n)` logarithms of the wall time over that at the middle,"""
    energy_logs: Floats
    """and of the energy."""

    def of(self, factors: Floats) -> tuple[Floats, Floats]:
        """Returns by how much the logarithms of wall time and energy change at factors of the input, `(r, n)` each."""
        logs = np.log(factors)
        wall, energy = (
            np.column_stack(
                [np.interp(logs[:, row], self.log_factors, known[:, row]) for row in range(logs.shape[1])]
            )
            for known in (self.wall_logs, self.energy_logs)
        )
        return wall, energy


def slow_down_steps(steps: StepTable, factor: float) -> StepTable:
    """Returns steps every part of which takes so many times as long."""
    return replace(steps, **{name: getattr(steps, name) * factor for name in steps.names()})


def _changed_reliability(job: Job, **fields: object) -> Job:
    return job.model_copy(update={"reliability": job.reliability.model_copy(update=fields)})


def _with_failure_rate(job: Job, factor: float) -> Job:
    """Returns the job with so many times as many failures of nodes and of their domains."""
    now = job.reliability
    names = ("failures_per_1000_node_days", "domain_failures_per_1000_domain_days")
    rates = {name: min(getattr(now, name) * factor, _MOST_FAILURES) for name in names}
    return _changed_reliability(job, **rates)


def _with_interruption_rate(job: Job, factor: float) -> Job:
    """Returns the job with landlords who take nodes back so many times as often."""
    name = "interruptions_per_1000_node_days"
    offers = tuple(offer.model_copy(update={name: getattr(offer, name) * factor}) for offer in job.offers)
    return job.model_copy(update={"offers": offers})


def _with_restart_time(job: Job, factor: float) -> Job:
    """Returns the job with a way back from failures that takes so many times as long."""
    restart = job.reliability.restart
    times = [name for name in type(restart).model_fields if name.endswith("_s")]
    return _changed_reliability(job, restart=_scaled(restart, times, factor))


def _with_straggler_excess(job: Job, factor: float) -> Job:
    """Returns the job with stragglers that add so many times as much to a step."""
    log_mean = job.reliability.straggler_log_mean
    return (
        job if log_mean is None else _changed_reliability(job, straggler_log_mean=log_mean + math.log(factor))
    )


def _with_storage_bandwidth(job: Job, factor: float) -> Job:
    """Returns the job with storage that reads and writes so many times as fast."""
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
"""How a job looks with another value of an input, beside the step time."""


def responses(
    job: Job, plans: PlanTable, outcomes: Outcomes, inputs: Mapping[str, UnsureInput]
) -> dict[str, Response]:
    """Returns how the runs of `(n,)` designs follow every input of their simulation that is unsure, by its name."""
    names = (STEP_TIME, *(name for name in CHANGES if not inputs[name].is_certain))
    return {name: _response(job, plans, outcomes, name, inputs[name]) for name in names}


def step_factors(job: Job, plans: PlanTable, outcomes: Outcomes, factors: Mapping[str, Floats]) -> Floats:
    """Returns by how much steps take longer than simulated, `(r, n)`: by their error, and computation under a power cap."""
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
    """Least and largest logarithm of an input at a share of its ends; power caps and errors of layouts move steps, too."""
    low, high = unsure.reach(share)
    least = share * LEAST_STEP_RANGE if name == STEP_TIME else 0.0
    return min(low, -least), max(high, least)


def _logs_at(job: Job, plans: PlanTable, outcomes: Outcomes, name: str, log_factor: float) -> Floats:
    """Logarithms of wall time and energy at a value of an input over those at its middle, `(2, n)`."""
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
