"""When does replacing an owned fleet pay off? Running the old fleet, compared with making and buying a new one.

What the old fleet cost to buy and to make is past and counts for nothing: going on with it takes its running cost, the
emissions of its operation, and the storage that the run needs either way. The new fleet has paid where its savings on these
have made up for its price and its making.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from constraints.evaluation import Evaluation, judge
from constraints.limits import excess_over, limited_quantities
from objectives.break_even import (
    MONTHS_PER_YEAR,
    node_price_of,
    outlay_usd,
    payback_months,
    running_usd_per_year,
)
from objectives.carbon import made_kgco2e
from objectives.cost import held_years, storage_usd
from objectives.usage import Usage
from planner.recommended.comparisons import WhatIfCase
from planner.text import human
from planner.what_if.case import case_of
from simulator.domain.job import Job, Objective
from simulator.domain.limits import Limits
from simulator.table import Floats, total
from simulator.units import DAY

Best = Callable[[Job], Evaluation | None]
"""Finds the recommended design of another job, one row; `None` where there is none."""
PAST = "the old fleet is already made and paid for, so only its running cost and operation count"
NO_RESALE = "its resale value is not counted, because its age is unknown"


def refreshed(job: Job, chosen: Evaluation, name: str, best: Best) -> WhatIfCase:
    """Returns what going on with an old fleet takes, and when the recommended design has paid against it.

    Args:
        job: the job.
        chosen: the recommended design, one row.
        name: the accelerators of the old fleet.
        best: finds the recommended design of a job with other offers.
    """
    case = f"going on with {name}"
    # Nobody takes back nodes that are owned.
    terms = {"commitment_days": 0.0, "interruptions_per_1000_node_days": 0.0}
    old_offers = tuple(offer.model_copy(update=terms) for offer in job.offers if offer.accelerator.id == name)
    if not old_offers:
        return WhatIfCase(case=case, note=f"{name} is not among the offers")
    old_job = job.model_copy(update={"offers": old_offers, "limits": Limits(), **_without_risks(job)})
    old = best(old_job)
    if old is None:
        return WhatIfCase(case=case, note=f"no design on {name} can run")
    going_on = _going_on(old_job.model_copy(update={"limits": job.limits}), old)
    note = f"{_payback(job, chosen, old_job, old)}; {PAST}; {NO_RESALE}"
    return case_of(f"{case}{_elsewhere(job, chosen, old_job, old)}", chosen, going_on, note)


def _without_risks(job: Job) -> dict[str, object]:
    """Objectives that need no limit; time where there is no other."""
    kept = tuple(each for each in job.objectives if not each.is_risk) or (Objective.TIME,)
    weights = {objective: weight for objective, weight in job.preference.items() if objective in kept}
    return {"objectives": kept, "preference": weights}


def _elsewhere(job: Job, chosen: Evaluation, old_job: Job, old: Evaluation) -> str:
    """Where the old fleet stands, if not where the new one does: then carbon differs by the grids, too."""
    here, there = (
        each.site_of(each.offers[int(part.plans.offer[0])]).region
        for each, part in ((job, chosen), (old_job, old))
    )
    return f" in {there}" if there != here else ""


def _going_on(job: Job, old: Evaluation) -> Evaluation:
    """The old fleet under the job's limits, with nothing that is past in its cost and its carbon."""
    judged = judge(job, old.plans, old.outcomes)
    cost_usd = _spent_usd(job, old, Usage.of(old.outcomes))
    carbon_kg = old.scores.operational_kgco2e + old.scores.embodied_storage_kgco2e
    in_money = _spent_usd(job, old, _usage_within_budget(job, old))
    return replace(
        judged,
        scores=replace(judged.scores, cost_usd=cost_usd, carbon_kgco2e=carbon_kg),
        excess=replace(
            judged.excess,
            budget_usd=excess_over(job.limits.budget_usd, in_money),
            carbon_kgco2e=excess_over(job.limits.carbon_kgco2e, carbon_kg),
        ),
    )


def _usage_within_budget(job: Job, old: Evaluation) -> Usage:
    """Usage of the run, as long as the probability asks for with which the budget must be kept."""
    usage = Usage.of(old.outcomes)
    if job.limits.budget_probability is None:
        return usage
    late = job.limits.model_copy(update={"deadline_probability": job.limits.budget_probability})
    asked = job.model_copy(update={"limits": late})
    quantities = limited_quantities(asked, old.plans, old.scores, old.outcomes)
    return usage.lasting(quantities["deadline_days"] * DAY)


def _spent_usd(job: Job, old: Evaluation, usage: Usage) -> Floats:
    return _running_usd(job, old, usage) + storage_usd(job, usage)


def _payback(job: Job, chosen: Evaluation, old_job: Job, old: Evaluation) -> str:
    """After how many months savings in running cost and operation have made up for the new fleet."""
    usage, old_usage = Usage.of(chosen.outcomes), Usage.of(old.outcomes)
    years = held_years(job.ownership, usage.wall_s)
    saved_kg = (old.scores.operational_kgco2e - chosen.scores.operational_kgco2e) / years
    saved_usd = (_running_usd(old_job, old, old_usage) - _running_usd(job, chosen, usage)) / years
    outlay = outlay_usd(job, chosen.plans, usage, _node_prices(job, chosen))
    # Storage is the run's, whichever fleet it has.
    made_kg = total(kg for part, kg in made_kgco2e(job, chosen.plans).items() if part != "storage")
    in_carbon = _years_until(made_kg, saved_kg) * MONTHS_PER_YEAR
    in_money = payback_months(job.ownership, outlay, saved_usd)
    is_bought = job.offers[int(chosen.plans.offer[0])].purchase_usd_per_node is not None
    price = "its price" if is_bought else "its price, if bought,"
    return f"the new fleet pays back its embodied carbon {_after(in_carbon[0])}, and {price} {_after(in_money[0])}"


def _running_usd(job: Job, part: Evaluation, usage: Usage) -> Floats:
    """What a run costs an owner beside the purchase."""
    per_year = running_usd_per_year(job, part.plans, usage, _node_prices(job, part))
    return np.asarray(per_year * held_years(job.ownership, usage.wall_s))


def _node_prices(job: Job, part: Evaluation) -> Floats:
    return np.array([node_price_of(job.offers[int(part.plans.offer[0])])], dtype=np.float64)


def _years_until(made_kg: Floats, saved_kg_per_year: Floats) -> Floats:
    """Years of going on after which savings have made up for the making; infinite where nothing is saved."""
    never = np.full(len(made_kg), np.inf)
    return np.asarray(np.divide(made_kg, saved_kg_per_year, out=never, where=saved_kg_per_year > 0.0))


def _after(months: float) -> str:
    if np.isnan(months):
        return "after an unknown time, because its price is unknown"
    return f"after {human.digits(months)} calendar months" if np.isfinite(months) else "never"
