"""What if the run paused, waited, was capped, stood elsewhere or replaced an old fleet? Cases that a job asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Literal

import numpy as np

from constraints.evaluation import Evaluation, evaluate
from constraints.limits import set_limits
from objectives.pausing import best_start
from planner.grid_conventions import grid_convention, unlike_grids
from planner.recommended.comparisons import WhatIfCase
from planner.text import human
from planner.text.limit_words import are_feasible
from planner.what_if.case import case_of, hours_to_spare, paused_case
from planner.what_if.fleet_refresh import Best, refreshed
from simulator.domain.hardware import Site
from simulator.domain.hourly import HourlyProfile
from simulator.domain.job import Job
from simulator.domain.offer import Estimate
from simulator.domain.options import Pause
from simulator.units import HOUR

PriceField = Literal["rent_usd_per_gpu_hour", "purchase_usd_per_node"]
WORTH_WAITING_FRACTION = 1e-3
"""Smaller gains are not worth a wait, nor known: grids and tariffs of the next week are forecasts."""
NEEDED: Mapping[str, str] = {
    "carbon": "the site's grid_profile",
    "price": "the site's electricity_profile, and a design that is bought",
}
"""What tells the hours of a design apart."""
OWN_TO_A_SITE: Mapping[str, str] = {
    "grid_profile": "hourly grid",
    "electricity_profile": "hourly tariff",
    "demand_usd_per_w_month": "demand charge",
    "climate": "climate",
    "cooling_fixed_fraction": "fixed part of the cooling",
}
"""What sites of the catalogue do not have, so that a design that moves there loses it."""


def what_if_cases(job: Job, chosen: Evaluation, best: Best) -> tuple[WhatIfCase, ...]:
    """Returns every case that the job asks for.

    Args:
        job: the job.
        chosen: the recommended design, one row.
        best: finds the recommended design of a job with other offers.
    """
    asked = job.what_if
    cases = [
        *(_paused(job, chosen, pause) for pause in asked.pauses),
        *_later_starts(job, chosen),
        *(_capped(job, chosen, cap) for cap in asked.power_caps),
        *(_repriced(job, chosen, "rent_usd_per_gpu_hour", usd, best) for usd in asked.rents_usd_per_gpu_hour),
        *(_repriced(job, chosen, "purchase_usd_per_node", usd, best) for usd in asked.purchases_usd_per_node),
        *_elsewhere(job, chosen),
        *(refreshed(job, chosen, name, best) for name in [asked.refresh_from] if name),
    ]
    return tuple(cases)


def _profile(job: Job, chosen: Evaluation, by: str) -> HourlyProfile | None:
    """The profile by which hours differ for a design; electricity is part of every rent."""
    offer = job.offers[int(chosen.plans.offer[0])]
    site = job.site_of(offer)
    if by == "carbon":
        return site.grid_profile
    return site.electricity_profile if offer.purchase_usd_per_node else None


def _paused(job: Job, chosen: Evaluation, pause: Pause) -> WhatIfCase:
    most = {"carbon": "most carbon", "price": "the highest price"}[pause.by]
    name = f"pause in the {human.percent(pause.hours_fraction)} of the profile's hours with {most}"
    if _profile(job, chosen, pause.by) is None:
        return WhatIfCase(case=name, note=f"needs {NEEDED[pause.by]}")
    return paused_case(name, job, chosen, pause)


def _later_starts(job: Job, chosen: Evaluation) -> Iterator[WhatIfCase]:
    within = job.what_if.start_within_hours
    if within is None:
        return
    profiles = {by: _profile(job, chosen, by) for by in ("carbon", "price")}
    if not any(profiles.values()):
        yield WhatIfCase(case="start later", note=f"needs {NEEDED['carbon']}, or {NEEDED['price']}")
    for by, profile in profiles.items():
        if profile is not None:
            yield _later_start(job, chosen, by, profile, within)


def _later_start(job: Job, chosen: Evaluation, by: str, profile: HourlyProfile, within: int) -> WhatIfCase:
    """The best start that keeps the deadline; the wait takes time, and nothing is held or drawn in it."""
    spare = hours_to_spare(job, chosen)
    latest = within if spare is None else min(within, spare)
    why = ", the latest that meets the deadline," if latest < within else ""
    if latest == 0:
        return case_of(f"start later for {by}", chosen, chosen, "no later start meets the deadline")
    hour, mean, now = best_start(profile, float(chosen.scores.time_to_train_s[0]), latest)
    if mean >= now * (1.0 - WORTH_WAITING_FRACTION):
        wait = f"waiting up to {human.duration(latest * HOUR)}{why} saves less than"
        note = f"{wait} {human.percent(WORTH_WAITING_FRACTION)} of its mean: start at once"
        return case_of(f"start later for {by}", chosen, chosen, note)
    moved = evaluate(_starting_at(job, chosen, hour), chosen.plans)
    name = f"start {human.duration(hour * HOUR)} later for {by}"
    return case_of(
        name, chosen, moved, f"{human.percent(mean / now - 1.0)} in its mean", waited_s=hour * HOUR
    )


def _starting_at(job: Job, chosen: Evaluation, hour: int) -> Job:
    site = job.site_of(job.offers[int(chosen.plans.offer[0])])
    profiles = {"grid_profile": site.grid_profile, "electricity_profile": site.electricity_profile}
    return _at_site(job, **{name: value.from_hour(hour) for name, value in profiles.items() if value})


def _at_site(job: Job, **fields: object) -> Job:
    """Returns the job with fields of all its sites replaced, checked as they are read."""
    offers = tuple(
        offer.model_copy(update={"site": offer.site.model_copy(update=fields)} if offer.site else {})
        for offer in job.offers
    )
    return job.model_copy(update={"site": job.site.model_copy(update=fields), "offers": offers})


def _capped(job: Job, chosen: Evaluation, cap: float) -> WhatIfCase:
    name = f"power cap {human.percent(cap)}"
    if chosen.plans.power_cap_fraction[0] == cap:
        return case_of(name, chosen, chosen, "already its cap")
    plans = replace(chosen.plans, power_cap_fraction=np.array([cap]))
    return case_of(name, chosen, evaluate(job, plans))


def _repriced(job: Job, chosen: Evaluation, field: PriceField, usd: float, best: Best) -> WhatIfCase:
    """The recommended design at another price, rented or bought, and what would be recommended then."""
    index, is_bought = int(chosen.plans.offer[0]), field == "purchase_usd_per_node"
    price = Estimate(low=usd, mid=usd, high=usd)
    terms = {"commitment_days": 0.0, "interruptions_per_1000_node_days": 0.0} if is_bought else {}
    others = dict.fromkeys(("rent_usd_per_gpu_hour", "purchase_usd_per_node"))
    offer = job.offers[index].model_copy(update={**others, field: price, **terms})
    offers = (*job.offers[:index], offer, *job.offers[index + 1 :])
    repriced = job.model_copy(update={"offers": offers})
    then = best(repriced)
    what = f"${human.figure(usd)} {'a node' if is_bought else 'a GPU-hour'} of {offer.accelerator.id}"
    return case_of(what, chosen, evaluate(repriced, chosen.plans), _recommended_then(repriced, chosen, then))


def _recommended_then(job: Job, chosen: Evaluation, then: Evaluation | None) -> str:
    if then is None:
        return f"no design {are_feasible(1, has_limits=bool(set_limits(job)))} then"
    before, after = chosen.plans.plan(0), then.plans.plan(0)
    if (before.offer, before.num_gpus) == (after.offer, after.num_gpus):
        return "the same accelerators are recommended"
    who = f"{after.num_gpus:,} x {job.offers[after.offer].accelerator.id}"
    took, cost = human.duration(then.scores.time_to_train_s[0]), human.dollars(then.scores.cost_usd[0])
    return f"{who} for {took} and {cost} would be recommended"


def _elsewhere(job: Job, chosen: Evaluation) -> Iterator[WhatIfCase]:
    """The design at each site, which is called by its region; `#2` is the second of several in the same one."""
    found: dict[str, int] = {}
    for site in job.what_if.sites:
        found[site.region] = place = found.get(site.region, 0) + 1
        yield _at(job, chosen, site, f"in {site.region}{f' #{place}' if place > 1 else ''}")


def _at(job: Job, chosen: Evaluation, site: Site, name: str) -> WhatIfCase:
    here = job.site_of(job.offers[int(chosen.plans.offer[0])])
    if here == site:
        return case_of(name, chosen, chosen, "already its site")
    offers = tuple(offer.model_copy(update={"site": None}) for offer in job.offers)
    moved = job.model_copy(update={"site": site, "offers": offers})
    part = evaluate(moved, chosen.plans)
    litres = float(chosen.scores.water_l[0]), float(part.scores.water_l[0])
    note = "; ".join([*_differences_of_sites(here, site), *_water(here, site, litres)])
    return case_of(name, chosen, part, note)


def _differences_of_sites(here: Site, there: Site) -> Iterator[str]:
    """Says what the site of the answer has and the other has not, and whether their grids can be compared."""
    lost = [word for name, word in OWN_TO_A_SITE.items() if getattr(here, name) and not getattr(there, name)]
    if lost:
        yield f"without the {' and the '.join(lost)} of {here.region}"
    if there.power_usage_effectiveness != here.power_usage_effectiveness:
        overheads = (human.figure(site.power_usage_effectiveness) for site in (there, here))
        yield f"PUE {' instead of '.join(overheads)}"
    if next(unlike_grids((here, there)), None):
        yield f"grid by another convention: {grid_convention(there).words_with_area}"


def _water(here: Site, there: Site, litres: tuple[float, float]) -> Iterator[str]:
    """Says how much water the run takes here and there, where cooling and power stations are known of both, or the same one."""
    scopes = [
        (site.water_onsite_l_per_kwh is None, site.water_offsite_l_per_kwh is None) for site in (here, there)
    ]
    if scopes[0] == scopes[1] and np.all(np.isfinite(litres)) and litres[0] != litres[1]:
        yield f"water {human.water(litres[1])} instead of {human.water(litres[0])}"
