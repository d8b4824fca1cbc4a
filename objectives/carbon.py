"""What does a run emit, and how much water does it use? Operational emissions, and its share of embodied emissions.

    operational   facility energy x grid intensity, location-based; hourly where the site has a profile
    market        the same with the intensity of what the operator buys, where that is known
    embodied      emissions of manufacture x hours used / hours of use in its life, and what failures destroy

`simulator.domain.options.CarbonScope` says which parts of manufacture are counted.
"""

from __future__ import annotations

import numpy as np

from objectives.usage import Usage, it_energy_j, mean_over_runs, num_held_gpus, of_sites, product
from simulator.domain.hardware import Site
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.machine.offer_table import OfferTable
from simulator.machine.power import switches_per_gpu
from simulator.run.interruptions import destroyed_nodes_within
from simulator.run.wall_time import RunTable
from simulator.table import Floats, total
from simulator.units import JOULES_PER_KWH, YEAR

MADE = ("accelerators", "hosts", "network", "storage", "building")
"""Parts of the scope that are allocated by the hours of a run; replacements are counted one by one."""


def least_kgco2e(job: Job, plans: PlanTable, usage: Usage) -> Floats:
    """Returns a lower bound on the emissions of designs that use at least this, `(n,)`, without replacements."""
    operational = operational_kgco2e(job, plans, usage, is_bound=True)
    return operational + total(embodied_parts(job, plans, usage).values())


def operational_kgco2e(job: Job, plans: PlanTable, usage: Usage, *, is_bound: bool = False) -> Floats:
    """Returns the location-based emissions of the energy, `(n,)`.

    Args:
        job: the job.
        plans: `(n,)` designs.
        usage: what they use.
        is_bound: whether `usage` is a lower bound on what a design uses; the result is then a lower bound, too.
    """
    per_kwh = mean_over_runs(
        job,
        plans,
        usage.wall_s,
        profile=lambda site: site.grid_profile,
        flat=lambda site: site.grid_kgco2e_per_kwh,
        is_bound=is_bound,
    )
    return product(per_kwh / JOULES_PER_KWH, usage.energy_j)


def market_kgco2e(job: Job, plans: PlanTable, usage: Usage) -> Floats:
    """Returns the market-based emissions of the energy, `(n,)`; NaN where the site does not say what it buys."""
    per_kwh = of_sites(job, plans, lambda site: _or_nan(site.market_kgco2e_per_kwh))
    return np.where(
        np.isnan(per_kwh), np.nan, product(np.nan_to_num(per_kwh) / JOULES_PER_KWH, usage.energy_j)
    )


def made_kgco2e(job: Job, plans: PlanTable) -> dict[str, Floats]:
    """Returns the emissions from making each part of the cluster, `(n,)` each; 0 for parts outside the scope."""
    offers = OfferTable.from_job(job).take(plans.offer)
    held = num_held_gpus(job, plans)
    whole = {
        "accelerators": held * offers.embodied_gpu_kgco2e,
        "hosts": held * (offers.embodied_host_kgco2e / offers.gpus_per_node),
        "network": held * switches_per_gpu(plans, offers) * offers.embodied_switch_kgco2e,
        "storage": np.full(len(plans), job.storage.capacity_bytes * job.storage.embodied_kgco2e_per_byte),
        "building": held * job.ownership.building_kgco2e_per_gpu,
    }
    counted = job.carbon_scope.counted
    return {part: whole[part] if part in counted else np.zeros(len(plans)) for part in MADE}


def embodied_parts(job: Job, plans: PlanTable, usage: Usage) -> dict[str, Floats]:
    """Returns the embodied emissions that are allocated to a run, by their column of `ScoreTable`."""
    own = job.ownership
    lives = dict.fromkeys(MADE, own.lifetime_years)
    lives |= {
        "network": own.network_years,
        "storage": own.storage_years,
        "building": own.facility_lifetime_years,
    }
    return {
        f"embodied_{part}_kgco2e": product(
            kgco2e, usage.wall_s / (lives[part] * YEAR * own.utilization_fraction)
        )
        for part, kgco2e in made_kgco2e(job, plans).items()
    }


def replacement_kgco2e(job: Job, plans: PlanTable, run: RunTable) -> Floats:
    """Returns the embodied emissions of accelerators that failures destroy, `(n,)`; reclaimed ones are not lost."""
    if not job.carbon_scope.replacements:
        return np.zeros(len(plans))
    offers = OfferTable.from_job(job).take(plans.offer)
    per_failure = job.ownership.replaced_gpus_per_node_failure * offers.embodied_gpu_kgco2e
    # Failures are counted per up-time, which never ends for a run without progress.
    up_time_s = run.num_failures * run.mtbf_s
    return product(per_failure, destroyed_nodes_within(job, plans, up_time_s))


def water_l(job: Job, plans: PlanTable, usage: Usage) -> Floats:
    """Returns the water that cooling and power stations evaporate, `(n,)`.

    Where only one of the two is known it is counted alone; NaN where neither is.
    """
    rates = [of_sites(job, plans, rate) for rate in (_onsite_l_per_kwh, _offsite_l_per_kwh)]
    is_unknown = np.isnan(rates).all(axis=0)
    return np.where(is_unknown, np.nan, total(water_parts_l(job, plans, usage)))


def water_parts_l(job: Job, plans: PlanTable, usage: Usage) -> tuple[Floats, Floats]:
    """Returns the water of cooling, by IT energy, and of power stations, by facility energy, `(n,)` each; 0 if not known."""
    onsite, offsite = (of_sites(job, plans, rate) for rate in (_onsite_l_per_kwh, _offsite_l_per_kwh))
    return (
        product(np.nan_to_num(onsite) / JOULES_PER_KWH, it_energy_j(job, plans, usage)),
        product(np.nan_to_num(offsite) / JOULES_PER_KWH, usage.energy_j),
    )


def _onsite_l_per_kwh(site: Site) -> float:
    return _or_nan(site.water_onsite_l_per_kwh)


def _offsite_l_per_kwh(site: Site) -> float:
    return _or_nan(site.water_offsite_l_per_kwh)


def _or_nan(value: float | None) -> float:
    return np.nan if value is None else value
