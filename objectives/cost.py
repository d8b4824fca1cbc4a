"""What does a run cost, part by part? Rent or a share of what owners buy, and in both cases storage bought for the run.

Owners pay for calendar time: a run is charged for its own days and for its share of idle days
(`Ownership.utilization_fraction`). Nodes have a resale market; everything else is written off over its own life.
The fields of `simulator.domain.ownership.Ownership`, `simulator.domain.offer.Offer` and `simulator.domain.hardware.Site`
name the sources of the terms. No part ever falls when a design holds more accelerators, runs longer or draws more power.
The bounds of the search rely on this.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from objectives.usage import Usage, mean_over_runs, num_held_gpus, of_sites, product
from simulator.domain.job import Job
from simulator.domain.offer import Estimate
from simulator.domain.ownership import Depreciation, Ownership
from simulator.domain.plan import PlanTable
from simulator.machine.offer_table import OfferTable
from simulator.machine.power import fabric_tiers
from simulator.table import Booleans, Floats
from simulator.units import DAY, HOUR, JOULES_PER_KWH, YEAR

PriceLevel = Literal["low", "mid", "high"]
"""Which value of an `Estimate` is used."""
MONTH = YEAR / 12.0
COST_PARTS = (
    "rent_usd",
    "capital_usd",
    "storage_usd",
    "maintenance_usd",
    "staff_usd",
    "facility_usd",
    "electricity_usd",
    "demand_usd",
)
"""Columns that sum to `cost_usd`, in this order."""


def cost_parts(
    job: Job, plans: PlanTable, usage: Usage, level: PriceLevel = "mid", *, is_bound: bool = False
) -> dict[str, Floats]:
    """Returns the parts of the cost at one level of the hardware's price, by their column of `ScoreTable`.

    A rented design has only rent and storage, because every rent includes electricity and maintenance; a bought one
    has no rent. Storage for the run is bought whoever owns the accelerators.

    Args:
        job: the job.
        plans: `(n,)` designs.
        usage: what they use.
        level: low, middle or high price of the hardware.
        is_bound: whether `usage` is a lower bound on what a design uses; the result is then a lower bound, too.
    """
    rent = np.array([_at(offer.rent_usd_per_gpu_hour, level) for offer in job.offers])[plans.offer]
    node = np.array([_at(offer.purchase_usd_per_node, level) for offer in job.offers])[plans.offer]
    bought, parts = is_bought(job, plans), dict.fromkeys(COST_PARTS, np.zeros(len(plans)))
    if np.any(bought):
        owned = owned_parts(job, plans, usage, node, is_bound=is_bound)
        parts |= {name: np.where(bought, values, 0.0) for name, values in owned.items()}
    return parts | {
        "rent_usd": rent_cost(job, plans, usage, rent),
        "storage_usd": storage_usd(job, usage),
    }


def rent_cost(job: Job, plans: PlanTable, usage: Usage, usd_per_gpu_hour: Floats) -> Floats:
    """Returns the rent of all held accelerators, `(n,)`, at least the rent of the committed days."""
    held = num_held_gpus(job, plans)
    return product(held * usd_per_gpu_hour / HOUR, np.maximum(usage.wall_s, _committed_s(job, plans)))


def affordable_s(job: Job, plans: PlanTable, usage: Usage, rent_usd: Floats, cost_usd: Floats) -> Floats:
    """Returns how long runs may last before they exceed the budget, `(n,)`: 0 where no length is short enough.

    The cost is assumed to be proportional to the length of the run, apart from the rent of committed days.

    Args:
        job: the job, which has a budget.
        plans: `(n,)` designs.
        usage: what they use.
        rent_usd: the part of their cost that is rent.
        cost_usd: their cost.
    """
    budget_usd = job.limits.budget_usd
    assert budget_usd is not None, "who asks has a budget"
    committed_s = _committed_s(job, plans)
    is_finite = np.isfinite(usage.wall_s)
    wall_s = np.where(is_finite, usage.wall_s, 1.0)
    rent, cost = (np.where(is_finite, usd, 0.0) for usd in (rent_usd, cost_usd))
    rent_usd_per_s, rest_usd_per_s = rent / np.maximum(wall_s, committed_s), (cost - rent) / wall_s
    longer_s = _quotient(budget_usd, rent_usd_per_s + rest_usd_per_s)
    left_usd = budget_usd - rent_usd_per_s * committed_s
    shorter_s = np.where(left_usd > 0.0, _quotient(left_usd, rest_usd_per_s), 0.0)
    return np.where(longer_s >= committed_s, longer_s, shorter_s)


def _quotient(amount: Floats | float, rate: Floats) -> Floats:
    """Amount over rate; infinite at rate 0."""
    return np.asarray(np.divide(amount, rate, out=np.full(len(rate), np.inf), where=rate > 0.0))


def _committed_s(job: Job, plans: PlanTable) -> Floats:
    return DAY * np.array([offer.commitment_days for offer in job.offers])[plans.offer]


@dataclass(frozen=True, kw_only=True)
class Purchase:
    """What a cluster costs when it is new, USD `(n,)`, without storage. Only nodes can be resold."""

    nodes: Floats
    node_installation: Floats
    network: Floats
    network_installation: Floats
    facility: Floats


def purchase(job: Job, plans: PlanTable, peak_power_w: Floats, usd_per_node: Floats) -> Purchase:
    """Returns what designs cost to buy that draw `(n,)` watts at the facility's peak, nodes at `(n,)` prices."""
    offers, own = OfferTable.from_job(job).take(plans.offer), job.ownership
    held = num_held_gpus(job, plans)
    nodes = held / offers.gpus_per_node * usd_per_node
    network = held * offers.network_ports_per_gpu * fabric_tiers(plans, offers) * offers.port_usd
    return Purchase(
        nodes=nodes,
        node_installation=own.installation_fraction * nodes,
        network=network,
        network_installation=own.installation_fraction * network,
        facility=own.facility_usd_per_w * peak_power_w / offers.peak_power_usage_effectiveness,
    )


def up_front_usd(own: Ownership, price: Purchase) -> Floats:
    """Returns what must be paid before anything runs if the building already exists, `(n,)`: nodes and network, installed.

    Nodes that have an age cost what they are worth today.
    """
    nodes = value_today_usd(own, price.nodes) + price.node_installation
    return np.asarray(nodes + price.network + price.network_installation)


def written_off_usd_per_year(own: Ownership, price: Purchase) -> dict[str, Floats]:
    """Returns the yearly cost of each part without a resale market, `(n,)`: an annuity over its own life."""
    lives = {
        "node_installation": own.lifetime_years,
        "network": own.network_years,
        "network_installation": own.network_years,
        "facility": own.facility_lifetime_years,
    }
    rate = own.capital_cost_fraction_per_year
    return {part: getattr(price, part) * annuity_fraction(rate, years) for part, years in lives.items()}


def left_usd(own: Ownership, price: Purchase, years: float) -> Floats:
    """Returns what nodes and network, installed, must still bring in after some years of ownership, `(n,)`.

    Later use or a sale must bring in as much; otherwise these years cost more than `owned_parts` charges for them. Of a part
    without a resale market it is what is left to pay of its annuity, (1 - (1 + r)^-(n - t)) / (1 - (1 + r)^-n) of its price.

    Args:
        own: terms of ownership.
        price: what was paid at the start.
        years: of ownership so far.
    """
    rate = own.capital_cost_fraction_per_year
    of_nodes, of_network = (
        _unpaid_fraction(rate, life, years) for life in (own.lifetime_years, own.network_years)
    )
    installed = price.node_installation * of_nodes + (price.network + price.network_installation) * of_network
    return np.asarray(installed + _nodes_left_usd(own, price.nodes, years, of_nodes))


def _nodes_left_usd(own: Ownership, nodes_usd: Floats, years: float, unpaid_fraction: float) -> Floats:
    if own.depreciation is Depreciation.ECONOMIC:
        return np.asarray(value_today_usd(own, nodes_usd) * np.exp(-own.economic_loss_per_year * years))
    sale = resale_usd(own, nodes_usd)
    grown = (1.0 + own.capital_cost_fraction_per_year) ** min(years, own.lifetime_years)
    return np.asarray((nodes_usd - sale) * unpaid_fraction + sale * grown)


def _unpaid_fraction(rate_per_year: float, life_years: float, years: float) -> float:
    """Share of a price that is still to be paid off after some years; 0 after its life."""
    rest_years = life_years - years
    if rest_years <= 0.0:
        return 0.0
    return annuity_fraction(rate_per_year, life_years) / annuity_fraction(rate_per_year, rest_years)


def held_years(own: Ownership, wall_s: Floats) -> Floats:
    """Returns the calendar years charged to a run, `(n,)`: its own, and its share of idle time."""
    return wall_s / (YEAR * own.utilization_fraction)


def owned_parts(
    job: Job, plans: PlanTable, usage: Usage, usd_per_node: Floats, *, is_bound: bool = False
) -> dict[str, Floats]:
    """Returns the parts of the cost of owning each design, whether or not it is on sale."""
    own, price = job.ownership, purchase(job, plans, usage.peak_power_w, usd_per_node)
    years, yearly = held_years(own, usage.wall_s), written_off_usd_per_year(own, price)
    kwh_price = mean_over_runs(
        job,
        plans,
        usage.wall_s,
        profile=lambda site: site.electricity_profile,
        flat=lambda site: site.electricity_usd_per_kwh,
        is_bound=is_bound,
    )
    wired = yearly["node_installation"] + yearly["network"] + yearly["network_installation"]
    usd_per_w_month = of_sites(job, plans, lambda site: site.demand_usd_per_w_month)
    demand_usd_per_year = usage.peak_power_w * YEAR / MONTH * usd_per_w_month
    return {
        "capital_usd": _used_up(own, price.nodes, years) + product(wired, years),
        "storage_usd": storage_usd(job, usage),
        "maintenance_usd": product((price.nodes + price.network) * own.maintenance_fraction_per_year, years),
        "staff_usd": product(np.full(len(plans), own.staff_usd_per_year), years),
        "facility_usd": product(yearly["facility"], years),
        "electricity_usd": product(kwh_price / JOULES_PER_KWH, usage.energy_j),
        # A month's peak is charged however few of its hours are used, so idle days cost as much as days of the run.
        "demand_usd": product(demand_usd_per_year, years),
    }


def storage_usd(job: Job, usage: Usage) -> Floats:
    """Returns the share that a run uses up of the storage bought for it, `(n,)`, for renters and owners alike."""
    own, price_usd = job.ownership, job.storage.capacity_bytes * job.storage.usd_per_byte
    usd_per_year = price_usd * annuity_fraction(own.capital_cost_fraction_per_year, own.storage_years)
    return product(np.full(len(usage), usd_per_year), held_years(own, usage.wall_s))


def _used_up(own: Ownership, nodes_usd: Floats, years: Floats) -> Floats:
    """Share of the nodes' price, and of the interest on it, that some years of ownership use up."""
    interest = own.capital_cost_fraction_per_year
    if own.depreciation is Depreciation.STRAIGHT_LINE:
        lost = nodes_usd - resale_usd(own, nodes_usd)
        return product(lost * annuity_fraction(interest, own.lifetime_years), years)
    loss = own.economic_loss_per_year
    value = value_today_usd(own, nodes_usd) * (1.0 + interest / loss)
    # Even nodes that end up worthless are tied up for ever by a run that never ends.
    return np.where(np.isinf(years) & (value > 0.0), np.inf, -value * np.expm1(-loss * years))


def value_today_usd(own: Ownership, nodes_usd: Floats) -> Floats:
    """Returns what nodes with this price when new are worth at the start of the run, `(n,)`."""
    if own.depreciation is Depreciation.STRAIGHT_LINE:
        return nodes_usd
    return np.asarray(nodes_usd * np.exp(-own.economic_loss_per_year * own.age_years))


def resale_usd(own: Ownership, nodes_usd: Floats) -> Floats:
    """Returns the present value of selling the nodes at the end of their life, `(n,)`."""
    if own.depreciation is Depreciation.STRAIGHT_LINE:
        returned = own.residual_fraction * nodes_usd
    else:
        returned = value_today_usd(own, nodes_usd) * np.exp(-own.economic_loss_per_year * own.lifetime_years)
    return np.asarray(returned * (1.0 + own.capital_cost_fraction_per_year) ** -own.lifetime_years)


def annuity_fraction(rate_per_year: float, years: float) -> float:
    """Returns the share of a price to pay each year so that price and interest are paid off in the end.

    r / (1 - (1 + r)^-n); 1 / n without interest.
    """
    if rate_per_year == 0.0:
        return 1.0 / years
    return float(rate_per_year / -np.expm1(-years * np.log1p(rate_per_year)))


def is_bought(job: Job, plans: PlanTable) -> Booleans:
    """Returns which designs are bought, `(n,)`."""
    return np.array([offer.purchase_usd_per_node is not None for offer in job.offers])[plans.offer]


def _at(estimate: Estimate | None, level: PriceLevel) -> float:
    if estimate is None:
        return 0.0
    return {"low": estimate.low, "mid": estimate.mid, "high": estimate.high}[level]
