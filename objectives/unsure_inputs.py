"""How far may each input of some designs be off, and which of them share a draw?

Designs share the draws of what they have in common: the price of a kind of accelerator, the grid of a region, the job's
cost of capital (`objectives.input_table`). Ranges are `simulator.domain.options.InputFactors`; prices of hardware have ranges
of their own, and the error of a step comes from `simulator.accuracy.step_error`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from objectives.input_table import (
    HARDWARE_PRICE,
    INPUTS,
    INTERRUPTION_RATE,
    LAYOUT_TIME,
    NETWORK_BANDWIDTH,
    STEP_TIME,
    STRAGGLER_EXCESS,
    Input,
)
from simulator.accuracy.published_runs import EXPERTS_ERROR_FRACTION
from simulator.accuracy.step_error import Sides, StepError, step_error
from simulator.domain.calibration import StepResiduals
from simulator.domain.hardware import Precision
from simulator.domain.job import Job
from simulator.domain.offer import Estimate, Offer
from simulator.domain.options import Factors
from simulator.domain.plan import LAYOUT_COLUMNS, PlanTable
from simulator.layers.backward_doubt import doubtful_log_ratio
from simulator.step.step_reach import beyond_measured, reach_of
from simulator.table import Floats

Z_95 = 1.6448536269514722
"""Standard normal quantile of 95 %."""
Normal = Callable[[str], Floats]
"""Returns the standard normal values `(r,)` of the draw with a given name."""

NETWORK_FACTORS = Factors(low=0.8, high=1.2)
"""Bandwidth of a node's network: the share of the fabric that other jobs leave; estimate."""
_CERTAIN = Factors(low=1.0, high=1.0)
_LEAST_FACTOR = 1e-3
"""Factor for an estimate whose low end is 0."""
_NO_PART_OF_ITS_OWN = ("offer", "power_cap_fraction")
"""Columns of a layout in which two designs may differ and still share the error of their layout."""


def estimate_factors(estimate: Estimate) -> Factors:
    """Returns the ends of an estimate over its middle; 1 where the middle is 0."""
    if estimate.mid == 0.0:
        return _CERTAIN
    low = max(estimate.low / estimate.mid, _LEAST_FACTOR)
    return Factors(low=low, high=estimate.high / estimate.mid)


@dataclass(frozen=True, kw_only=True)
class UnsureInput:
    """One input of n designs."""

    name: str
    """Its name in `objectives.input_table`."""
    draws: tuple[str, ...]
    """Name of the draw that each design gets."""
    log_low: Floats
    """`(n,)` logarithm of the factor that the truth is rarely below,"""
    log_high: Floats
    """and of the one that it is rarely above."""
    expected_normal: float = 0.0
    """Standard normal value at which the factor is 1. It is above 0 where the expected value is the mean of a skewed
    distribution, because most draws are below that mean."""

    def factors(self, normal: Normal) -> Floats:
        """Returns the factors of every draw and design, `(r, n)`."""
        names = tuple(dict.fromkeys(self.draws))
        drawn = np.column_stack([normal(name) for name in names])
        return np.exp(self._logs(drawn[:, [names.index(name) for name in self.draws]]))

    def reach(self, share: float) -> tuple[float, float]:
        """Returns the logarithms of the least and the largest factor at a multiple of the quantiles of the ends."""
        ends = np.array([[-share * Z_95], [share * Z_95]])
        low, high = self._logs(np.broadcast_to(ends, (2, len(self.draws))))
        return float(low.min()), float(high.max())

    def _logs(self, normals: Floats) -> Floats:
        """Returns the logarithms of the factors at standard normal values, `(r, n)`."""
        beyond = normals - self.expected_normal
        is_less = beyond < 0.0
        ends = np.where(is_less, Z_95 + self.expected_normal, Z_95 - self.expected_normal)
        return np.asarray(beyond / ends * np.where(is_less, -self.log_low, self.log_high))

    @property
    def is_certain(self) -> bool:
        """Whether every draw is 1."""
        return not (self.log_low.any() or self.log_high.any())


def unsure_inputs(job: Job, plans: PlanTable) -> dict[str, UnsureInput]:
    """Returns every input of some designs by its name."""
    step_errors = _of_steps(job, plans)
    return {
        name: step_errors[name] if name in step_errors else _of_job(job, plans, known)
        for name, known in INPUTS.items()
    }


def _input(
    name: str, keys: Sequence[str], factors: Sequence[Factors], expected_normal: float = 0.0
) -> UnsureInput:
    return UnsureInput(
        name=name,
        draws=tuple(f"{name} of {key}" if key else name for key in keys),
        log_low=np.log([factor.low for factor in factors]),
        log_high=np.log([factor.high for factor in factors]),
        expected_normal=expected_normal,
    )


def _of_job(job: Job, plans: PlanTable, known: Input) -> UnsureInput:
    factors = [_factors(job, known.name, job.offers[offer]) for offer in plans.offer]
    expected_normal = _normal_of_mean_excess(job) if known.name == STRAGGLER_EXCESS else 0.0
    return _input(known.name, _owners(job, plans, known), factors, expected_normal)


def _owners(job: Job, plans: PlanTable, known: Input) -> list[str]:
    return [known.owner(job, int(offer)) for offer in plans.offer]


def _factors(job: Job, name: str, offer: Offer) -> Factors:
    """Returns the range of an input for designs of one offer."""
    if name == HARDWARE_PRICE:
        return _price(offer)
    if name == NETWORK_BANDWIDTH:
        return NETWORK_FACTORS
    if name == STRAGGLER_EXCESS:
        return straggler_excess_factors(job)
    if name == INTERRUPTION_RATE and not offer.interruptions_per_1000_node_days:
        return _CERTAIN
    found: Factors = getattr(job.input_factors, name)
    return found


def _normal_of_mean_excess(job: Job) -> float:
    """Returns the standard normal value at the mean of a lognormal excess: half its deviation; 0 if the job gives a range."""
    is_given = job.input_factors.straggler_excess is not None
    return 0.0 if is_given else job.reliability.straggler_log_deviation / 2.0


def _price(offer: Offer) -> Factors:
    estimate = offer.rent_usd_per_gpu_hour or offer.purchase_usd_per_node
    assert estimate is not None, "an offer has a price"
    return estimate_factors(estimate)


def straggler_excess_factors(job: Job) -> Factors:
    """Returns the ends of the stragglers' excess S - 1 over its mean; it is lognormal, as in `Reliability`."""
    reliability = job.reliability
    if reliability.stragglers is not None or reliability.straggler_log_mean is None:
        return _CERTAIN
    if job.input_factors.straggler_excess is not None:
        return job.input_factors.straggler_excess
    spread, mean_over_median = (
        Z_95 * reliability.straggler_log_deviation,
        reliability.straggler_log_deviation**2 / 2.0,
    )
    low, high = np.exp([-spread - mean_over_median, spread - mean_over_median])
    return Factors(low=float(low), high=max(1.0, float(high)))


def _of_steps(job: Job, plans: PlanTable) -> dict[str, UnsureInput]:
    """The error of a step: the part of its accelerator and the part of its layout."""
    given = job.input_factors.step_time
    errors = [step_error_of(job, plans, row) for row in range(len(plans))]
    shared = [given or _step_factors(error.shared_log_deviation, error.ratios) for error in errors]
    own = [_CERTAIN if given else _step_factors(error.own_log_deviation, error.ratios) for error in errors]
    accelerators = _owners(job, plans, INPUTS[STEP_TIME])
    columns = [getattr(plans, name) for name in LAYOUT_COLUMNS if name not in _NO_PART_OF_ITS_OWN]
    layouts = [
        f"{accelerator} {'-'.join(str(column[row]) for column in columns)}"
        for row, accelerator in enumerate(accelerators)
    ]
    return {
        STEP_TIME: _input(STEP_TIME, accelerators, shared),
        LAYOUT_TIME: _input(LAYOUT_TIME, layouts, own),
    }


def step_error_of(job: Job, plans: PlanTable, row: int) -> StepError | StepResiduals:
    """Returns the error of the step of one design in a table.

    It is measured on runs of the job's calibration if there are any of that kind, otherwise on published ones.
    """
    chip = job.offers[int(plans.offer[row])].accelerator
    precision = Precision.from_code(int(plans.precision[row]))
    has_experts = job.workload.model.experts is not None
    if job.calibration and (own := job.calibration.residuals_of(chip.id, precision, has_experts=has_experts)):
        return own
    return _known_step_error(job, plans, row)


def _known_step_error(job: Job, plans: PlanTable, row: int) -> StepError:
    """Returns the step error of one design from published runs.

    With experts it is no smaller than what users are told, and with attention to chosen tokens than what one kernel decides.
    """
    chip = job.offers[int(plans.offer[row])].accelerator
    has_experts = job.workload.model.experts is not None
    known = step_error(
        chip.family,
        Precision.from_code(int(plans.precision[row])).value,
        has_experts=has_experts,
        accelerator=chip.id,
        is_beyond_measured=bool(beyond_measured(reach_of(job, plans, row))),
    )
    least = math.log1p(EXPERTS_ERROR_FRACTION) if has_experts else 0.0
    least = max(least, doubtful_log_ratio(job, plans, row))
    return known.at_least(least) if least > 0.0 else known


def _step_factors(log_deviation: float, ratios: Sides) -> Factors:
    below, above = ratios.times(Z_95 * log_deviation)
    return Factors(low=math.exp(-below), high=math.exp(above))
