"""What does a run cost? Rent, or the share of everything that owners buy, by part.

Sources of the terms: `simulator.job.Ownership`, `Offer` and `simulator.hardware.Site` name them field by field. No part
ever falls when a design holds more accelerators, runs longer or draws more, on which the bounds of the search rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from objectives.usage import Usage, mean_over_runs, num_held_gpus, of_sites, product
from simulator.job import Depreciation, Estimate, Job, Offer, Ownership
from simulator.offer_table import OfferTable
from simulator.plan import PlanTable
from simulator.power import fabric_tiers
from simulator.table import Booleans, Floats
from simulator.table import total as total_of
from simulator.units import DAY, HOUR, JOULES_PER_KWH, YEAR

PriceLevel = Literal["low", "mid", "high"]
"""Which value of an `Estimate` is taken."""
MONTH = YEAR / 12.0


def total(parts: Mapping[str, Floats]) -> Floats:
    """Returns the sum of parts of equal length, `(n,)`, to the same last bit whatever n is."""
    return total_of(parts.values())


def cost_parts(
    job: Job, plans: PlanTable, usage: Usage, level: PriceLevel = "mid", *, is_bound: bool = False
) -> dict[str, Floats]:
    """Returns the parts of the cost at one level of the hardware's price, by their column of `ScoreTable`.

    A rented design has no part but rent, because electricity and maintenance are in every rent; a bought one has no
    rent.

    Args:
        job: the job.
        plans: `(n,)` designs.
        usage: what they use.
        level: low, middle or high price of the hardware.
        is_bound: whether `usage` is the least that a design could use, and the result the least it could cost.
    """
    rent = np.array([_at(offer.rent_usd_per_gpu_hour, level) for offer in job.offers])[plans.offer]
    node = np.array([_at(offer.purchase_usd_per_node, level) for offer in job.offers])[plans.offer]
    owned = owned_parts(job, plans, usage, node, is_bound=is_bound)
    bought = is_bought(job, plans)
    return {
        "rent_usd": rent_cost(job, plans, usage, rent),
        **{name: np.where(bought, values, 0.0) for name, values in owned.items()},
    }


def rent_cost(job: Job, plans: PlanTable, usage: Usage, usd_per_gpu_hour: Floats) -> Floats:
    """Returns the rent of all held accelerators, `(n,)`, at least that of the days that were committed to."""
    committed_s = DAY * np.array([offer.commitment_days for offer in job.offers])[plans.offer]
    held = num_held_gpus(job, plans)
    return product(held * usd_per_gpu_hour / HOUR, np.maximum(usage.wall_s, committed_s))


@dataclass(frozen=True, kw_only=True)
class Purchase:
    """What owners pay at the start, USD `(n,)`."""

    nodes: Floats
    network: Floats
    installation: Floats
    storage: Floats
    facility: Floats

    @property
    def total(self) -> Floats:
        """Sum of the parts."""
        return self.nodes + self.network + self.installation + self.storage + self.facility


def purchase(job: Job, plans: PlanTable, usage: Usage, usd_per_node: Floats) -> Purchase:
    """Returns what a design costs to buy, nodes at `(n,)` prices."""
    offers, own = OfferTable.from_job(job).take(plans.offer), job.ownership
    held = num_held_gpus(job, plans)
    nodes = held / offers.gpus_per_node * usd_per_node
    network = held * fabric_tiers(plans, offers) * offers.port_usd
    return Purchase(
        nodes=nodes,
        network=network,
        installation=own.installation_fraction * (nodes + network),
        storage=np.full(len(plans), job.storage.capacity_bytes * job.storage.usd_per_byte),
        facility=own.facility_usd_per_w * usage.peak_power_w / offers.peak_power_usage_effectiveness,
    )


def owned_parts(
    job: Job, plans: PlanTable, usage: Usage, usd_per_node: Floats, *, is_bound: bool = False
) -> dict[str, Floats]:
    """Returns the parts of the cost of owning each design, whether it is on sale or not."""
    own, price = job.ownership, purchase(job, plans, usage, usd_per_node)
    years = usage.wall_s / (YEAR * own.utilization_fraction)
    network_years = own.network_lifetime_years or own.lifetime_years
    kwh_price = mean_over_runs(
        job,
        plans,
        usage.wall_s,
        profile=lambda site: site.electricity_profile,
        flat=lambda site: site.electricity_usd_per_kwh,
        is_bound=is_bound,
    )
    demand = of_sites(job, plans, lambda site: site.demand_usd_per_w_month)
    return {
        "capital_usd": _used_up(own, price.nodes + price.installation, years)
        + product(price.network * _annuity(own, network_years), years),
        "storage_usd": product(price.storage * _annuity(own, own.lifetime_years), years),
        "maintenance_usd": product((price.nodes + price.network) * own.maintenance_fraction_per_year, years),
        "staff_usd": product(np.full(len(plans), own.staff_usd_per_year), years),
        "facility_usd": product(price.facility * _annuity(own, own.facility_lifetime_years), years),
        "electricity_usd": product(kwh_price / JOULES_PER_KWH, usage.energy_j),
        "demand_usd": product(demand * usage.peak_power_w, usage.wall_s / MONTH),
    }


def _annuity(own: Ownership, years: float) -> float:
    return annuity_fraction(own.capital_cost_fraction_per_year, years)


def _used_up(own: Ownership, price: Floats, years: Floats) -> Floats:
    """Share of the nodes' price, and of the interest on it, that some years of ownership use up."""
    interest = own.capital_cost_fraction_per_year
    if own.depreciation is Depreciation.STRAIGHT_LINE:
        returned = own.residual_fraction * (1.0 + interest) ** -own.lifetime_years
        return product(price * _annuity(own, own.lifetime_years) * (1.0 - returned), years)
    loss = own.economic_loss_per_year
    value = price * np.exp(-loss * own.age_years) * (1.0 + interest / loss)
    # What is worth nothing in the end is still tied up for ever by a run that never ends.
    return np.where(np.isinf(years) & (value > 0.0), np.inf, -value * np.expm1(-loss * years))


def annuity_fraction(rate_per_year: float, years: float) -> float:
    """Returns the share of a price that is paid each year so that it and its interest are paid off in the end.

    r / (1 - (1 + r)^-n); 1 / n without interest.
    """
    if rate_per_year == 0.0:
        return 1.0 / years
    return float(rate_per_year / -np.expm1(-years * np.log1p(rate_per_year)))


@dataclass(frozen=True, kw_only=True)
class RentOrOwn:
    """Each design both ways, at the middle of both prices, `(n,)`; NaN where a price is not known."""

    rent_usd: Floats
    own_usd: Floats
    break_even_months: Floats
    """Months of use at the run's power after which a purchase has paid; infinite where it never does."""


def rent_or_own(job: Job, plans: PlanTable, usage: Usage) -> RentOrOwn:
    """Returns what each design costs rented and owned, and when a purchase pays.

    Prices are the offer's own, else those that it names for comparison, else that of the catalogue's node.
    """
    rent = np.array([_rent_of(offer) for offer in job.offers])[plans.offer]
    node = np.array([_node_price_of(offer) for offer in job.offers])[plans.offer]
    owned = total(owned_parts(job, plans, usage, np.nan_to_num(node)))
    running = running_usd_per_month(job, plans, usage, node)
    rent_per_month = num_held_gpus(job, plans) * rent * MONTH / HOUR * job.ownership.utilization_fraction
    saved = rent_per_month - running
    months = purchase(job, plans, usage, node).total / np.where(saved > 0.0, saved, 1.0)
    is_known = ~np.isnan(rent + node)
    return RentOrOwn(
        rent_usd=np.where(np.isnan(rent), np.nan, rent_cost(job, plans, usage, np.nan_to_num(rent))),
        own_usd=np.where(np.isnan(node), np.nan, owned),
        break_even_months=np.where(is_known, np.where(saved > 0.0, months, np.inf), np.nan),
    )


def running_usd_per_month(job: Job, plans: PlanTable, usage: Usage, usd_per_node: Floats) -> Floats:
    """Returns what owners pay in a month beside the purchase, `(n,)`.

    Maintenance and staff for all of it, electricity and demand charge for the share of it that is used.
    """
    own, price = job.ownership, purchase(job, plans, usage, usd_per_node)
    kept_up = (price.nodes + price.network) * own.maintenance_fraction_per_year + own.staff_usd_per_year
    parts = owned_parts(job, plans, usage, np.zeros(len(plans)))
    used = (
        (parts["electricity_usd"] + parts["demand_usd"]) / (usage.wall_s / MONTH) * own.utilization_fraction
    )
    return np.asarray(kept_up / 12.0 + used)


def _rent_of(offer: Offer) -> float:
    estimate = offer.rent_usd_per_gpu_hour or offer.other_rent_usd_per_gpu_hour
    return estimate.mid if estimate else np.nan


def _node_price_of(offer: Offer) -> float:
    estimate = offer.purchase_usd_per_node or offer.other_purchase_usd_per_node
    if estimate:
        return estimate.mid
    return np.nan if offer.node.purchase_usd is None else offer.node.purchase_usd


def is_bought(job: Job, plans: PlanTable) -> Booleans:
    """Returns which designs are bought, `(n,)`."""
    return np.array([offer.purchase_usd_per_node is not None for offer in job.offers])[plans.offer]


def _at(estimate: Estimate | None, level: PriceLevel) -> float:
    if estimate is None:
        return 0.0
    return {"low": estimate.low, "mid": estimate.mid, "high": estimate.high}[level]
