"""How cheap and how fast can a layout be at best? Bounds that no simulation beats, for pruning before the search.

A layout is kept out only where even its bound breaks a limit, so no design that fits is ever lost. The bounds are what
a run would come to in which nothing fails, nothing is saved, and steps are as short as their layers allow:

    time    >= steps x least step (constraints.step_bound) x stragglers + first start
    energy  >= computation and exposed collectives at their powers, the rest of that time at the least power
    cost    >= rent or ownership for that time, energy and the fewest spares
    carbon  >= that energy at the grid's intensity, and the embodied share of that time
    memory and accelerators are exact, power is so up to the spares
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from constraints.limits import LIMIT_NAMES, excess_over
from constraints.step_bound import StepBoundTable, bound_step
from objectives.scores import Usage, carbon_parts, cost_parts, total
from simulator.job import Job
from simulator.offer_table import OfferTable
from simulator.plan import PlanTable
from simulator.power import peak_power, phase_power
from simulator.run import first_start_s, least_slowdown, sufficient_spare_nodes
from simulator.simulate import LAYOUTS_PER_BLOCK, layout_memory
from simulator.table import Booleans, Floats, Integers, Table
from simulator.units import DAY

MARGIN = 1e-9
"""Share by which bounds are lowered, so that rounding never turns a bound into a rejection."""


@dataclass(frozen=True, kw_only=True)
class BoundTable(Table):
    """Least values of what the limits bound, `(n,)`, in the units of the limits; and the memory they need."""

    memory_fraction: Floats
    """Memory of the most loaded accelerator as a share of what it has; exact."""
    budget_usd: Floats
    deadline_days: Floats
    power_w: Floats
    num_gpus: Floats
    carbon_kgco2e: Floats

    @property
    def fits_memory(self) -> Booleans:
        """Whether the memory of the accelerators suffices, `(n,)`."""
        return np.asarray(self.memory_fraction <= 1.0)


def bound(job: Job, layouts: PlanTable) -> BoundTable:
    """Returns the bounds of layouts, whatever checkpoint scheme, interval and spares of the job they are run with."""
    # Layouts of like width share a block, because a block is as wide as its widest layout.
    order = np.argsort(layouts.pipeline_parallel * layouts.virtual_pipeline, kind="stable")
    blocks = [
        _bound_block(job, layouts.take(order[start : start + LAYOUTS_PER_BLOCK]))
        for start in range(0, max(1, len(order)), LAYOUTS_PER_BLOCK)
    ]
    return BoundTable.concatenate(blocks).take(np.argsort(order, kind="stable"))


def _bound_block(job: Job, layouts: PlanTable) -> BoundTable:
    offers = OfferTable.from_job(job).take(layouts.offer)
    fewest = replace(layouts, num_spare_nodes=_fewest_spare_nodes(job, layouts))
    usage = _least_usage(job, fewest, offers)
    lowered = 1.0 - MARGIN
    return BoundTable(
        memory_fraction=layout_memory(job, layouts).peak_bytes / offers.memory_bytes,
        budget_usd=total(cost_parts(job, fewest, usage)) * lowered,
        deadline_days=usage.wall_s / DAY * lowered,
        power_w=usage.peak_power_w * lowered,
        num_gpus=layouts.num_gpus.astype(np.float64),
        carbon_kgco2e=total(carbon_parts(job, fewest, usage)) * lowered,
    )


def kept_by_bounds(job: Job, bounds: BoundTable) -> dict[str, Booleans]:
    """Returns for memory and every limit which layouts may keep it, `(n,)`."""
    limits = {
        name: excess_over(getattr(job.limits, name), getattr(bounds, name)) == 0.0 for name in LIMIT_NAMES
    }
    return {"memory": bounds.fits_memory, **limits}


def _fewest_spare_nodes(job: Job, layouts: PlanTable) -> Integers:
    """Spare nodes that every design of a layout has."""
    return (
        sufficient_spare_nodes(job, layouts)
        if all(job.search.with_spares)
        else np.zeros_like(layouts.num_gpus)
    )


def _least_usage(job: Job, layouts: PlanTable, offers: OfferTable) -> Usage:
    """Time, energy and power of a run without saves and failures."""
    steps = bound_step(job, layouts)
    steps_s = job.workload.num_steps * steps.step_time_s * least_slowdown(job)
    wall_s = steps_s + first_start_s(job)
    return Usage(
        wall_s=wall_s,
        energy_j=_least_energy_j(job, layouts, offers, steps, wall_s),
        peak_power_w=peak_power(job, layouts, offers),
    )


def _least_energy_j(
    job: Job, layouts: PlanTable, offers: OfferTable, steps: StepBoundTable, wall_s: Floats
) -> Floats:
    """Energy of computation and collectives at their own powers, and of the rest at the least power of any phase."""
    power = phase_power(job, layouts, offers)
    phases = (power.compute_w, power.communication_w, power.optimizer_w, power.waiting_w, power.stalled_w)
    least_w = np.min(phases, axis=0)
    above_least_w = steps.compute_s * (power.compute_w - least_w) + steps.communication_s * (
        power.communication_w - least_w
    )
    return np.asarray(job.workload.num_steps * above_least_w + wall_s * (least_w + power.spares_w))
