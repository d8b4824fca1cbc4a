"""Which inputs of a job are uncertain, how wide is each range, and where does it come from?

Prices have ranges of their own. All other ranges are those of the job's `input_factors`, whose defaults come from
documented sources, or are marked as estimates.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from objectives.unsure_inputs import straggler_excess_factors
from planner.job.changes import Change, scaling, scaling_profile, setting
from simulator.domain.hardware import Site
from simulator.domain.job import Job
from simulator.domain.offer import Estimate
from simulator.domain.options import Factors, InputFactors
from simulator.domain.ownership import Depreciation
from simulator.record import Record, meanings

STEP_TIME = "time of a step"
"""Actual over simulated step time; no change of the job expresses this."""


class StepRange(NamedTuple):
    """Actual over simulated time of steps like those of a design."""

    low: float
    high: float
    why: str
    """Where the range comes from."""


class UncertainInput(Record):
    """One uncertain input and its range."""

    name: str
    """Field of the job, as `--set` takes it; for anything else, such as a factor on several fields, a description."""
    unit: str
    """Unit of the values; empty for shares and where the name has it, `x` for factors."""
    low: float
    """Lowest value."""
    mid: float
    """Value of the job."""
    high: float
    """Highest value."""
    why: str
    """Where the range comes from."""


class Moved(Enum):
    """How much of a design must be simulated again when an input changes."""

    STEP = "step"
    """Everything."""
    RUN = "run"
    """The run with its saves, failures and energy, but not the step."""
    WORTH = "worth"
    """Nothing: only prices or carbon factors change."""


@dataclass(frozen=True, kw_only=True)
class Lever:
    """An uncertain input, with the function that changes it in a job."""

    input: UncertainInput
    change: Change
    moves: Moved
    """How much of the simulation the change affects."""
    changes_offer_only: bool = False
    """Whether only the offers of the job change, so that many such changes fit into one batch."""


def uncertain_inputs(job: Job, offer: int, step: StepRange) -> tuple[Lever, ...]:
    """Returns the uncertain inputs that a design of one offer may depend on.

    Args:
        job: the job.
        offer: index of the design's offer.
        step: range of the time of steps like those of the design.
    """
    return (
        _step_time(job, step),
        _price(job, offer),
        *_of_hardware(job, offer),
        *_of_reliability(job),
        *_of_site(job, offer),
        *_of_ownership(job),
    )


def _step_time(job: Job, step: StepRange) -> Lever:
    given = job.input_factors.step_time
    if given is not None:
        return _lever(STEP_TIME, "x", (given.low, 1.0, given.high), "the job's range", lambda job, _: job)
    return _lever(STEP_TIME, "x", (step.low, 1.0, step.high), step.why, lambda job, _: job)


def _price(job: Job, offer: int) -> Lever:
    name = "rent_usd_per_gpu_hour" if job.offers[offer].rent_usd_per_gpu_hour else "purchase_usd_per_node"
    unit = "USD/GPU-hour" if name.startswith("rent") else "USD"
    price: Estimate = getattr(job.offers[offer], name)
    change = setting("offers", offer, name, "mid")
    why = "the price range of the job"
    path = f"offers[{offer}].{name}"
    prices = price.low, price.mid, price.high
    return _lever(path, unit, prices, why, change, moves=Moved.WORTH, changes_offer_only=True)


def _of_hardware(job: Job, offer: int) -> Iterator[Lever]:
    """Uncertain inputs of the offer and of the storage."""
    place = ("offers", offer)
    node = job.offers[offer].node
    network = node.network_bytes_per_s
    yield _lever(
        "network bandwidth of a node",
        "bytes/s",
        (0.8 * network, network, 1.2 * network),
        "estimate: share of the fabric left by other jobs, 20 % either way",
        setting(*place, "node", "network_bytes_per_s"),
        moves=Moved.STEP,
        changes_offer_only=True,
    )
    yield _factor_lever(
        job,
        "accelerator power",
        "compute_power",
        scaling((*place, "accelerator"), ("thermal_design_power_w", "idle_power_w")),
        changes_offer_only=True,
    )
    yield _factor_lever(
        job,
        "embodied carbon of the accelerators",
        "embodied_accelerator",
        scaling((*place, "accelerator"), ("embodied_kgco2e",)),
        moves=Moved.WORTH,
        changes_offer_only=True,
    )
    yield _factor_lever(
        job,
        "embodied carbon of the hosts",
        "embodied_host",
        scaling((*place, "node"), ("embodied_host_kgco2e",)),
        moves=Moved.WORTH,
        changes_offer_only=True,
    )
    rates = [f"{way}_bytes_per_s{whose}" for way in ("write", "read") for whose in ("", "_per_node")]
    yield _factor_lever(job, "storage bandwidth", "storage_bandwidth", scaling(("storage",), tuple(rates)))


def _of_reliability(job: Job) -> Iterator[Lever]:
    reliability = job.reliability
    yield _field_lever(
        job,
        "reliability.failures_per_1000_node_days",
        "failure_rate",
        reliability.failures_per_1000_node_days,
        setting("reliability", "failures_per_1000_node_days"),
        unit="per 1,000 node-days",
    )
    times = tuple(name for name in type(reliability.restart).model_fields if name.endswith("_s"))
    yield _factor_lever(job, "restart times", "restart_time", scaling(("reliability", "restart"), times))
    factors, mid = straggler_excess_factors(job), reliability.straggler_slowdown
    if factors.low < factors.high:
        low, high = (1.0 + (mid - 1.0) * factor for factor in (factors.low, factors.high))
        why = "5th to 95th percentile of its logarithm, among 3,079 jobs (arXiv 2505.05713) by default"
        yield _lever("straggler slow-down", "x", (low, mid, high), why, _with_slowdown)


def _with_slowdown(job: Job, slowdown: float) -> Job:
    """Returns the job with a fixed straggler slow-down."""
    known = {"straggler_log_mean": math.log(slowdown - 1.0), "straggler_log_deviation": 0.0}
    return job.model_copy(update={"reliability": job.reliability.model_copy(update=known)})


def _of_site(job: Job, offer: int) -> Iterator[Lever]:
    """Uncertain inputs of the offer's site: its own, or that of the job."""
    place: tuple[str | int, ...] = ("offers", offer, "site") if job.offers[offer].site else ("site",)
    path = f"offers[{offer}].site" if job.offers[offer].site else "site"
    site = job.site_of(job.offers[offer])
    yield _cooling(job, site, path, place)
    yield _grid(job, site, path, place)
    yield _electricity(job, site, path, place)


def _grid(job: Job, site: Site, path: str, place: tuple[str | int, ...]) -> Lever:
    """Carbon intensity of the grid, hourly if the site has a profile."""
    field = "grid_kgco2e_per_kwh"
    if site.grid_profile is not None:
        hourly = scaling_profile(*place, "grid_profile")
        return _factor_lever(job, "grid, hour by hour", "grid", hourly, moves=Moved.WORTH)
    value, change = site.grid_kgco2e_per_kwh, setting(*place, field)
    return _field_lever(job, f"{path}.{field}", "grid", value, change, unit="kgCO2e/kWh", moves=Moved.WORTH)


def _electricity(job: Job, site: Site, path: str, place: tuple[str | int, ...]) -> Lever:
    """Price of electricity, hourly if the site has a profile, with the demand charge if there is one."""
    field, factor = "electricity_usd_per_kwh", "electricity_price"
    is_hourly, has_demand = site.electricity_profile is not None, site.demand_usd_per_w_month > 0.0
    if is_hourly or has_demand:
        changes = [scaling(place, (field, "demand_usd_per_w_month"))]
        if is_hourly:
            changes.append(scaling_profile(*place, "electricity_profile"))
        words = ["electricity", *["hour by hour"] * is_hourly, *["demand charge included"] * has_demand]
        return _factor_lever(job, ", ".join(words), factor, _one_after_another(changes), moves=Moved.WORTH)
    value, change = site.electricity_usd_per_kwh, setting(*place, field)
    return _field_lever(job, f"{path}.{field}", factor, value, change, unit="USD/kWh", moves=Moved.WORTH)


def _one_after_another(changes: Sequence[Change]) -> Change:
    def change(job: Job, value: float) -> Job:
        for each in changes:
            job = each(job, value)
        return job

    return change


def _cooling(job: Job, site: Site, path: str, place: tuple[str | int, ...]) -> Lever:
    """Overhead of the site, including that of its climate."""
    factors, climate = job.input_factors.cooling_overhead, site.climate
    if climate is not None:
        weather = scaling((*place, "climate"), ("overhead_per_celsius",))
        steady = setting(*place, "power_usage_effectiveness")
        overhead = site.power_usage_effectiveness - 1.0

        def warmer(job: Job, factor: float) -> Job:
            return weather(steady(job, 1.0 + factor * overhead), factor)

        return _factor_lever(job, "cooling, climate included", "cooling_overhead", warmer)
    field, overhead = "power_usage_effectiveness", site.power_usage_effectiveness - 1.0
    values = 1.0 + factors.low * overhead, 1.0 + overhead, 1.0 + factors.high * overhead
    return _lever(f"{path}.{field}", "", values, _why_unsure("cooling_overhead"), setting(*place, field))


def _of_ownership(job: Job) -> Iterator[Lever]:
    terms = {
        "lifetime_years": ("lifetime", "years"),
        "utilization_fraction": ("utilization", ""),
        "capital_cost_fraction_per_year": ("capital_cost", ""),
        "maintenance_fraction_per_year": ("maintenance", ""),
        "facility_usd_per_w": ("facility_price", "USD/W"),
    }
    # The loss in value of nodes, unless it follows from their lifetime alone.
    if job.ownership.depreciation is Depreciation.ECONOMIC:
        terms["economic_loss_per_year"] = ("economic_loss", "")
    elif job.ownership.residual_fraction > 0.0:
        terms["residual_fraction"] = ("residual_value", "")
    for name, (factor, unit) in terms.items():
        most = 1.0 if name.endswith(("_fraction", "_fraction_per_year")) else math.inf
        value, change = getattr(job.ownership, name), setting("ownership", name)
        yield _field_lever(
            job, f"ownership.{name}", factor, value, change, unit=unit, most=most, moves=Moved.WORTH
        )


def _why_unsure(name: str) -> str:
    """Returns where the range of an input comes from: the docstring of its field in `InputFactors`."""
    return " ".join(meanings(InputFactors)[name].split()).removesuffix(".")


def _factor_lever(
    job: Job,
    name: str,
    factor: str,
    change: Change,
    *,
    moves: Moved = Moved.RUN,
    changes_offer_only: bool = False,
) -> Lever:
    """A lever on several fields at once, with the range of one of the input factors."""
    factors: Factors = getattr(job.input_factors, factor)
    values = factors.low, 1.0, factors.high
    return _lever(
        name, "x", values, _why_unsure(factor), change, moves=moves, changes_offer_only=changes_offer_only
    )


def _field_lever(
    job: Job,
    name: str,
    factor: str,
    value: float,
    change: Change,
    *,
    unit: str,
    most: float = math.inf,
    moves: Moved = Moved.RUN,
) -> Lever:
    """A lever on one field, with the range of one of the input factors, capped at the largest possible value."""
    factors: Factors = getattr(job.input_factors, factor)
    values = factors.low * value, value, min(most, factors.high * value)
    return _lever(name, unit, values, _why_unsure(factor), change, moves=moves)


def _lever(
    name: str,
    unit: str,
    values: tuple[float, float, float],
    why: str,
    change: Change,
    *,
    moves: Moved = Moved.RUN,
    changes_offer_only: bool = False,
) -> Lever:
    low, mid, high = values
    described = UncertainInput(name=name, unit=unit, low=low, mid=mid, high=high, why=why)
    return Lever(input=described, change=change, moves=moves, changes_offer_only=changes_offer_only)
