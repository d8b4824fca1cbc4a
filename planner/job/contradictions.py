"""Which options of a job exclude each other, or have no effect without another one? One problem each, with the way out.

Nothing is silently ignored: an option that could not change the answer is an error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from planner.job.sites import MEAN_OF, differs, replaced_by
from planner.text import human
from simulator import catalog
from simulator.catalog import Kind
from simulator.domain.hardware import Site
from simulator.domain.hourly import HourlyProfile
from simulator.domain.job import Job
from simulator.domain.offer import Offer
from simulator.domain.options import Pause
from simulator.domain.ownership import Depreciation, Ownership
from simulator.errors import Problem

_PROFILES = {
    "carbon": "the grid_profile of a site on offer",
    "price": "the electricity_profile of a site where nodes are bought (it is part of every rent)",
}
"""By what hours can differ, and where the figures of each hour are."""
_ROUNDING_FRACTION = 1e-9
"""Difference of two figures that is only rounding."""
_ALL_ALIKE = "without one all hours are alike"


def contradictory_options(job: Job) -> Iterator[Problem]:
    """Yields a problem for each pair of options that contradict each other."""
    for index, offer in enumerate(job.offers):
        yield from _of_offer(offer, f"offers[{index}]")
    yield from _of_documents(job)
    yield from _of_ownership(job)
    yield from _of_sites(job)
    yield from _of_scope(job)
    yield from _of_caps(job)
    yield from _of_repeats(job)
    yield from _of_pauses(job)
    yield from _of_start(job)
    yield from _of_refresh(job)


def _of_offer(offer: Offer, place: str) -> Iterator[Problem]:
    is_bought = offer.purchase_usd_per_node is not None
    of_rents = {
        "commitment_days": "is a term of rents; leave it out where nodes are bought",
        "interruptions_per_1000_node_days": "are those of a landlord; nodes that are bought fail by `reliability`",
    }
    for field, rule in of_rents.items():
        if is_bought and getattr(offer, field) > 0.0:
            yield Problem(path=f"{place}.{field}", value=f"{getattr(offer, field):g}", rule=rule)
    own, other = ("purchase", "per_node") if is_bought else ("rent", "per_gpu_hour")
    field = f"other_{own}_usd_{other}"
    if getattr(offer, field) is not None:
        rule = (
            f"is what the offer is compared with, and it has {own}_usd_{other} itself; leave one of them out"
        )
        yield Problem(path=f"{place}.{field}", value=f"{getattr(offer, field).mid:g}", rule=rule)
    chip = offer.accelerator
    if chip.dies and not math.isclose(chip.embodied_kgco2e, chip.dies.embodied_kgco2e, rel_tol=1e-6):
        rule = f"is {chip.dies.embodied_kgco2e:.6g} by dies; give either of the two"
        yield Problem(
            path=f"{place}.accelerator.embodied_kgco2e", value=f"{chip.embodied_kgco2e:g}", rule=rule
        )


def _of_documents(job: Job) -> Iterator[Problem]:
    """No replica can have more attention work than one whose sequences hold one document each."""
    workload, documents = job.workload, job.workload.documents
    if documents is None or documents.imbalance is None:
        return
    length = workload.sequence_length
    most = max(
        seen(length, None).mean_span / seen(length, documents).mean_span
        for seen in (workload.model.sequence_shape, workload.model.visible_shape)
    )
    if documents.imbalance > most * (1.0 + _ROUNDING_FRACTION):
        rule = (
            f"must not exceed {human.typed(most)}, the work of sequences that hold one document each over that of these "
            "documents: no replica can have more"
        )
        yield Problem(path="workload.documents.imbalance", value=human.typed(documents.imbalance), rule=rule)


def _of_ownership(job: Job) -> Iterator[Problem]:
    own = job.ownership
    is_straight = own.depreciation is Depreciation.STRAIGHT_LINE
    needed = Depreciation.ECONOMIC if is_straight else Depreciation.STRAIGHT_LINE
    for field in ("age_years", "economic_loss_per_year") if is_straight else ("residual_fraction",):
        if getattr(own, field) != Ownership.model_fields[field].default:
            rule = f"needs depreciation: {needed}; under {own.depreciation} it does nothing"
            yield Problem(path=f"ownership.{field}", value=f"{getattr(own, field):g}", rule=rule)


def _of_sites(job: Job) -> Iterator[Problem]:
    sites = {"site": job.site, **{f"what_if.sites[{i}]": site for i, site in enumerate(job.what_if.sites)}}
    sites |= {f"offers[{i}].site": offer.site for i, offer in enumerate(job.offers) if offer.site}
    for path, site in sites.items():
        for field, flat_field in MEAN_OF.items():
            profile, flat = getattr(site, field), getattr(site, flat_field)
            if profile is not None and differs(flat, profile.mean):
                yield Problem(
                    path=f"{path}.{flat_field}", value=f"{flat:g}", rule=replaced_by(field, profile.mean)
                )
        if (
            site.cooling_fixed_fraction > 0.0
            and site.power_usage_effectiveness == 1.0
            and site.climate is None
        ):
            rule = "is a share of the overhead of cooling, and power_usage_effectiveness: 1 has none; leave it out"
            yield Problem(
                path=f"{path}.cooling_fixed_fraction", value=f"{site.cooling_fixed_fraction:g}", rule=rule
            )


def _of_scope(job: Job) -> Iterator[Problem]:
    if job.carbon_scope.storage and job.storage.capacity_bytes == 0.0:
        rule = "counts the making of storage.capacity_bytes, which are 0; say how much is bought for this run"
        yield Problem(path="carbon_scope.storage", value="true", rule=rule)


def _of_caps(job: Job) -> Iterator[Problem]:
    floor = job.operation.power_floor_fraction
    for path, caps in (
        ("search.power_caps", job.search.power_caps),
        ("what_if.power_caps", job.what_if.power_caps),
    ):
        if caps and min(caps) < floor:
            rule = f"must not fall below operation.power_floor_fraction ({floor:g}), at which filler work holds the power"
            yield Problem(path=path, value=f"{min(caps):g}", rule=rule)


def _of_repeats(job: Job) -> Iterator[Problem]:
    """A case that is asked for twice gives the same answer twice."""
    for field in ("pauses", "power_caps", "rents_usd_per_gpu_hour", "purchases_usd_per_node", "sites"):
        cases = getattr(job.what_if, field)
        for index, case in enumerate(cases):
            if case in cases[:index]:
                rule = f"is what_if.{field}[{cases.index(case)}] again; leave one of them out"
                yield Problem(path=f"what_if.{field}[{index}]", value=_case_text(case), rule=rule)


def _case_text(case: float | Site | Pause) -> str:
    match case:
        case Site():
            return case.region
        case Pause():
            return case.by
        case _:
            return f"{case:g}"


def _of_pauses(job: Job) -> Iterator[Problem]:
    for index, pause in enumerate(job.what_if.pauses):
        path = f"what_if.pauses[{index}]"
        longest = max((len(profile.per_hour) for profile in _profiles(job, pause.by)), default=0)
        if not longest:
            rule = f"needs {_PROFILES[pause.by]}: {_ALL_ALIKE}"
            yield Problem(path=f"{path}.by", value=pause.by, rule=rule)
        elif longest * pause.hours_fraction < 1.0:
            rule = (
                f"is less than one of the {longest} hours of the profile, so that nothing pauses; "
                f"take {math.ceil(1e4 / longest) / 1e4:g} or more"
            )
            yield Problem(path=f"{path}.hours_fraction", value=f"{pause.hours_fraction:g}", rule=rule)


def _profiles(job: Job, by: str) -> list[HourlyProfile]:
    """Returns the hourly profiles on offer by which hours differ: of electricity only where it is no part of a rent."""
    if by == "carbon":
        found = [job.site_of(offer).grid_profile for offer in job.offers]
    else:
        bought = [offer for offer in job.offers if offer.purchase_usd_per_node is not None]
        found = [job.site_of(offer).electricity_profile for offer in bought]
    return [profile for profile in found if profile is not None]


def _of_start(job: Job) -> Iterator[Problem]:
    within = job.what_if.start_within_hours
    if within is not None and not any(_profiles(job, by) for by in _PROFILES):
        rule = f"needs {', or '.join(_PROFILES.values())}: {_ALL_ALIKE}"
        yield Problem(path="what_if.start_within_hours", value=str(within), rule=rule)


def _of_refresh(job: Job) -> Iterator[Problem]:
    name = job.what_if.refresh_from
    offered = tuple(dict.fromkeys(offer.accelerator.id for offer in job.offers))
    if name is None:
        return
    if name not in offered:
        known = "" if name in catalog.names(Kind.ACCELERATORS) else "is not in the catalogue, and "
        rule = f"{known}must be one of the offered accelerators ({', '.join(offered)}): offer what is owned already, too"
        yield Problem(path="what_if.refresh_from", value=name, rule=rule)
    elif offered == (name,):
        rule = "is the only accelerator on offer; offer what might replace it, too"
        yield Problem(path="what_if.refresh_from", value=name, rule=rule)
