"""Which inputs are uncertain, which designs share each, and what of a job is so many times as large with it?

Draws, tornados, sensitivities and changes of a recommendation all read this table. `objectives.unsure_inputs` has the range of
each input, `objectives.moved_designs` what becomes of designs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Final

from simulator.domain.hardware import Storage
from simulator.domain.hourly import HourlyProfile
from simulator.domain.job import Job
from simulator.domain.offer import Estimate
from simulator.domain.reliability import MOST_FAILURES, Restart
from simulator.record import Record

HARDWARE_PRICE, STEP_TIME, LAYOUT_TIME = "hardware_price", "step_time", "layout_time"
CAP_SLOWDOWN, COMPUTE_POWER, WAITING_POWER = "cap_slowdown", "compute_power", "waiting_power"
INTERRUPTION_RATE, STRAGGLER_EXCESS = "interruption_rate", "straggler_excess"
NETWORK_BANDWIDTH = "network_bandwidth"
MOST_RESIDUAL: Final = 0.99
"""Largest share of the price that a sale can return in a range: never all of it."""

Place = tuple[str | int, ...]
"""Where a value is in a job; numbers are positions in a sequence."""


class Shared(Enum):
    """What designs have in common that have the same value of an input."""

    ACCELERATOR = "accelerator"
    SITE = "site"
    """Its region."""
    JOB = "job"
    LAYOUT = "layout"
    """Designs that differ in no more than their offer of the same accelerators, saves, spares and power cap."""


class Moved(Enum):
    """How much of a design another value of an input changes."""

    STEP = "step"
    """Everything, which is too much to simulate for every draw: such an input is not drawn."""
    RUN = "run"
    """The run, with the time of its steps at most multiplied."""
    POWER = "power"
    """Energy and power, but no time."""
    WORTH = "worth"
    """What time and energy cost and emit."""


@dataclass(frozen=True, kw_only=True)
class Scaled:
    """A field of a job that is proportional to an input."""

    path: str
    """The field; `offer` is an offer, and `site` where it stands."""
    unit: str = ""
    """Unit for readers; empty for shares and where the name has it."""
    above: float = 0.0
    """Only what the field has above this is proportional to the input."""
    most: float = math.inf
    """Largest possible value."""
    is_logarithm: bool = False
    """Whether the field is the logarithm of what is proportional to the input."""

    def places(self, job: Job, offers: Collection[int]) -> list[Place]:
        """Returns where the field is in a job, for some of its offers."""
        first, *rest = self.path.split(".")
        if first == "offer":
            return [("offers", offer, *rest) for offer in offers]
        if first == "site":
            owners = (("offers", offer) if job.offers[offer].site else () for offer in offers)
            return [(*owner, "site", *rest) for owner in dict.fromkeys(owners)]
        return [(first, *rest)]

    def times(self, value: float, factor: float) -> float:
        """Returns a value of the field when the input is so many times as large."""
        if self.is_logarithm:
            return value + math.log(factor)
        new = value * factor if self.above == 0.0 else self.above + (value - self.above) * factor
        return min(new, max(self.most, value))


@dataclass(frozen=True, kw_only=True)
class Input:
    """One uncertain input."""

    name: str
    """Field of `InputFactors`; or the price of the hardware, the part of a step's error that each layout has of its own, and
    the network's bandwidth, which have ranges of their own."""
    shared: Shared
    """What designs have in common that have the same value."""
    moves: Moved
    """How much of a design it changes."""
    fields: tuple[Scaled, ...] = ()
    """What of a job is proportional to it; empty: nothing, it acts on what was simulated."""

    @property
    def is_drawn(self) -> bool:
        """Whether draws include it."""
        return self.moves is not Moved.STEP

    def owner(self, job: Job, offer: int) -> str:
        """Returns the name of what the designs of an offer share with others; empty for the whole job."""
        if self.shared is Shared.JOB:
            return ""
        known = job.offers[offer]
        return job.site_of(known).region if self.shared is Shared.SITE else known.accelerator.id

    def change(self, job: Job, factor: float) -> Job:
        """Returns the job with the input so many times as large for all of its designs, without parsing it again."""
        for field in self.fields:
            for place in field.places(job, range(len(job.offers))):
                job = _replaced(job, place, partial(_times, factor=factor, field=field))
        return job


def value_at(job: Job, place: Place) -> object:
    """Returns the value at a place in a job; `None` where it or a record that it is in is left out."""
    value: object = job
    for step in place:
        if value is None:
            return None
        value = (
            value[step] if isinstance(step, int) and isinstance(value, tuple) else getattr(value, str(step))
        )
    return value


def _times(value: object, factor: float, field: Scaled) -> object:
    match value:
        case None:
            return None
        case HourlyProfile():
            return HourlyProfile(per_hour=tuple(each * factor for each in value.per_hour))
        case Estimate():
            return value.model_copy(update={"mid": value.mid * factor})
        case float() | int():
            return field.times(value, factor)
    raise AssertionError(f"{field.path} is no number")


def _replaced(job: Job, place: Place, new: Callable[[object], object]) -> Job:
    """Returns the job with one value changed."""

    def walk(value: object, rest: Place) -> object:
        if not rest or value is None:
            return new(value)
        step, *later = rest
        if isinstance(step, int):
            assert isinstance(value, tuple)
            return (*value[:step], walk(value[step], tuple(later)), *value[step + 1 :])
        assert isinstance(value, Record)
        return value.model_copy(update={step: walk(getattr(value, step), tuple(later))})

    changed = walk(job, place)
    assert isinstance(changed, Job)
    return changed


def _input(name: str, shared: Shared, moves: Moved, *fields: Scaled | str) -> Input:
    scaled = (Scaled(path=field) if isinstance(field, str) else field for field in fields)
    return Input(name=name, shared=shared, moves=moves, fields=tuple(scaled))


def _in(unit: str, path: str) -> Scaled:
    return Scaled(path=path, unit=unit)


def _owning(name: str, unit: str = "", most: float = math.inf) -> Scaled:
    return Scaled(path=f"ownership.{name}", unit=unit, most=most)


_A_NODE = "per 1,000 node-days"
_TABLE: tuple[Input, ...] = (
    _input(
        HARDWARE_PRICE,
        Shared.ACCELERATOR,
        Moved.WORTH,
        _in("USD/GPU-hour", "offer.rent_usd_per_gpu_hour"),
        _in("USD", "offer.purchase_usd_per_node"),
    ),
    _input(
        "failure_rate",
        Shared.ACCELERATOR,
        Moved.RUN,
        Scaled(path="reliability.failures_per_1000_node_days", unit=_A_NODE, most=MOST_FAILURES),
        Scaled(path="reliability.domain_failures_per_1000_domain_days", most=MOST_FAILURES),
    ),
    _input(COMPUTE_POWER, Shared.ACCELERATOR, Moved.POWER),
    _input(WAITING_POWER, Shared.ACCELERATOR, Moved.POWER),
    _input(
        "embodied_accelerator",
        Shared.ACCELERATOR,
        Moved.WORTH,
        _in("kgCO2e", "offer.accelerator.embodied_kgco2e"),
    ),
    _input(
        INTERRUPTION_RATE,
        Shared.ACCELERATOR,
        Moved.RUN,
        _in(_A_NODE, "offer.interruptions_per_1000_node_days"),
    ),
    _input(
        "cooling_overhead",
        Shared.SITE,
        Moved.POWER,
        Scaled(path="site.power_usage_effectiveness", above=1.0),
        "site.climate.overhead_per_celsius",
    ),
    _input(
        "grid", Shared.SITE, Moved.WORTH, _in("kgCO2e/kWh", "site.grid_kgco2e_per_kwh"), "site.grid_profile"
    ),
    _input(
        "electricity_price",
        Shared.SITE,
        Moved.WORTH,
        _in("USD/kWh", "site.electricity_usd_per_kwh"),
        "site.electricity_profile",
        "site.demand_usd_per_w_month",
    ),
    _input("water", Shared.SITE, Moved.WORTH, "site.water_onsite_l_per_kwh", "site.water_offsite_l_per_kwh"),
    _input(
        "restart_time",
        Shared.JOB,
        Moved.RUN,
        *(f"reliability.restart.{name}" for name in Restart.model_fields if name.endswith("_s")),
    ),
    _input(
        STRAGGLER_EXCESS,
        Shared.JOB,
        Moved.RUN,
        Scaled(path="reliability.straggler_log_mean", is_logarithm=True),
    ),
    _input(
        "storage_bandwidth",
        Shared.JOB,
        Moved.RUN,
        *(f"storage.{name}" for name in Storage.model_fields if "_bytes_per_s" in name),
    ),
    _input(CAP_SLOWDOWN, Shared.JOB, Moved.RUN),
    _input("embodied_host", Shared.JOB, Moved.WORTH, _in("kgCO2e", "offer.node.embodied_host_kgco2e")),
    _input("embodied_network", Shared.JOB, Moved.WORTH, _in("kgCO2e", "offer.fabric.embodied_switch_kgco2e")),
    _input(
        "embodied_storage", Shared.JOB, Moved.WORTH, _in("kgCO2e/byte", "storage.embodied_kgco2e_per_byte")
    ),
    _input("embodied_building", Shared.JOB, Moved.WORTH, _owning("building_kgco2e_per_gpu", "kgCO2e")),
    _input("replaced_accelerators", Shared.JOB, Moved.WORTH, _owning("replaced_gpus_per_node_failure")),
    _input(
        "lifetime",
        Shared.JOB,
        Moved.WORTH,
        *(_owning(f"{part}lifetime_years", "years") for part in ("", "network_", "storage_")),
    ),
    _input("facility_lifetime", Shared.JOB, Moved.WORTH, _owning("facility_lifetime_years", "years")),
    _input("utilization", Shared.JOB, Moved.WORTH, _owning("utilization_fraction", most=1.0)),
    _input("economic_loss", Shared.JOB, Moved.WORTH, _owning("economic_loss_per_year")),
    _input("residual_value", Shared.JOB, Moved.WORTH, _owning("residual_fraction", most=MOST_RESIDUAL)),
    _input("capital_cost", Shared.JOB, Moved.WORTH, _owning("capital_cost_fraction_per_year")),
    _input("maintenance", Shared.JOB, Moved.WORTH, _owning("maintenance_fraction_per_year")),
    _input("facility_price", Shared.JOB, Moved.WORTH, _owning("facility_usd_per_w", "USD/W")),
    _input("network_price", Shared.JOB, Moved.WORTH, _in("USD", "offer.fabric.port_usd")),
    _input("storage_power", Shared.JOB, Moved.POWER, _in("W/byte", "storage.power_w_per_byte")),
    _input("storage_price", Shared.JOB, Moved.WORTH, _in("USD/byte", "storage.usd_per_byte")),
    _input(STEP_TIME, Shared.ACCELERATOR, Moved.RUN),
    _input(LAYOUT_TIME, Shared.LAYOUT, Moved.RUN),
    _input(
        NETWORK_BANDWIDTH, Shared.ACCELERATOR, Moved.STEP, _in("bytes/s", "offer.node.network_bytes_per_s")
    ),
)
INPUTS: Mapping[str, Input] = {each.name: each for each in _TABLE}
"""Every input by its name."""
