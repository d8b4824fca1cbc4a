"""Between which times is a measurement expected? An 80 % interval from the errors on runs of other sources.

A source (one publisher with its software, cluster and habits) errs as one, so that rows of the same source as a
prediction say too much about it: they are left out. The remaining residuals ln(measured / simulated) of the same
architecture and number format count once per source, however many rows it has; all remaining residuals together count
as one source more, the one that was never seen. The interval reaches from the 10th to the 90th percentile.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from planner.measured_runs import Comparison, compare, read_rows
from simulator.table import Floats

TAIL_FRACTION = 0.1
"""Expected share of measurements below the interval, and above it."""


@dataclass(frozen=True, kw_only=True)
class Interval:
    """Where a measured step time is expected in four of five cases."""

    low_s: float
    high_s: float

    def holds(self, step_time_s: float) -> bool:
        """Returns whether a measured time lies in the interval."""
        return self.low_s <= step_time_s <= self.high_s


@dataclass(frozen=True, kw_only=True)
class Residual:
    """How much slower than simulated one shipped configuration was."""

    group: str
    """Its source."""
    row_id: str
    config_key: str
    family: str
    """Architecture of the accelerator."""
    precision: str
    log_ratio: float
    """ln(measured / simulated)."""


@cache
def development_residuals() -> tuple[Residual, ...]:
    """Returns the residuals of the shipped configurations, as today's simulator has them; simulated once."""
    rows = [row for row in read_rows() if not row["left_out_because"]]
    return tuple(residual_of(comparison) for comparison in compare(rows))


def residual_of(comparison: Comparison) -> Residual:
    """Returns the residual of a row that was timed."""
    return Residual(
        group=comparison.row["group"],
        row_id=comparison.row["row_id"],
        config_key=comparison.row["config_key"],
        family=comparison.family,
        precision=comparison.row["precision"],
        log_ratio=-math.log1p(comparison.error_fraction),
    )


def interval_of(comparison: Comparison, residuals: Sequence[Residual]) -> Interval:
    """Returns the interval of a row from the residuals of the sources that it does not belong to."""
    own = {residual.group for residual in residuals if _is_of_one_source(comparison, residual)}
    others = [residual for residual in residuals if residual.group not in own] or list(residuals)
    weights = _weights(others, comparison.family, comparison.row["precision"])
    values = np.array([residual.log_ratio for residual in others])
    low, high = (weighted_quantile(values, weights, share) for share in (TAIL_FRACTION, 1.0 - TAIL_FRACTION))
    return Interval(
        low_s=comparison.expected_s * math.exp(low), high_s=comparison.expected_s * math.exp(high)
    )


def _is_of_one_source(comparison: Comparison, residual: Residual) -> bool:
    row = comparison.row
    return (
        residual.group == row["group"]
        or residual.row_id == row["row_id"]
        or residual.config_key == row["config_key"]
    )


def _weights(residuals: Sequence[Residual], family: str, precision: str) -> Floats:
    """Returns the weight of each residual: one for each source that is alike, one for all sources together."""
    is_alike = [(residual.family, residual.precision) == (family, precision) for residual in residuals]
    rows = Counter(residual.group for residual in residuals)
    rows_alike = Counter(residual.group for residual, alike in zip(residuals, is_alike, strict=True) if alike)
    return np.array(
        [
            1.0 / (len(rows) * rows[residual.group]) + (1.0 / rows_alike[residual.group] if alike else 0.0)
            for residual, alike in zip(residuals, is_alike, strict=True)
        ]
    )


def weighted_quantile(values: Floats, weights: Floats, share: float) -> float:
    """Returns the smallest of the values `(n,)` at which their weights `(n,)` add up to a share of the total."""
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    position = int(np.searchsorted(reached, share * reached[-1]))
    return float(values[order][min(position, len(values) - 1)])
