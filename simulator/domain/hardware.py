"""What is the cluster made of? Accelerators, nodes, fabric, storage and the site they stand on.

All figures are SI. Bandwidths are per direction. Values of catalogue entries are in `simulator/catalog`,
each with its source.
"""

from __future__ import annotations

import math
from difflib import SequenceMatcher
from typing import Self, assert_never

from pydantic import Field, PositiveFloat, PositiveInt, field_validator, model_validator

from simulator.domain.climate import Climate
from simulator.domain.embodied import Dies
from simulator.domain.hourly import MOST_KGCO2E_PER_KWH, MOST_USD_PER_KWH, HourlyProfile, require_plausible
from simulator.domain.links import INFINIBAND
from simulator.record import Choice, Record

MOST_PUE = 5.0
"""A higher PUE is a mistake in a figure."""
NEARLY_ALIKE = 0.8
"""Similarity of letters, in order, from which a word counts as a misspelling of another one."""
FAMILIES_WITHOUT_BF16 = ("volta",)
"""Architectures whose 16-bit matrix products are fp16 only: V100 has no bf16 (`simulator/catalog/data/accelerators.csv`)."""
PREDECESSORS = {"rubin": "blackwell", "cdna5": "cdna4"}
"""Architectures of which nothing was measured, and the one before them that software treats alike."""


class Precision(Choice):
    """Number format of the matrix products; weights and optimizer states stay in mixed precision."""

    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"
    FP4 = "fp4"
    """NVFP4: 4 bits with a scale in 8 bits for every 16 values (NVIDIA, arXiv 2509.25149)."""


CAST_FORMATS = (Precision.FP8, Precision.FP4)
"""Formats into which the inputs of products are cast."""


class Accelerator(Record):
    """One accelerator as a training framework sees it (one GPU, one TPU chip)."""

    id: str = Field(min_length=1, max_length=60)
    """Name in the catalogue."""
    name: str
    """Name as the vendor writes it."""
    vendor: str
    """Who makes it."""
    family: str
    """Architecture whose measured kernel efficiencies apply: `ampere`, `hopper` or `blackwell`, in small or capital letters;
    those of `rubin` are scaled from Blackwell, those of any other name from Hopper."""
    memory_bytes: PositiveFloat
    """Usable high-bandwidth memory."""
    memory_bytes_per_s: PositiveFloat
    """Bandwidth of the high-bandwidth memory."""
    bf16_flop_per_s: PositiveFloat
    """Dense peak of 16-bit matrix products, in fp16 where the chip has no bf16."""
    fp8_flop_per_s: PositiveFloat | None = None
    """Dense peak of 8-bit matrix products, in integers where these are the faster ones (TPUs until v6e); left out where the
    chip has none."""
    fp4_flop_per_s: PositiveFloat | None = None
    """Dense peak of 4-bit floating-point matrix products; left out where the chip has none."""
    measured_bf16_flop_per_s: PositiveFloat | None = None
    """Fastest dense 16-bit matrix product that anyone measured; left out where nobody published one."""
    has_fixed_clock: bool = False
    """Whether the peaks are at the chip's only clock, as for TPUs; other peaks are at a boost clock, which the power limit
    partly takes back under load."""
    thermal_design_power_w: PositiveFloat
    """Power limit of the accelerator (TDP)."""
    idle_power_w: PositiveFloat
    """Power when nothing is running."""
    scale_up_bytes_per_s: PositiveFloat
    """Bandwidth to the other accelerators of its link domain (NVLink, xGMI, ICI), per direction."""
    embodied_kgco2e: float = Field(ge=0, le=1e6)
    """Greenhouse gases of making the accelerator with its share of the board, cradle to gate; left out where `dies`
    are given: counted from them."""
    dies: Dies | None = None
    """Silicon and memory from which the embodied greenhouse gases are computed if none are published."""
    compute_power_fraction: PositiveFloat = Field(default=1.0, le=2.0)
    """Power that dense computation would draw without a limit, as a share of the TDP; above 1 the accelerator stays at
    its limit even where short collectives interrupt the computation."""

    @field_validator("family")
    @classmethod
    def _in_small_letters(cls, family: str) -> str:
        return family.lower()

    @model_validator(mode="before")
    @classmethod
    def _counts_embodied_from_dies(cls, values: object) -> object:
        if (
            not isinstance(values, dict)
            or values.get("embodied_kgco2e") is not None
            or not values.get("dies")
        ):
            return values
        return {**values, "embodied_kgco2e": Dies.model_validate(values["dies"]).embodied_kgco2e}

    @model_validator(mode="after")
    def _draws_less_when_idle(self) -> Self:
        if self.idle_power_w >= self.thermal_design_power_w:
            idle, most = f"{self.idle_power_w:g}", f"{self.thermal_design_power_w:g}"
            raise ValueError(f"idle_power_w ({idle}) must be below thermal_design_power_w ({most})")
        return self

    @property
    def kernel_family(self) -> str:
        """Architecture whose kernels it runs: its own, or its predecessor's where nobody measured it."""
        return PREDECESSORS.get(self.family, self.family)

    @property
    def matmul_ceiling_fraction(self) -> float:
        """Fastest measured 16-bit matrix product as a share of the peak; NaN where nobody measured it."""
        return (self.measured_bf16_flop_per_s or math.nan) / self.bf16_flop_per_s

    def peak_flop_per_s(self, precision: Precision) -> float | None:
        """Returns the dense peak for a number format, or `None` where the chip lacks it."""
        match precision:
            case Precision.FP8:
                return self.fp8_flop_per_s
            case Precision.FP4:
                return self.fp4_flop_per_s
            case Precision.BF16 if self.family in FAMILIES_WITHOUT_BF16:
                return None
            case Precision.FP16 | Precision.BF16:
                return self.bf16_flop_per_s
            case _:
                assert_never(precision)


class Node(Record):
    """One server: the unit that is bought, fails and is replaced."""

    id: str = Field(min_length=1, max_length=60)
    """Name in the catalogue."""
    name: str
    """Name as the vendor writes it."""
    accelerator: str
    """Catalogue name of its accelerators."""
    num_accelerators: PositiveInt
    """Accelerators in one node."""
    link_domain_size: PositiveInt
    """Accelerators connected by the scale-up link; more than one node's for rack-scale systems."""
    nodes_per_rack: int = Field(default=4, gt=0, le=1000)
    """Nodes that share a rack and its power (four servers of eight accelerators are usual)."""
    network_bytes_per_s: PositiveFloat
    """Bandwidth of all network cards of the node together, per direction."""
    num_network_cards: PositiveInt | None = None
    """Network cards of the node; left out: one for each accelerator."""
    host_power_w: float = Field(ge=0)
    """Processors, memory, network cards and local drives under load."""
    fan_power_w: float = Field(ge=0)
    """Fans under load; 0 for liquid or immersion cooling."""
    power_supply_efficiency_fraction: float = Field(gt=0, le=1)
    """Share of the drawn power that reaches the parts."""
    purchase_usd: PositiveFloat | None = None
    """Price of one node; left out where it is not for sale."""
    embodied_host_kgco2e: float = Field(ge=0, le=1e6)
    """Greenhouse gases of making the node without its accelerators."""
    host_memory_bytes: PositiveFloat
    """Main memory of the node."""
    host_copy_bytes_per_s: PositiveFloat
    """Effective rate from one accelerator to pinned host memory."""
    host_memory_bytes_per_s: PositiveFloat = 409.6e9
    """Bandwidth of the main memory of all processors together; left out: two with eight channels of DDR4-3200."""

    @model_validator(mode="after")
    def _domain_holds_whole_nodes(self) -> Self:
        small, large = sorted((self.num_accelerators, self.link_domain_size))
        if large % small:
            raise ValueError(
                f"link_domain_size ({self.link_domain_size}) must be a multiple or a divisor of "
                f"num_accelerators ({self.num_accelerators})"
            )
        return self

    @property
    def network_bytes_per_s_per_accelerator(self) -> float:
        """Share of the node's network bandwidth per accelerator."""
        return self.network_bytes_per_s / self.num_accelerators

    @property
    def network_ports_per_accelerator(self) -> float:
        """Ports of the fabric per accelerator, one for each card."""
        return (self.num_network_cards or self.num_accelerators) / self.num_accelerators

    @property
    def accelerators_per_network_card(self) -> float:
        """Accelerators that share one network card; 1 if each has one or more of its own."""
        return max(1.0, 1.0 / self.network_ports_per_accelerator)


class Fabric(Record):
    """The network between the nodes."""

    kind: str = "infiniband-ndr"
    """Kind of link (`capplan catalog fabrics`). Names that begin with `infiniband` have the efficiency and latency of
    InfiniBand, all others those of RoCE and other networks; bandwidth is that of the node."""
    oversubscription: float = Field(default=1.0, ge=1.0, le=64.0)
    """Ratio of node bandwidth to bandwidth through the core; 1: full bisection."""
    switch_ports: int = Field(default=64, ge=4, le=100_000)
    """Ports of one switch; half of them lead up in a fat tree."""
    switch_power_w: float = Field(default=747.0, ge=0, le=1e6)
    """Typical power of one switch with passive copper (NVIDIA QM9700, 64 ports of NDR InfiniBand: 747 W)."""
    optic_power_w: float = Field(default=8.0, ge=0, le=1e4)
    """Power of one optical transceiver end, for one port (400G: 8 W typical; half of an 800G OSFP for two ports: 7.5 W)."""
    port_usd: float = Field(default=2100.0, ge=0, le=1e6)
    """Switch, optics and cables for one node port, per tier, when the cluster is bought (public price sheet of
    August 2024: 1,900 USD per GPU in one tier, 4,200 in two, 6,600 in three)."""
    embodied_switch_kgco2e: float = Field(default=600.0, ge=0, le=1e6)
    """Greenhouse gases of making one switch (0.3 to 1 t; estimate, no published footprint was found)."""

    @field_validator("kind")
    @classmethod
    def _is_not_nearly_infiniband(cls, kind: str) -> str:
        start = kind[: len(INFINIBAND)]
        alike = SequenceMatcher(None, start.casefold(), INFINIBAND).ratio()
        if start != INFINIBAND and alike >= NEARLY_ALIKE:
            raise ValueError(f"`{kind}` would not count as InfiniBand, whose kinds begin with `{INFINIBAND}`")
        return kind


LEAST_BYTES_PER_S = 1e6
"""No file system or drive that holds checkpoints is slower: lower rates are in another unit, such as GB/s."""


class Storage(Record):
    """The file system that holds checkpoints."""

    write_bytes_per_s: float = Field(default=500e9, ge=LEAST_BYTES_PER_S)
    """Rate at which all nodes together can write."""
    read_bytes_per_s: float = Field(default=500e9, ge=LEAST_BYTES_PER_S)
    """Rate at which all nodes together can read."""
    write_bytes_per_s_per_node: float = Field(default=2e9, ge=LEAST_BYTES_PER_S)
    """Rate at which one node can write (2 GB/s: planning figure for a parallel file system)."""
    read_bytes_per_s_per_node: float = Field(default=2e9, ge=LEAST_BYTES_PER_S)
    """Rate at which one node can read."""
    capacity_power_w: float | None = Field(default=None, ge=0)
    """Power of the storage system that is charged to this run; left out: that of `capacity_bytes`, since the share of a site's
    storage is not known."""
    capacity_bytes: float = Field(default=0.0, ge=0)
    """Capacity bought for this run, whoever owns the accelerators; its embodied carbon counts where `carbon_scope.storage` is
    true. 0: part of the site."""
    power_w_per_byte: float = Field(default=3.5e-12, ge=0, le=1e-9)
    """Power of one byte of capacity, where `capacity_power_w` is left out (flash: 2 to 5 W per usable TB; estimate)."""
    usd_per_byte: float = Field(default=400e-12, ge=0, le=1e-7)
    """Price of one byte of capacity (parallel file system, all flash: 400 USD per usable TB; estimate, 150-400)."""
    embodied_kgco2e_per_byte: float = Field(default=0.16e-9, ge=0, le=1e-7)
    """Greenhouse gases of making one byte of capacity (flash: 0.16 kg/GB; SCARIF's regression over servers)."""

    @property
    def power_w(self) -> float:
        """IT power charged to the run, in all of its phases."""
        return self.power_of_bytes_w if self.capacity_power_w is None else self.capacity_power_w

    @property
    def power_of_bytes_w(self) -> float:
        """IT power implied by the capacity alone."""
        return 0.0 if self.capacity_power_w is not None else self.capacity_bytes * self.power_w_per_byte


class Site(Record):
    """Where the cluster stands: grid, electricity price, cooling, water."""

    region: str
    """Name in the catalogue of regions."""
    grid_kgco2e_per_kwh: float = Field(ge=0, le=MOST_KGCO2E_PER_KWH)
    """Greenhouse gases of one kilowatt-hour, location-based."""
    electricity_usd_per_kwh: float = Field(ge=0, le=MOST_USD_PER_KWH)
    """Price of electricity; paid by owners only, it is part of every rent."""
    power_usage_effectiveness: float = Field(ge=1, le=MOST_PUE)
    """Facility energy over IT energy (PUE) at full load, below the climate's threshold."""
    cooling_fixed_fraction: float = Field(default=0.0, ge=0, le=1)
    """Share of the overhead at full load that remains when the load falls; 0: the PUE is the same at every load."""
    climate: Climate | None = None
    """Weather that raises the PUE on warm hours; left out: none."""
    market_kgco2e_per_kwh: float | None = Field(default=None, ge=0, le=MOST_KGCO2E_PER_KWH)
    """Greenhouse gases of one kilowatt-hour by the operator's purchases (market-based); left out: not known."""
    grid_profile: HourlyProfile | None = None
    """Location-based greenhouse gases by the hour of whole days, kg/kWh, which replace the mean; left out: the mean of a
    year."""
    electricity_profile: HourlyProfile | None = None
    """Price of electricity by the hour of whole days, USD/kWh, which replaces the flat one; left out: flat."""
    demand_usd_per_w_month: float = Field(default=0.0, ge=0, le=1)
    """Demand charge: monthly price of a watt of peak facility power; paid by owners only."""
    water_onsite_l_per_kwh: float | None = Field(default=None, ge=0, le=100)
    """Water that cooling evaporates, litres per kWh of IT energy (WUE); left out: not known."""
    water_offsite_l_per_kwh: float | None = Field(default=None, ge=0, le=100)
    """Water that power stations evaporate, litres per kWh of facility energy; left out: not known."""

    @model_validator(mode="after")
    def _profiles_are_plausible(self) -> Self:
        require_plausible(self.grid_profile, "grid_profile", MOST_KGCO2E_PER_KWH, "kg/kWh")
        require_plausible(self.electricity_profile, "electricity_profile", MOST_USD_PER_KWH, "USD/kWh")
        return self

    @model_validator(mode="after")
    def _warmest_hour_is_plausible(self) -> Self:
        worst = self.power_usage_effectiveness + (self.climate.peak_overhead if self.climate else 0.0)
        if worst > MOST_PUE:
            raise ValueError(
                f"climate raises the PUE of the warmest hour to {worst:.3g}; it must be at most {MOST_PUE:g}: is "
                "overhead_per_celsius or free_cooling_below_celsius too far off?"
            )
        return self
