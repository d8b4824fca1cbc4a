"""What do prices and grids do from hour to hour? A profile that repeats, and its mean over a run.

    HourlyProfile(per_hour=(0.4, 0.1))       a trace, here of two hours
    read_trace(path)                         the two columns `timestamp, value` of a file
    synthetic_profile(mean=0.3, ...)         a mean with a daily and a yearly swing, for tests and first guesses

Power is taken as constant over a run, so that energy meets the mean of the profile over the hours of the run. Between
whole hours the integral of a profile is linear, and its running mean is monotone, so that its least value stands at a
whole hour.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np
from pydantic import Field, NonNegativeFloat

from simulator.errors import InputError, Problem
from simulator.record import Record
from simulator.table import Floats
from simulator.units import HOUR, KILO

HOURS_PER_DAY = 24
HOURS_PER_YEAR = 8760
MOST_HOURS = 100_000
"""Eleven years."""
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
        """Returns a value that the mean over no run of at least these lengths stays below, `(n,)`."""
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
        """Returns the profile of a run that starts so many hours later."""
        first = start_hour % len(self.per_hour)
        return HourlyProfile(per_hour=self.per_hour[first:] + self.per_hour[:first])

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
    """Returns a year that swings about its mean: lowest at noon and in midsummer, as a grid with much sun.

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


def read_trace(path: Path, *, per_unit: float = 1.0 / KILO) -> HourlyProfile:
    """Returns the profile in a file of two columns, `timestamp, value`, with or without a heading.

    Timestamps are ISO 8601 and evenly spaced; rows finer than an hour are averaged, coarser ones repeated.

    Args:
        path: CSV file, such as a grid's grams per kilowatt-hour by the hour.
        per_unit: what a value is multiplied by; g/kWh become kg/kWh by default.

    Raises:
        InputError: the file cannot be read, or a row breaks the form.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        rule = f"cannot be read: {type(error).__name__}"
        raise InputError([Problem(path="", value="", rule=rule)], str(path)) from error
    rows = list(_rows(lines, str(path)))
    if len(rows) < 2:
        rule = f"must have at least two rows of timestamp and value, not {len(rows)}"
        raise InputError([Problem(path="", value="", rule=rule)], str(path))
    values = np.array([value for _, value in rows]) * per_unit
    return HourlyProfile(per_hour=tuple(_by_the_hour(values, _spacing_s(rows, str(path)), str(path))))


def _rows(lines: list[str], source: str) -> Iterator[tuple[datetime, float]]:
    for number, cells in enumerate(csv.reader(lines), start=1):
        if not cells or (number == 1 and not _is_row(cells)):
            continue
        if not _is_row(cells):
            rule = "must be an ISO 8601 timestamp and a finite number that is not negative, with a comma between them"
            raise InputError([Problem(path=f"row {number}", value=", ".join(cells)[:60], rule=rule)], source)
        yield datetime.fromisoformat(cells[0].strip()), float(cells[1])


def _is_row(cells: list[str]) -> bool:
    try:
        datetime.fromisoformat(cells[0].strip())
        value = float(cells[1])
    except (ValueError, IndexError):
        return False
    return len(cells) == 2 and math.isfinite(value) and value >= 0.0


def _spacing_s(rows: list[tuple[datetime, float]], source: str) -> float:
    try:
        spacings = {(later[0] - earlier[0]).total_seconds() for earlier, later in pairwise(rows)}
    except TypeError:  # some timestamps name their zone and some do not
        spacings = set()
    if len(spacings) != 1 or min(spacings) <= 0.0:
        rule = "must have timestamps that rise in equal steps, all of them with a time zone or none"
        raise InputError([Problem(path="timestamp", value="", rule=rule)], source)
    return spacings.pop()


def _by_the_hour(values: Floats, spacing_s: float, source: str) -> list[float]:
    finer, coarser = HOUR / spacing_s, spacing_s / HOUR
    if finer >= 1.0 and finer.is_integer():
        whole = len(values) // int(finer) * int(finer)
        if whole:
            return [float(value) for value in values[:whole].reshape(-1, int(finer)).mean(axis=1)]
    elif coarser.is_integer():
        return [float(value) for value in np.repeat(values, int(coarser))[:MOST_HOURS]]
    rule = "must be spaced by a whole number of hours or by a whole part of one, and last at least an hour"
    raise InputError([Problem(path="timestamp", value=f"{spacing_s:g} s", rule=rule)], source)
