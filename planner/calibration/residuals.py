"""How certain are steps on a calibrated cluster? From the errors of configurations that were left out of the fit."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from planner.measured.runs import Row
from simulator.domain.calibration import StepResiduals
from simulator.domain.hardware import Precision
from simulator.table import Floats

REPEAT_DEVIATION = 0.025 / (0.6745 * math.sqrt(2.0))
"""Smallest log deviation of a step: the same recipe in two releases differs by 2.5 % in the median (docs/validation.md), and
the median difference of two normal variates is 0.6745 sqrt(2) of their standard deviation."""
INSIDE_FRACTION = 0.8
"""Share of measurements that an interval should contain."""
INSIDE_DEVIATIONS = 1.2816
"""Standard deviations on either side of the mean that contain this share of a normal distribution."""


def residuals_of(rows: Sequence[Row], log_errors: Floats) -> tuple[StepResiduals, ...]:
    """Returns the errors by accelerator, number format and kind of network.

    Args:
        rows: measured configurations, `n`.
        log_errors: ln(simulated / measured) of each with constants fitted without it, `(n,)`.
    """
    kinds: dict[tuple[str, Precision, bool], list[float]] = defaultdict(list)
    for row, error in zip(rows, log_errors.tolist(), strict=True):
        kinds[row["accelerator"], Precision(row["precision"]), bool(row["num_experts"])].append(error)
    return tuple(_residuals(*kind, np.array(errors)) for kind, errors in sorted(kinds.items()))


def _residuals(
    accelerator: str, precision: Precision, has_experts: bool, log_errors: Floats
) -> StepResiduals:
    count, mean = len(log_errors), float(log_errors.mean())
    spread = float(log_errors.std(ddof=1)) if count > 1 else abs(mean)
    own = max(spread, REPEAT_DEVIATION)
    shared = math.hypot(mean, own / math.sqrt(count))
    errors = np.expm1(log_errors)
    return StepResiduals(
        accelerator=accelerator,
        precision=precision,
        has_experts=has_experts,
        num_configurations=count,
        mean_absolute_error_fraction=_rounded(float(np.abs(errors).mean())),
        bias_fraction=_rounded(float(errors.mean())),
        shared_log_deviation=_rounded(shared),
        own_log_deviation=_rounded(own),
        interval_log_half_width=_rounded(_half_width(np.abs(log_errors), math.hypot(shared, own))),
    )


def _half_width(sizes: Floats, deviation: float) -> float:
    """Returns the error that a new one stays below with the wanted probability; with too few, that of a normal distribution.

    Of n exchangeable errors and a new one, the new one is among the k smallest with probability k / (n + 1).
    """
    place = math.ceil(INSIDE_FRACTION * (len(sizes) + 1))
    if place > len(sizes):
        return INSIDE_DEVIATIONS * deviation
    return max(float(np.sort(sizes)[place - 1]), INSIDE_DEVIATIONS * REPEAT_DEVIATION)


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
