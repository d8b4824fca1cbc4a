"""How good is each outcome? Time to train, cost, energy and carbon of every design, with their parts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from objectives.carbon import (
    embodied_parts,
    market_kgco2e,
    operational_kgco2e,
    replacement_kgco2e,
    water_l,
)
from objectives.cost import affordable_s, cost_parts
from objectives.usage import Usage
from simulator.domain.job import Job, Objective
from simulator.domain.plan import PlanTable
from simulator.run.spread import miss_probability, wall_time_quantile_s
from simulator.simulate import Outcomes
from simulator.table import Floats, Table, total
from simulator.units import DAY

LATE_PROBABILITY = 0.95
"""Share of runs that stay below the figures called p95."""
EMBODIED_PARTS = (
    "embodied_accelerators_kgco2e",
    "embodied_hosts_kgco2e",
    "embodied_network_kgco2e",
    "embodied_storage_kgco2e",
    "embodied_building_kgco2e",
    "embodied_replacements_kgco2e",
)
"""Columns that sum to `embodied_kgco2e`."""


@dataclass(frozen=True, kw_only=True)
class ScoreTable(Table):
    """The objectives and their parts, `(n,)`."""

    time_to_train_s: Floats
    """Wall time of the whole run."""
    time_to_train_p95_s: Floats
    """Wall time that 19 of 20 runs stay below."""
    cost_usd: Floats
    """Sum of the parts below, at the middle of every price."""
    cost_low_usd: Floats
    """Cost at the low end of the price of the hardware."""
    cost_high_usd: Floats
    """Cost at the high end of the price of the hardware."""
    cost_p95_usd: Floats
    """Cost that 19 of 20 runs stay below, at the middle of every price."""
    deadline_risk: Floats
    """Probability of missing the deadline; NaN without one."""
    budget_risk: Floats
    """Probability of exceeding the budget, by the length of the run; NaN without one."""
    rent_usd: Floats
    """Rent of all accelerators, spares too, for the whole wall time; electricity is part of it."""
    capital_usd: Floats
    """Share of purchase, installation and interest for nodes and network that the run uses up, when they are bought."""
    storage_usd: Floats
    """Share that the run uses up of the storage bought for it; renters buy it, too."""
    maintenance_usd: Floats
    staff_usd: Floats
    facility_usd: Floats
    """Share of building, power and cooling, when nodes are bought."""
    electricity_usd: Floats
    """Energy at the site's price, when nodes are bought."""
    demand_usd: Floats
    """Demand charge on peak power, when nodes are bought."""
    energy_j: Floats
    """Energy of the facility."""
    carbon_kgco2e: Floats
    """Operational and embodied greenhouse gases."""
    operational_kgco2e: Floats
    """Energy times the grid's intensity, location-based."""
    market_kgco2e: Floats
    """Energy times the intensity of what the operator buys; NaN where that is not known. Not part of the sum."""
    embodied_kgco2e: Floats
    """Share of the emissions from making the cluster: hours used over hours of use in its life; sum of the parts below."""
    embodied_accelerators_kgco2e: Floats
    embodied_hosts_kgco2e: Floats
    embodied_network_kgco2e: Floats
    embodied_storage_kgco2e: Floats
    embodied_building_kgco2e: Floats
    embodied_replacements_kgco2e: Floats
    """Accelerators that failures of the run destroy."""
    water_l: Floats
    """Water that cooling and power stations evaporate, as far as it is known; NaN where neither is."""

    def objective(self, objective: Objective) -> Floats:
        """Returns the column of one objective, `(n,)`."""
        match objective:
            case Objective.TIME:
                return self.time_to_train_s
            case Objective.COST:
                return self.cost_usd
            case Objective.ENERGY:
                return self.energy_j
            case Objective.CARBON:
                return self.carbon_kgco2e
            case Objective.TIME_P95:
                return self.time_to_train_p95_s
            case Objective.COST_P95:
                return self.cost_p95_usd
            case Objective.DEADLINE_RISK:
                return self.deadline_risk
            case Objective.BUDGET_RISK:
                return self.budget_risk

    def objectives(self, objectives: tuple[Objective, ...]) -> Floats:
        """Returns the chosen objectives as columns of one array, `(n, k)`."""
        return np.column_stack([self.objective(objective) for objective in objectives])


def score(job: Job, plans: PlanTable, outcomes: Outcomes) -> ScoreTable:
    """Returns the scores of simulated designs; infinite where a run makes no progress."""
    usage = Usage.of(outcomes)
    parts = cost_parts(job, plans, usage)
    made = {
        **embodied_parts(job, plans, usage),
        "embodied_replacements_kgco2e": replacement_kgco2e(job, plans, outcomes.run),
    }
    operational, embodied = operational_kgco2e(job, plans, usage), total(made.values())
    late_s = wall_time_quantile_s(job, plans, outcomes.steps, outcomes.run, LATE_PROBABILITY)
    return ScoreTable(
        time_to_train_s=usage.wall_s,
        time_to_train_p95_s=late_s,
        cost_usd=total(parts.values()),
        cost_p95_usd=total(cost_parts(job, plans, usage.lasting(late_s)).values()),
        **_limit_risks(job, plans, outcomes, parts),
        cost_low_usd=total(cost_parts(job, plans, usage, "low").values()),
        cost_high_usd=total(cost_parts(job, plans, usage, "high").values()),
        **parts,
        energy_j=usage.energy_j,
        carbon_kgco2e=operational + embodied,
        operational_kgco2e=operational,
        market_kgco2e=market_kgco2e(job, plans, usage),
        embodied_kgco2e=embodied,
        **made,
        water_l=water_l(job, plans, usage),
    )


def _limit_risks(
    job: Job, plans: PlanTable, outcomes: Outcomes, costs: dict[str, Floats]
) -> dict[str, Floats]:
    """Returns the probabilities of missing deadline and budget by column, `(n,)`; NaN without the limit.

    Args:
        job: the job with the limits.
        plans: the designs.
        outcomes: their outcomes.
        costs: parts of their expected costs, `(n,)` each.
    """
    limits = job.limits
    risks = {name: np.full(len(plans), np.nan) for name in ("deadline_risk", "budget_risk")}
    if limits.deadline_days is not None:
        allowed_s: Floats | float = limits.deadline_days * DAY
        risks["deadline_risk"] = miss_probability(job, plans, outcomes.steps, outcomes.run, allowed_s)
    if limits.budget_usd is not None:
        allowed_s = affordable_s(job, plans, Usage.of(outcomes), costs["rent_usd"], total(costs.values()))
        risks["budget_risk"] = miss_probability(job, plans, outcomes.steps, outcomes.run, allowed_s)
    return risks
