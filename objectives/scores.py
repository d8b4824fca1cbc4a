"""How good is each outcome? Time to train, cost, energy and carbon of every design, with what they are made of.

Sources of the terms: `simulator.job.Ownership` and `simulator.hardware.Site` name them field by field.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.job import Job, Objective, Offer
from simulator.offer_table import OfferTable
from simulator.plan import PlanTable
from simulator.power import fabric_tiers
from simulator.simulate import Outcomes
from simulator.table import Floats, Table
from simulator.units import HOUR, JOULES_PER_KWH, YEAR


@dataclass(frozen=True, kw_only=True)
class ScoreTable(Table):
    """The objectives and their parts, `(n,)`."""

    time_to_train_s: Floats
    """Wall time of the whole run."""
    cost_usd: Floats
    """Sum of the parts below, at the middle of every price."""
    cost_low_usd: Floats
    """The same at the low end of the price of the hardware."""
    cost_high_usd: Floats
    """The same at its high end."""
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

    def objectives(self, objectives: tuple[Objective, ...]) -> Floats:
        """Returns the chosen objectives as columns of one array, `(n, k)`."""
        return np.column_stack([self.objective(objective) for objective in objectives])


def score(job: Job, plans: PlanTable, outcomes: Outcomes) -> ScoreTable:
    """Returns the scores of designs that were simulated; infinite where a run makes no progress."""
    wall_s = outcomes.run.wall_time_s
    energy_kwh = outcomes.energy.total_j / JOULES_PER_KWH
    mid = _cost_parts(job, plans, wall_s, energy_kwh, outcomes.summary.peak_power_w, "mid")
    low, high = (
        np.sum(list(_cost_parts(job, plans, wall_s, energy_kwh, outcomes.summary.peak_power_w, level).values()), axis=0)
        for level in ("low", "high")
    )
    operational = energy_kwh * job.site.grid_kgco2e_per_kwh
    embodied = embodied_kgco2e(job, plans, wall_s)
    return ScoreTable(
        time_to_train_s=wall_s,
        cost_usd=np.sum(list(mid.values()), axis=0),
        cost_low_usd=low,
        cost_high_usd=high,
        **mid,
        energy_j=outcomes.energy.total_j,
        carbon_kgco2e=operational + embodied,
        operational_kgco2e=operational,
        embodied_kgco2e=embodied,
    )


def num_held_gpus(job: Job, plans: PlanTable) -> Floats:
    """Returns the accelerators that are rented or bought: those that train, in whole nodes, and the spares; `(n,)`."""
    offers = OfferTable.from_job(job).take(plans.offer)
    nodes = np.ceil(plans.num_gpus / offers.gpus_per_node) + plans.num_spare_nodes
    return nodes * offers.gpus_per_node


def cost_rate_usd_per_s(job: Job, plans: PlanTable) -> Floats:
    """Returns what one second of wall time costs at least, `(n,)`: rent, or capital and maintenance of bought nodes."""
    one_second = np.ones(len(plans))
    nothing = np.zeros(len(plans))
    return np.sum(list(_cost_parts(job, plans, one_second, nothing, nothing, "mid").values()), axis=0)


def _cost_parts(
    job: Job, plans: PlanTable, wall_s: Floats, energy_kwh: Floats, peak_power_w: Floats, level: str
) -> dict[str, Floats]:
    """Parts of the cost at one level of the hardware's price; a rented design has no other part than rent."""
    held = num_held_gpus(job, plans)
    rent = np.array([_rent(offer, level) for offer in job.offers])[plans.offer]
    is_bought = np.isnan(rent)
    own = job.ownership
    share_years = wall_s / (YEAR * own.utilization_fraction)
    purchase = _purchase(job, plans, held, level)
    facility = own.facility_usd_per_w * peak_power_w / job.site.power_usage_effectiveness
    rate = own.capital_cost_fraction_per_year
    return {
        "rent_usd": np.where(is_bought, 0.0, held * np.nan_to_num(rent) * wall_s / HOUR),
        "capital_usd": is_bought * purchase * annuity_fraction(rate, own.lifetime_years) * share_years,
        "maintenance_usd": is_bought * purchase * own.maintenance_fraction_per_year * share_years,
        "facility_usd": is_bought * facility * annuity_fraction(rate, own.facility_lifetime_years) * share_years,
        "electricity_usd": is_bought * energy_kwh * job.site.electricity_usd_per_kwh,
    }


def _rent(offer: Offer, level: str) -> float:
    return float("nan") if offer.rent_usd_per_gpu_hour is None else getattr(offer.rent_usd_per_gpu_hour, level)


def _purchase(job: Job, plans: PlanTable, held: Floats, level: str) -> Floats:
    """Price of nodes and fabric, 0 for rented designs."""
    offers = OfferTable.from_job(job).take(plans.offer)
    per_node = np.array(
        [0.0 if o.purchase_usd_per_node is None else getattr(o.purchase_usd_per_node, level) for o in job.offers]
    )[plans.offer]
    return held / offers.gpus_per_node * per_node + held * fabric_tiers(plans, offers) * offers.port_usd


def annuity_fraction(rate_per_year: float, years: float) -> float:
    """Returns the share of a price that is paid each year so that it and its interest are paid off in the end.

    r / (1 - (1 + r)^-n); 1 / n without interest.
    """
    if rate_per_year == 0.0:
        return 1.0 / years
    return float(rate_per_year / (1.0 - (1.0 + rate_per_year) ** -years))


def embodied_kgco2e(job: Job, plans: PlanTable, wall_s: Floats) -> Floats:
    """Returns the share of making the held nodes that a run of some length uses up, `(n,)`."""
    offers = OfferTable.from_job(job).take(plans.offer)
    per_gpu = offers.embodied_gpu_kgco2e + offers.embodied_host_kgco2e / offers.gpus_per_node
    used_life = wall_s / (job.ownership.lifetime_years * YEAR * job.ownership.utilization_fraction)
    return num_held_gpus(job, plans) * per_gpu * used_life
