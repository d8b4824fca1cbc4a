"""What else can a job specify about money, energy and carbon? What counts, how the cluster is run, how certain inputs are.

Every field has a default that changes nothing.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from simulator.domain.hardware import Site
from simulator.record import Record

MOST_RENT_USD_PER_GPU_HOUR = 1_000.0
"""Some fifty times the dearest accelerator of the catalogue."""
MOST_PURCHASE_USD_PER_NODE = 1e8
"""Some hundred times the dearest node of the catalogue."""
PowerCap = Annotated[float, Field(ge=0.3, le=1)]
"""Power limit of accelerators as a share of their TDP, in a plan, a search or a question; H100 accepts none below 200 of its
700 W (`AllowableMin`, power capping in NVIDIA's DGX user guides)."""


class CarbonScope(Record):
    """Which parts of making the cluster are counted; figures always show what they leave out."""

    accelerators: bool = True
    """The accelerators with their share of the board."""
    hosts: bool = True
    """The rest of the nodes."""
    replacements: bool = True
    """Replacements for accelerators that failures of this run destroyed."""
    network: bool = False
    """Switches of the fabric."""
    storage: bool = False
    """Storage capacity bought for this run."""
    building: bool = False
    """Building, power and cooling plant."""

    @property
    def counted(self) -> tuple[str, ...]:
        """Names of the parts that are counted."""
        return tuple(name for name in type(self).model_fields if getattr(self, name))

    @property
    def left_out(self) -> tuple[str, ...]:
        """Names of the parts that are left out."""
        return tuple(name for name in type(self).model_fields if not getattr(self, name))


class Operation(Record):
    """How the cluster is operated, apart from the decisions of a plan."""

    power_floor_fraction: float = Field(default=0.0, ge=0, le=1)
    """Filler work keeps every training accelerator above this share of its TDP, so that the facility's power swings less; it
    costs energy but no time. 0: none."""
    power_ramp_s: float = Field(default=1.0, gt=0, le=600)
    """Seconds over which the facility's power follows when all accelerators start or stop at once. 1: nothing slows the change,
    which power meters see from one second to the next; larger if firmware or storage in the racks smooths it, whose own
    consumption is not counted (arXiv 2508.14318)."""


class Factors(Record):
    """How far the truth of an input may be from its figure, as factors of it."""

    low: PositiveFloat = Field(le=1)
    """Factor that the truth is rarely below (about the 5th percentile)."""
    high: PositiveFloat = Field(ge=1)
    """Factor that it is rarely above (about the 95th percentile)."""


class InputFactors(Record):
    """Uncertainty of the inputs of time, cost, energy and carbon; hardware prices have ranges of their own.

    The answer draws all of them and reports which conclusions survive. Inputs fixed by a contract or a plan (staff,
    installation, committed days, spares) are not drawn.
    """

    step_time: Factors | None = None
    """True over simulated step time, shared by all designs on the same accelerators. Left out: the error on published steps
    (`simulator.accuracy.step_error`), which also has a part specific to each layout."""
    failure_rate: Factors = Factors(low=0.5, high=2.0)
    """Failures per node-day: published fleets lie between 2.3 and 24 in a thousand."""
    interruption_rate: Factors = Factors(low=0.5, high=2.0)
    """How often a landlord takes nodes back (`interruptions_per_1000_node_days`), if at all; no market's range was found:
    estimate, as for failures."""
    restart_time: Factors = Factors(low=0.5, high=2.0)
    """The recovery after a failure: published times to detect, replace and start again differ by more."""
    straggler_excess: Factors | None = None
    """Slow-down by stragglers. Left out: the spread over jobs of `reliability`; known causes of stragglers are not drawn."""
    storage_bandwidth: Factors = Factors(low=0.5, high=1.5)
    """Storage is shared and seldom reaches its rating; estimate."""
    compute_power: Factors = Factors(low=0.93, high=1.04)
    """IT power while accelerators compute: nodes of one run differ by 6.79-7.00 kW, different jobs by more; estimate."""
    cap_slowdown: Factors = Factors(low=0.67, high=1.54)
    """Power to which the slow-down under a power cap is raised: exponents of 1.3 to 3, around 2, are published (power-cap
    traces of Zeus, NSDI 2023)."""
    waiting_power: Factors = Factors(low=0.7, high=1.3)
    """IT power in bubbles, stalls, restarts and of spares: 0.35-0.5 and 0.15-0.25 of the accelerators' TDP are published."""
    cooling_overhead: Factors = Factors(low=0.6, high=1.4)
    """PUE less one: 1.08 to 1.54 are published for sites and surveys; estimate."""
    grid: Factors = Factors(low=0.85, high=1.15)
    """Grid intensity: conventions (life cycle or combustion) differ by 5-15 %."""
    electricity_price: Factors = Factors(low=0.7, high=1.5)
    """Price of electricity, and of the demand on peak power with it; estimate."""
    water: Factors = Factors(low=0.5, high=1.6)
    """Water per kWh: 0.94-1.15 l on site for one operator, 0.12-0.27 l for others; estimate."""
    embodied_accelerator: Factors = Factors(low=0.85, high=2.0)
    """Making of accelerators: stacked memory at 0.75 to 2.2 kg per GB about 0.86."""
    embodied_host: Factors = Factors(low=0.44, high=1.55)
    """Making of hosts: 2.5 to 8.8 t about 5.7 t for one server."""
    embodied_network: Factors = Factors(low=0.5, high=1.67)
    """Making of switches: 0.3 to 1 t about 0.6 t; estimate."""
    embodied_storage: Factors = Factors(low=0.5, high=2.0)
    """Making of flash per byte, from a regression over servers; estimate."""
    embodied_building: Factors = Factors(low=0.5, high=2.0)
    """Making of the building, as counted for one TPU (arXiv 2502.01671); estimate."""
    replaced_accelerators: Factors = Factors(low=0.3, high=1.05)
    """Accelerators that a failure destroys: 0.53 at most in Llama 3's run (arXiv 2407.21783), of which some only needed a
    reset."""
    lifetime: Factors = Factors(low=0.6, high=1.2)
    """Years of use of nodes, network and storage: 3 to 6 about 5."""
    facility_lifetime: Factors = Factors(low=0.67, high=1.33)
    """Years of use of the building: 10 to 20 about 15; estimate."""
    utilization: Factors = Factors(low=0.82, high=1.12)
    """Share of its life in which a cluster is used: publications assume 70 to 85 %, busy clusters reach more; at most 1."""
    economic_loss: Factors = Factors(low=0.7, high=1.4)
    """Loss of value under `economic` depreciation; estimate."""
    residual_value: Factors = Factors(low=0.5, high=1.5)
    """What a sale returns in the end; estimate."""
    capital_cost: Factors = Factors(low=0.62, high=1.38)
    """Cost of capital: three points either way about 8 %; estimate."""
    maintenance: Factors = Factors(low=0.8, high=1.6)
    """Maintenance: 5 to 8 % of the price a year are usual."""
    facility_price: Factors = Factors(low=0.83, high=1.25)
    """Building, power and cooling: 10 to 15 USD/W about 12."""
    network_price: Factors = Factors(low=0.8, high=1.25)
    """Switches, optics and cables: 36 to 50 thousand USD a switch (public price sheet of August 2024)."""
    storage_power: Factors = Factors(low=0.57, high=1.43)
    """Power of storage by its capacity: 2 to 5 W per usable TB about 3.5; a `capacity_power_w` that is given is not drawn."""
    storage_price: Factors = Factors(low=0.38, high=1.1)
    """Storage: 150 to 400 USD per usable TB about 400; estimate."""


class Pause(Record):
    """Pauses the run, from a checkpoint, while the grid's intensity or the price is high."""

    by: Literal["carbon", "price"]
    """`carbon`: the site's grid profile; `price`: its electricity profile."""
    hours_fraction: float = Field(gt=0, lt=1)
    """Share of the profile's hours, the dearest ones, in which the run stands still. Of its own hours it can be another: of a
    year's dearest quarter a winter run may meet more."""


_Rent = Annotated[float, Field(gt=0, le=MOST_RENT_USD_PER_GPU_HOUR)]
_NodePrice = Annotated[float, Field(gt=0, le=MOST_PURCHASE_USD_PER_NODE)]


class WhatIf(Record):
    """Alternatives that the answer compares the recommended design with; none of them changes the recommendation."""

    pauses: tuple[Pause, ...] = Field(default=(), max_length=10)
    """Ways to pause in expensive or carbon-intensive hours."""
    start_within_hours: PositiveInt | None = Field(default=None, le=8760)
    """How many hours the start may wait for a cleaner or cheaper time, as far as the deadline allows; left out: it does not
    wait. Waiting takes time and nothing else: what runs later is rented, powered and worn later."""
    power_caps: tuple[PowerCap, ...] = Field(default=(), max_length=10)
    """Power limits of the accelerators, as shares of their TDP."""
    rents_usd_per_gpu_hour: tuple[_Rent, ...] = Field(default=(), max_length=10)
    """Rents of the recommended offer at which the whole question is asked again, which takes as long each time."""
    purchases_usd_per_node: tuple[_NodePrice, ...] = Field(default=(), max_length=10)
    """Prices of a node of the recommended offer, bought, at which it is asked again."""
    sites: tuple[Site, ...] = Field(default=(), max_length=100)
    """Alternative sites for the same design. Answers number those of one region: `norway #2` is the second there."""
    refresh_from: str | None = None
    """Catalogue name of accelerators that are owned already, and on offer: after how many calendar months does replacing
    them by the recommended ones pay, in carbon and in money?"""
