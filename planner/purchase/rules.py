"""Which constraints of a purchase plan can be left out, to see what each costs, or which contradict each other?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from constraints.purchase_problem import Lot, Pool, PurchaseProblem, Window
from planner.purchase.fleet import Fleet
from planner.purchase.problem import NodePrices, PooledProblem, bought_lot

WIDER = 10
"""By how much more nodes can be had where it is asked whether their number binds."""

Change = Callable[[PurchaseProblem], PurchaseProblem]


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


def rules_of(fleet: Fleet, prices: Sequence[NodePrices], pooled: PooledProblem) -> list[Rule]:
    """Returns every constraint of a fleet that could bind: deadlines, what pools have, power and money."""
    problem = pooled.problem
    rules = [
        Rule(constraint="job_window", subject=job.name, leave_out=_without_deadline(index))
        for index, job in enumerate(fleet.jobs)
        if problem.windows[index].end_h < problem.horizon_h
    ]
    for index, pool in enumerate(problem.pools):
        at_once = bought_lot(fleet, prices[pooled.offers[index]], 0.0)
        for constraint, change in _changes_of(pool, at_once):
            rules.append(Rule(constraint=constraint, subject=pool.name, leave_out=_on_pool(index, change)))
    money_and_power = (
        ("site_power_w", problem.power_w, _any_power),
        ("fleet_budget_usd", problem.budget_usd, _any_budget),
        ("capital_usd", problem.capital_usd, _any_capital),
    )
    return rules + [
        Rule(constraint=name, subject="", leave_out=change)
        for name, limit, change in money_and_power
        if limit is not None
    ]


def _changes_of(pool: Pool, at_once: Lot) -> Iterator[tuple[str, Callable[[Pool], Pool]]]:
    """What could be otherwise in a pool."""
    yield "node_supply", lambda pool: replace(pool, max_nodes=WIDER * pool.max_nodes)
    if pool.kind == "bought" and pool.lots and pool.lots[0].start_h > 0:
        yield "node_delivery", lambda pool: replace(pool, lots=(at_once, *pool.lots))
    if pool.max_lots < len(pool.lots):
        yield "num_lots", lambda pool: replace(pool, max_lots=len(pool.lots))


def _on_pool(index: int, change: Callable[[Pool], Pool]) -> Change:
    def changed(problem: PurchaseProblem) -> PurchaseProblem:
        pools = list(problem.pools)
        pools[index] = change(pools[index])
        return replace(problem, pools=tuple(pools))

    return changed


def _without_deadline(index: int) -> Change:
    def changed(problem: PurchaseProblem) -> PurchaseProblem:
        windows = list(problem.windows)
        windows[index] = Window(start_h=windows[index].start_h, end_h=problem.horizon_h)
        return replace(problem, windows=tuple(windows))

    return changed


def _any_power(problem: PurchaseProblem) -> PurchaseProblem:
    return replace(problem, power_w=None)


def _any_budget(problem: PurchaseProblem) -> PurchaseProblem:
    return replace(problem, budget_usd=None)


def _any_capital(problem: PurchaseProblem) -> PurchaseProblem:
    return replace(problem, capital_usd=None)
