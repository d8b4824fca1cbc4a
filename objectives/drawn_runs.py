"""How long would runs take, and how much power would they draw, with other inputs? `r` draws of each for n designs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from objectives.input_table import INPUTS, STEP_TIME
from objectives.moved_designs import WAITING_PARTS
from objectives.run_response import Response, responses, step_factors
from objectives.scores import ScoreTable
from objectives.unsure_inputs import Normal, UnsureInput, unsure_inputs
from objectives.usage import Usage, it_energy_j
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.machine.offer_table import OfferTable
from simulator.simulate import Outcomes
from simulator.table import Floats, total


@dataclass(frozen=True, kw_only=True)
class UnsureDesigns:
    """n simulated designs with their uncertain inputs, from which any number of values can be drawn."""

    job: Job
    plans: PlanTable
    outcomes: Outcomes
    scores: ScoreTable
    inputs: Mapping[str, UnsureInput]
    """Every input that is drawn, by its name."""
    responses: Mapping[str, Response]
    """How the runs respond to each simulated input."""

    @classmethod
    def of(cls, job: Job, plans: PlanTable, outcomes: Outcomes, scores: ScoreTable) -> Self:
        """Returns designs with their uncertain inputs.

        Args:
            job: the job; its prices have ranges of their own, `input_factors` has the ranges of everything else.
            plans: `(n,)` designs.
            outcomes: what `simulate` returned for them.
            scores: what `score` returned for them.
        """
        every = unsure_inputs(job, plans)
        inputs = {name: unsure for name, unsure in every.items() if INPUTS[name].is_drawn}
        return cls(
            job=job,
            plans=plans,
            outcomes=outcomes,
            scores=scores,
            inputs=inputs,
            responses=responses(job, plans, outcomes, inputs),
        )


@dataclass(frozen=True, kw_only=True)
class DrawnRuns:
    """n designs under r draws of every input."""

    job: Job
    plans: PlanTable
    outcomes: Outcomes
    scores: ScoreTable
    factors: Mapping[str, Floats]
    """Ratio of each input to its middle value, by name, `(r, n)` each."""
    wall_s: Floats
    """Wall time of the whole run, `(r, n)`."""
    energy_j: Floats
    """Energy of the facility, `(r, n)`."""
    peak_power_w: Floats
    """Peak power of the facility, `(r, n)`."""
    mean_cooling: Floats
    """Facility energy per joule of IT energy, relative to its value at the middle, `(r, n)`."""
    peak_cooling: Floats
    """Facility power per watt of IT power in the warmest hour, relative to its value at the middle, `(r, n)`."""

    @classmethod
    def of(cls, designs: UnsureDesigns, normal: Normal) -> Self:
        """Returns the runs at standard normal values of every draw, which `normal` returns by name."""
        job, plans, outcomes, scores = designs.job, designs.plans, designs.outcomes, designs.scores
        factors = {name: unsure.factors(normal) for name, unsure in designs.inputs.items()}
        moving = {**factors, STEP_TIME: step_factors(job, plans, outcomes, factors)}
        wall, energy = np.zeros((2, *moving[STEP_TIME].shape))
        for name, response in designs.responses.items():
            moved = response.of(moving[name])
            wall, energy = wall + moved[0], energy + moved[1]
        in_mean, at_peak = (
            _cooling(overhead, factors["cooling_overhead"]) for overhead in _overheads(job, plans, outcomes)
        )
        storage = [
            share * (factors["storage_power"] - 1.0) for share in _storage_shares(job, plans, outcomes)
        ]
        return cls(
            job=job,
            plans=plans,
            outcomes=outcomes,
            scores=scores,
            factors=factors,
            wall_s=scores.time_to_train_s * np.exp(wall),
            energy_j=scores.energy_j * np.exp(energy) * (_power(outcomes, factors) + storage[0]) * in_mean,
            peak_power_w=outcomes.power.peak_power_w * (factors["compute_power"] + storage[1]) * at_peak,
            mean_cooling=in_mean,
            peak_cooling=at_peak,
        )

    @property
    def every_plan(self) -> PlanTable:
        """The designs, repeated for every draw, `(r n,)`."""
        return self.plans.take(np.tile(np.arange(len(self.plans)), len(self.wall_s)))

    @property
    def usage(self) -> Usage:
        """What they use in every draw, `(r n,)`."""
        return Usage(
            wall_s=self.wall_s.ravel(),
            energy_j=self.energy_j.ravel(),
            peak_power_w=self.peak_power_w.ravel(),
        )


def _power(outcomes: Outcomes, factors: Mapping[str, Floats]) -> Floats:
    """IT power relative to its value at the middle, `(r, n)`: while computing and while waiting."""
    energy = outcomes.energy
    waiting = total(getattr(energy, part) for part in WAITING_PARTS) / energy.total_j
    return np.asarray((1.0 - waiting) * factors["compute_power"] + waiting * factors["waiting_power"])


def _storage_shares(job: Job, plans: PlanTable, outcomes: Outcomes) -> tuple[Floats, Floats]:
    """Share of storage in the IT energy and in the hall's peak power, as far as it scales with capacity, `(n,)` each."""
    power_w, usage = job.storage.power_of_bytes_w, Usage.of(outcomes)
    is_finite = np.isfinite(usage.energy_j)
    in_energy = power_w * np.where(is_finite, usage.wall_s, 0.0) / _it_energy_j(job, plans, usage)
    return in_energy, power_w / outcomes.power.hall_power_w


def _overheads(job: Job, plans: PlanTable, outcomes: Outcomes) -> tuple[Floats, Floats]:
    """Cooling power per watt of IT power, on average over the run and in the warmest hour, `(n,)` each."""
    offers = OfferTable.from_job(job).take(plans.offer)
    usage = Usage.of(outcomes)
    is_finite = np.isfinite(usage.energy_j)
    # A fixed part weighs more at average load than at full load; a run without end has no average.
    at_full_load = offers.power_usage_effectiveness - 1.0
    in_mean = np.where(is_finite, usage.energy_j, 1.0 + at_full_load) / _it_energy_j(job, plans, usage) - 1.0
    return np.asarray(in_mean), offers.peak_power_usage_effectiveness - 1.0


def _it_energy_j(job: Job, plans: PlanTable, usage: Usage) -> Floats:
    """IT energy, by which shares are taken, `(n,)`; 1 for a run without end."""
    return np.where(np.isfinite(usage.energy_j), it_energy_j(job, plans, usage), 1.0)


def _cooling(overhead: Floats, factors: Floats) -> Floats:
    """Facility power under factors on its overhead, relative to its value at the middle, `(r, n)`."""
    return np.asarray((1.0 + overhead * factors) / (1.0 + overhead))
