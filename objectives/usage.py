"""What does a run use? Time, energy and power as columns, from which cost, water and emissions follow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from simulator.domain.hardware import Site
from simulator.domain.hourly import HourlyProfile
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.machine.offer_table import OfferTable
from simulator.machine.power import facility_w_per_w
from simulator.simulate import Outcomes
from simulator.table import Floats, Table


@dataclass(frozen=True, kw_only=True)
class Usage(Table):
    """What cost and carbon are computed from, `(n,)`."""

    wall_s: Floats
    """How long the accelerators are held."""
    energy_j: Floats
    """Energy of the facility."""
    peak_power_w: Floats
    """Peak power of the facility."""

    @classmethod
    def of(cls, outcomes: Outcomes) -> Self:
        """Returns what simulated runs use; all of it is infinite where a run makes no progress."""
        wall_s = outcomes.run.wall_time_s
        return cls(
            wall_s=wall_s,
            energy_j=np.where(np.isinf(wall_s), np.inf, outcomes.energy.total_j),
            peak_power_w=outcomes.power.peak_power_w,
        )

    def lasting(self, wall_s: Floats) -> Self:
        """Returns the usage of the same runs if they lasted longer or shorter at the same mean power."""
        is_finite = np.isfinite(self.wall_s) & np.isfinite(wall_s)
        ratio = np.where(is_finite, wall_s, 1.0) / np.where(is_finite, self.wall_s, 1.0)
        return replace(
            self,
            wall_s=np.where(is_finite, wall_s, np.inf),
            energy_j=np.where(is_finite, self.energy_j * ratio, np.inf),
        )


def num_held_gpus(job: Job, plans: PlanTable) -> Floats:
    """Returns the number of accelerators rented or bought, `(n,)`: those that train, in whole nodes, and the spares."""
    gpus_per_node = OfferTable.from_job(job).gpus_per_node[plans.offer]
    nodes = np.ceil(plans.num_gpus / gpus_per_node) + plans.num_spare_nodes
    return np.asarray(nodes * gpus_per_node, dtype=np.float64)


def it_energy_j(job: Job, plans: PlanTable, usage: Usage) -> Floats:
    """Returns the energy of nodes, fabric and storage, without cooling, `(n,)`; infinite where the facility's energy is."""
    offers = OfferTable.from_job(job).take(plans.offer)
    it_peak_w = usage.peak_power_w / offers.peak_power_usage_effectiveness
    overhead = offers.power_usage_effectiveness - 1.0
    fixed_j = product(overhead * offers.cooling_fixed_fraction * it_peak_w, usage.wall_s)
    is_finite = np.isfinite(usage.energy_j)
    varying_j = usage.energy_j - np.where(is_finite, fixed_j, 0.0)
    per_w = facility_w_per_w(offers, offers.power_usage_effectiveness)
    return np.where(is_finite, varying_j / per_w, np.inf)


def of_sites(job: Job, plans: PlanTable, figure: Callable[[Site], float]) -> Floats:
    """Returns a figure of the site of each design, `(n,)`."""
    return np.array([figure(job.site_of(offer)) for offer in job.offers], dtype=np.float64)[plans.offer]


def mean_over_runs(
    job: Job,
    plans: PlanTable,
    wall_s: Floats,
    *,
    profile: Callable[[Site], HourlyProfile | None],
    flat: Callable[[Site], float],
    is_bound: bool,
) -> Floats:
    """Returns the mean of a site's price or intensity over each run, `(n,)`.

    Args:
        job: the job.
        plans: `(n,)` designs.
        wall_s: `(n,)` how long they run.
        profile: returns the hourly values of a site, if it has them.
        flat: returns the constant value of a site without hourly ones.
        is_bound: whether to return the least mean over any run of at least that length instead.
    """
    means = of_sites(job, plans, flat)
    for index, offer in enumerate(job.offers):
        hourly = profile(job.site_of(offer))
        if hourly is not None:
            rows = plans.offer == index
            over = hourly.least_mean_over if is_bound else hourly.mean_over
            means[rows] = over(wall_s[rows])
    return means


def product(rate: Floats, amount: Floats) -> Floats:
    """Rate times amount; 0 at rate 0, even for a run without progress, whose amount is infinite."""
    return np.multiply(rate, amount, out=np.zeros(len(amount)), where=rate > 0.0)
