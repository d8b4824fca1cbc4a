"""What does owning a cluster cost beyond its purchase, how does it lose value, and over which lifetimes is it spread?"""

from __future__ import annotations

from pydantic import Field

from simulator.record import Choice, Record

MOST_STAFF_USD_PER_YEAR = 1e9
"""Several thousand people."""


class Depreciation(Choice):
    """How purchases lose their value."""

    STRAIGHT_LINE = "straight_line"
    """In equal parts over its lifetime, with interest as an annuity."""
    ECONOMIC = "economic"
    """By a constant share per year, as the market price of accelerators falls, with interest on the rest."""


class Ownership(Record):
    """What owning costs beyond the purchase."""

    lifetime_years: float = Field(default=5.0, ge=0.1, le=100)
    """Years over which nodes are written off (straight line to zero; 5 years since 2023), and in which buying must pay off."""
    network_lifetime_years: float | None = Field(default=None, ge=0.1, le=100)
    """Years over which the network is written off; left out: as the nodes."""
    storage_lifetime_years: float | None = Field(default=None, ge=0.1, le=100)
    """Years over which storage bought for the run is written off; left out: as the nodes."""
    depreciation: Depreciation = Depreciation.STRAIGHT_LINE
    """How nodes lose their value; everything else has no second-hand market and loses value in equal parts over its life."""
    economic_loss_per_year: float = Field(default=0.32, gt=0, le=5)
    """Rate at which the value of nodes decays under `economic` depreciation (Epoch AI: 0.14 orders of magnitude a year)."""
    age_years: float = Field(default=0.0, ge=0, le=100)
    """Age of the nodes at the start of the run, under `economic` depreciation; prices of nodes are those of new ones."""
    residual_fraction: float = Field(default=0.0, ge=0, lt=1)
    """Share of the nodes' price that a sale returns at the end of their life, under `straight_line` depreciation; nothing else
    that is bought has a second-hand market."""
    installation_fraction: float = Field(default=0.0, ge=0, le=2)
    """Transport, racking, cabling and acceptance as a share of the price of nodes and network, written off with them."""
    utilization_fraction: float = Field(default=0.85, gt=0, le=1)
    """Share of its life in which the cluster is used by any job; its users also pay for the idle rest."""
    capital_cost_fraction_per_year: float = Field(default=0.08, ge=0, le=1)
    """Weighted average cost of capital, as an annuity."""
    maintenance_fraction_per_year: float = Field(default=0.05, ge=0, le=1)
    """Maintenance and staff as a share of the purchase price (5-8 % are usual)."""
    staff_usd_per_year: float = Field(default=0.0, ge=0, le=MOST_STAFF_USD_PER_YEAR)
    """Staff who run the cluster, unless included in `maintenance_fraction_per_year`."""
    replaced_gpus_per_node_failure: float = Field(default=0.5, ge=0, le=100)
    """Accelerators that are replaced after one failure of a node, an estimate. Llama 3's run had 148 faulty GPUs and 72 faulty
    memories in 419 failures of any kind (arXiv 2407.21783, table 5); how many of them were replaced is not published."""
    building_kgco2e_per_gpu: float = Field(default=109.0, ge=0, le=1e5)
    """Making of building, power and cooling plant, as counted for one TPU (arXiv 2502.01671), over
    `facility_lifetime_years`."""
    facility_usd_per_w: float = Field(default=12.0, ge=0, le=200)
    """Building, power and cooling per watt of IT power (10-15 USD/W)."""
    facility_lifetime_years: float = Field(default=15.0, ge=0.1, le=100)
    """Years over which the facility is written off, and its embodied carbon spread."""

    @property
    def network_years(self) -> float:
        """Life of the network."""
        return self.network_lifetime_years or self.lifetime_years

    @property
    def storage_years(self) -> float:
        """Life of storage bought for the run."""
        return self.storage_lifetime_years or self.lifetime_years
