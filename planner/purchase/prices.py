"""What does a node cost, draw and emit that is one of so many in a cluster?

A bought node costs from its delivery to the end of the horizon, used or not: depreciation and interest, maintenance,
building, and the electricity of an idle node with its share of the network, which never rests. The network has as many tiers
of switches as a cluster of this size needs, and they alone make a node of a large cluster dearer than one of a small one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from objectives.carbon import embodied_parts
from objectives.cost import MONTH, left_usd, owned_parts, purchase, up_front_usd
from objectives.usage import Usage
from planner.purchase.fleet import FleetOffer
from planner.purchase.ways import used_always
from simulator.domain.hardware import Storage
from simulator.domain.job import Job
from simulator.domain.plan import Plan, PlanTable
from simulator.machine.offer_table import OfferTable
from simulator.machine.power import fabric_tiers, phase_power, power_levels
from simulator.units import HOUR, KILO, YEAR

OWNED_PARTS = ("capital_usd", "maintenance_usd", "facility_usd")
"""Costs of owning a node that do not depend on what runs."""


@dataclass(frozen=True, kw_only=True)
class NodePrices:
    """What one node of an offer costs and draws, in a cluster of at most so many."""

    gpus: int
    """Accelerators in it."""
    most_nodes: int
    """Nodes of the largest cluster with this network, or of the largest that can be had."""
    owned_parts_usd: Callable[[float], dict[str, float]]
    """Cost of owning it for some hours, by part, without electricity; economic depreciation takes most in the first of them."""
    capital_usd: float
    """Price with its share of network and installation."""
    left_usd: Callable[[float], float]
    """What of this it must still bring in after some hours, by later use or a sale."""
    staff_usd_per_year: float
    """People who run all that is bought, however many nodes."""
    idle_w: float
    """Facility power when nothing runs, with its share of network and cooling."""
    usd_per_kwh: float
    """Price of electricity."""
    usd_per_w_month: float
    """Demand charge."""
    made_kgco2e: Callable[[float], float]
    """Share of its making, network and building that some hours of its life use up."""
    kgco2e_per_kwh: float
    """Greenhouse gases of electricity."""

    def owned_usd(self, hours: float) -> float:
        """Cost of owning it for some hours, without electricity."""
        return sum(self.owned_parts_usd(hours).values())

    def idle_usd(self, hours: float) -> float:
        """Electricity of some hours in which nothing runs, with the demand charge."""
        return self.electricity_usd(self.idle_w / KILO * hours, self.idle_w, hours)

    def electricity_usd(self, energy_kwh: float, peak_w: float, hours: float) -> float:
        """Electricity with the demand charge for its peak."""
        return self.usd_per_kwh * energy_kwh + self.usd_per_w_month * peak_w * hours * HOUR / MONTH

    def staff_usd(self, hours: float) -> float:
        """Staff for some hours."""
        return self.staff_usd_per_year * hours * HOUR / YEAR

    def held_kgco2e(self, hours: float) -> float:
        """Greenhouse gases of holding it for some hours in which nothing runs."""
        return self.made_kgco2e(hours) + self.kgco2e_per_kwh * self.idle_w / KILO * hours


def prices_by_size(job: Job, offer: FleetOffer) -> tuple[NodePrices, ...]:
    """Returns what a node costs, by the tiers of switches that the bought nodes need; of nodes that are not bought, once.

    Args:
        job: a job with this offer alone, with the fleet's site and terms of ownership.
        offer: terms of the purchase.
    """
    if offer.buy is None:
        return (node_prices(job, offer, offer.max_nodes),)
    return tuple(node_prices(job, offer, most) for most in _largest_by_tiers(job, offer.buy.max_nodes))


def _largest_by_tiers(job: Job, max_nodes: int) -> list[int]:
    """The most nodes that each number of tiers joins, from one node on, at most `max_nodes`."""
    sizes = range(1, max_nodes + 1)
    largest = [0]
    while largest[-1] < max_nodes:
        tiers = _num_tiers(job, largest[-1] + 1)
        largest.append(bisect_right(sizes, tiers, key=lambda nodes: _num_tiers(job, nodes)))
    return largest[1:]


def _num_tiers(job: Job, num_nodes: int) -> int:
    plans, offers = _cluster(job, num_nodes)
    return int(fabric_tiers(plans, offers)[0])


def _cluster(job: Job, num_nodes: int) -> tuple[PlanTable, OfferTable]:
    size = num_nodes * job.offers[0].node.num_accelerators
    plans = PlanTable.from_plans([Plan(offer=0, num_gpus=size, data_parallel=size)])
    return plans, OfferTable.from_job(job).take(plans.offer)


def node_prices(job: Job, offer: FleetOffer, num_nodes: int) -> NodePrices:
    """Returns what a node costs that is one of so many.

    Args:
        job: a job with this offer alone, with the fleet's site and terms of ownership.
        offer: terms of the purchase.
        num_nodes: of the cluster.
    """
    # The storage of a job is that of its run, whatever nodes there are.
    bare = used_always(job).model_copy(update={"storage": Storage()})
    plans, offers = _cluster(bare, num_nodes)
    peak_power_w = power_levels(bare, plans, offers).peak_power_w
    site = job.site_of(job.offers[0])
    price = np.array([offer.buy.usd_per_node if offer.buy else 0.0])

    def usage(hours: float) -> Usage:
        return Usage(wall_s=np.array([hours * HOUR]), energy_j=np.zeros(1), peak_power_w=peak_power_w)

    def owned_parts_usd(hours: float) -> dict[str, float]:
        parts = owned_parts(bare, plans, usage(hours), price)
        return {name: float(parts[name][0]) / num_nodes for name in OWNED_PARTS}

    def made_kgco2e(hours: float) -> float:
        parts = embodied_parts(bare, plans, usage(hours))
        return sum(float(part[0]) for part in parts.values()) / num_nodes

    bought = purchase(bare, plans, peak_power_w, price)
    return NodePrices(
        gpus=job.offers[0].node.num_accelerators,
        most_nodes=num_nodes,
        owned_parts_usd=owned_parts_usd,
        capital_usd=float(up_front_usd(bare.ownership, bought)[0]) / num_nodes,
        left_usd=lambda hours: float(left_usd(bare.ownership, bought, hours * HOUR / YEAR)[0]) / num_nodes,
        staff_usd_per_year=bare.ownership.staff_usd_per_year,
        idle_w=float(phase_power(bare, plans, offers).idle_w[0]) / num_nodes,
        usd_per_kwh=site.electricity_usd_per_kwh,
        usd_per_w_month=site.demand_usd_per_w_month,
        made_kgco2e=made_kgco2e,
        kgco2e_per_kwh=site.grid_kgco2e_per_kwh,
    )
