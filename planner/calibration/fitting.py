"""How are a few constants fitted to measured times, and how large are their errors on unseen times?

Residuals are logarithms of time ratios, so short and long times have equal weight. Outliers are damped (soft L1). Every
constant has an expected value, which pulls it where the times say little.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from simulator.table import Floats

HOLD_OUT_EVERY = 5
OUTLIER_SCALE = 0.1
"""Log residual above which a point counts as an outlier: twice the 5 % scatter between two libraries."""
NORMAL_OVER_MEDIAN = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""
FINITE_STEP = 0.02
"""Step in a constant's logarithm for finite differences; a fit ends when it moves by less than half of it."""
MOST_EVALUATIONS = 12
CLEARLY_LESS = 0.95
"""An alternative fit is chosen only if its cost is below this share of that of the fit from the expected constants, since both
stop only close to their optimum."""
HARDLY_SHOWN = 0.15
"""A constant whose share of the time of every row stays below this at its expected value may be hidden behind others. The
value is a choice: on a made-up cluster, half the network had 0.1 of one row, and constants found without this rule had 0.25 and
more. A larger value only costs time."""

Errors = Callable[[Floats], Floats]
"""Log errors `(n,)` at the logarithms of the constants `(k,)`."""


def mean_error(log_errors: Floats) -> float:
    """Returns the mean of |simulated / measured - 1|, with the digits that answers keep."""
    return float(f"{np.abs(np.expm1(log_errors)).mean():.6g}")


@dataclass(frozen=True, kw_only=True)
class Prior:
    """What is known about `k` constants before the fit; every array is `(k,)`."""

    expected: Floats
    log_width: Floats
    """One standard deviation of the logarithm."""
    low: Floats
    high: Floats
    weight: float
    """A constant that is one width off costs as much as a point with a log error of this size."""

    def take(self, chosen: NDArray[np.bool_]) -> Prior:
        """Returns the prior of a subset of the constants."""
        columns = {name: getattr(self, name)[chosen] for name in ("expected", "log_width", "low", "high")}
        return replace(self, **columns)


@dataclass(frozen=True, kw_only=True)
class Plane:
    """The log errors `(n,)`, linearized in the logarithms of the constants, `(k,)`."""

    at: Floats
    errors: Floats
    slopes: Floats
    """`(n, k)`."""

    @classmethod
    def of(cls, errors_at: Errors, logs: Floats, prior: Prior) -> Plane:
        """Returns the errors and their slopes at some constants; slopes are taken inwards at an upper bound."""
        here = errors_at(logs)
        steps = np.where(logs + FINITE_STEP > np.log(prior.high), -FINITE_STEP, FINITE_STEP)
        slopes = [
            (errors_at(logs + step * unit) - here) / step
            for step, unit in zip(steps, np.eye(len(logs)), strict=True)
        ]
        return cls(at=logs, errors=here, slopes=np.array(slopes).reshape(len(logs), len(here)).T)

    def take(self, chosen: NDArray[np.bool_]) -> Plane:
        """Returns the plane over a subset of the constants, with the others fixed."""
        return Plane(at=self.at[chosen], errors=self.errors, slopes=self.slopes[:, chosen])

    def predicted(self, logs: Floats) -> Floats:
        """Returns the log errors at other constants."""
        return np.asarray(self.errors + self.slopes @ (logs - self.at))


def damped(plane: Plane, weights: Floats, prior: Prior) -> Floats:
    """Returns the logarithms of the best constants if the errors are linear in them; `weights` is `(n,)`."""
    from scipy.optimize import least_squares

    expected = np.log(prior.expected)

    def residuals(logs: Floats) -> Floats:
        pull = prior.weight * (logs - expected) / prior.log_width
        return np.concatenate([weights * plane.predicted(logs), pull])

    bounds = (np.log(prior.low) - 1e-9, np.log(prior.high) + 1e-9)
    start = np.clip(plane.at, *bounds)
    found = least_squares(residuals, start, bounds=bounds, loss="soft_l1", f_scale=OUTLIER_SCALE)
    return np.asarray(found.x)


def settled(errors_at: Errors, weights: Floats, prior: Prior, start: Plane | None = None) -> Plane:
    """Returns the plane at the best constants, starting from the plane at the expected ones unless another is given."""
    plane = start or Plane.of(errors_at, np.log(prior.expected), prior)
    for _ in range(MOST_EVALUATIONS):
        logs = damped(plane, weights, prior)
        if np.abs(logs - plane.at).max() < FINITE_STEP / 2:
            break
        plane = Plane.of(errors_at, logs, prior)
    return plane


def best_settled(errors_at: Errors, weights: Floats, prior: Prior, start: Plane) -> Plane:
    """Returns the plane at the best constants, trying one start for each hidden constant, lowered by its width, as well.

    Traffic hidden behind computation has no slope at its expected speed, so the fit may blame another constant instead.
    """
    first = settled(errors_at, weights, prior, start)
    expected, low = np.log(prior.expected), np.log(prior.low)
    is_hidden = np.abs(start.slopes).max(axis=0) < HARDLY_SHOWN
    others = [
        settled(errors_at, weights, prior, Plane.of(errors_at, np.maximum(expected - shift, low), prior))
        for shift in np.diag(prior.log_width)[is_hidden]
    ]
    best = min([first, *others], key=lambda plane: cost(plane, weights, prior))
    is_better = cost(best, weights, prior) < CLEARLY_LESS * cost(first, weights, prior)
    return best if is_better else first


def cost(plane: Plane, weights: Floats, prior: Prior) -> float:
    """Returns what a fit minimizes: the sum of the soft-L1 losses of the errors and of the constants' deviations."""
    pull = prior.weight * (plane.at - np.log(prior.expected)) / prior.log_width
    scaled = np.concatenate([weights * plane.errors, pull]) / OUTLIER_SCALE
    return float(np.sum(np.sqrt(1.0 + scaled**2) - 1.0))


def log_deviations(plane: Plane, weights: Floats, prior: Prior) -> Floats:
    """Returns the standard deviations of the constants' logarithms, `(k,)`, given the points and the prior.

    Their covariance is the inverse of J^T W^2 J / noise^2 + 1 / width^2, with the prior's weight as noise.
    """
    seen = plane.slopes * weights[:, None] / prior.weight
    information = seen.T @ seen + np.diag(prior.log_width**-2)
    return np.asarray(np.sqrt(np.diag(np.linalg.inv(information))))


def noise_ratio(plane: Plane, prior: Prior) -> float:
    """Returns the noise of the points over the prior's weight, at least 1, from the median of their errors after a fit.

    With k constants fitted to n points, only n - k degrees of freedom are left for the scatter.
    """
    num_points, num_constants = plane.slopes.shape
    freedom = max(1, num_points - num_constants)
    scatter = NORMAL_OVER_MEDIAN * float(np.median(np.abs(plane.errors))) * np.sqrt(num_points / freedom)
    return max(1.0, float(scatter) / prior.weight)
