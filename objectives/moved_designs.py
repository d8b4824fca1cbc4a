"""What becomes of simulated designs when one of their inputs is another? Only what it changes is simulated again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from objectives.input_table import (
    CAP_SLOWDOWN,
    COMPUTE_POWER,
    INPUTS,
    LAYOUT_TIME,
    STEP_TIME,
    WAITING_POWER,
    Moved,
)
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.machine.offer_table import OfferTable
from simulator.machine.power import PowerTable, slowdown_under_cap
from simulator.run.energy import BUCKETS
from simulator.simulate import Outcomes, outcomes_of, steps_and_memory
from simulator.step.step import StepTable
from simulator.table import Floats

WAITING_PARTS = (
    "pipeline_bubble_j",
    "spare_j",
    *dict.fromkeys(part for phase, part in BUCKETS.values() if phase in ("waiting", "stalled")),
)
"""Parts of the energy during which accelerators wait; they compute in all others."""


def moved_designs(
    job: Job, plans: PlanTable, outcomes: Outcomes, name: str, factor: float
) -> tuple[Job, Outcomes]:
    """Returns the job, and what happens to designs, when one input is so many times as large.

    Args:
        job: the job.
        plans: `(n,)` designs.
        outcomes: what `simulate` returned for them.
        name: the input, by its name in `INPUTS`.
        factor: ratio of its value to the one in the job.
    """
    known = INPUTS[name]
    changed = known.change(job, factor)
    match known.moves:
        case Moved.WORTH:
            return changed, outcomes
        case Moved.STEP:
            return changed, outcomes_of(changed, plans, *steps_and_memory(changed, plans))
        case Moved.POWER if not known.fields:
            computing, waiting = (
                factor if name == which else 1.0 for which in (COMPUTE_POWER, WAITING_POWER)
            )
            return job, _with_power(job, outcomes, computing, waiting)
        case Moved.POWER | Moved.RUN:
            steps = slow_down_steps(outcomes.steps, _step_factors(job, plans, outcomes.steps, name, factor))
            return changed, outcomes_of(changed, plans, steps, outcomes.memory)


def slow_down_steps(steps: StepTable, factor: float | Floats) -> StepTable:
    """Returns steps with the time of every part multiplied by a factor, or by one for each step, `(n,)`."""
    return replace(steps, **{name: getattr(steps, name) * factor for name in steps.names()})


def capped_step_factors(job: Job, plans: PlanTable, steps: StepTable, powers: Floats | float) -> Floats:
    """Returns the ratio of step times to simulated ones where the slow-down under a cap is raised to powers, `(..., n)`."""
    offers = OfferTable.from_job(job).take(plans.offer)
    slowdown = slowdown_under_cap(offers, plans.power_cap_fraction)
    computing = steps.compute_s / steps.step_time_s
    return np.asarray(1.0 + computing * (slowdown ** (powers - 1.0) - 1.0))


def _step_factors(job: Job, plans: PlanTable, steps: StepTable, name: str, factor: float) -> Floats | float:
    """Ratio of step times to simulated ones at a factor of an input."""
    if name == CAP_SLOWDOWN:
        return capped_step_factors(job, plans, steps, factor)
    return factor if name in (STEP_TIME, LAYOUT_TIME) else 1.0


def _with_power(job: Job, outcomes: Outcomes, computing: float, waiting: float) -> Outcomes:
    """Outcomes under factors on the power of computing and of waiting accelerators, with all that belongs to them."""
    energy = outcomes.energy
    parts = {
        name: getattr(energy, name) * (waiting if name in WAITING_PARTS else computing)
        for name in energy.names()
    }
    moved = replace(energy, **parts)
    mean_power_w = outcomes.summary.mean_power_w * (moved.total_j / energy.total_j)
    return replace(
        outcomes,
        energy=moved,
        power=_power_levels(job, outcomes.power, computing, waiting),
        summary=replace(outcomes.summary, mean_power_w=mean_power_w),
    )


def _power_levels(job: Job, power: PowerTable, computing: float, waiting: float) -> PowerTable:
    """Peaks and swings of power; it swings between computing and standing still, which is waiting."""
    peaks = ("peak_power_w", "hall_power_w", "cooling_power_w", "rack_power_w")
    does_swing = power.power_range_fraction > 0.0
    high_w = power.power_swing_w / np.where(does_swing, power.power_range_fraction, 1.0)
    swing_w = np.maximum(0.0, computing * high_w - waiting * (high_w - power.power_swing_w))
    return replace(
        power,
        **{name: getattr(power, name) * computing for name in peaks},
        power_swing_w=swing_w,
        power_ramp_w_per_s=swing_w / job.operation.power_ramp_s,
        power_range_fraction=swing_w / np.where(does_swing, computing * high_w, 1.0),
    )
