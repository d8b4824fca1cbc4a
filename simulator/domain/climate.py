"""How much does the weather raise the PUE? Warm hours need chillers, cold ones do not.

    T(hour)    = mean + yearly cos(year) + daily cos(day), warmest in midsummer and at noon
    PUE(hour)  = PUE of the site + overhead per degree x max(0, T - threshold)

The energy of a run uses the mean over the year, its peak power the warmest hour: runs last for months, and their season is not
known today.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from pydantic import Field

from simulator.domain.hourly import HOURS_PER_DAY, HOURS_PER_YEAR
from simulator.record import Record


class Climate(Record):
    """Outdoor temperature of a site and its effect on cooling; all figures are the site's own."""

    mean_celsius: float = Field(ge=-60, le=60)
    """Mean temperature of the year."""
    yearly_amplitude_celsius: float = Field(default=0.0, ge=0, le=60)
    """How far midsummer lies above the mean of the year."""
    daily_amplitude_celsius: float = Field(default=0.0, ge=0, le=40)
    """How far noon lies above the mean of the day."""
    free_cooling_below_celsius: float = Field(ge=-60, le=60)
    """Temperature up to which outdoor air or water cools without chillers."""
    overhead_per_celsius: float = Field(ge=0, le=1)
    """Increase of the PUE per degree above `free_cooling_below_celsius`, at full load."""

    @property
    def mean_overhead(self) -> float:
        """Mean increase of the PUE by the weather over a year."""
        return _overheads(self)[0]

    @property
    def peak_overhead(self) -> float:
        """Increase of the PUE in the warmest hour."""
        return _overheads(self)[1]


@lru_cache(maxsize=256)
def _overheads(climate: Climate) -> tuple[float, float]:
    hours = np.arange(HOURS_PER_YEAR)
    celsius = (
        climate.mean_celsius
        - climate.yearly_amplitude_celsius * np.cos(2.0 * np.pi * hours / HOURS_PER_YEAR)
        - climate.daily_amplitude_celsius * np.cos(2.0 * np.pi * hours / HOURS_PER_DAY)
    )
    above = np.maximum(0.0, celsius - climate.free_cooling_below_celsius) * climate.overhead_per_celsius
    return float(above.mean()), float(above.max())
