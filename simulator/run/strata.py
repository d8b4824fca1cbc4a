"""Into which strata is the straggler prior cut, so that its tail is as accurate as its middle?

A sum over equally likely slow-downs contains nothing beyond the last of them. Here the strata of the excess X = e^(mu + sigma
Z) have equal width in Z, so that each is a fixed share of what lies beyond it. A stratum a < Z < b has the moments

    P = Phi(b) - Phi(a),    E[X^k] = e^(k mu + k^2 sigma^2 / 2) (Phi(b - k sigma) - Phi(a - k sigma)) / P

and is approximated by a normal distribution with its mean and variance, which keeps mean and variance of X exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import ndtr

from simulator.table import Floats

_EDGES = np.concatenate([[-np.inf], np.linspace(-4.0, 5.0, 91), [np.inf]])
"""Edges of the strata in standard deviations of the logarithm; one run in three million lies beyond the last."""


@dataclass(frozen=True, kw_only=True)
class Strata:
    """Parts of a distribution, from the smallest slow-down to the largest."""

    weights: Floats
    """Probability of each, `(k,)`; they sum to 1."""
    means: Floats
    """Excess X of the slow-down in each, `(k,)`, or `(n, k)` where designs differ."""
    deviations: Floats
    """Standard deviation of X within each, `(k,)`, or `(1,)` for all."""


@lru_cache(maxsize=64)
def strata_of(log_mean: float, log_deviation: float) -> Strata:
    """Returns the strata of a lognormal excess of slow-down.

    Args:
        log_mean: mu, mean of the logarithm.
        log_deviation: sigma, its standard deviation.
    """
    weights = np.diff(ndtr(_EDGES))
    means, squares = (
        np.exp(k * log_mean + 0.5 * (k * log_deviation) ** 2)
        * np.diff(ndtr(_EDGES - k * log_deviation))
        / weights
        for k in (1, 2)
    )
    return Strata(weights=weights, means=means, deviations=np.sqrt(np.maximum(0.0, squares - means**2)))
