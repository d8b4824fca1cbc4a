"""How long do up-times last if failures come early or late in them? Weibull up-times, and sums of them."""

from __future__ import annotations

import numpy as np
from scipy.special import digamma, gamma, gammainc, gammaincc, gammaln

from simulator.run import renewal
from simulator.run.columns import Runs
from simulator.table import Floats

_NUM_TERMS = 64
"""Commits that are summed one by one; the sum over later ones is an integral with two corrections."""
_NUM_NEWTON_STEPS = 8
"""Newton steps from above the root of a convex function, to full single precision."""


def scale_s(runs: Runs) -> Floats:
    """Returns the age that one in e up-times reaches, `(n,)`."""
    return runs.mtbf_s / gamma(1.0 + 1.0 / runs.weibull_shape)


def mean_within_s(runs: Runs, age_s: Floats) -> Floats:
    """Returns the mean of the lesser of an up-time and an age, `(n,)`."""
    shape = runs.weibull_shape
    return runs.mtbf_s * gammainc(1.0 / shape, (age_s / scale_s(runs)) ** shape)


def committed_s(runs: Runs, cycle: renewal.Cycle, first_s: Floats) -> Floats:
    """Returns the work of the saves of an up-time, the first at an age, `(n,)`; the tail of the sum uses Euler-Maclaurin."""
    shape, unit_s = runs.weibull_shape, scale_s(runs)
    gained_s = runs.interval_s * np.exp(-((first_s / unit_s) ** shape))
    for number in range(1, _NUM_TERMS):
        gained_s += cycle.gain_s * np.exp(-(((first_s + number * cycle.length_s) / unit_s) ** shape))
    last = (first_s + _NUM_TERMS * cycle.length_s) / unit_s
    survival = np.exp(-(last**shape))
    slope = -shape * last ** (shape - 1.0) / unit_s * survival
    integral_s = runs.mtbf_s * gammaincc(1.0 / shape, last**shape)
    tail = integral_s / cycle.length_s + 0.5 * survival - cycle.length_s * slope / 12.0
    return gained_s + cycle.gain_s * tail


def shape_of_sum(shape: Floats, share: Floats) -> Floats:
    """Returns the shape of the Weibull law with the mean and variance of a sum of up-times, `(n,)`.

    With v the squared coefficient of variation of an up-time, and each the last one with probability d, that of the sum is 1 +
    d (v - 1): memoryless for sums of many, and that of a single up-time for sums of one.

    Args:
        shape: of the up-times.
        share: d.
    """
    variation = np.expm1(_log_moments(1.0 / shape))
    wanted = np.log1p(1.0 + share * (variation - 1.0))
    inverse = np.maximum(1.0, 1.0 / shape)
    for _ in range(_NUM_NEWTON_STEPS):
        slope = 2.0 * (digamma(1.0 + 2.0 * inverse) - digamma(1.0 + inverse))
        inverse = inverse - (_log_moments(inverse) - wanted) / slope
    return 1.0 / inverse


def _log_moments(inverse: Floats) -> Floats:
    """Returns the log of the second moment over the squared mean, `(n,)`, for the shape with this inverse."""
    return np.asarray(gammaln(1.0 + 2.0 * inverse) - 2.0 * gammaln(1.0 + inverse))
