"""How cheap and how fast can a layout be at best? Bounds that no simulation beats, for pruning before the search.

A layout is pruned only if even its bound breaks a limit, so no feasible design is ever lost. The bounds are those of a
run in which nothing fails, nothing is saved, and steps are as short as their layers allow:

    time    >= steps x least step (constraints.step_bound) x stragglers + first start
    energy  >= computation and exposed collectives at their powers, the rest of that time at the least power
    cost    >= rent or ownership for that time, energy and the fewest spares
    carbon  >= that energy at the grid's intensity, and the embodied share of that time
    memory, host memory and accelerators are exact; power is exact except for spares
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from constraints.limits import LIMIT_NAMES, excess_over, usable_memory_bytes
from constraints.scheme_rules import can_save_by
from constraints.step_bound import StepBoundTable, bound_step
from objectives.carbon import least_kgco2e
from objectives.cost import cost_parts
from objectives.usage import Usage
from simulator.checkpoints.schemes import checkpoint_costs
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.machine.offer_table import OfferTable
from simulator.machine.power import phase_power, power_levels
from simulator.run.spare_nodes import sufficient_spare_nodes
from simulator.run.stragglers import least_slowdown
from simulator.run.wall_time import first_start_s
from simulator.simulate import LAYOUTS_PER_BLOCK, layout_memory
from simulator.step.offload import offloaded_bytes_per_node
from simulator.table import Booleans, Floats, Integers, Table, row_blocks, total
from simulator.threads import on_threads
from simulator.units import DAY

EXACT_POWERS = (
    "hall_power_w",
    "rack_power_w",
    "power_swing_w",
    "power_ramp_w_per_s",
    "power_range_fraction",
)
"""Limits on power other than the facility's; only spares, and servers of `gradient_replica`, can add to the first."""
WHOLE: dict[str, float] = {"memory": 1.0, "host_memory": 1.0}
"""Largest shares of accelerator memory and of main memory that a layout may need, by their names in `least_needs`."""
MARGIN = 1e-9
"""Share by which bounds are lowered, so that rounding never rejects a layout."""


@dataclass(frozen=True, kw_only=True)
class BoundTable(Table):
    """Least values of the limited quantities, `(n,)`, in the units of the limits; and the memory that layouts need."""

    memory_fraction: Floats
    """Memory of the most loaded accelerator as a share of what it has; exact."""
    host_memory_fraction: Floats
    """Main memory needed, as a share of what a node has: for offloading, and for saves under the least demanding checkpoint
    scheme that the layout can have."""
    budget_usd: Floats
    deadline_days: Floats
    power_w: Floats
    hall_power_w: Floats
    rack_power_w: Floats
    power_swing_w: Floats
    power_ramp_w_per_s: Floats
    power_range_fraction: Floats
    num_gpus: Floats
    carbon_kgco2e: Floats
    energy_j: Floats
    """Energy of the facility; no limit bounds it, but the search orders layouts by it."""

    @property
    def fits_memory(self) -> Booleans:
        """Whether the memory of the accelerators suffices, `(n,)`."""
        return np.asarray(self.memory_fraction <= 1.0)


def bound(job: Job, layouts: PlanTable, under_other_cap: BoundTable | None = None) -> BoundTable:
    """Returns the bounds of layouts that hold for every checkpoint scheme, interval and number of spares of the job.

    Args:
        job: the job.
        layouts: the layouts, `(n,)`.
        under_other_cap: bounds of the same layouts under other power caps. Their memory is the same, so it is not computed
            again.
    """
    steps = bound_step(job, layouts)

    def bounded(rows: NDArray[np.intp]) -> BoundTable:
        others = None if under_other_cap is None else under_other_cap.take(rows)
        return _bound_block(job, layouts.take(rows), steps.take(rows), others)

    # Layouts of similar width share a block, because a block is as wide as its widest layout.
    order = np.argsort(layouts.pipeline_parallel * layouts.virtual_pipeline, kind="stable")
    blocks = [order[rows] for rows in row_blocks(len(order), LAYOUTS_PER_BLOCK)]
    return BoundTable.concatenate(on_threads(bounded, blocks)).take(np.argsort(order, kind="stable"))


def _bound_block(
    job: Job, layouts: PlanTable, steps: StepBoundTable, under_other_cap: BoundTable | None
) -> BoundTable:
    offers = OfferTable.from_job(job).take(layouts.offer)
    fewest = replace(layouts, num_spare_nodes=_fewest_spare_nodes(job, layouts))
    levels = power_levels(job, fewest, offers)
    usage = _least_usage(job, fewest, offers, steps, levels.peak_power_w)
    lowered = 1.0 - MARGIN
    return BoundTable(
        **_memory_fractions(job, layouts, offers, under_other_cap),
        budget_usd=total(cost_parts(job, fewest, usage, is_bound=True).values()) * lowered,
        deadline_days=usage.wall_s / DAY * lowered,
        power_w=levels.peak_power_w * lowered,
        **{name: getattr(levels, name) * lowered for name in EXACT_POWERS},
        num_gpus=layouts.num_gpus.astype(np.float64),
        carbon_kgco2e=least_kgco2e(job, fewest, usage) * lowered,
        energy_j=usage.energy_j * lowered,
    )


def _memory_fractions(
    job: Job, layouts: PlanTable, offers: OfferTable, under_other_cap: BoundTable | None
) -> dict[str, Floats]:
    """The columns of a `BoundTable` that no power cap changes."""
    if under_other_cap is not None:
        return {name: getattr(under_other_cap, name) for name in ("memory_fraction", "host_memory_fraction")}
    return {
        "memory_fraction": layout_memory(job, layouts).peak_bytes / usable_memory_bytes(job)[layouts.offer],
        "host_memory_fraction": _least_host_memory_bytes(job, layouts, offers) / offers.host_memory_bytes,
    }


def kept_by_bounds(job: Job, bounds: BoundTable) -> dict[str, Booleans]:
    """Returns, for memory and every limit, which layouts may keep it, `(n,)`."""
    limits = {
        name: excess_over(getattr(job.limits, name), getattr(bounds, name)) == 0.0 for name in LIMIT_NAMES
    }
    return {"memory": bounds.fits_memory, "host_memory": bounds.host_memory_fraction <= 1.0, **limits}


def least_needs(bounds: BoundTable, limits: Iterable[str]) -> dict[str, Floats]:
    """Returns the least that layouts need, `(n,)`: shares of both memories, and the quantities of some limits by name."""
    memory = {"memory": bounds.memory_fraction, "host_memory": bounds.host_memory_fraction}
    return memory | {name: getattr(bounds, name) for name in limits}


def _least_host_memory_bytes(job: Job, layouts: PlanTable, offers: OfferTable) -> Floats:
    """Main memory per node that offloading and the least demanding checkpoint scheme of each layout need, `(n,)`.

    It follows from what is saved and how many copies exist at once, so no step has to be simulated.
    """
    least = np.full(len(layouts), np.inf)
    any_s = np.ones(len(layouts))
    schemes = job.search.checkpoint_schemes
    for scheme, can_save in zip(schemes, can_save_by(job, layouts, schemes).T, strict=True):
        plans = layouts.saving_by(scheme)
        needed = checkpoint_costs(job, plans, offers, any_s, any_s).host_memory_bytes
        least = np.where(can_save, np.minimum(least, needed), least)
    return least + offloaded_bytes_per_node(job, layouts, offers)


def _fewest_spare_nodes(job: Job, layouts: PlanTable) -> Integers:
    """Spare nodes that every design of a layout has."""
    return (
        sufficient_spare_nodes(job, layouts)
        if all(job.search.with_spares)
        else np.zeros_like(layouts.num_gpus)
    )


def _least_usage(
    job: Job, layouts: PlanTable, offers: OfferTable, steps: StepBoundTable, peak_power_w: Floats
) -> Usage:
    """Time, energy and power of a run without saves and failures."""
    steps_s = job.workload.num_steps * steps.step_time_s * least_slowdown(job, layouts)
    # Evaluations only add to these quantities, so they are left out, like saves and failures.
    wall_s = steps_s + first_start_s(job)
    return Usage(
        wall_s=wall_s,
        energy_j=_least_energy_j(job, layouts, offers, steps, wall_s),
        peak_power_w=peak_power_w,
    )


def _least_energy_j(
    job: Job, layouts: PlanTable, offers: OfferTable, steps: StepBoundTable, wall_s: Floats
) -> Floats:
    """Energy of computation and collectives at their own powers, and of the remaining time at the least power of any phase."""
    power = phase_power(job, layouts, offers)
    busy_j = total(power.busy_energy_j(steps.compute_s, steps.communication_s))
    least_j = (steps.compute_s + steps.communication_s) * power.least_w
    above_least_j = job.workload.num_steps * (busy_j - least_j)
    return np.asarray(above_least_j + wall_s * (power.least_w + power.spares_w))
