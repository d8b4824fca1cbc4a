"""How cheap and how fast can a layout be at best? Bounds that no simulation beats, for pruning before the search.

A layout is kept out only where even its bound breaks a limit, so no design that fits is ever lost:

    time    >= steps x model FLOPs / (accelerators x peak x best kernel efficiency) x stragglers
    cost    >= time x rent or capital of the accelerators that train, without spares
    carbon  >= embodied share of that time
    memory, power and accelerators are exact: they do not depend on what the simulation finds
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from constraints.limits import LIMIT_NAMES, excess_over
from objectives.scores import cost_rate_usd_per_s, embodied_kgco2e
from simulator.compute import kernel_constants
from simulator.hardware import Precision
from simulator.job import Job
from simulator.offer_table import OfferTable
from simulator.plan import PlanTable
from simulator.power import peak_power
from simulator.run import first_start_s
from simulator.simulate import layout_memory
from simulator.table import Booleans, Floats, Table
from simulator.units import DAY

MARGIN = 1e-9
"""Share by which bounds are lowered, so that rounding never turns a bound into a rejection."""


@dataclass(frozen=True, kw_only=True)
class BoundTable(Table):
    """Least values of what the limits bound, `(n,)`, in the units of the limits; and whether memory suffices."""

    fits_memory: Booleans
    budget_usd: Floats
    deadline_days: Floats
    power_w: Floats
    num_gpus: Floats
    carbon_kgco2e: Floats


def bound(job: Job, layouts: PlanTable) -> BoundTable:
    """Returns the bounds of layouts, whatever checkpoint scheme, interval and spares they are run with."""
    offers = OfferTable.from_job(job).take(layouts.offer)
    time_s = _least_time_s(job, layouts)
    without_spares = PlanTable(**layouts.columns() | {"num_spare_nodes": np.zeros_like(layouts.num_gpus)})
    lowered = 1.0 - MARGIN
    return BoundTable(
        fits_memory=layout_memory(job, layouts).peak_bytes <= offers.memory_bytes,
        budget_usd=cost_rate_usd_per_s(job, without_spares) * time_s * lowered,
        deadline_days=time_s / DAY * lowered,
        power_w=peak_power(job, without_spares, offers) * lowered,
        num_gpus=layouts.num_gpus.astype(np.float64),
        carbon_kgco2e=embodied_kgco2e(job, without_spares, time_s) * lowered,
    )


def kept_by_bounds(job: Job, bounds: BoundTable) -> dict[str, Booleans]:
    """Returns for memory and every limit which layouts may keep it, `(n,)`."""
    limits = {name: excess_over(getattr(job.limits, name), getattr(bounds, name)) == 0.0 for name in LIMIT_NAMES}
    return {"memory": bounds.fits_memory, **limits}


def _least_time_s(job: Job, layouts: PlanTable) -> Floats:
    workload = job.workload
    flop = workload.model.model_flop_per_token(workload.sequence_length) * workload.tokens_per_step
    speed = _best_flop_per_s(job)[layouts.offer, layouts.precision] * layouts.num_gpus
    steps_s = workload.num_steps * flop / speed
    return steps_s * job.reliability.straggler_slowdown + first_start_s(job)


def _best_flop_per_s(job: Job) -> Floats:
    """Most model FLOPs per second that one accelerator can reach, `(offers, precisions)`; NaN where it lacks one."""
    table = OfferTable.from_job(job)
    best = np.empty_like(table.peak_flop_per_s)
    for index, offer in enumerate(job.offers):
        chip = offer.accelerator
        constants = kernel_constants(
            [chip.family] * len(Precision),
            [precision.value for precision in Precision],
            ceiling_fractions=np.full(len(Precision), chip.matmul_ceiling_fraction),
        )
        fraction = np.maximum(constants.gemm_peak_fraction, constants.attention_peak_fraction)
        best[index] = table.peak_flop_per_s[index] * np.minimum(fraction, 1.0)
    return best
