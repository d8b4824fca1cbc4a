"""How are a few constants fitted to measured times, and how far are they off on times not seen?

Residuals are logarithms of time ratios, so that a short time weighs as much as a long one, and outliers are damped (soft
L1). Every constant has an expectation, which pulls it where the times say little.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from simulator.table import Floats

HOLD_OUT_EVERY = 5
OUTLIER_SCALE = 0.1
"""Log residual from which a point counts as an outlier: twice the 5 % scatter between two libraries."""
NORMAL_OVER_MEDIAN = 1.4826
"""Standard deviation of a normal distribution over the median of its sizes."""
POSITIVE = (1e-300, 1e300)
"""Bounds of a constant that has none but its sign."""
FINITE_STEP = 0.02
"""Change of the logarithm of a constant from which a slope is taken; half of it ends a fit."""
MOST_EVALUATIONS = 12
CLEARLY_LESS = 0.95
"""Share of the cost of a fit from the expected constants below which another counts: both stop near their best."""
HARDLY_SHOWN = 0.15
"""Share of the time of every row up to which a constant may hide behind others where it is expected; a choice: half the network
of a made-up cluster was 0.1 of one row, what was found without it 0.25 and more. A larger one costs time alone."""

Errors = Callable[[Floats], Floats]
"""Log errors `(n,)` at the logarithms of the constants `(k,)`."""


def fit(
    log_errors: Callable[[dict[str, float]], Floats],
    start: Mapping[str, float],
    bounds: Mapping[str, tuple[float, float]] | None = None,
) -> tuple[dict[str, float], Floats]:
    """Returns the fitted constants, all positive, and the log errors of the points that were held out, every fifth.

    Args:
        log_errors: Returns log(predicted / measured) of all points for given constants.
        start: Constants to fit, with a guess.
        bounds: Lowest and highest value of those that have bounds.
    """
    from scipy.optimize import least_squares

    limits = [(bounds or {}).get(name, POSITIVE) for name in start]
    low, high = np.log(limits).T

    def named(logs: Floats) -> dict[str, float]:
        return dict(zip(start, np.exp(logs).tolist(), strict=True))

    def errors_of_part(logs: Floats, *, is_held_out: bool) -> Floats:
        errors = log_errors(named(logs))
        chosen = (np.arange(len(errors)) % HOLD_OUT_EVERY == 0) == is_held_out
        return np.asarray(errors[chosen])

    def fitted_errors(logs: Floats) -> Floats:
        return errors_of_part(logs, is_held_out=False)

    found = least_squares(
        fitted_errors,
        np.log(list(start.values())),
        bounds=(low, high),
        loss="soft_l1",
        f_scale=OUTLIER_SCALE,
    )
    return named(found.x), errors_of_part(found.x, is_held_out=True)


def mean_error(log_errors: Floats) -> float:
    """Returns the mean size of errors, simulated over measured, less one, with the digits that answers keep."""
    return float(f"{np.abs(np.expm1(log_errors)).mean():.6g}")


def describe(log_errors: Floats, what: str) -> str:
    """Returns mean and median absolute error and median bias, in percent."""
    absolute = np.abs(np.expm1(log_errors))
    return (
        f"{what}: mean {absolute.mean():.1%}, median {np.median(absolute):.1%}, "
        f"bias {np.median(np.expm1(log_errors)):+.1%}, n={len(log_errors)}"
    )


@dataclass(frozen=True, kw_only=True)
class Prior:
    """What was known of `k` constants before; every field is `(k,)`."""

    expected: Floats
    log_width: Floats
    """One standard deviation of the logarithm."""
    low: Floats
    high: Floats
    weight: float
    """A constant one width away weighs as much as a point that is wrong by this much."""

    def take(self, chosen: NDArray[np.bool_]) -> Prior:
        """Returns the prior of some of the constants."""
        columns = {name: getattr(self, name)[chosen] for name in ("expected", "log_width", "low", "high")}
        return replace(self, **columns)


@dataclass(frozen=True, kw_only=True)
class Plane:
    """The log errors `(n,)` as a plane over the logarithms of the constants, `(k,)`."""

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
        """Returns the plane over some of the constants, the others staying where they are."""
        return Plane(at=self.at[chosen], errors=self.errors, slopes=self.slopes[:, chosen])

    def predicted(self, logs: Floats) -> Floats:
        """Returns the log errors at other constants."""
        return np.asarray(self.errors + self.slopes @ (logs - self.at))


def damped(plane: Plane, weights: Floats, prior: Prior) -> Floats:
    """Returns the logarithms of the best constants while the errors are a plane; `weights` is `(n,)`."""
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
    """Returns the errors around the best constants, found from a plane around those expected unless another is given."""
    plane = start or Plane.of(errors_at, np.log(prior.expected), prior)
    for _ in range(MOST_EVALUATIONS):
        logs = damped(plane, weights, prior)
        if np.abs(logs - plane.at).max() < FINITE_STEP / 2:
            break
        plane = Plane.of(errors_at, logs, prior)
    return plane


def best_settled(errors_at: Errors, weights: Floats, prior: Prior, start: Plane) -> Plane:
    """Returns the errors around the best constants, sought from a plane and with each constant that hardly shows a width lower.

    Traffic that hides behind computation has no slope where it is expected, and another constant may be taken for it.
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
    """Returns what a fit makes small: the sum of soft-L1 losses of the errors and of the constants' distances."""
    pull = prior.weight * (plane.at - np.log(prior.expected)) / prior.log_width
    scaled = np.concatenate([weights * plane.errors, pull]) / OUTLIER_SCALE
    return float(np.sum(np.sqrt(1.0 + scaled**2) - 1.0))


def log_deviations(plane: Plane, weights: Floats, prior: Prior) -> Floats:
    """Returns how sure the logarithms of the constants are, `(k,)`: points as noisy as the prior is weighed, and the prior.

    The inverse of J^T W^2 J / noise^2 + 1 / width^2, with the prior's weight as noise.
    """
    seen = plane.slopes * weights[:, None] / prior.weight
    information = seen.T @ seen + np.diag(prior.log_width**-2)
    return np.asarray(np.sqrt(np.diag(np.linalg.inv(information))))


def noise_ratio(plane: Plane, prior: Prior) -> float:
    """Returns how much noisier points are than the prior is weighed, at least 1: by the median of their errors behind a fit.

    Of n points, k constants that were fitted to them leave only n - k to tell the scatter.
    """
    num_points, num_constants = plane.slopes.shape
    freedom = max(1, num_points - num_constants)
    scatter = NORMAL_OVER_MEDIAN * float(np.median(np.abs(plane.errors))) * np.sqrt(num_points / freedom)
    return max(1.0, float(scatter) / prior.weight)
