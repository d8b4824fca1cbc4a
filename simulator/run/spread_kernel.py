"""How likely does a run take longer than a time, and which time does it stay below? Sums over strata and numbers of delays.

In a stratum of the slow-down the run takes its calm time and the delays of two classes. Of a class none, one and more than one
delay are told apart, and the time of each combination is taken for a gamma distribution that begins where its first three
moments say (Pearson's type III). Its tail is that of Wilson and Hilferty (PNAS 17, 1931):

    P(T > t) = Phi(-z),    z = 6/g (u^(1/3) - 1) + g/6,    u = 1 + g/2 (t - mean)/deviation,    g the skewness
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from simulator.compiled import compiled_uncounted, inlined_uncounted
from simulator.table import Floats, Integers

_RARE = 1e-7
"""What is less likely than this is left out."""
_NEVER = -math.log(_RARE / 100.0)
"""Delays in the mean with which none and one alone are that rare."""
_CERTAIN = 1e-7
"""Strata whose runs are this surely on one side of a time stand for all strata beyond them."""
_LEAST_SKEW, _MOST_SKEW = 1e-4, 3.0
"""Skewness with which tails are worked out: next to none, and where Wilson and Hilferty's form ends."""
_LEAST_DEVIATION = 1e-9
"""Standard deviation by the time of what has none."""
_NOTHING = 1e-300
_MOST_STEPS = 80
_CLOSE, _NEAR = 1e-9, 1e-3
"""Share of a time within which a quantile is enclosed, or a last step of Newton's leads to it."""
_NEARLY = 0.002
"""Logarithm of a probability over the wanted one, from which such a step is the last: half of its square is left."""
_LARGEST_STEP = 0.5
"""Share of a time by which the search for a quantile moves at most."""

NUM_MOMENTS = 8
_CALM, _ONE, _MEAN, _VARIANCE, _THIRD, _SUM_MEAN, _SUM_VARIANCE, _SUM_THIRD = range(NUM_MOMENTS)
"""Of a class at the mean slow-down: interruptions of a calm run, chance of one delay by that of none and their number;
moments of a delay; cumulants of the sum of all."""
_ROOT_HALF, _ROOT_TWO_PI = math.sqrt(0.5), math.sqrt(2.0 * math.pi)


class RunSpread(NamedTuple):
    """n runs, and the strata of their slow-down."""

    calm_s: Floats
    """`(n,)` as in `simulator.run.delays.Delays`, at the mean slow-down."""
    num_calm: Floats
    feedback: Floats
    """y, by which a delay makes others likelier: a calm time that meets a of them has a (e^y - 1)/y in the mean, `(n,)`."""
    share: Floats
    """`(n, 2)` for near and far delays, as all others of these."""
    mean_s: Floats
    variance_s2: Floats
    third_s3: Floats
    row: Integers
    """Row of the strata of each run, `(n,)`."""
    base: Floats
    """Slow-down by its mean is base + slope x, `(n,)`."""
    slope: Floats
    weights: Floats
    """`(k,)`"""
    means: Floats
    """x of the strata, rising, `(m, k)`."""
    deviations: Floats
    """Its deviation within each, `(m, k)`."""


@compiled_uncounted
def exceedances(spread: RunSpread, limit_s: Floats, moments: Floats, result: Floats) -> None:
    """Fills in the probability that runs take longer than a limit, `(n,)`; `moments` is memory, `(2, NUM_MOMENTS)`."""
    for row in range(len(limit_s)):
        _prepare(spread, row, moments)
        result[row] = _exceedance(spread, row, limit_s[row], moments)[0]


@compiled_uncounted
def quantiles(spread: RunSpread, risk: float, start_s: Floats, moments: Floats, result: Floats) -> None:
    """Fills in the time that runs exceed with a probability, searched for from `start_s` on, `(n,)` each.

    Newton's steps on the logarithm of the probability, inside of what encloses the quantile.
    """
    for row in range(len(result)):
        _prepare(spread, row, moments)
        low_s, high_s, time_s = 0.0, np.inf, start_s[row]
        for step in range(_MOST_STEPS):
            found, density = _exceedance(spread, row, time_s, moments)
            excess = math.log(max(found, _NOTHING) / risk)
            low_s, high_s = (time_s, high_s) if excess > 0.0 else (low_s, time_s)
            most_s = _LARGEST_STEP * time_s
            step_s = most_s if excess > 0.0 else -most_s
            if density * most_s > abs(excess) * found:
                step_s = excess * found / density
            next_s = time_s + step_s
            is_inside = low_s < next_s < high_s
            if is_inside and abs(excess) < _NEARLY and abs(step_s) < _NEAR * time_s:
                time_s = next_s
                break
            # Where steps leave what encloses the quantile, or several have not found it, that is halved.
            if not is_inside or (step % 4 == 3 and low_s > 0.0 and high_s < np.inf):
                next_s = 0.5 * (low_s + high_s)
            time_s = next_s
            if high_s - low_s < _CLOSE * time_s:
                break
        result[row] = time_s


@inlined_uncounted
def _prepare(spread: RunSpread, row: int, moments: Floats) -> None:
    """Fills in the moments of both classes. The number of delays is negative binomial, with the cumulants m, m e^y and
    m e^y (2 e^y - 1)."""
    y = spread.feedback[row]
    grown, growth = math.exp(y), math.expm1(y) / y
    for kind in range(2):
        calm = spread.num_calm[row] * spread.share[row, kind]
        mean, variance, third = spread.mean_s[row, kind], spread.variance_s2[row, kind], spread.third_s3[row, kind]
        number = calm * growth
        moments[kind, _CALM], moments[kind, _ONE] = calm, -math.expm1(-y) / y
        moments[kind, _MEAN], moments[kind, _VARIANCE], moments[kind, _THIRD] = mean, variance, third
        moments[kind, _SUM_MEAN] = number * mean
        moments[kind, _SUM_VARIANCE] = number * (variance + grown * mean**2)
        skew = third + grown * mean * (3.0 * variance + (2.0 * grown - 1.0) * mean**2)
        moments[kind, _SUM_THIRD] = number * skew


@inlined_uncounted
def _exceedance(spread: RunSpread, row: int, limit_s: float, moments: Floats) -> tuple[float, float]:
    """Returns probability beyond and density at a limit: a sum over strata, from the one whose mean run is as long up and down."""
    whole_s = spread.calm_s[row] + moments[0, _SUM_MEAN] + moments[1, _SUM_MEAN]
    num_strata, strata = len(spread.weights), spread.row[row]
    middle = 0
    high = num_strata
    while middle < high:
        between = (middle + high) // 2
        if whole_s * (spread.base[row] + spread.slope[row] * spread.means[strata, between]) < limit_s:
            middle = between + 1
        else:
            high = between
    found = density = 0.0
    for stratum in range(middle, num_strata):
        tail, at = _stratum(spread, row, stratum, limit_s, whole_s, moments)
        found += spread.weights[stratum] * tail
        density += spread.weights[stratum] * at
        if tail > 1.0 - _CERTAIN:
            for later in range(stratum + 1, num_strata):
                found += spread.weights[later]
            break
    for stratum in range(middle - 1, -1, -1):
        tail, at = _stratum(spread, row, stratum, limit_s, whole_s, moments)
        found += spread.weights[stratum] * tail
        density += spread.weights[stratum] * at
        if tail < _CERTAIN:
            break
    return min(1.0, found), density


@inlined_uncounted
def _stratum(
    spread: RunSpread, row: int, stratum: int, limit_s: float, whole_s: float, moments: Floats
) -> tuple[float, float]:
    """Returns how likely a run of a stratum takes longer than a limit, and its density there."""
    strata = spread.row[row]
    slowdown = spread.base[row] + spread.slope[row] * spread.means[strata, stratum]
    within_s = spread.slope[row] * spread.deviations[strata, stratum] * whole_s
    noise_s2 = within_s**2 + (_LEAST_DEVIATION * whole_s) ** 2
    over_s = limit_s - spread.calm_s[row] * slowdown
    found = density = 0.0
    for near in range(3):
        weight, mean_s, variance, third = _part(moments, 0, near, slowdown)
        if weight > _RARE:
            for far in range(3):
                of_far, far_s, far_s2, far_s3 = _part(moments, 1, far, slowdown)
                if weight * of_far > _RARE:
                    tail, at = _tail(over_s - mean_s - far_s, noise_s2 + variance + far_s2, third + far_s3)
                    found += weight * of_far * tail
                    density += weight * of_far * at
    return found, density


@inlined_uncounted
def _part(moments: Floats, kind: int, number: int, slowdown: float) -> tuple[float, float, float, float]:
    """Returns probability, mean, variance and third central moment of no, one or more (2) delays of a class.

    What is left of the moments of their sum beyond one delay is that of more.
    """
    calm = moments[kind, _CALM] * slowdown
    if calm > _NEVER or calm == 0.0:
        if number != (2 if calm > 0.0 else 0):
            return 0.0, 0.0, 0.0, 0.0
        return (
            1.0,
            moments[kind, _SUM_MEAN] * slowdown,
            moments[kind, _SUM_VARIANCE] * slowdown,
            moments[kind, _SUM_THIRD] * slowdown,
        )
    none = math.exp(-calm)
    if number == 0:
        return none, 0.0, 0.0, 0.0
    one = none * calm * moments[kind, _ONE]
    more = 1.0 - none - one
    mean, variance, third = moments[kind, _MEAN], moments[kind, _VARIANCE], moments[kind, _THIRD]
    if number == 1:
        return (one if more > _RARE else one + max(0.0, more)), mean, variance, third
    if more <= _RARE:
        return 0.0, 0.0, 0.0, 0.0
    first, second = moments[kind, _SUM_MEAN] * slowdown, moments[kind, _SUM_VARIANCE] * slowdown
    cube = moments[kind, _SUM_THIRD] * slowdown + first * (3.0 * second + first**2)
    rest = (first - one * mean) / more
    rest_2 = max(0.0, (second + first**2 - one * (variance + mean**2)) / more - rest**2)
    rest_3 = (cube - one * (third + mean * (3.0 * variance + mean**2))) / more
    return more, rest, rest_2, rest_3 - rest * (3.0 * rest_2 + rest**2)


@inlined_uncounted
def _tail(beyond_s: float, variance: float, third: float) -> tuple[float, float]:
    """Returns the probability of more than a time beyond the mean, and the density there."""
    deviation = math.sqrt(variance)
    skew = min(max(third / (variance * deviation), _LEAST_SKEW), _MOST_SKEW)
    cube = 1.0 + 0.5 * skew * beyond_s / deviation
    if cube <= 0.0:
        return 1.0, 0.0
    root = np.cbrt(cube)
    normal = 6.0 / skew * (root - 1.0) + skew / 6.0
    density = math.exp(-0.5 * normal**2) / (_ROOT_TWO_PI * root**2 * deviation)
    return 0.5 * math.erfc(_ROOT_HALF * normal), density
