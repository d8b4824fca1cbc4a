"""How likely does a run exceed a time, and what are the quantiles of its time? Sums over strata and numbers of delays.

In a stratum of the slow-down, a run takes its calm time plus the delays of two classes. In each class, zero, one, two and more
delays are distinguished, unless each is slight. The time of each combination is approximated by a shifted gamma distribution
that matches its first three moments (Pearson's type III). Its tail is that of Wilson and Hilferty (PNAS 17, 1931):

    P(T > t) = Phi(-z),    z = 6/g (u^(1/3) - 1) + g/6,    u = 1 + g/2 (t - mean)/deviation,    g the skewness
"""

from __future__ import annotations

import math
from typing import NamedTuple, Self

import numpy as np

from simulator.compiled import compiled_uncounted, inlined_uncounted
from simulator.table import Floats, Integers

_RARE = 1e-7
"""Less likely combinations are left out."""
_NEVER = -math.log(_RARE / 100.0)
"""Mean number of delays at which none, or just one, is that rare."""
_CERTAIN = 1e-7
"""Strata whose runs are this certainly on one side of a time stand for all strata beyond them."""
_LEAST_SKEW, _MOST_SKEW = 1e-4, 3.0
"""Skewness range for tails: close to zero, and the limit of Wilson and Hilferty's form."""
_LEAST_DEVIATION = 1e-9
"""Standard deviation over time that stands for none."""
_FARTHEST = 5.5
"""Standard deviations of z beyond which a tail is 0 or 1: one in fifty million."""
_SLIGHT = 0.2**2
"""Mean square of simultaneous delays, over the variance of their whole class and of the stratum, below which their number
matters little."""
_NOTHING = 1e-300
_MOST_STEPS = 80
_CLOSE, _NEAR = 1e-9, 1e-3
"""Tolerances of a quantile as a share of the time: of the bracket, and of a last Newton step."""
_NEARLY = 0.002
"""Log ratio to the wanted probability from which a Newton step is the last: half of its square remains."""
_LARGEST_STEP = 0.5
"""Largest step in the search for a quantile, as a share of the time."""
_MOST_GROWTH = 1e6
"""Largest number of interruptions per one in the calm time; beyond that a run makes no progress."""
_LEAST_FEEDBACK = 1e-6
"""Feedback that stands for none: numbers of delays are then Poisson."""
_MOST_FEEDBACK_STEPS = 6
"""Newton steps; three reach full precision with a growth below two."""

_NUM_TERMS = 3
"""Numbers of delays of a class that are distinguished, from none on; all larger ones are one further part."""
_NUM_MOMENTS = 10
_CALM, _ONE, _AGAIN, _MEAN, _VARIANCE, _THIRD, _SQUARE, _SUM_MEAN, _SUM_VARIANCE, _SUM_THIRD = range(
    _NUM_MOMENTS
)
"""Of a class at the mean slow-down: interruptions of a calm run; of the chance of k + 1 delays by that of k, (k + 1)-fold, the
part for each of these and for each of k; moments of a delay; mean square of those that come together; cumulants of the sum."""
_ROOT_HALF, _ROOT_TWO_PI = math.sqrt(0.5), math.sqrt(2.0 * math.pi)


class RunSpread(NamedTuple):
    """n runs, and the strata of their slow-down."""

    calm_s: Floats
    """`(n,)` as in `simulator.run.delays.Delays`, at the mean slow-down."""
    num_calm: Floats
    growth: Floats
    """(e^y - 1)/y, the mean number of interruptions for each one that the calm time would meet, `(n,)`."""
    share: Floats
    """`(n, 2)` for near and far delays, as for all columns of delays."""
    mean_s: Floats
    variance_s2: Floats
    third_s3: Floats
    row: Integers
    """Row of the strata of each run, `(n,)`."""
    base: Floats
    """The slow-down over its mean is base + slope x, `(n,)`."""
    slope: Floats
    weights: Floats
    """`(k,)`"""
    means: Floats
    """x of the strata, rising, `(m, k)`."""
    deviations: Floats
    """Deviation of x within each stratum, `(m, k)`."""


class Memory(NamedTuple):
    """Working memory of the kernel for one run."""

    moments: Floats
    parts: Floats

    @classmethod
    def empty(cls) -> Self:
        """Returns separate memory for a call."""
        return cls(np.zeros((2, _NUM_MOMENTS)), np.zeros((2, _NUM_TERMS + 1, 4)))


@compiled_uncounted
def exceedances(spread: RunSpread, limit_s: Floats, memory: Memory, result: Floats) -> None:
    """Fills in the probability that runs take longer than a limit, `(n,)`; `memory` is overwritten."""
    for row in range(len(limit_s)):
        _prepare(spread, row, memory.moments)
        result[row] = _exceedance(spread, row, limit_s[row], memory)[0]


@compiled_uncounted
def quantiles(
    spread: RunSpread, risk: float, normal: float, slower: Floats, memory: Memory, result: Floats
) -> None:
    """Fills in the time that runs exceed with a probability, `(n,)`.

    Newton steps on the logarithm of the probability, inside the bracket of the quantile. The first guess needs the quantiles of
    the standard normal distribution and, about, of the slow-down over its mean, `(n,)`.
    """
    for row in range(len(result)):
        _prepare(spread, row, memory.moments)
        low_s, high_s = 0.0, np.inf
        time_s = _first_guess_s(spread.calm_s[row], normal, slower[row], memory.moments)
        for step in range(_MOST_STEPS):
            found, density = _exceedance(spread, row, time_s, memory)
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
            # If a step leaves the bracket of the quantile, or several steps have not found it, the bracket is halved.
            if not is_inside or (step % 4 == 3 and low_s > 0.0 and high_s < np.inf):
                next_s = 0.5 * (low_s + high_s)
            time_s = next_s
            if high_s - low_s < _CLOSE * time_s:
                break
        result[row] = time_s


@inlined_uncounted
def _first_guess_s(calm_s: float, normal: float, slower: float, moments: Floats) -> float:
    """Returns a quantile as if it were as far from the mean as those of slow-down and delays together, at a right angle.

    That of the delays follows from their first three moments (Cornish and Fisher, 1938).
    """
    mean_s = calm_s + moments[0, _SUM_MEAN] + moments[1, _SUM_MEAN]
    variance = max(_NOTHING, moments[0, _SUM_VARIANCE] + moments[1, _SUM_VARIANCE])
    third = moments[0, _SUM_THIRD] + moments[1, _SUM_THIRD]
    delayed_s = normal * math.sqrt(variance) + (normal**2 - 1.0) / 6.0 * third / variance
    return float(mean_s + math.hypot((slower - 1.0) * mean_s, delayed_s))


@inlined_uncounted
def _prepare(spread: RunSpread, row: int, moments: Floats) -> None:
    """Fills in the moments of both classes.

    The number of delays is negative binomial, with the cumulants m, m e^y and m e^y (2 e^y - 1).
    """
    y = _feedback(spread.growth[row])
    grown, growth = math.exp(y), math.expm1(y) / y
    for kind in range(2):
        calm = spread.num_calm[row] * spread.share[row, kind]
        mean, variance = spread.mean_s[row, kind], spread.variance_s2[row, kind]
        third = spread.third_s3[row, kind]
        number = calm * growth
        moments[kind, _CALM] = calm
        moments[kind, _ONE] = -math.expm1(-y) / y
        moments[kind, _AGAIN] = -math.expm1(-y)
        moments[kind, _MEAN], moments[kind, _VARIANCE], moments[kind, _THIRD] = mean, variance, third
        moments[kind, _SQUARE] = variance + ((2.0 * grown - 1.0) * mean) ** 2
        moments[kind, _SUM_MEAN] = number * mean
        moments[kind, _SUM_VARIANCE] = number * (variance + grown * mean**2)
        skew = third + grown * mean * (3.0 * variance + (2.0 * grown - 1.0) * mean**2)
        moments[kind, _SUM_THIRD] = number * skew


@inlined_uncounted
def _feedback(growth: float) -> float:
    """Returns y, the feedback by which a delay makes others likelier, given (e^y - 1)/y; close to zero for 1 and less."""
    growth = min(max(1.0, growth), _MOST_GROWTH)
    log_growth = math.log(growth)
    # A straight line up to a slope of a half, then nearly one with a slope of 1.
    y = max(_LEAST_FEEDBACK, min(2.0 * (growth - 1.0), 2.0 * log_growth))
    for _ in range(_MOST_FEEDBACK_STEPS):
        value = math.log(math.expm1(y) / y) - log_growth
        found = max(_LEAST_FEEDBACK, y - value / (1.0 / -math.expm1(-y) - 1.0 / y))
        is_found = abs(found - y) < _CLOSE * y
        y = found
        if is_found:
            break
    return y


@inlined_uncounted
def _exceedance(spread: RunSpread, row: int, limit_s: float, memory: Memory) -> tuple[float, float]:
    """Returns the probability beyond a limit and the density there: a sum over strata in both directions from the limit's."""
    whole_s = spread.calm_s[row] + memory.moments[0, _SUM_MEAN] + memory.moments[1, _SUM_MEAN]
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
        tail, at = _stratum(spread, row, stratum, limit_s, whole_s, memory)
        found += spread.weights[stratum] * tail
        density += spread.weights[stratum] * at
        if tail > 1.0 - _CERTAIN:
            for later in range(stratum + 1, num_strata):
                found += spread.weights[later]
            break
    for stratum in range(middle - 1, -1, -1):
        tail, at = _stratum(spread, row, stratum, limit_s, whole_s, memory)
        found += spread.weights[stratum] * tail
        density += spread.weights[stratum] * at
        if tail < _CERTAIN:
            break
    return min(1.0, found), density


@inlined_uncounted
def _stratum(
    spread: RunSpread, row: int, stratum: int, limit_s: float, whole_s: float, memory: Memory
) -> tuple[float, float]:
    """Returns the probability that a run in a stratum takes longer than a limit, and its density there."""
    strata, parts = spread.row[row], memory.parts
    slowdown = spread.base[row] + spread.slope[row] * spread.means[strata, stratum]
    within_s = spread.slope[row] * spread.deviations[strata, stratum] * whole_s
    noise_s2 = within_s**2 + (_LEAST_DEVIATION * whole_s) ** 2
    over_s = limit_s - spread.calm_s[row] * slowdown
    first_near, last_near = _fill(memory, 0, slowdown, noise_s2)
    first_far, last_far = _fill(memory, 1, slowdown, noise_s2)
    found = density = 0.0
    for near in range(first_near, last_near):
        for far in range(first_far, last_far):
            weight = parts[0, near, 0] * parts[1, far, 0]
            if weight > _RARE:
                tail, at = _tail(
                    over_s - parts[0, near, 1] - parts[1, far, 1],
                    noise_s2 + parts[0, near, 2] + parts[1, far, 2],
                    parts[0, near, 3] + parts[1, far, 3],
                )
                found += weight * tail
                density += weight * at
    return found, density


@inlined_uncounted
def _fill(memory: Memory, kind: int, slowdown: float, noise_s2: float) -> tuple[int, int]:
    """Fills in probability and three moments for each number of delays of a class; returns which numbers.

    The rest of the moments of their sum is assigned to larger numbers of delays; slight delays are not counted individually.
    """
    moments, parts = memory.moments, memory.parts
    calm = moments[kind, _CALM] * slowdown
    mean, variance, third = moments[kind, _MEAN], moments[kind, _VARIANCE], moments[kind, _THIRD]
    left = 1.0
    first = moments[kind, _SUM_MEAN] * slowdown
    second = moments[kind, _SUM_VARIANCE] * slowdown
    cube = moments[kind, _SUM_THIRD] * slowdown
    is_slight = moments[kind, _SQUARE] < _SLIGHT * (noise_s2 + second)
    is_counted = calm < _NEVER and not is_slight
    if is_counted:
        cube += first * (3.0 * second + first**2)
        second += first**2
        chance = math.exp(-calm)
        for number in range(_NUM_TERMS):
            sum_s, sum_s2, sum_s3 = number * mean, number * variance, number * third
            parts[kind, number, 0], parts[kind, number, 1] = chance, sum_s
            parts[kind, number, 2], parts[kind, number, 3] = sum_s2, sum_s3
            left -= chance
            first -= chance * sum_s
            second -= chance * (sum_s2 + sum_s**2)
            cube -= chance * (sum_s3 + sum_s * (3.0 * sum_s2 + sum_s**2))
            if left < _RARE:
                parts[kind, number, 0] += max(0.0, left)
                return 0, number + 1
            chance *= (calm * moments[kind, _ONE] + number * moments[kind, _AGAIN]) / (number + 1.0)
        first, second, cube = first / left, second / left, cube / left
        second = max(0.0, second - first**2)
        cube -= first * (3.0 * second + first**2)
    parts[kind, _NUM_TERMS, 0], parts[kind, _NUM_TERMS, 1] = left, first
    parts[kind, _NUM_TERMS, 2], parts[kind, _NUM_TERMS, 3] = second, cube
    return (0 if is_counted else _NUM_TERMS), _NUM_TERMS + 1


@inlined_uncounted
def _tail(beyond_s: float, variance: float, third: float) -> tuple[float, float]:
    """Returns the probability of exceeding the mean by a time, and the density there."""
    deviation = math.sqrt(variance)
    skew = min(max(third / (variance * deviation), _LEAST_SKEW), _MOST_SKEW)
    cube, sixth = 1.0 + 0.5 * skew * beyond_s / deviation, skew / 6.0
    # Most tails are nothing or all, which their cube tells at once.
    if cube >= (1.0 + sixth * (_FARTHEST - sixth)) ** 3:
        return 0.0, 0.0
    if cube <= max(0.0, 1.0 - sixth * (_FARTHEST + sixth)) ** 3:
        return 1.0, 0.0
    root = np.cbrt(cube)
    normal = (root - 1.0) / sixth + sixth
    density = math.exp(-0.5 * normal**2) / (_ROOT_TWO_PI * root**2 * deviation)
    return 0.5 * math.erfc(_ROOT_HALF * normal), density
