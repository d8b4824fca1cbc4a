"""What else may a job say about money, energy and carbon? What is counted, how it is run, how sure its inputs are.

Every field has a default with which a job behaves as if it had not been said.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from simulator.hardware import Site
from simulator.record import Record


class CarbonScope(Record):
    """Which parts of making the cluster are counted; figures are always shown with what they leave out."""

    accelerators: bool = True
    """The accelerators with their share of the board."""
    hosts: bool = True
    """The rest of the nodes."""
    replacements: bool = True
    """Accelerators that failures of this run destroyed."""
    network: bool = False
    """Switches of the fabric."""
    storage: bool = False
    """Capacity that is bought for this run."""
    building: bool = False
    """Building, power and cooling plant."""

    @property
    def counted(self) -> tuple[str, ...]:
        """Names of the parts that are counted."""
        return tuple(name for name in type(self).model_fields if getattr(self, name))

    @property
    def left_out(self) -> tuple[str, ...]:
        """Names of the parts that are not."""
        return tuple(name for name in type(self).model_fields if not getattr(self, name))


class Operation(Record):
    """How the cluster is run, beside the decisions of a plan."""

    power_floor_fraction: float = Field(default=0.0, ge=0, le=1)
    """Filler work holds every training accelerator above this share of its TDP, so that the facility's power swings
    less; it costs energy and no time. 0: none."""
    power_ramp_s: float = Field(default=1.0, gt=0, le=600)
    """Seconds over which the facility's power follows when all accelerators start or stop at once. 1: nothing slows the
    change, which power meters see from one second to the next; more where firmware or storage in the racks smooths it,
    what that takes not counted (arXiv 2508.14318)."""


class Factors(Record):
    """How far the truth of an input may lie from its figure, as factors of it."""

    low: PositiveFloat = Field(le=1)
    """Factor that the truth is rarely below (about the 5th percentile)."""
    high: PositiveFloat = Field(ge=1)
    """Factor that it is rarely above (about the 95th percentile)."""


class InputFactors(Record):
    """How sure the inputs of cost, energy and carbon are; prices of hardware have ranges of their own."""

    compute_power: Factors = Factors(low=0.93, high=1.04)
    """IT power of the training phases: nodes of one run differ by 6.79-7.00 kW, unlike jobs by more; estimate."""
    cooling_overhead: Factors = Factors(low=0.6, high=1.4)
    """PUE less one: 1.08 to 1.54 are published for sites and surveys; estimate."""
    grid: Factors = Factors(low=0.85, high=1.15)
    """Grid intensity: conventions (life cycle or combustion) differ by 5-15 %."""
    electricity_price: Factors = Factors(low=0.7, high=1.5)
    """Price of electricity; estimate."""
    embodied_accelerator: Factors = Factors(low=0.85, high=2.0)
    """Making of accelerators: stacked memory at 0.75 to 2.2 kg per GB about 0.86."""
    embodied_host: Factors = Factors(low=0.44, high=1.55)
    """Making of hosts: 2.5 to 8.8 t about 5.7 t for one server."""
    lifetime: Factors = Factors(low=0.6, high=1.2)
    """Years of use: 3 to 6 about 5."""


class Pause(Record):
    """Stop the run while a grid or a price is high, from a checkpoint, and go on afterwards."""

    by: Literal["carbon", "price"]
    """`carbon`: the site's grid profile; `price`: its electricity profile."""
    hours_fraction: float = Field(gt=0, lt=1)
    """Share of the hours, the dearest ones, in which the run stands still."""


class WhatIf(Record):
    """What the answer compares the recommended design with; nothing of it changes the recommendation."""

    pauses: tuple[Pause, ...] = ()
    """Ways to stop on dear or dirty hours."""
    start_within_hours: PositiveInt | None = Field(default=None, le=8760)
    """How many hours the start may wait for a cleaner or cheaper time; left out: it does not wait."""
    power_caps: tuple[float, ...] = ()
    """Power limits of the accelerators, as shares of their TDP."""
    rents_usd_per_gpu_hour: tuple[PositiveFloat, ...] = Field(default=(), max_length=10)
    """Rents of the recommended offer at which the whole question is asked again, which takes as long each time."""
    purchases_usd_per_node: tuple[PositiveFloat, ...] = Field(default=(), max_length=10)
    """Prices of a node of the recommended offer, bought, at which it is asked again."""
    sites: tuple[Site, ...] = ()
    """Sites at which the same design is placed."""
    refresh_from: str | None = None
    """Catalogue name of accelerators that are owned already, and on offer: after how many calendar months does replacing
    them by the recommended ones pay, in carbon and in money?"""

    @model_validator(mode="after")
    def _caps_are_shares(self) -> Self:
        if any(not 0.3 <= cap <= 1.0 for cap in self.power_caps):
            raise ValueError(f"power_caps {self.power_caps} must lie in 0.3..1")
        return self
