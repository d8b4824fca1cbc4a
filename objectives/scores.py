"""How good is each outcome? Time to train, cost, energy and carbon of every design, with what they are made of.

Sources of the terms: `simulator.job.Ownership` and `simulator.hardware.Site` name them field by field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from simulator.job import Estimate, Job, Objective
from simulator.offer_table import OfferTable
from simulator.plan import PlanTable
from simulator.power import fabric_tiers
from simulator.run_spread import wall_time_quantile_s
from simulator.simulate import Outcomes
from simulator.table import Booleans, Floats, Table
from simulator.units import HOUR, JOULES_PER_KWH, YEAR

PriceLevel = Literal["low", "mid", "high"]
"""Which value of an `Estimate` is taken."""

LATE_PROBABILITY = 0.95
"""Share of the runs that stay below the figures called p95."""


@dataclass(frozen=True, kw_only=True)
class ScoreTable(Table):
    """The objectives and their parts, `(n,)`."""

    time_to_train_s: Floats
    """Wall time of the whole run."""
    time_to_train_p95_s: Floats
    """Wall time that 19 of 20 runs stay below."""
    cost_usd: Floats
    """Sum of the parts below, at the middle of every price."""
    cost_low_usd: Floats
    """The same at the low end of the price of the hardware."""
    cost_high_usd: Floats
    """The same at its high end."""
    cost_p95_usd: Floats
    """Cost that 19 of 20 runs stay below, at the middle of every price."""
    rent_usd: Floats
    """Rent of all accelerators, spares too, for the whole wall time; electricity is part of it."""
    capital_usd: Floats
    """Share of purchase and interest for nodes and network that the run uses up, when they are bought."""
    maintenance_usd: Floats
    facility_usd: Floats
    """Share of building, power and cooling, when nodes are bought."""
    electricity_usd: Floats
    """Energy at the site's price, when nodes are bought."""
    energy_j: Floats
    """Energy of the facility."""
    carbon_kgco2e: Floats
    """Operational and embodied greenhouse gases."""
    operational_kgco2e: Floats
    """Energy times the grid's intensity."""
    embodied_kgco2e: Floats
    """Share of making the nodes, by hours used over hours of use in their life."""

    def objective(self, objective: Objective) -> Floats:
        """Returns the column of one objective, `(n,)`."""
        match objective:
            case Objective.TIME:
                return self.time_to_train_s
            case Objective.COST:
                return self.cost_usd
            case Objective.ENERGY:
                return self.energy_j
            case Objective.CARBON:
                return self.carbon_kgco2e
            case Objective.TIME_P95:
                return self.time_to_train_p95_s
            case Objective.COST_P95:
                return self.cost_p95_usd

    def objectives(self, objectives: tuple[Objective, ...]) -> Floats:
        """Returns the chosen objectives as columns of one array, `(n, k)`."""
        return np.column_stack([self.objective(objective) for objective in objectives])


@dataclass(frozen=True, kw_only=True)
class Usage(Table):
    """What money and carbon are counted from, `(n,)`."""

    wall_s: Floats
    """How long the accelerators are held."""
    energy_j: Floats
    """Energy of the facility."""
    peak_power_w: Floats
    """Most that the facility draws."""


def score(job: Job, plans: PlanTable, outcomes: Outcomes) -> ScoreTable:
    """Returns the scores of designs that were simulated; infinite where a run makes no progress."""
    wall_s = outcomes.run.wall_time_s
    usage = Usage(
        wall_s=wall_s,
        energy_j=np.where(np.isinf(wall_s), np.inf, outcomes.energy.total_j),
        peak_power_w=outcomes.summary.peak_power_w,
    )
    parts = cost_parts(job, plans, usage)
    carbon = carbon_parts(job, plans, usage)
    late_s = wall_time_quantile_s(job, plans, outcomes.steps, outcomes.run, LATE_PROBABILITY)
    return ScoreTable(
        time_to_train_s=wall_s,
        time_to_train_p95_s=late_s,
        cost_usd=total(parts),
        cost_p95_usd=cost_of_time(total(parts), wall_s, late_s),
        cost_low_usd=total(cost_parts(job, plans, usage, "low")),
        cost_high_usd=total(cost_parts(job, plans, usage, "high")),
        **parts,
        energy_j=usage.energy_j,
        carbon_kgco2e=total(carbon),
        **carbon,
    )


def cost_of_time(cost_usd: Floats, wall_s: Floats, other_wall_s: Floats) -> Floats:
    """Returns the cost of runs that take another time than expected, `(n,)`: it grows with the time they take."""
    is_finite = np.isfinite(wall_s) & np.isfinite(other_wall_s)
    return (
        np.where(is_finite, cost_usd, np.inf)
        * np.where(is_finite, other_wall_s, 1.0)
        / np.where(is_finite, wall_s, 1.0)
    )


def total(parts: Mapping[str, Floats]) -> Floats:
    """Returns the sum of parts of equal length, `(n,)`."""
    return np.asarray(np.sum(list(parts.values()), axis=0))


def num_held_gpus(job: Job, plans: PlanTable) -> Floats:
    """Returns the accelerators that are rented or bought: those that train, in whole nodes, and the spares; `(n,)`."""
    gpus_per_node = OfferTable.from_job(job).gpus_per_node[plans.offer]
    nodes = np.ceil(plans.num_gpus / gpus_per_node) + plans.num_spare_nodes
    return np.asarray(nodes * gpus_per_node, dtype=np.float64)


def cost_parts(job: Job, plans: PlanTable, usage: Usage, level: PriceLevel = "mid") -> dict[str, Floats]:
    """Returns the parts of the cost at one level of the hardware's price, by their column of `ScoreTable`.

    A rented design has no part but rent, because electricity and maintenance are in every rent; a bought one has no
    rent. No part ever falls when a design holds more accelerators, runs longer or draws more.
    """
    rent_usd_per_s, purchase_usd = _prices(job, plans, level)
    own, site = job.ownership, job.site
    is_bought = _is_bought(job, plans)
    facility_usd = own.facility_usd_per_w * usage.peak_power_w / site.power_usage_effectiveness
    interest = own.capital_cost_fraction_per_year
    capital_share = annuity_fraction(interest, own.lifetime_years)
    facility_share = annuity_fraction(interest, own.facility_lifetime_years)
    years = usage.wall_s / (YEAR * own.utilization_fraction)
    electricity_usd_per_j = site.electricity_usd_per_kwh / JOULES_PER_KWH
    return {
        "rent_usd": _product(rent_usd_per_s, usage.wall_s),
        "capital_usd": _product(purchase_usd * capital_share, years),
        "maintenance_usd": _product(purchase_usd * own.maintenance_fraction_per_year, years),
        "facility_usd": _product(np.where(is_bought, facility_usd * facility_share, 0.0), years),
        "electricity_usd": _product(np.where(is_bought, electricity_usd_per_j, 0.0), usage.energy_j),
    }


def carbon_parts(job: Job, plans: PlanTable, usage: Usage) -> dict[str, Floats]:
    """Returns operational and embodied greenhouse gases, by their column of `ScoreTable`.

    The embodied part is what making the held nodes emitted, times hours used over hours of use in their life.
    """
    offers = OfferTable.from_job(job).take(plans.offer)
    per_gpu = offers.embodied_gpu_kgco2e + offers.embodied_host_kgco2e / offers.gpus_per_node
    lifetime_s = job.ownership.lifetime_years * YEAR * job.ownership.utilization_fraction
    kgco2e_per_j = np.full(len(plans), job.site.grid_kgco2e_per_kwh / JOULES_PER_KWH)
    return {
        "operational_kgco2e": _product(kgco2e_per_j, usage.energy_j),
        "embodied_kgco2e": _product(num_held_gpus(job, plans) * per_gpu, usage.wall_s / lifetime_s),
    }


def annuity_fraction(rate_per_year: float, years: float) -> float:
    """Returns the share of a price that is paid each year so that it and its interest are paid off in the end.

    r / (1 - (1 + r)^-n); 1 / n without interest.
    """
    if rate_per_year == 0.0:
        return 1.0 / years
    return float(rate_per_year / -np.expm1(-years * np.log1p(rate_per_year)))


def _prices(job: Job, plans: PlanTable, level: PriceLevel) -> tuple[Floats, Floats]:
    """Rent of all held accelerators per second, and price of nodes and fabric; one of them is 0 in every design."""
    offers = OfferTable.from_job(job).take(plans.offer)
    held = num_held_gpus(job, plans)
    rent = np.array([_at(offer.rent_usd_per_gpu_hour, level) for offer in job.offers])[plans.offer]
    node = np.array([_at(offer.purchase_usd_per_node, level) for offer in job.offers])[plans.offer]
    fabric_usd = held * fabric_tiers(plans, offers) * offers.port_usd
    purchase_usd = held / offers.gpus_per_node * node + fabric_usd
    return held * rent / HOUR, np.where(_is_bought(job, plans), purchase_usd, 0.0)


def _is_bought(job: Job, plans: PlanTable) -> Booleans:
    return np.array([offer.purchase_usd_per_node is not None for offer in job.offers])[plans.offer]


def _at(estimate: Estimate | None, level: PriceLevel) -> float:
    if estimate is None:
        return 0.0
    return {"low": estimate.low, "mid": estimate.mid, "high": estimate.high}[level]


def _product(rate: Floats, amount: Floats) -> Floats:
    """Rate times amount; what has no rate costs nothing, however long a run without progress lasts."""
    return np.multiply(rate, amount, out=np.zeros(len(amount)), where=rate > 0.0)
