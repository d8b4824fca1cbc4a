"""What luck does a run have? Random numbers that depend only on seed, replication, index and purpose.

A counter passes through the finaliser of SplitMix64 (Steele et al., OOPSLA 2014), so every design meets the same luck, in any
batch and on any number of threads.
"""

from __future__ import annotations

import math

import numpy as np

from simulator.compiled import compiled
from simulator.mixing import GOLDEN, mixed

UP_TIME, RESTART_TIME, KIND, SURVIVAL, RADIUS, ANGLE = 0, 1, 2, 3, 4, 5
"""Purposes: until a failure, until the failure of a restart, what failed, whether the fast level survives it, and
the polar coordinates of a normal number."""

_ONE = np.uint64(1)
_PURPOSE_SHIFT = np.uint64(56)
_DROPPED_BITS = np.uint64(11)
_LAST_BIT = 2.0**-53


@compiled
def luck_of(seed: int, replication: int) -> np.uint64:
    """Returns the key of all draws of a replication."""
    return _mixed(_mixed(np.uint64(seed)) + np.uint64(replication))


@compiled
def uniform(luck: np.uint64, purpose: int, index: int) -> float:
    """Returns a number in [0, 1)."""
    key = luck
    if purpose != UP_TIME:
        key = _mixed(key ^ (np.uint64(purpose) << _PURPOSE_SHIFT))
    # The upper 53 bits.
    return float(_mixed(key + np.uint64(index)) >> _DROPPED_BITS) * _LAST_BIT


@compiled
def exponential(luck: np.uint64, purpose: int, index: int) -> float:
    """Returns a number of mean 1."""
    return -math.log1p(-uniform(luck, purpose, index))


@compiled
def lognormal(luck: np.uint64, index: int, log_deviation: float) -> float:
    """Returns a number of mean 1 whose logarithm has the given standard deviation (Box and Muller, 1958)."""
    radius = math.sqrt(2.0 * exponential(luck, RADIUS, index))
    normal = radius * math.cos(2.0 * math.pi * uniform(luck, ANGLE, index))
    return math.exp(log_deviation * (normal - 0.5 * log_deviation))


@compiled
def unit_exponential(seed: int, replication: int, index: int) -> float:
    """Returns up-time `index` of a replication as a multiple of its mean, for memoryless failures."""
    return exponential(luck_of(seed, replication), UP_TIME, index)


@compiled
def _mixed(counter: np.uint64) -> np.uint64:
    """Returns 64 bits with no visible relation to those of neighbouring counters."""
    return mixed((counter + _ONE) * GOLDEN)
