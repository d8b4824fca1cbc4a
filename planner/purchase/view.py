"""What does a purchase plan look like? Acquisitions, schedule, cost compared with alternatives, and binding constraints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from constraints.purchase_model import Status
from constraints.registry import CONSTRAINTS
from planner.purchase.plan import PurchasePlan
from planner.text import human
from planner.text.text_blocks import grid, headline, sentences, title

if TYPE_CHECKING:
    from rich.console import Console

VERDICTS: dict[Status, str] = {
    "optimal": "Cheapest plan",
    "feasible": "Best plan found",
    "infeasible": "No plan meets all deadlines and limits",
    "unknown": "No plan found with this effort",
}
"""First words of the answer."""
_WHOLE_FROM = 100.0
"""From this day on a day is shown without a fraction."""
NO_OFFER = "no offer can run this job; capplan explain says which rules its designs break"
"""What is told of a job without any design, which breaks no constraint between jobs."""


def show_purchase(plan: PurchasePlan, console: Console) -> None:
    """Writes the whole answer."""
    cost = f": {human.dollars(plan.cost_usd)}" if plan.cost_usd is not None else ""
    headline(console, f"{VERDICTS[plan.status]} for {plan.fleet}{cost}", is_good=plan.cost_usd is not None)
    sentences(console, [_proof(plan)])
    if plan.conflict:
        title(console, "Conflicting constraints")
        sentences(console, list(_conflict_sentences(plan)))
    if plan.enough:
        title(console, "What would help")
        sentences(console, list(_enough_sentences(plan)))
    if plan.notes:
        title(console, "Notes")
        sentences(console, plan.notes)
    if plan.cost_usd is None:
        return
    title(console, "Acquisitions")
    if plan.acquisitions:
        grid(console, _acquisition_rows(plan))
    else:
        sentences(console, ["None: all runs rent on demand."])
    if plan.staff_usd:
        sentences(console, [f"Staff for the bought nodes costs another {human.dollars(plan.staff_usd)}."])
    title(console, "Schedule")
    grid(console, _run_rows(plan))
    title(console, "Comparison with alternatives")
    grid(console, _comparison_rows(plan))
    title(console, "Binding constraints")
    sentences(console, _binding_sentences(plan))


def _proof(plan: PurchasePlan) -> str:
    counts = plan.num_designs
    designs = f"{human.designs(sum(counts.values()))} of {human.counted(len(counts), 'job')}"
    match plan.status:
        case "optimal":
            return f"CP-SAT: no plan over {designs} costs less."
        case "feasible":
            gap = human.percent(plan.gap_fraction or 0.0)
            return (
                f"CP-SAT: no plan over {designs} costs less than {human.dollars(plan.bound_usd)}; gap {gap}."
            )
        case "infeasible":
            return f"CP-SAT: proven over {designs}."
        case "unknown":
            return f"CP-SAT found no plan over {designs}, and has not proven that none exists; increase --effort."


def _acquisition_rows(plan: PurchasePlan) -> Iterator[tuple[str, ...]]:
    yield "", "nodes", "accelerators", "from day", "to day", "cost", "up front", "used"
    for one in plan.acquisitions:
        at_once = human.dollars(one.capital_usd) if one.capital_usd else "-"
        yield (
            "buy" if one.kind == "bought" else "reserve",
            human.count(one.num_nodes),
            f"{one.num_gpus:,} x {one.accelerator}",
            _day(one.from_day),
            _day(one.to_day),
            human.dollars(one.cost_usd),
            at_once,
            human.percent(one.used_fraction),
        )


def _run_rows(plan: PurchasePlan) -> Iterator[tuple[str, ...]]:
    yield "job", "on", "accelerators", "from day", "to day", "deadline", "run cost"
    for run in sorted(plan.runs, key=lambda run: run.start_day):
        yield (
            run.job,
            run.kind,
            f"{run.num_gpus:,} x {run.accelerator}",
            _day(run.start_day),
            _day(run.end_day),
            _day(run.deadline_day),
            human.dollars(run.cost_usd),
        )


def _day(day: float) -> str:
    """A day of the horizon, from 100 on the nearest whole one: rounded further, a date may lie beyond the horizon."""
    return human.count(day) if day >= _WHOLE_FROM else human.digits(day)


def _comparison_rows(plan: PurchasePlan) -> Iterator[tuple[str, ...]]:
    yield "this plan", human.dollars(plan.cost_usd or 0.0)
    yield "all rented on demand", _other_cost(plan, "all_rent_usd", plan.all_rent_usd)
    yield "all bought", _other_cost(plan, "all_buy_usd", plan.all_buy_usd)
    yield "capital for purchases", human.dollars(plan.capital_usd)
    yield "peak power at the site", human.power(plan.peak_power_w)
    yield "total carbon", human.carbon(plan.carbon_kgco2e)


def _other_cost(plan: PurchasePlan, name: str, cost_usd: float | None) -> str:
    """Cost of an alternative plan, or why there is none."""
    if cost_usd is not None:
        return human.dollars(cost_usd)
    return "none found with this effort" if name in plan.undecided else "not possible"


def _conflict_sentences(plan: PurchasePlan) -> Iterator[str]:
    """Every conflicting constraint as it is named in JSON, with what it demands."""
    for rule in plan.conflict:
        constraint, _, subject = rule.partition(": ")
        doubt = " (possibly: without it no plan was found with this effort)" if rule in plan.undecided else ""
        yield f"{_told(constraint, subject)}{doubt}"


def _told(constraint: str, subject: str) -> str:
    """A constraint by its name, what it is about, and what it demands."""
    about = f" ({subject})" if subject else ""
    demand = CONSTRAINTS[constraint].sentence if constraint in CONSTRAINTS else NO_OFFER
    return f"{constraint}{about}: {demand}"


def _enough_sentences(plan: PurchasePlan) -> Iterator[str]:
    for name, usd in plan.enough.items():
        yield f"limits.{name} = {human.no_less(usd)} ({human.dollars(usd)}), everything else unchanged"


def _binding_sentences(plan: PurchasePlan) -> Iterator[str]:
    for rule in plan.binding:
        told = _told(rule.constraint, rule.subject)
        yield f"{told}; without it the plan costs at least {human.dollars(rule.saving_usd)} less"
    if not plan.binding:
        yield "None: removing any one deadline, limit or number of nodes is not proven to give a cheaper plan."
