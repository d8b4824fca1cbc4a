"""What is available? Kinds of accelerators with their nodes, networks, numbers and prices."""

from __future__ import annotations

from typing import Self

from pydantic import Field, NonNegativeFloat, PositiveInt, model_validator

from simulator.domain.hardware import Accelerator, Fabric, Node, Site
from simulator.domain.options import MOST_PURCHASE_USD_PER_NODE, MOST_RENT_USD_PER_GPU_HOUR
from simulator.record import Record

MOST_COMMITMENT_DAYS = 3_660.0
"""Ten years: longer than any rental commitment."""

MOST_GPUS = 1_000_000
"""More accelerators than any cluster has."""


class Estimate(Record):
    """A real-world figure with uncertainty."""

    low: NonNegativeFloat
    """A value that the truth is rarely below (about the 5th percentile)."""
    mid: NonNegativeFloat
    """The best single value."""
    high: NonNegativeFloat
    """A value that the truth is rarely above (about the 95th percentile)."""

    @model_validator(mode="after")
    def _is_ordered(self) -> Self:
        if not self.low <= self.mid <= self.high:
            raise ValueError(f"low ({self.low:g}) <= mid ({self.mid:g}) <= high ({self.high:g}) must hold")
        if self.mid == 0.0 < self.high:
            raise ValueError(f"mid must be above 0 where high ({self.high:g}) is: draws scale it")
        return self


class GpuRange(Record):
    """Allowed numbers of accelerators."""

    min: PositiveInt = Field(le=MOST_GPUS)
    """Fewest."""
    max: PositiveInt = Field(le=MOST_GPUS)
    """Most, without spares."""

    @model_validator(mode="after")
    def _is_ordered(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min ({self.min}) must not exceed max ({self.max})")
        return self


class Offer(Record):
    """One kind of accelerator on offer, with its price."""

    accelerator: Accelerator
    """The accelerator that trains."""
    node: Node
    """The server that it comes in."""
    num_gpus: GpuRange
    """Allowed numbers of accelerators."""
    rent_usd_per_gpu_hour: Estimate | None = None
    """Rent including power, cooling and network."""
    purchase_usd_per_node: Estimate | None = None
    """Purchase price of a node."""
    fabric: Fabric
    """Network between the nodes."""
    max_nodes: int | None = Field(default=None, gt=0, le=MOST_GPUS)
    """Nodes that there are, spare nodes included; left out: as many spares as a run needs come on top of `num_gpus`."""
    nodes_per_rack: int | None = Field(default=None, gt=0, le=1000)
    """Nodes that share a rack and its power; left out: as usual for the node."""
    price_source: str = "user"
    """Where the price comes from."""
    commitment_days: float = Field(default=0.0, ge=0, le=MOST_COMMITMENT_DAYS)
    """Days of rent that are paid even if the run ends earlier; 0: those of the run alone, also at a reserved price."""
    interruptions_per_1000_node_days: float = Field(default=0.0, ge=0, le=10_000)
    """How often the landlord takes nodes back, as with spot prices; each time the run restarts without that node."""
    other_rent_usd_per_gpu_hour: Estimate | None = None
    """Rent that the report compares a purchase with; left out: the catalogue's, if it has one."""
    other_purchase_usd_per_node: Estimate | None = None
    """Purchase price of a node that the report compares a rent with; left out: the catalogue's, if it has one."""
    site: Site | None = None
    """Site of these accelerators; left out: the job's site."""

    @model_validator(mode="after")
    def _prices_are_plausible(self) -> Self:
        """A price in another unit, such as cents or per rack, is outside any range that somebody might pay."""
        for own, most, unit in (
            ("rent_usd_per_gpu_hour", MOST_RENT_USD_PER_GPU_HOUR, "USD for one accelerator and one hour"),
            ("purchase_usd_per_node", MOST_PURCHASE_USD_PER_NODE, "USD for one node"),
        ):
            for name in (own, f"other_{own}"):
                price: Estimate | None = getattr(self, name)
                if price and price.high > most:
                    raise ValueError(f"{name} ({price.high:g}) must be at most {most:,.0f}: it is in {unit}")
        return self

    @model_validator(mode="after")
    def _has_its_accelerators(self) -> Self:
        if self.max_nodes is not None and self.num_gpus.max > self.max_nodes * self.node.num_accelerators:
            held = f"{self.max_nodes * self.node.num_accelerators:,} in max_nodes ({self.max_nodes:,}) nodes"
            raise ValueError(
                f"num_gpus.max ({self.num_gpus.max:,}) must not exceed the accelerators that there are: {held}"
            )
        return self

    @model_validator(mode="after")
    def _has_one_price_and_the_right_node(self) -> Self:
        if (self.rent_usd_per_gpu_hour is None) == (self.purchase_usd_per_node is None):
            raise ValueError("give exactly one of rent_usd_per_gpu_hour and purchase_usd_per_node")
        if self.node.accelerator != self.accelerator.id:
            raise ValueError(
                f"node {self.node.id} holds {self.node.accelerator}, not the offered {self.accelerator.id}"
            )
        return self
