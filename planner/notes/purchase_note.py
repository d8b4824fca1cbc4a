"""What does a design that is bought take at once? Its cost is only the share of a purchase that one run uses up."""

from __future__ import annotations

import numpy as np

from objectives.cost import purchase, up_front_usd
from planner.recommended.recommendation import Design
from planner.text import human
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable


def purchase_doubt(design: Design) -> str:
    """Returns a warning about the cost of a design that is bought, to show at once; empty for a rented one."""
    if not design.cost_parts_usd.get("capital_usd"):
        return ""
    return "The cost is only the share of the purchase that this run uses up, not what is paid up front."


def purchase_notes(job: Job, design: Design) -> list[str]:
    """Returns a remark where the accelerators of a design are bought."""
    price = job.offers[design.plan.offer].purchase_usd_per_node
    if price is None:
        return []
    plans, peak_power_w = PlanTable.from_plans([design.plan]), np.array([design.peak_power_w])
    bought = purchase(job, plans, peak_power_w, np.array([price.mid]))
    paid = human.dollars(up_front_usd(job.ownership, bought)[0])
    held = " and spares" if design.plan.num_spare_nodes else ""
    budget = ", and limits.budget_usd applies to that share only" if job.limits.budget_usd is not None else ""
    note = (
        f"Buying takes {paid} up front, for nodes{held}, network and installation, and "
        f"{human.dollars(bought.facility[0])} more if building, power and cooling must still be built. The cost of the "
        f"run is only the share of this that the run uses up{budget}. To plan purchases for several jobs with limited "
        "capital, use capplan purchase (limits.capital_usd)."
    )
    return [note]
