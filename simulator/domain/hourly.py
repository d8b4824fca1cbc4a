"""How do prices and grids change from hour to hour? A profile that repeats, and its mean over a run.

    HourlyProfile(per_hour=(0.4, 0.1))       a trace, here of two hours
    simulator.domain.traces.read_trace(path)        the two columns `timestamp, value` of a file
    synthetic_profile(mean=0.3, ...)         a mean with a daily and a yearly swing, for tests and first guesses

Power is assumed constant over a run, so energy uses the mean of the profile over the hours of the run. Between whole hours the
integral of a profile is linear and its running mean monotone, so that the minimum is at a whole hour.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from pydantic import Field, NonNegativeFloat

from simulator.errors import InputError, Problem
from simulator.record import Record
from simulator.table import Floats
from simulator.units import HOUR

HOURS_PER_DAY = 24
HOURS_PER_YEAR = 8760
MOST_HOURS = 100_000
"""Eleven years."""
MOST_KGCO2E_PER_KWH = 2.0
"""Grids of coal alone emit half of this; more is a figure in another unit, such as grams."""
MOST_USD_PER_KWH = 10.0
"""The highest prices of an hour that markets allow; more is a figure in another unit, such as USD/MWh."""
_PERIODS = 3
"""Periods over which running means are tabulated; later ones lie between the last of these and the mean."""


class HourlyProfile(Record):
    """A quantity by the hour, which repeats after its end."""

    per_hour: tuple[NonNegativeFloat, ...] = Field(min_length=1, max_length=MOST_HOURS)
    """Value in each hour, from the start of the run on; a year has 8,760."""

    def mean_over(self, wall_s: Floats) -> Floats:
        """Returns the mean from the start to each time, `(n,)`; that of the whole profile for endless runs."""
        return np.where(np.isfinite(wall_s), self._integral(wall_s) / _positive(wall_s), self.mean)

    def least_mean_over(self, wall_s: Floats) -> Floats:
        """Returns a lower bound, `(n,)`, on the mean over runs of at least these lengths."""
        least = _least_means(self.per_hour)
        hours = np.where(np.isfinite(wall_s), wall_s / HOUR, np.inf)
        num_hours = len(self.per_hour)
        place = np.minimum(np.floor(hours), (_PERIODS - 1) * num_hours).astype(np.int64)
        # Within its hour a running mean lies between those at both ends.
        return np.asarray(least[np.maximum(place, 1) - 1], dtype=np.float64)

    @property
    def mean(self) -> float:
        """Mean over the whole profile."""
        return math.fsum(self.per_hour) / len(self.per_hour)

    def from_hour(self, start_hour: int) -> HourlyProfile:
        """Returns the profile of a run that starts this number of hours later."""
        first = start_hour % len(self.per_hour)
        return HourlyProfile(per_hour=self.per_hour[first:] + self.per_hour[:first])

    def means_from(self, start_hours: Floats, wall_s: float) -> Floats:
        """Returns the mean over a run of some length that starts at each whole hour, `(m,)`."""
        if not np.isfinite(wall_s) or wall_s <= 0.0:
            return np.full(len(start_hours), self.mean)
        starts_s = start_hours * HOUR
        return np.asarray((self._integral(starts_s + wall_s) - self._integral(starts_s)) / wall_s)

    def _integral(self, wall_s: Floats) -> Floats:
        """Integral from the start, value x s, `(n,)`; 0 for endless runs, whose mean is known otherwise."""
        hours = np.where(np.isfinite(wall_s), wall_s / HOUR, 0.0)
        sums = _sums(self.per_hour)
        whole, rest = np.divmod(hours, len(self.per_hour))
        return np.asarray(HOUR * (whole * sums[-1] + np.interp(rest, np.arange(len(sums)), sums)))


@lru_cache(maxsize=64)
def _sums(per_hour: tuple[float, ...]) -> Floats:
    """Sum before each hour and after the last, `(h + 1,)`."""
    return np.concatenate([[0.0], np.cumsum(per_hour)])


@lru_cache(maxsize=64)
def _least_means(per_hour: tuple[float, ...]) -> Floats:
    """Least running mean from each whole hour on, `(3 h,)`, the first one after an hour."""
    sums = np.cumsum(np.tile(per_hour, _PERIODS))
    means = sums / np.arange(1, len(sums) + 1)
    return np.asarray(np.minimum.accumulate(means[::-1])[::-1])


def _positive(wall_s: Floats) -> Floats:
    return np.where((wall_s > 0.0) & np.isfinite(wall_s), wall_s, 1.0)


def synthetic_profile(
    *, mean: float, daily_amplitude: float = 0.0, yearly_amplitude: float = 0.0
) -> HourlyProfile:
    """Returns a year that swings about its mean: lowest at noon and in midsummer, as in a grid with much solar power.

    Args:
        mean: mean of the year.
        daily_amplitude: how far noon lies below and midnight above it.
        yearly_amplitude: how far midsummer lies below and midwinter above it.

    Raises:
        InputError: the amplitudes together exceed the mean, so that some hour would be negative.

    Example:
        >>> profile = synthetic_profile(mean=0.3, daily_amplitude=0.1)
        >>> round(profile.mean, 12), profile.per_hour[0], round(profile.per_hour[12], 12)
        (0.3, 0.4, 0.2)
    """
    if not (daily_amplitude >= 0 and yearly_amplitude >= 0 and daily_amplitude + yearly_amplitude <= mean):
        raise InputError(
            [
                Problem(
                    path="amplitudes",
                    value=f"{daily_amplitude:g} + {yearly_amplitude:g}",
                    rule=f"must not be negative and together not exceed the mean ({mean:g})",
                )
            ]
        )
    hours = np.arange(HOURS_PER_YEAR)
    day = np.cos(2.0 * np.pi * hours / HOURS_PER_DAY)
    year = np.cos(2.0 * np.pi * hours / HOURS_PER_YEAR)
    values = np.maximum(0.0, mean + daily_amplitude * day + yearly_amplitude * year)
    return HourlyProfile(per_hour=tuple(values.tolist()))


def require_plausible(profile: HourlyProfile | None, name: str, most: float, unit: str) -> None:
    """Raises `ValueError` for a profile of a site that lasts no whole number of days, or exceeds what its unit allows.

    Args:
        profile: the profile, if the site has one.
        name: its field.
        most: largest value that occurs in the world.
        unit: its unit.
    """
    if profile is None:
        return
    values = profile.per_hour
    if len(values) % HOURS_PER_DAY:
        raise ValueError(
            f"{name} has {len(values)} hours; it must last whole days (a multiple of 24), since it repeats after its end"
        )
    hour, value = max(enumerate(values), key=lambda pair: pair[1])
    if value > most:
        raise ValueError(
            f"{name}.per_hour[{hour}] = {value:g} must be at most {most:g} {unit}; is it in another unit?"
        )
