"""What does a purchase plan look like? Acquisitions, schedule, cost compared with alternatives, and binding constraints."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from constraints.purchase_model import Status
from constraints.purchase_problem import PoolKind
from constraints.registry import CONSTRAINTS
from planner.purchase.plan import BindingRule, PurchasePlan
from planner.text import human
from planner.text.figure_units import figure_text
from planner.text.text_blocks import grid, headline, sentences, show_doubts, title

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
HELD_PARTS = {
    "rent_usd": "reservations",
    "capital_usd": "bought nodes: depreciation and interest",
    "maintenance_usd": "bought nodes: maintenance",
    "facility_usd": "bought nodes: building",
    "electricity_usd": "bought nodes: electricity when idle",
}
"""Words for the parts of the cost of acquisitions."""
RUN_PARTS: dict[PoolKind, str] = {
    "rented": "rent, and storage of its runs",
    "reserved": "storage of runs on reserved nodes",
    "bought": "electricity and storage of runs on bought nodes",
}
"""Words for the cost of runs, by where they run."""
WITHOUT = {
    "job_window": "without one of the deadlines",
    "node_supply": "with ten times as many nodes of one kind",
    "node_delivery": "with nodes from the first day on",
}
"""What is otherwise where a constraint is left out, unless nothing stands in its place."""
NO_OFFER = "no offer can run this job; capplan explain says which rules its designs break"
"""What is told of a job without any design, which breaks no constraint between jobs."""


def show_purchase(plan: PurchasePlan, console: Console) -> None:
    """Writes the whole answer."""
    cost = f": {human.dollars(plan.cost_usd)}" if plan.cost_usd is not None else ""
    headline(console, f"{VERDICTS[plan.status]} for {plan.fleet}{cost}", is_good=plan.cost_usd is not None)
    show_doubts(console, _doubts(plan))
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
        sentences(console, ["None: all runs rent."])
    title(console, "Schedule")
    grid(console, _run_rows(plan))
    title(console, f"Cost: {human.dollars(plan.cost_usd)}")
    grid(console, _cost_rows(plan))
    title(console, "Comparison with alternatives")
    grid(console, _comparison_rows(plan))
    title(console, "Binding constraints")
    sentences(console, _binding_sentences(plan))


def _doubts(plan: PurchasePlan) -> Iterator[str]:
    """What must become of bought nodes after the horizon, so that buying them costs no more than the plan says."""
    if not plan.left_usd or plan.cost_usd is None:
        return
    left, paid = human.dollars(plan.left_usd), human.dollars(plan.capital_usd)
    yield f"Bought nodes cost until the horizon only: later use or a sale must bring in {left} of the {paid} paid up front."
    margin_usd = (plan.all_rent_usd or 0.0) - plan.cost_usd
    if margin_usd >= plan.left_usd:
        saved = human.dollars(margin_usd - plan.left_usd)
        yield f"Even if they bring in nothing, this plan costs {saved} less than renting everything."
    elif margin_usd > 0.0:
        yield f"If they bring in {human.dollars(margin_usd)} less than that, renting everything costs no more than this plan."


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
    yield "", "offer", "nodes", "accelerators", "from day", "to day", "cost", "up front", "used"
    for one in plan.acquisitions:
        at_once = human.dollars(one.capital_usd) if one.capital_usd else "-"
        yield (
            "buy" if one.kind == "bought" else "reserve",
            str(one.offer),
            human.count(one.num_nodes),
            f"{one.num_gpus:,} x {one.accelerator}",
            _day(one.from_day),
            _day(one.to_day),
            human.dollars(one.cost_usd),
            at_once,
            human.percent(one.used_fraction),
        )


def _run_rows(plan: PurchasePlan) -> Iterator[tuple[str, ...]]:
    yield "job", "on", "offer", "accelerators", "from day", "to day", "deadline", "run cost"
    for run in sorted(plan.runs, key=lambda run: run.start_day):
        yield (
            run.job,
            run.kind,
            str(run.offer),
            f"{run.num_gpus:,} x {run.accelerator}",
            _day(run.start_day),
            _day(run.end_day),
            _day(run.deadline_day),
            human.dollars(run.cost_usd),
        )


def _cost_rows(plan: PurchasePlan) -> Iterator[tuple[str, ...]]:
    """Parts of the cost, those of bought nodes one by one."""
    held = {name: sum(one.cost_parts_usd.get(name, 0.0) for one in plan.acquisitions) for name in HELD_PARTS}
    runs = {kind: sum(run.cost_usd for run in plan.runs if run.kind == kind) for kind in RUN_PARTS}
    rows = [
        *((RUN_PARTS[kind], runs[kind]) for kind in RUN_PARTS),
        *((HELD_PARTS[name], held[name]) for name in HELD_PARTS),
        ("staff", plan.staff_usd),
    ]
    for name, usd in rows:
        if usd:
            yield name, human.dollars(usd), human.percent(usd / (plan.cost_usd or usd))


def _day(day: float) -> str:
    """A day of the horizon, from 100 on the nearest whole one: rounded further, a date may lie beyond the horizon."""
    return human.count(day) if day >= _WHOLE_FROM else human.digits(day)


def _comparison_rows(plan: PurchasePlan) -> Iterator[tuple[str, ...]]:
    yield "this plan", human.dollars(plan.cost_usd or 0.0)
    yield "all rented", _other_cost(plan, "all_rent_usd", plan.all_rent_usd)
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
    for name, value in plan.enough.items():
        yield f"limits.{name} = {human.no_less(value)} ({figure_text(name, value)}), everything else unchanged"


def _binding_sentences(plan: PurchasePlan) -> Iterator[str]:
    """Every kind of constraint once, with what each of its subjects costs."""
    by_name: dict[str, list[BindingRule]] = defaultdict(list)
    for rule in plan.binding:
        by_name[rule.constraint].append(rule)
    for name, rules in by_name.items():
        savings = ", ".join(_saving(rule) for rule in rules)
        yield f"{_told(name, '')}; {WITHOUT.get(name, 'without it')} the plan costs less, by at least {savings}"
    if not plan.binding:
        yield "None: removing any one deadline, limit or number of nodes is not proven to give a cheaper plan."


def _saving(rule: BindingRule) -> str:
    """What a constraint costs, and about what."""
    about = f" ({rule.subject})" if rule.subject else ""
    return f"{human.dollars(rule.saving_usd)}{about}"
