"""What may be bought, reserved and rented for several jobs, and does a choice keep every rule? In whole hours, nodes, dollars.

A *pool* is one kind of capacity: nodes that are bought and delivered in lots, nodes that are reserved for a term, or nodes
that are rented while a job runs. Nodes with volume prices form several pools, one for each price; at most one of them has
nodes. A *way* is one design of one job in one pool. A *choice* has one way and a starting hour for every job, and the nodes
of every lot. `broken_rules` checks a choice by playing it out, independently of the model that found it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

PoolKind = Literal["bought", "reserved", "rented"]


@dataclass(frozen=True, kw_only=True)
class Lot:
    """Nodes that are available from one hour to another."""

    start_h: int
    """First hour."""
    end_h: int
    """Hour after the last."""
    usd_per_node: int
    """Cost of having a node from start to end, used or not."""
    capital_usd_per_node: int = 0
    """Upfront payment for a node."""
    staff_usd: int = 0
    """Cost of staff from start to end, for any number of nodes; one team looks after all lots."""


@dataclass(frozen=True, kw_only=True)
class Pool:
    """One kind of capacity."""

    name: str
    """Its name in answers."""
    kind: PoolKind
    """Whether nodes are bought, reserved for a term, or rented while a job runs."""
    max_nodes: int
    """Most nodes at once: of all lots that are there, or rented. Bought nodes stay, so all their lots count together."""
    least_nodes: int = 0
    """Least nodes of all lots together, if any lot has nodes."""
    lots: tuple[Lot, ...] = ()
    """When nodes may be delivered; empty for rent."""
    max_lots: int = 0
    """Most lots that may have nodes."""
    idle_w_per_node: int = 0
    """Idle facility power of a node at the site, drawn whatever it does; 0 for nodes elsewhere."""


@dataclass(frozen=True, kw_only=True)
class Way:
    """One design of one job in one pool."""

    job: int
    """Position of the job."""
    pool: int
    """Position of the pool."""
    num_nodes: int
    """Nodes that are held, including spares."""
    duration_h: int
    """Hours from start to end."""
    usd: int
    """Cost of the run alone: rent, or electricity in excess of idle nodes; and storage."""
    above_idle_w: int = 0
    """Peak power at the site above that of the same nodes when idle; 0 for runs elsewhere."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """When a job may run."""

    start_h: int
    """Hour before which the job may not start."""
    end_h: int
    """Hour by which the job must have ended."""


@dataclass(frozen=True, kw_only=True)
class PurchaseProblem:
    """Several jobs and the capacity available for them."""

    horizon_h: int
    """Length of the planning horizon, hours."""
    windows: tuple[Window, ...]
    """When each job may run."""
    pools: tuple[Pool, ...]
    """The capacity that is available."""
    alternatives: tuple[tuple[int, ...], ...] = ()
    """Positions of pools that are one supply at rising sizes: at most one of them has nodes."""
    ways: tuple[Way, ...]
    """Every design of every job in every pool that suits it."""
    power_w: int | None = None
    """Most power that the site delivers."""
    budget_usd: int | None = None
    """Most that everything may cost."""
    capital_usd: int | None = None
    """Most capital that purchases may take upfront."""

    @property
    def supplies(self) -> tuple[tuple[int, ...], ...]:
        """Positions of the pools of each supply: alternatives together, every other pool alone, by their first pool."""
        paired = {pool for pools in self.alternatives for pool in pools}
        alone = tuple((pool,) for pool in range(len(self.pools)) if pool not in paired)
        return tuple(sorted((*self.alternatives, *alone)))


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What to do."""

    ways: tuple[int, ...]
    """For each job the position of its way."""
    starts_h: tuple[int, ...]
    """For each job its first hour."""
    lot_nodes: tuple[tuple[int, ...], ...]
    """For each pool the nodes of each of its lots."""


def cost_usd(problem: PurchaseProblem, choice: Choice) -> int:
    """Returns what a choice costs: lots, whether they are used or not, the staff for them, and runs."""
    lots = sum(lot.usd_per_node * nodes for _, lot, nodes in _lots(problem, choice))
    return lots + staff_usd(problem, choice) + sum(problem.ways[way].usd for way in choice.ways)


def staff_usd(problem: PurchaseProblem, choice: Choice) -> int:
    """Returns the cost of staff, which is needed as soon as any lot is delivered."""
    return max((lot.staff_usd for _, lot, nodes in _lots(problem, choice) if nodes), default=0)


def capital_usd(problem: PurchaseProblem, choice: Choice) -> int:
    """Returns the upfront capital of purchases."""
    return sum(lot.capital_usd_per_node * nodes for _, lot, nodes in _lots(problem, choice))


def site_power_w(problem: PurchaseProblem, choice: Choice) -> int:
    """Returns the most that the site ever draws."""
    return max((_power_at(problem, choice, hour) for hour in _moments(problem, choice)), default=0)


def fits_alone(problem: PurchaseProblem, way: Way) -> bool:
    """Returns whether no single limit rules a way out; true for every way that some choice can take."""
    window, pool, nodes = problem.windows[way.job], problem.pools[way.pool], way.num_nodes
    lots = pool.lots if pool.max_lots else ()
    if pool.kind != "rented" and not lots:
        return False
    first_h = max(window.start_h, min((lot.start_h for lot in lots), default=0))
    last_h = min(window.end_h, max((lot.end_h for lot in lots), default=problem.horizon_h))
    least_staff_usd = min((lot.staff_usd for lot in lots), default=0)
    least_usd = way.usd + nodes * min((lot.usd_per_node for lot in lots), default=0) + least_staff_usd
    least_capital_usd = nodes * min((lot.capital_usd_per_node for lot in lots), default=0)
    return (
        nodes <= pool.max_nodes
        and way.duration_h <= last_h - first_h
        and _is_within(problem.power_w, nodes * pool.idle_w_per_node + way.above_idle_w)
        and _is_within(problem.budget_usd, least_usd)
        and _is_within(problem.capital_usd, least_capital_usd)
    )


def _is_within(limit: int | None, value: int) -> bool:
    return limit is None or value <= limit


def broken_rules(problem: PurchaseProblem, choice: Choice) -> tuple[str, ...]:
    """Returns the constraints that a choice breaks, by the names of `constraints.registry`, in their order."""
    moments = _moments(problem, choice)
    pools = range(len(problem.pools))
    held = [
        (pool, hour, _in_use(problem, choice, pool, hour), _there(problem, choice, pool, hour))
        for pool in pools
        for hour in moments
    ]
    is_rented = [pool.kind == "rented" for pool in problem.pools]
    broken = {
        "job_window": any(
            not window.start_h <= start <= window.end_h - problem.ways[way].duration_h
            for window, way, start in zip(problem.windows, choice.ways, choice.starts_h, strict=True)
        ),
        "node_delivery": any(used > there for pool, _, used, there in held if not is_rented[pool]),
        "node_supply": any(max(used, there) > problem.pools[pool].max_nodes for pool, _, used, there in held)
        or any(0 < sum(choice.lot_nodes[pool]) < problem.pools[pool].least_nodes for pool in pools)
        or any(sum(any(choice.lot_nodes[pool]) for pool in supply) > 1 for supply in problem.alternatives),
        "num_lots": any(
            sum(nodes > 0 for nodes in choice.lot_nodes[pool]) > problem.pools[pool].max_lots
            for pool in pools
        ),
        "site_power_w": problem.power_w is not None and site_power_w(problem, choice) > problem.power_w,
        "fleet_budget_usd": problem.budget_usd is not None and cost_usd(problem, choice) > problem.budget_usd,
        "capital_usd": problem.capital_usd is not None and capital_usd(problem, choice) > problem.capital_usd,
    }
    return tuple(name for name, is_broken in broken.items() if is_broken)


def _lots(problem: PurchaseProblem, choice: Choice) -> Iterator[tuple[Pool, Lot, int]]:
    for pool, nodes_of_pool in zip(problem.pools, choice.lot_nodes, strict=True):
        for lot, nodes in zip(pool.lots, nodes_of_pool, strict=True):
            yield pool, lot, nodes


def _moments(problem: PurchaseProblem, choice: Choice) -> list[int]:
    """Hours at which anything changes."""
    ends = [lot_h for _, lot, _ in _lots(problem, choice) for lot_h in (lot.start_h, lot.end_h)]
    for way, start in zip(choice.ways, choice.starts_h, strict=True):
        ends += [start, start + problem.ways[way].duration_h]
    return sorted(set(ends))


def _running(problem: PurchaseProblem, choice: Choice, hour: int) -> list[Way]:
    ways = [problem.ways[way] for way in choice.ways]
    return [
        way
        for way, start in zip(ways, choice.starts_h, strict=True)
        if start <= hour < start + way.duration_h
    ]


def _in_use(problem: PurchaseProblem, choice: Choice, pool: int, hour: int) -> int:
    return sum(way.num_nodes for way in _running(problem, choice, hour) if way.pool == pool)


def _there(problem: PurchaseProblem, choice: Choice, pool: int, hour: int) -> int:
    lots = zip(problem.pools[pool].lots, choice.lot_nodes[pool], strict=True)
    return sum(nodes for lot, nodes in lots if lot.start_h <= hour < lot.end_h)


def _power_at(problem: PurchaseProblem, choice: Choice, hour: int) -> int:
    idle = sum(
        pool.idle_w_per_node * nodes
        for pool, lot, nodes in _lots(problem, choice)
        if lot.start_h <= hour < lot.end_h
    )
    return idle + sum(way.above_idle_w for way in _running(problem, choice, hour))
