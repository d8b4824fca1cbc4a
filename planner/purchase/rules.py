"""Which constraints of a purchase plan can be left out, to see what each costs, or which contradict each other?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from constraints.purchase_problem import Lot, Pool, PurchaseProblem, Window
from planner.purchase.fleet import Fleet
from planner.purchase.problem import PooledProblem, bought_lot

WIDER = 10
"""By how much more nodes can be had where it is asked whether their number binds."""

Change = Callable[[PurchaseProblem], PurchaseProblem]
PoolChange = Callable[[int, Pool], Pool]
"""Returns the pool at a position otherwise."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A constraint that can be left out of a problem."""

    constraint: str
    """Its name in `constraints.registry`."""
    subject: str
    """The job or the pool that it is about; empty where it is about all."""
    leave_out: Change
    """Returns a problem without it."""

    def __str__(self) -> str:
        return f"{self.constraint}: {self.subject}" if self.subject else self.constraint


def rules_of(fleet: Fleet, pooled: PooledProblem) -> list[Rule]:
    """Returns every constraint of a fleet that could bind: deadlines, what pools have, power and money."""
    problem = pooled.problem
    rules = [
        Rule(constraint="job_window", subject=job.name, leave_out=_without_deadline(index))
        for index, job in enumerate(fleet.jobs)
        if problem.windows[index].end_h < problem.horizon_h
    ]
    for supply in problem.supplies:
        largest = problem.pools[supply[-1]]
        at_once = {index: bought_lot(fleet, pooled.prices[index], 0.0) for index in supply}
        rules += [
            Rule(constraint=constraint, subject=largest.name, leave_out=_on_pools(supply, change))
            for constraint, change in _changes_of(supply, largest, at_once)
        ]
    money_and_power: tuple[tuple[str, int | None, Change], ...] = (
        ("site_power_w", problem.power_w, lambda other: replace(other, power_w=None)),
        ("fleet_budget_usd", problem.budget_usd, lambda other: replace(other, budget_usd=None)),
        ("capital_usd", problem.capital_usd, lambda other: replace(other, capital_usd=None)),
    )
    return rules + [
        Rule(constraint=name, subject="", leave_out=change)
        for name, limit, change in money_and_power
        if limit is not None
    ]


def _changes_of(
    supply: Sequence[int], largest: Pool, at_once: Mapping[int, Lot]
) -> Iterator[tuple[str, PoolChange]]:
    """What could be otherwise in the pools of a supply."""
    yield (
        "node_supply",
        lambda index, pool: replace(pool, max_nodes=WIDER * pool.max_nodes) if index == supply[-1] else pool,
    )
    if largest.kind == "bought" and largest.lots and largest.lots[0].start_h > 0:
        yield "node_delivery", lambda index, pool: replace(pool, lots=(at_once[index], *pool.lots))
    if largest.max_lots < len(largest.lots):
        yield "num_lots", lambda _, pool: replace(pool, max_lots=len(pool.lots))


def _on_pools(supply: Sequence[int], change: PoolChange) -> Change:
    def changed(problem: PurchaseProblem) -> PurchaseProblem:
        pools = list(problem.pools)
        for index in supply:
            pools[index] = change(index, pools[index])
        return replace(problem, pools=tuple(pools))

    return changed


def _without_deadline(index: int) -> Change:
    def changed(problem: PurchaseProblem) -> PurchaseProblem:
        windows = list(problem.windows)
        windows[index] = Window(start_h=windows[index].start_h, end_h=problem.horizon_h)
        return replace(problem, windows=tuple(windows))

    return changed
