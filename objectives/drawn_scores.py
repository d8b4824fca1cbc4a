"""What would designs score with other inputs? Cost, carbon, water and risks of `objectives.drawn_runs`.

Rent, ownership and operational emissions come from the usual equations with changed jobs and usage. Whatever is
proportional to an input is multiplied by the factor of that input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from objectives.carbon import operational_kgco2e, water_parts_l
from objectives.cost import affordable_s, is_bought, owned_parts, rent_cost, storage_usd
from objectives.drawn_runs import DrawnRuns
from objectives.input_table import HARDWARE_PRICE, INPUTS, Moved, Shared
from objectives.scores import EMBODIED_PARTS
from objectives.usage import Usage
from simulator.domain.job import Job, Objective
from simulator.domain.offer import Estimate
from simulator.run.spread import miss_probability
from simulator.table import Floats, total
from simulator.units import DAY

RISK_RATIOS = np.geomspace(0.25, 4.0, 65)
"""Ratios of allowed to expected time at which the risk of a run is computed; in between it is interpolated."""
_INPUT_OF_PART = {
    "embodied_accelerators_kgco2e": ("embodied_accelerator",),
    "embodied_hosts_kgco2e": ("embodied_host",),
    "embodied_network_kgco2e": ("embodied_network",),
    "embodied_storage_kgco2e": ("embodied_storage",),
    "embodied_building_kgco2e": ("embodied_building",),
    "embodied_replacements_kgco2e": ("embodied_accelerator", "replaced_accelerators", "failure_rate"),
}
"""What each part of the embodied emissions is proportional to, besides the time in use."""
_TERMS = tuple(
    known
    for known in INPUTS.values()
    if known.shared is Shared.JOB and known.moves is Moved.WORTH
    if not any(known.name in names for names in _INPUT_OF_PART.values())
)
"""Terms of ownership and prices that all designs of a draw share."""


def drawn_objectives(runs: DrawnRuns, figures: Mapping[str, Floats]) -> Floats:
    """Returns the job's objectives, `(r, n, k)`, from what `drawn_figures` returned."""
    scores, cost = runs.scores, figures[Objective.COST]
    columns: Mapping[Objective, Callable[[], Floats]] = {
        Objective.TIME: lambda: runs.wall_s,
        Objective.TIME_P95: lambda: runs.wall_s * _over(scores.time_to_train_p95_s, scores.time_to_train_s),
        Objective.COST: lambda: cost,
        Objective.COST_P95: lambda: cost * _over(scores.cost_p95_usd, scores.cost_usd),
        Objective.ENERGY: lambda: runs.energy_j,
        Objective.CARBON: lambda: figures[Objective.CARBON],
        Objective.DEADLINE_RISK: lambda: _deadline_risk(runs),
        Objective.BUDGET_RISK: lambda: _budget_risk(runs, cost),
    }
    return np.stack([columns[objective]() for objective in runs.job.objectives], axis=2)


def _over(late: Floats, expected: Floats) -> Floats:
    """Ratio of a late run's figures to the expected run's, `(n,)`; 1 where both are 0, such as the cost of a free offer."""
    return np.divide(late, expected, out=np.ones_like(expected), where=expected > 0.0)


def drawn_figures(runs: DrawnRuns) -> dict[str, Floats]:
    """Returns wall time (s), cost (USD), energy (J), carbon (kg CO2e) and, where it is known, water (l), `(r, n)` each."""
    figures = {
        Objective.TIME.value: runs.wall_s,
        Objective.COST.value: _drawn_cost(runs),
        Objective.ENERGY.value: runs.energy_j,
        Objective.CARBON.value: _drawn_carbon(runs),
    }
    if np.isfinite(runs.scores.water_l).all():
        figures["water"] = _drawn_water(runs)
    return figures


def _drawn_water(runs: DrawnRuns) -> Floats:
    """Returns the water, `(r, n)`: more cooling takes more energy of power stations, but no more water by IT energy."""
    onsite, offsite = water_parts_l(runs.job, runs.plans, Usage.of(runs.outcomes))
    litres = onsite / runs.mean_cooling + offsite
    return np.asarray(litres * (runs.energy_j / runs.scores.energy_j) * runs.factors["water"])


def _drawn_cost(runs: DrawnRuns) -> Floats:
    """Returns the cost of rented and of owned designs, `(r, n)`."""
    usage, plans = runs.usage, runs.plans
    cost = _drawn_rent(runs)
    bought = np.flatnonzero(is_bought(runs.job, plans))
    places = np.arange(cost.size).reshape(cost.shape)
    if runs.job.storage.capacity_bytes > 0.0:
        for draw in range(len(cost)):
            cost[draw] += storage_usd(_job_of(runs, draw), usage.take(places[draw]))
    if len(bought):
        node = _middles(runs, [offer.purchase_usd_per_node for offer in runs.job.offers])
        for draw in range(len(cost)):
            used = usage.take(places[draw, bought])
            cost[draw, bought] = _owned(runs, draw, bought, used, node[draw, bought])
    return cost


def _drawn_rent(runs: DrawnRuns) -> Floats:
    """Returns the rent of all designs, `(r, n)`; 0 for bought ones."""
    rent = _middles(runs, [offer.rent_usd_per_gpu_hour for offer in runs.job.offers])
    return rent_cost(runs.job, runs.every_plan, runs.usage, rent.ravel()).reshape(rent.shape)


def _job_of(runs: DrawnRuns, draw: int) -> Job:
    """The job with the terms of ownership and the prices that all designs of a draw share."""
    job = runs.job
    for term in _TERMS:
        job = term.change(job, float(runs.factors[term.name][draw, 0]))
    return job


def _middles(runs: DrawnRuns, estimates: list[Estimate | None]) -> Floats:
    """Drawn prices of the hardware, `(r, n)`; 0 for designs that have no such price."""
    middles = np.array([estimate.mid if estimate else 0.0 for estimate in estimates])
    return np.asarray(middles[runs.plans.offer] * runs.factors[HARDWARE_PRICE])


def _owned(runs: DrawnRuns, draw: int, rows: NDArray[np.intp], usage: Usage, usd_per_node: Floats) -> Floats:
    """Cost of owning some designs in one draw."""
    factors = {name: values[draw, rows] for name, values in runs.factors.items()}
    parts = owned_parts(_job_of(runs, draw), runs.plans.take(rows), usage, usd_per_node)
    # The building is priced by IT power, which does not include cooling.
    parts["facility_usd"] = parts["facility_usd"] / runs.peak_cooling[draw, rows]
    for name in ("electricity_usd", "demand_usd"):
        parts[name] = parts[name] * factors["electricity_price"]
    return total(parts.values())


def _drawn_carbon(runs: DrawnRuns) -> Floats:
    """Returns operational plus embodied emissions, `(r, n)`."""
    operational = operational_kgco2e(runs.job, runs.every_plan, runs.usage).reshape(runs.wall_s.shape)
    return np.asarray(
        operational * runs.factors["grid"] + total(_made(runs, part) for part in EMBODIED_PARTS)
    )


def _made(runs: DrawnRuns, part: str) -> Floats:
    """One part of the embodied emissions: the share of the hours of use in its life, or what failures of the run destroy."""
    made = getattr(runs.scores, part) * (runs.wall_s / runs.scores.time_to_train_s)
    for name in _INPUT_OF_PART[part]:
        made = made * runs.factors[name]
    if part == "embodied_replacements_kgco2e":
        return np.asarray(made)
    used = runs.job.ownership.utilization_fraction
    life = "facility_lifetime" if part == "embodied_building_kgco2e" else "lifetime"
    hours = runs.factors[life] * np.minimum(runs.factors["utilization"], 1.0 / used)
    return np.asarray(made / hours)


def _deadline_risk(runs: DrawnRuns) -> Floats:
    days = runs.job.limits.deadline_days
    assert days is not None, "a job with this objective has a deadline"
    return _risk(runs, days * DAY / runs.wall_s)


def _budget_risk(runs: DrawnRuns, cost: Floats) -> Floats:
    rent = _drawn_rent(runs)
    allowed_s = affordable_s(runs.job, runs.every_plan, runs.usage, rent.ravel(), cost.ravel())
    return _risk(runs, allowed_s.reshape(cost.shape) / runs.wall_s)


def _risk(runs: DrawnRuns, allowed: Floats) -> Floats:
    """Probability that a run exceeds an allowed time, given as a ratio to its expected time, `(r, n)`."""
    expected_s = runs.scores.time_to_train_s
    risks = np.array(
        [
            miss_probability(runs.job, runs.plans, runs.outcomes.steps, runs.outcomes.run, ratio * expected_s)
            for ratio in RISK_RATIOS
        ]
    )
    columns = [np.interp(allowed[:, row], RISK_RATIOS, risks[:, row]) for row in range(len(expected_s))]
    return np.column_stack(columns)
