"""What does everything cost that a fleet can have? Offers and candidates become the whole hours, nodes and dollars of a model.

A bought node costs from its delivery to the end of the horizon, used or not: depreciation and interest, maintenance, staff,
building, and the electricity of an idle node with its share of the network, which never rests; a run adds the electricity
above that. Electricity is at the flat price of the site. A reservation costs its whole term; rent on demand costs the hours
of the run. Storage that is bought for a run is part of its cost wherever it runs. Greenhouse gases are shared out alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from constraints.purchase_problem import Lot, Pool, PurchaseProblem, Way, Window, fits_alone
from objectives.carbon import embodied_parts
from objectives.cost import MONTH, owned_parts, purchase
from objectives.usage import Usage
from planner.purchase.fleet import Buy, Fleet, FleetOffer, Reserve
from planner.purchase.sizes import thinned
from planner.purchase.ways import Candidate, used_always
from simulator.domain.hardware import Storage
from simulator.domain.job import Job
from simulator.domain.plan import Plan, PlanTable
from simulator.machine.offer_table import OfferTable
from simulator.machine.power import phase_power, power_levels
from simulator.units import DAY, HOUR, KILO

OWNED_PARTS = ("capital_usd", "maintenance_usd", "staff_usd", "facility_usd")
"""Costs of owning that do not depend on what runs."""


@dataclass(frozen=True, kw_only=True)
class NodePrices:
    """What one node of an offer costs and draws, in a cluster of all that can be bought."""

    gpus: int
    """Accelerators in it."""
    owned_usd: Callable[[float], float]
    """Cost of owning it for some hours, without electricity; economic depreciation takes most in the first of them."""
    capital_usd: float
    """Price with its share of network and installation."""
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

    def electricity_usd(self, energy_kwh: float, peak_w: float, hours: float) -> float:
        """Electricity with the demand charge for its peak."""
        return self.usd_per_kwh * energy_kwh + self.usd_per_w_month * peak_w * hours * HOUR / MONTH

    def held_kgco2e(self, hours: float) -> float:
        """Greenhouse gases of holding it for some hours in which nothing runs."""
        return self.made_kgco2e(hours) + self.kgco2e_per_kwh * self.idle_w / KILO * hours

    def above_idle_fraction(self, candidate: Candidate) -> float:
        """Share of the energy of a run that its nodes would not draw when idle."""
        idle_kwh = self.idle_w * candidate.num_nodes / KILO * candidate.wall_s / HOUR
        return max(0.0, 1.0 - idle_kwh / candidate.energy_kwh)


@dataclass(frozen=True, kw_only=True)
class PooledProblem:
    """The problem of the model, and what its pools and ways stand for."""

    problem: PurchaseProblem
    offers: tuple[int, ...]
    """Offer of each pool."""
    candidates: tuple[Candidate, ...]
    """Candidate of each way."""


def node_prices(fleet: Fleet, job: Job, offer: FleetOffer) -> NodePrices:
    """Returns what a node costs, from a job that has this offer alone, with the fleet's site and terms of ownership."""
    node = job.offers[0].node
    buy = offer.buy
    size = node.num_accelerators * (buy.max_nodes if buy else offer.max_nodes)
    whole = Plan(offer=0, num_gpus=size, data_parallel=size)
    plans = PlanTable.from_plans([whole])
    # The storage of a job is that of its run, whatever nodes there are.
    bare = used_always(job).model_copy(update={"storage": Storage()})
    offers = OfferTable.from_job(bare).take(plans.offer)
    peak_power_w = power_levels(bare, plans, offers).peak_power_w
    num_nodes = size / node.num_accelerators
    site = job.site_of(job.offers[0])
    price = np.array([buy.usd_per_node if buy else 0.0])

    def usage(hours: float) -> Usage:
        return Usage(wall_s=np.array([hours * HOUR]), energy_j=np.zeros(1), peak_power_w=peak_power_w)

    def owned_usd(hours: float) -> float:
        parts = owned_parts(bare, plans, usage(hours), price)
        return sum(float(parts[name][0]) for name in OWNED_PARTS) / num_nodes

    def made_kgco2e(hours: float) -> float:
        parts = embodied_parts(bare, plans, usage(hours))
        return sum(float(part[0]) for part in parts.values()) / num_nodes

    bought = purchase(bare, plans, usage(fleet.horizon_days * DAY / HOUR), price)
    return NodePrices(
        gpus=node.num_accelerators,
        owned_usd=owned_usd,
        capital_usd=float(bought.at_once[0]) / num_nodes,
        idle_w=float(phase_power(bare, plans, offers).idle_w[0]) / num_nodes,
        usd_per_kwh=site.electricity_usd_per_kwh,
        usd_per_w_month=site.demand_usd_per_w_month,
        made_kgco2e=made_kgco2e,
        kgco2e_per_kwh=site.grid_kgco2e_per_kwh,
    )


def pooled_problem(
    fleet: Fleet, prices: Sequence[NodePrices], candidates: Sequence[Candidate]
) -> PooledProblem:
    """Returns the problem of the model for a fleet."""
    pools: list[Pool] = []
    offers: list[int] = []
    for index, (offer, price) in enumerate(zip(fleet.offers, prices, strict=True)):
        for pool in _pools(fleet, offer, price):
            pools.append(pool)
            offers.append(index)
    limits = fleet.limits
    bare = PurchaseProblem(
        horizon_h=_whole_h(fleet.horizon_days),
        windows=tuple(
            Window(start_h=_next_h(job.earliest_start_day), end_h=_whole_h(job.deadline_day))
            for job in fleet.jobs
        ),
        pools=tuple(pools),
        ways=(),
        power_w=_whole(limits.power_w),
        budget_usd=_whole(limits.budget_usd),
        capital_usd=_whole(limits.capital_usd),
    )
    ways: list[Way] = []
    chosen: list[Candidate] = []
    for job, index in product(range(len(fleet.jobs)), range(len(pools))):
        mine = [one for one in candidates if (one.job, one.offer) == (job, offers[index])]
        for candidate, way in _considered(fleet, bare, index, mine, prices[offers[index]]):
            chosen.append(candidate)
            ways.append(way)
    return PooledProblem(
        problem=replace(bare, ways=tuple(ways)), offers=tuple(offers), candidates=tuple(chosen)
    )


def _considered(
    fleet: Fleet, bare: PurchaseProblem, index: int, candidates: Sequence[Candidate], price: NodePrices
) -> Iterator[tuple[Candidate, Way]]:
    """Candidates of one job in one pool: `MOST_SIZES` that can be chosen, and as many to be asked what a limit costs."""
    pool = bare.pools[index]
    all_ways = [
        (one, _way(fleet, one, index, pool, price)) for one in candidates if one.num_nodes <= pool.max_nodes
    ]
    for is_fit in (True, False):
        alike = [(one, way) for one, way in all_ways if fits_alone(bare, way) == is_fit]
        yield from (alike[place] for place in thinned([way for _, way in alike]))


def _pools(fleet: Fleet, offer: FleetOffer, price: NodePrices) -> list[Pool]:
    """What one offer has: bought nodes, reserved ones, rented ones."""
    pools = []
    if buy := offer.buy:
        lots = tuple(bought_lot(fleet, price, start) for start in _days(fleet, buy))
        pools.append(
            Pool(
                name=f"{offer.accelerator} bought",
                kind="bought",
                max_nodes=buy.max_nodes,
                lots=lots,
                max_lots=buy.max_lots,
                idle_w_per_node=math.ceil(price.idle_w),
            )
        )
    if reserve := offer.reserve:
        pools.append(
            Pool(
                name=f"{offer.accelerator} reserved",
                kind="reserved",
                max_nodes=reserve.max_nodes,
                lots=tuple(_term(reserve, price, start) for start in _days(fleet, reserve)),
                max_lots=reserve.max_terms,
            )
        )
    if rent := offer.rent:
        pools.append(Pool(name=f"{offer.accelerator} rented", kind="rented", max_nodes=rent.max_nodes))
    return pools


def _days(fleet: Fleet, terms: Buy | Reserve) -> list[float]:
    """Days within the horizon on which nodes can come."""
    first, every = (
        (terms.first_delivery_day, terms.delivery_every_days)
        if isinstance(terms, Buy)
        else (terms.first_start_day, terms.start_every_days)
    )
    count = max(0, math.ceil((fleet.horizon_days - first) / every))
    return [first + number * every for number in range(count)]


def bought_lot(fleet: Fleet, price: NodePrices, start_day: float) -> Lot:
    """Returns bought nodes that come on a day and stay to the end of the horizon."""
    start, end = _next_h(start_day), _whole_h(fleet.horizon_days)
    held = end - start
    idle = price.electricity_usd(price.idle_w / KILO * held, price.idle_w, held)
    return Lot(
        start_h=start,
        end_h=end,
        usd_per_node=round(price.owned_usd(held) + idle),
        capital_usd_per_node=round(price.capital_usd),
    )


def _term(reserve: Reserve, price: NodePrices, start_day: float) -> Lot:
    start = _next_h(start_day)
    term = _next_h(reserve.term_days)
    return Lot(
        start_h=start,
        end_h=start + term,
        usd_per_node=round(reserve.usd_per_gpu_hour * price.gpus * term),
    )


def _way(fleet: Fleet, candidate: Candidate, pool_index: int, pool: Pool, price: NodePrices) -> Way:
    """A candidate in a pool, with what the run alone costs there."""
    usd, above_w = candidate.storage_usd, 0.0
    hours = candidate.wall_s / HOUR
    match pool.kind:
        case "bought":
            idle_w = price.idle_w * candidate.num_nodes
            above_w = max(0.0, candidate.peak_power_w - idle_w)
            above_kwh = price.above_idle_fraction(candidate) * candidate.energy_kwh
            usd += price.electricity_usd(above_kwh, above_w, hours)
        case "rented":
            rent = fleet.offers[candidate.offer].rent
            assert rent is not None, "a rented pool has terms of rent"
            usd += rent.usd_per_gpu_hour * price.gpus * candidate.num_nodes * candidate.duration_h
        case "reserved":
            pass  # the term is paid, whatever runs
    return Way(
        job=candidate.job,
        pool=pool_index,
        num_nodes=candidate.num_nodes,
        duration_h=candidate.duration_h,
        usd=round(usd),
        above_idle_w=math.ceil(above_w),
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else math.floor(value)


def _whole_h(days: float) -> int:
    """The last whole hour before the end of some days."""
    return math.floor(days * DAY / HOUR + 1e-9)


def _next_h(days: float) -> int:
    """The first whole hour after some days."""
    return math.ceil(days * DAY / HOUR - 1e-9)
