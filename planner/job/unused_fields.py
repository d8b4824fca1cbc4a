"""Which fields of a job do not affect its answer, because another field leaves them without effect? One remark names them.

Fields of the workload are in `planner.job.unused_workload`, those of the search in `planner.job.unused_search`. Fields of
money, energy and carbon are here: prices with nothing to buy, factors on what the carbon scope leaves out, terms of ownership
if nothing has a purchase price. They are not errors, because a price list or a base job serves many jobs. Requests that
cannot have an effect are errors (`planner.job.contradictions`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from objectives.break_even import node_price_of
from objectives.carbon import MADE
from planner.job.framework import habitual_fields
from planner.job.unused_rule import UnusedRule, is_set
from planner.job.unused_workload import WORKLOAD_RULES
from simulator.domain.hardware import Fabric
from simulator.domain.job import Job
from simulator.domain.ownership import Depreciation
from simulator.domain.plan import CheckpointScheme

_FACTORS = "input_factors."


def unused_notes(job: Job) -> Iterator[str]:
    """Yields the remark on fields without effect, and the one on a carbon scope without any embodied carbon."""
    if found := unused_fields(job):
        told = "; ".join(f"{path} ({why})" for path, why in found.items())
        yield f"These fields change nothing here: {told}."
    if not job.carbon_scope.counted:
        yield "carbon_scope counts nothing of the making: carbon is that of operation alone."


def unused_fields(job: Job) -> dict[str, str]:
    """Returns the fields that differ from their defaults but have no effect, by path, each with the reason.

    Fields that a job has from its framework are no request of its own.
    """
    found: dict[str, str] = {}
    untold = habitual_fields(job)
    for rule in (*_RULES, *WORKLOAD_RULES):
        if not rule.is_used(job):
            known = found.keys() | untold
            found |= {path: rule.why for path in rule.paths if path not in known and is_set(job, path)}
    return found | dict(_of_offers(job)) | dict(_of_sites(job))


def _is_counted(*parts: str) -> Callable[[Job], bool]:
    return lambda job: any(part in job.carbon_scope.counted for part in parts)


def _buys(job: Job) -> bool:
    return any(offer.purchase_usd_per_node is not None for offer in job.offers)


def _has_owner(job: Job) -> bool:
    """Whether anything is bought, compared with a purchase, or such a comparison is requested."""
    prices = (node_price_of(offer) for offer in job.offers)
    return bool(job.what_if.purchases_usd_per_node) or any(not np.isnan(price) for price in prices)


def _either(*conditions: Callable[[Job], bool]) -> Callable[[Job], bool]:
    return lambda job: any(condition(job) for condition in conditions)


def _factors(*names: str) -> tuple[str, ...]:
    return tuple(f"{_FACTORS}{name}" for name in names)


def _has_capacity(job: Job) -> bool:
    return job.storage.capacity_bytes > 0.0


def _is_cooled(job: Job) -> bool:
    sites = [job.site_of(offer) for offer in job.offers]
    return any(site.power_usage_effectiveness > 1.0 or site.climate is not None for site in sites)


def _has_grid(job: Job) -> bool:
    return any(job.site_of(offer).grid_kgco2e_per_kwh > 0.0 for offer in job.offers)


def _knows_water(job: Job) -> bool:
    sites = [job.site_of(offer) for offer in job.offers]
    return any(
        litres is not None
        for site in sites
        for litres in (site.water_onsite_l_per_kwh, site.water_offsite_l_per_kwh)
    )


_NOT_BOUGHT = "no offer is bought"
_NO_OWNER = "nothing is bought, and no node on offer has a price to compare with"
_NO_CAPACITY = "storage.capacity_bytes is 0"
_NO_BUILDING = "carbon_scope.building is false"
_NO_NETWORK = "carbon_scope.network is false"
_NOTHING_LIVES = "carbon_scope counts nothing that lives as long"
_NOTHING_SHARED = "carbon_scope counts nothing that is shared out"
_RULES = (
    UnusedRule(
        is_used=_has_capacity,
        why=_NO_CAPACITY,
        paths=(
            "storage.usd_per_byte",
            "storage.embodied_kgco2e_per_byte",
            "ownership.storage_lifetime_years",
            *_factors("storage_price", "embodied_storage"),
            "storage.power_w_per_byte",
            *_factors("storage_power"),
        ),
    ),
    UnusedRule(
        is_used=lambda job: job.storage.capacity_power_w is None,
        why="storage.capacity_power_w is given",
        paths=("storage.power_w_per_byte", *_factors("storage_power")),
    ),
    UnusedRule(
        is_used=_is_counted("storage"),
        why="carbon_scope.storage is false",
        paths=("storage.embodied_kgco2e_per_byte", *_factors("embodied_storage")),
    ),
    UnusedRule(
        is_used=_is_counted("building"),
        why=_NO_BUILDING,
        paths=("ownership.building_kgco2e_per_gpu", *_factors("embodied_building")),
    ),
    UnusedRule(
        is_used=_is_counted("replacements"),
        why="carbon_scope.replacements is false",
        paths=("ownership.replaced_gpus_per_node_failure", *_factors("replaced_accelerators")),
    ),
    UnusedRule(
        is_used=_is_counted("network"),
        why=_NO_NETWORK,
        paths=_factors("embodied_network"),
    ),
    UnusedRule(
        is_used=_is_counted("hosts"), why="carbon_scope.hosts is false", paths=_factors("embodied_host")
    ),
    UnusedRule(
        is_used=_is_counted("accelerators", "replacements"),
        why="carbon_scope.accelerators and carbon_scope.replacements are false",
        paths=_factors("embodied_accelerator"),
    ),
    UnusedRule(
        is_used=_buys,
        why=_NOT_BOUGHT,
        paths=_factors(
            "electricity_price",
            "economic_loss",
            "residual_value",
            "maintenance",
            "facility_price",
            "network_price",
        ),
    ),
    UnusedRule(
        is_used=_either(_buys, _has_capacity),
        why=f"{_NOT_BOUGHT}, and {_NO_CAPACITY}",
        paths=_factors("capital_cost"),
    ),
    UnusedRule(
        is_used=lambda job: job.ownership.depreciation is Depreciation.ECONOMIC,
        why="ownership.depreciation is straight_line",
        paths=_factors("economic_loss"),
    ),
    UnusedRule(
        is_used=lambda job: job.ownership.residual_fraction > 0.0,
        why="ownership.residual_fraction is 0",
        paths=_factors("residual_value"),
    ),
    UnusedRule(
        is_used=lambda job: job.ownership.capital_cost_fraction_per_year > 0.0,
        why="ownership.capital_cost_fraction_per_year is 0",
        paths=_factors("capital_cost"),
    ),
    UnusedRule(
        is_used=_either(_buys, _has_capacity, _is_counted("accelerators", "hosts", "network")),
        why=f"{_NOT_BOUGHT}, {_NO_CAPACITY}, and {_NOTHING_LIVES}",
        paths=_factors("lifetime"),
    ),
    UnusedRule(
        is_used=_either(_buys, _is_counted("building")),
        why=f"{_NOT_BOUGHT}, and {_NO_BUILDING}",
        paths=_factors("facility_lifetime"),
    ),
    UnusedRule(
        is_used=_either(_buys, _has_capacity, _is_counted(*MADE)),
        why=f"{_NOT_BOUGHT}, {_NO_CAPACITY}, and {_NOTHING_SHARED}",
        paths=_factors("utilization"),
    ),
    UnusedRule(
        is_used=_has_owner,
        why=_NO_OWNER,
        paths=(
            "ownership.depreciation",
            "ownership.economic_loss_per_year",
            "ownership.age_years",
            "ownership.residual_fraction",
            "ownership.installation_fraction",
            "ownership.maintenance_fraction_per_year",
            "ownership.staff_usd_per_year",
            "ownership.facility_usd_per_w",
        ),
    ),
    UnusedRule(
        is_used=_either(_has_owner, _has_capacity),
        why=f"{_NO_OWNER}, and {_NO_CAPACITY}",
        paths=("ownership.capital_cost_fraction_per_year",),
    ),
    UnusedRule(
        is_used=_either(_has_owner, _is_counted("network")),
        why=f"{_NO_OWNER}, and {_NO_NETWORK}",
        paths=("ownership.network_lifetime_years",),
    ),
    UnusedRule(
        is_used=_either(_has_owner, _is_counted("building")),
        why=f"{_NO_OWNER}, and {_NO_BUILDING}",
        paths=("ownership.facility_lifetime_years",),
    ),
    UnusedRule(
        is_used=_either(_has_owner, _has_capacity, _is_counted("accelerators", "hosts", "network")),
        why=f"{_NO_OWNER}, {_NO_CAPACITY}, and {_NOTHING_LIVES}",
        paths=("ownership.lifetime_years",),
    ),
    UnusedRule(
        is_used=_either(_has_owner, _has_capacity, _is_counted(*MADE)),
        why=f"{_NO_OWNER}, {_NO_CAPACITY}, and {_NOTHING_SHARED}",
        paths=("ownership.utilization_fraction",),
    ),
    UnusedRule(
        is_used=lambda job: any(offer.interruptions_per_1000_node_days for offer in job.offers),
        why="no offer has interruptions_per_1000_node_days",
        paths=_factors("interruption_rate"),
    ),
    UnusedRule(
        is_used=lambda job: job.reliability.stragglers is None,
        why="the causes of stragglers are known",
        paths=_factors("straggler_excess"),
    ),
    UnusedRule(
        is_used=lambda job: job.reliability.straggler_log_mean is not None,
        why="reliability.straggler_log_mean is null",
        paths=_factors("straggler_excess"),
    ),
    UnusedRule(
        is_used=lambda job: job.search.checkpoint_schemes != (CheckpointScheme.NONE,),
        why="nothing is saved",
        paths=_factors("storage_bandwidth"),
    ),
    UnusedRule(
        is_used=lambda job: job.may_cap_power,
        why="no power cap below 1 is searched",
        paths=_factors("cap_slowdown"),
    ),
    UnusedRule(
        is_used=_is_cooled,
        why="power_usage_effectiveness is 1 everywhere",
        paths=_factors("cooling_overhead"),
    ),
    UnusedRule(is_used=_has_grid, why="the grid is free of carbon everywhere", paths=_factors("grid")),
    UnusedRule(is_used=_knows_water, why="no site on offer knows its water", paths=_factors("water")),
)


def _of_offers(job: Job) -> Iterator[tuple[str, str]]:
    """Switches that are not bought, or whose embodied carbon is not counted."""
    usual = Fabric.model_fields["embodied_switch_kgco2e"].default
    for index, offer in enumerate(job.offers):
        if offer.fabric.embodied_switch_kgco2e != usual and not job.carbon_scope.network:
            yield f"offers[{index}].fabric.embodied_switch_kgco2e", _NO_NETWORK


def _of_sites(job: Job) -> Iterator[tuple[str, str]]:
    """A site that no offer uses; and electricity terms, which only owners pay, at sites where nothing can be owned."""
    own_sites = [offer.site for offer in job.offers]
    if None not in own_sites and job.site not in own_sites:
        yield "site", "every offer has a site of its own"
    owned = {
        job.site_of(offer) for offer in job.offers if _has_owner(job.model_copy(update={"offers": (offer,)}))
    }
    places = {f"offers[{i}].site": offer.site for i, offer in enumerate(job.offers) if offer.site}
    if any(offer.site is None for offer in job.offers):
        places = {"site": job.site, **places}
    for path, site in places.items():
        if site in owned:
            continue
        if site.demand_usd_per_w_month > 0.0:
            yield f"{path}.demand_usd_per_w_month", _NO_OWNER
        if site.electricity_profile is not None:
            yield f"{path}.electricity_profile", _NO_OWNER
