"""What does everything cost that a fleet can have? Offers and candidates become the whole hours, nodes and dollars of a model.

A bought node costs from its delivery to the end of the horizon, used or not, as `planner.purchase.prices` says, by the tiers
of switches that all bought nodes of its kind need: each number of tiers is a pool of its own. One staff looks after all bought
nodes from the first delivery on. A run adds the electricity above that of idle nodes. Electricity is at the flat price of the
site. A reservation costs its whole term; rent on demand costs the hours of the run. Storage that is bought for a run is part
of its cost wherever it runs. Greenhouse gases are shared out alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from constraints.purchase_problem import Lot, Pool, PurchaseProblem, Way, Window, fits_alone
from planner.purchase.fleet import Buy, Fleet, FleetOffer, Reserve
from planner.purchase.prices import NodePrices
from planner.purchase.sizes import thinned
from planner.purchase.ways import Candidate
from simulator.units import DAY, HOUR


@dataclass(frozen=True, kw_only=True)
class PooledProblem:
    """The problem of the model, and what its pools and ways stand for."""

    problem: PurchaseProblem
    offers: tuple[int, ...]
    """Offer of each pool."""
    prices: tuple[NodePrices, ...]
    """What a node of each pool costs; of nodes that are not bought, in the largest cluster that can be."""
    candidates: tuple[Candidate, ...]
    """Candidate of each way."""


def pooled_problem(
    fleet: Fleet, prices: Sequence[Sequence[NodePrices]], candidates: Sequence[Candidate]
) -> PooledProblem:
    """Returns the problem of the model for a fleet.

    Args:
        fleet: jobs and offers.
        prices: of a node of each offer, by rising size of the cluster.
        candidates: designs of all jobs on all offers.
    """
    pools: list[Pool] = []
    offers: list[int] = []
    pool_prices: list[NodePrices] = []
    alternatives: list[tuple[int, ...]] = []
    for index, (offer, by_size) in enumerate(zip(fleet.offers, prices, strict=True)):
        bought = _bought_pools(fleet, offer, by_size)
        if len(bought) > 1:
            alternatives.append(tuple(range(len(pools), len(pools) + len(bought))))
        others = _other_pools(fleet, offer, by_size[-1])
        pools += [*bought, *others]
        pool_prices += [*by_size[: len(bought)], *(by_size[-1] for _ in others)]
        offers += [index] * (len(bought) + len(others))
    limits = fleet.limits
    bare = PurchaseProblem(
        horizon_h=_whole_h(fleet.horizon_days),
        windows=tuple(
            Window(start_h=_next_h(job.earliest_start_day), end_h=_whole_h(job.deadline_day))
            for job in fleet.jobs
        ),
        pools=tuple(pools),
        alternatives=tuple(alternatives),
        ways=(),
        power_w=_whole(limits.power_w),
        budget_usd=_whole(limits.budget_usd),
        capital_usd=_whole(limits.capital_usd),
    )
    ways: list[Way] = []
    chosen: list[Candidate] = []
    for job, index in product(range(len(fleet.jobs)), range(len(pools))):
        mine = [one for one in candidates if (one.job, one.offer) == (job, offers[index])]
        for candidate, way in _considered(fleet, bare, index, mine, pool_prices[index]):
            chosen.append(candidate)
            ways.append(way)
    return PooledProblem(
        problem=replace(bare, ways=tuple(ways)),
        offers=tuple(offers),
        prices=tuple(pool_prices),
        candidates=tuple(chosen),
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


def _bought_pools(fleet: Fleet, offer: FleetOffer, by_size: Sequence[NodePrices]) -> list[Pool]:
    """What can be bought of one offer: a pool for each number of tiers that as many nodes need."""
    if not (buy := offer.buy):
        return []
    return [
        Pool(
            name=f"{offer.accelerator} bought",
            kind="bought",
            least_nodes=fewer + 1,
            max_nodes=price.most_nodes,
            lots=_bought_lots(fleet, price, buy),
            max_lots=buy.max_lots,
            idle_w_per_node=math.ceil(price.idle_w),
        )
        for fewer, price in zip([0, *(price.most_nodes for price in by_size)], by_size, strict=False)
    ]


def _other_pools(fleet: Fleet, offer: FleetOffer, price: NodePrices) -> list[Pool]:
    """What one offer has that is not bought: reserved nodes and rented ones."""
    pools = []
    if reserve := offer.reserve:
        pools.append(
            Pool(
                name=f"{offer.accelerator} reserved",
                kind="reserved",
                max_nodes=reserve.max_nodes,
                lots=tuple(_term(reserve, price, start) for start in fleet.start_days(reserve)),
                max_lots=reserve.max_terms,
            )
        )
    if rent := offer.rent:
        pools.append(Pool(name=f"{offer.accelerator} rented", kind="rented", max_nodes=rent.max_nodes))
    return pools


def _bought_lots(fleet: Fleet, price: NodePrices, buy: Buy) -> tuple[Lot, ...]:
    """Lots that come at least an hour before the horizon ends."""
    lots = (bought_lot(fleet, price, start) for start in fleet.start_days(buy))
    return tuple(lot for lot in lots if lot.start_h < lot.end_h)


def bought_lot(fleet: Fleet, price: NodePrices, start_day: float) -> Lot:
    """Returns bought nodes that come on a day and stay to the end of the horizon."""
    start, end = _next_h(start_day), _whole_h(fleet.horizon_days)
    held = end - start
    return Lot(
        start_h=start,
        end_h=end,
        usd_per_node=round(price.owned_usd(held) + price.idle_usd(held)),
        capital_usd_per_node=round(price.capital_usd),
        staff_usd=round(price.staff_usd(held)),
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
            above_w = max(0.0, candidate.peak_power_w - candidate.idle_power_w)
            above_kwh = candidate.above_idle_fraction * candidate.energy_kwh
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
