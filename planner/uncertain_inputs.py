"""Which figures of a job are not known exactly, how far off may each be, and why?

Every input has the range that its source documents; where nobody does, the range says that it is an estimate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from planner.human import percent
from planner.job_changes import Change, both, scaling, setting
from simulator.accuracy import Accuracy
from simulator.job import Estimate, Job
from simulator.record import Record

STEP_TIME = "time of a step"
"""How long a step takes against the simulated one; no change of the job does that."""
LEAST_SHARE = 0.1
"""Errors near 100 % would make a step endless; ten times as long is the most that is tried."""


class UncertainInput(Record):
    """One figure that is not known exactly, and its range."""

    name: str
    """Field of the job, as `--set` takes it; in words what is none, such as a factor on several fields."""
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


@dataclass(frozen=True, kw_only=True)
class Lever:
    """An uncertain input with the way to change it in a job."""

    input: UncertainInput
    change: Change
    changes_offer_only: bool = False
    """Whether the job changes in nothing but its offers, so that many such changes fit into one batch."""


def uncertain_inputs(job: Job, offer: int, accuracy: Accuracy) -> tuple[Lever, ...]:
    """Returns the inputs on which a design of one offer may depend.

    Args:
        job: the job.
        offer: position of the design's offer.
        accuracy: error of simulated steps of the design's kind.
    """
    return (
        _step_time(accuracy),
        _price(job, offer),
        *_of_hardware(job, offer),
        *_of_reliability(job),
        *_of_site(job, offer),
        *_of_ownership(job),
    )


def _step_time(accuracy: Accuracy) -> Lever:
    error = accuracy.mean_absolute_error_fraction
    borrowed = "" if accuracy.is_measured else ", borrowed from the kind that is known worst"
    why = f"steps are simulated {percent(error)} too fast or too slow on average on published runs{borrowed}"
    # Simulated over measured is 1 +- error, so a step takes its inverse.
    low, high = 1.0 / (1.0 + error), 1.0 / max(1.0 - error, LEAST_SHARE)
    return _lever(STEP_TIME, "x", (low, 1.0, high), why, lambda job, _: job)


def _price(job: Job, offer: int) -> Lever:
    name = "rent_usd_per_gpu_hour" if job.offers[offer].rent_usd_per_gpu_hour else "purchase_usd_per_node"
    unit = "USD/h" if name.startswith("rent") else "USD"
    price: Estimate = getattr(job.offers[offer], name)
    change = setting("offers", offer, name, "mid")
    why = "the range of the job's price"
    path = f"offers[{offer}].{name}"
    return _lever(path, unit, (price.low, price.mid, price.high), why, change, changes_offer_only=True)


def _of_hardware(job: Job, offer: int) -> Iterator[Lever]:
    """What the offer and the storage do in practice."""
    place = ("offers", offer)
    node = job.offers[offer].node
    network = node.network_bytes_per_s
    yield _lever(
        "network bandwidth of a node",
        "bytes/s",
        (0.8 * network, network, 1.2 * network),
        "estimate: what other jobs on the fabric leave, 20 % either way",
        setting(*place, "node", "network_bytes_per_s"),
        changes_offer_only=True,
    )
    yield _lever(
        "accelerator power",
        "x",
        (0.9, 1.0, 1.1),
        "the shares of the TDP in each phase come from few metered runs: 10 % either way",
        scaling((*place, "accelerator"), ("thermal_design_power_w", "idle_power_w")),
        changes_offer_only=True,
    )
    yield _lever(
        "embodied carbon of the hardware",
        "x",
        (0.5, 1.0, 1.5),
        "published servers differ by more: 2.5 to 8.8 t CO2e around 5.7 t",
        both(
            scaling((*place, "accelerator"), ("embodied_kgco2e",)),
            scaling((*place, "node"), ("embodied_host_kgco2e",)),
        ),
        changes_offer_only=True,
    )
    rates = [f"{way}_bytes_per_s{whose}" for way in ("write", "read") for whose in ("", "_per_node")]
    yield _lever(
        "storage bandwidth",
        "x",
        (0.5, 1.0, 1.5),
        "estimate: a file system is shared and seldom reaches its rating, 50 % either way",
        scaling(("storage",), tuple(rates)),
    )


def _of_reliability(job: Job) -> Iterator[Lever]:
    reliability = job.reliability
    rate = reliability.failures_per_1000_node_days
    yield _lever(
        "reliability.failures_per_1000_node_days",
        "per 1000 node-days",
        (0.5 * rate, rate, 2.0 * rate),
        "published fleets lie between 2.3 and 24: half to twice",
        setting("reliability", "failures_per_1000_node_days"),
    )
    yield _lever(
        "restart times",
        "x",
        (0.5, 1.0, 2.0),
        "published times to detect, replace and start again differ by more: half to twice",
        scaling(
            ("reliability", "restart"),
            tuple(name for name in type(reliability.restart).model_fields if name.endswith("_s")),
        ),
    )
    if reliability.straggler_log_mean is not None and reliability.straggler_log_deviation > 0:
        mean, deviation = reliability.straggler_log_mean, reliability.straggler_log_deviation
        low, high = (1.0 + math.exp(mean + sign * deviation) for sign in (-1.0, 1.0))
        mid = reliability.straggler_slowdown
        yield _lever(
            "straggler slow-down",
            "x",
            (low, mid, max(mid, high)),
            "one standard deviation of its logarithm either way, among 3,079 jobs (arXiv 2505.05713) by default",
            _with_slowdown,
        )


def _with_slowdown(job: Job, slowdown: float) -> Job:
    """Returns the job with a slow-down by stragglers that is known exactly."""
    known = {"straggler_log_mean": math.log(slowdown - 1.0), "straggler_log_deviation": 0.0}
    return job.model_copy(update={"reliability": job.reliability.model_copy(update=known)})


def _of_site(job: Job, offer: int) -> Iterator[Lever]:
    """Where the offer stands: on a site of its own, or on the job's."""
    place: tuple[str | int, ...] = ("offers", offer, "site") if job.offers[offer].site else ("site",)
    path = f"offers[{offer}].site" if job.offers[offer].site else "site"
    site = job.site_of(job.offers[offer])
    pue, grid, price = (
        site.power_usage_effectiveness,
        site.grid_kgco2e_per_kwh,
        site.electricity_usd_per_kwh,
    )
    yield _lever(
        f"{path}.power_usage_effectiveness",
        "",
        (max(1.0, 0.8 * pue), pue, 1.2 * pue),
        "large operators report 1.08 to 1.17, all sites 1.54 on average: 20 % either way, at least 1",
        setting(*place, "power_usage_effectiveness"),
    )
    yield _lever(
        f"{path}.grid_kgco2e_per_kwh",
        "kgCO2e/kWh",
        (0.8 * grid, grid, 1.2 * grid),
        "estimate: years and ways of counting differ, 20 % either way",
        setting(*place, "grid_kgco2e_per_kwh"),
    )
    yield _lever(
        f"{path}.electricity_usd_per_kwh",
        "USD/kWh",
        (0.7 * price, price, 1.3 * price),
        "estimate: contracts and years differ, 30 % either way",
        setting(*place, "electricity_usd_per_kwh"),
    )


def _of_ownership(job: Job) -> Iterator[Lever]:
    own = job.ownership
    ranges: dict[str, tuple[str, float, float, str]] = {
        "lifetime_years": (
            "years",
            0.6 * own.lifetime_years,
            1.2 * own.lifetime_years,
            "companies write servers off over 3 to 6 years",
        ),
        "utilization_fraction": (
            "",
            max(0.05, own.utilization_fraction - 0.15),
            min(1.0, own.utilization_fraction + 0.1),
            "estimate: publications assume 70 to 85 %, busy clusters reach more",
        ),
        "capital_cost_fraction_per_year": (
            "",
            max(0.0, own.capital_cost_fraction_per_year - 0.03),
            own.capital_cost_fraction_per_year + 0.03,
            "estimate: three points either way",
        ),
        "maintenance_fraction_per_year": (
            "",
            0.8 * own.maintenance_fraction_per_year,
            1.6 * own.maintenance_fraction_per_year,
            "5 to 8 % of the price a year are usual",
        ),
        "facility_usd_per_w": (
            "USD/W",
            own.facility_usd_per_w * 10.0 / 12.0,
            own.facility_usd_per_w * 15.0 / 12.0,
            "10 to 15 USD/W around 12",
        ),
    }
    for name, (unit, low, high, why) in ranges.items():
        value = getattr(own, name)
        yield _lever(f"ownership.{name}", unit, (low, value, high), why, setting("ownership", name))


def _lever(
    name: str,
    unit: str,
    values: tuple[float, float, float],
    why: str,
    change: Change,
    *,
    changes_offer_only: bool = False,
) -> Lever:
    low, mid, high = values
    described = UncertainInput(name=name, unit=unit, low=low, mid=mid, high=high, why=why)
    return Lever(input=described, change=change, changes_offer_only=changes_offer_only)
