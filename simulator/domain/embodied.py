"""What are the emissions of making a chip, if its maker does not publish them? Silicon by area and process, memory by capacity.

    kgCO2e = area (CI_fab EPA + GPA + MPA) / yield + memory x kg per byte + board and cooling

The equation and the table are those of ACT (Gupta et al., ISCA 2022): energy (EPA), gases (GPA) and
materials (MPA) per area of a wafer. Published product footprints come first wherever there is one: ACT's defaults
count DDR4 at 0.065 kg per GB, a tenth of what NVIDIA's footprints imply for stacked memory, and no board.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat

from simulator.record import Record
from simulator.units import GIGA, SQUARE_CENTIMETRE

Process = Literal["28nm", "20nm", "14nm", "10nm", "8nm", "7nm", "5nm", "3nm"]
"""Process node, by the smallest size that ACT tabulates; 4 nm counts as 5, 6 nm as 7, 12 nm and 16 nm as 14."""

_TSMC_GRID_KGCO2E_PER_KWH = 0.583
ACT_YIELD = 0.875
HBM_KGCO2E_PER_BYTE = 0.86 / GIGA
"""Stacked memory: its 42 % of the 1,312 kg of NVIDIA's HGX H100 footprint over 640 GB; B200's footprint gives 0.77."""
BOARD_KGCO2E = 73.0
"""Board, package and cooling: the remainder of the published A100 and H100 footprints per accelerator."""


class ProcessFigures(Record):
    """Figures per square centimetre of a wafer; table 1 of ACT."""

    energy_kwh: NonNegativeFloat
    """Electricity of the fab (EPA)."""
    gases_95_kgco2e: NonNegativeFloat
    """Gases where 95 % are abated (GPA),"""
    gases_99_kgco2e: NonNegativeFloat
    """and where 99 % are."""
    materials_kgco2e: NonNegativeFloat = 0.5
    """Materials (MPA)."""


PROCESSES: Mapping[Process, ProcessFigures] = {
    "28nm": ProcessFigures(energy_kwh=0.90, gases_95_kgco2e=0.175, gases_99_kgco2e=0.100),
    "20nm": ProcessFigures(energy_kwh=1.20, gases_95_kgco2e=0.190, gases_99_kgco2e=0.110),
    "14nm": ProcessFigures(energy_kwh=1.20, gases_95_kgco2e=0.200, gases_99_kgco2e=0.125),
    "10nm": ProcessFigures(energy_kwh=1.475, gases_95_kgco2e=0.240, gases_99_kgco2e=0.150),
    "8nm": ProcessFigures(energy_kwh=1.52, gases_95_kgco2e=0.240, gases_99_kgco2e=0.150),
    "7nm": ProcessFigures(energy_kwh=2.15, gases_95_kgco2e=0.350, gases_99_kgco2e=0.200),
    "5nm": ProcessFigures(energy_kwh=2.75, gases_95_kgco2e=0.430, gases_99_kgco2e=0.225),
    "3nm": ProcessFigures(energy_kwh=3.25, gases_95_kgco2e=0.470, gases_99_kgco2e=0.275),
}


class Dies(Record):
    """Components of an accelerator, for chips without a published footprint."""

    logic_m2: PositiveFloat = Field(le=1.0)
    """Area of all logic dies (814 mm2 are 814e-6)."""
    process: Process
    """Process of the logic."""
    process_figures: ProcessFigures | None = None
    """Figures per square centimetre of logic; left out: as in table 1 of ACT."""
    memory_bytes: float = Field(default=0.0, ge=0)
    """Stacked memory in the package."""
    yield_fraction: float = Field(default=ACT_YIELD, gt=0, le=1)
    """Share of the dies that work (ACT: 0.875)."""
    fab_kgco2e_per_kwh: float = Field(default=_TSMC_GRID_KGCO2E_PER_KWH, ge=0, le=5)
    """Grid of the fab (ACT: 0.583 for Taiwan)."""
    abatement_fraction: float = Field(default=0.97, ge=0.95, le=0.99)
    """Share of the process gases that the fab destroys."""
    memory_kgco2e_per_byte: float = Field(default=HBM_KGCO2E_PER_BYTE, ge=0)
    """Stacked memory (0.75 to 2.2 kg per GB)."""
    board_kgco2e: float = Field(default=BOARD_KGCO2E, ge=0)
    """Board, package and cooling."""

    @property
    def kgco2e_per_m2(self) -> float:
        """Greenhouse gases per square metre of working logic (CPA)."""
        figures = self.process_figures or PROCESSES[self.process]
        # Linear between the two levels that are tabulated.
        share_99 = (self.abatement_fraction - 0.95) / 0.04
        gases = figures.gases_95_kgco2e + share_99 * (figures.gases_99_kgco2e - figures.gases_95_kgco2e)
        per_cm2 = self.fab_kgco2e_per_kwh * figures.energy_kwh + gases + figures.materials_kgco2e
        return per_cm2 / self.yield_fraction / SQUARE_CENTIMETRE

    @property
    def embodied_kgco2e(self) -> float:
        """Greenhouse gases of making the accelerator, cradle to gate."""
        logic = self.logic_m2 * self.kgco2e_per_m2
        return logic + self.memory_bytes * self.memory_kgco2e_per_byte + self.board_kgco2e
