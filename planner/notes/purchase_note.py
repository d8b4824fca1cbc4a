"""What does a design that is bought take at once? Its cost is only the share of a purchase that one run uses up."""

from __future__ import annotations

import numpy as np

from constraints.evaluation import Evaluation
from objectives.cost import Purchase, purchase, up_front_usd
from planner.recommended.design_words import is_bought
from planner.recommended.recommendation import Design
from planner.text import human
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable


def purchase_doubt(design: Design, notes: str) -> str:
    """Returns a warning about the cost of a bought design, with the heading of the notes on it; empty for a rented one."""
    if not is_bought(design):
        return ""
    return f"The cost is only the share of the purchase that this run uses up, not what is paid up front ({notes})."


def purchase_notes(job: Job, design: Design) -> list[str]:
    """Returns a remark where the accelerators of a design are bought."""
    if job.offers[design.plan.offer].purchase_usd_per_node is None:
        return []
    bought = _bought(job, PlanTable.from_plans([design.plan]), design.peak_power_w)
    held = " and spares" if design.plan.num_spare_nodes else ""
    budget = ", and limits.budget_usd applies to that share only" if job.limits.budget_usd is not None else ""
    note = (
        f"Buying takes {_paid(job, bought)} up front, for nodes{held}, network and installation, and "
        f"{human.dollars(bought.facility[0])} more if building, power and cooling must still be built. The cost of the "
        f"run is only the share of this that the run uses up{budget}. To plan purchases for several jobs with limited "
        "capital, use capplan purchase (limits.capital_usd)."
    )
    return [note]


def bought_front_notes(job: Job, front: Evaluation, best: Design) -> list[str]:
    """Returns a note if the recommended design is rented and others of the front are bought."""
    is_for_sale = np.array([offer.purchase_usd_per_node is not None for offer in job.offers])
    rows = np.flatnonzero(is_for_sale[front.plans.offer])
    if not len(rows) or is_for_sale[best.plan.offer]:
        return []
    cheapest = front.take(rows[[np.argmin(front.scores.cost_usd[rows])]])
    plan = cheapest.plans.plan(0)
    bought = _bought(job, cheapest.plans, float(cheapest.outcomes.power.peak_power_w[0]))
    some = f"{human.count(len(rows))} of {human.designs(len(front))} on the front {'is' if len(rows) == 1 else 'are'} bought"
    budget = ", and limits.budget_usd applies to that share" if job.limits.budget_usd is not None else ""
    which = f"{human.count(plan.num_gpus)} x {job.offers[plan.offer].accelerator.id} of offers[{plan.offer}]"
    note = (
        f"{some}: their cost is only the share of the purchase that this run uses up{budget}. The one of the lowest cost, "
        f"{which}, takes {_paid(job, bought)} up front."
    )
    return [note]


def _bought(job: Job, plans: PlanTable, peak_power_w: float) -> Purchase:
    """What one design of an offer that is for sale costs."""
    price = job.offers[plans.plan(0).offer].purchase_usd_per_node
    usd_per_node = np.array([price.mid if price else 0.0])
    return purchase(job, plans, np.array([peak_power_w]), usd_per_node)


def _paid(job: Job, bought: Purchase) -> str:
    """What is paid for it before anything runs."""
    return human.dollars(up_front_usd(job.ownership, bought)[0])
