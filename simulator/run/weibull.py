"""What does it change that failures come early or late in an up-time? A renewal sum for Weibull up-times."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.special import gamma, gammaincc

from simulator.run import renewal
from simulator.run.columns import FOREVER_S, Runs
from simulator.table import Floats

_NUM_TERMS = 64
"""Commits that are added up one by one; the sum over the later ones is an integral with two corrections."""


def _long_run_goodput(runs: Runs, restart_s: Floats) -> Floats:
    """Returns the goodput of long runs with one level of saves, `(n,)`.

    With S the survival function of an up-time, t1 the first commit after a restart and c the time between commits,

        G = (tau S(t1) + gain sum_{j >= 1} S(t1 + j c)) / (M + R).

    Exact where saves never queue for a slot, and with one slot and `WAIT`; those of a burst are spread evenly. The tail of
    the sum is taken by Euler-Maclaurin.
    """
    cycle = renewal.Cycle.of(runs)
    first_s = runs.interval_s + runs.stall_s + runs.commit_s
    shape, scale_s = runs.weibull_shape, runs.mtbf_s / gamma(1.0 + 1.0 / runs.weibull_shape)
    gained_s = runs.interval_s * np.exp(-((first_s / scale_s) ** shape))
    for number in range(1, _NUM_TERMS):
        gained_s += cycle.gain_s * np.exp(-(((first_s + number * cycle.length_s) / scale_s) ** shape))
    last = (first_s + _NUM_TERMS * cycle.length_s) / scale_s
    survival = np.exp(-(last**shape))
    slope = -shape * last ** (shape - 1.0) / scale_s * survival
    integral_s = runs.mtbf_s * gammaincc(1.0 / shape, last**shape)
    tail = integral_s / cycle.length_s + 0.5 * survival - cycle.length_s * slope / 12.0
    return (gained_s + cycle.gain_s * tail) / (runs.mtbf_s + restart_s)


def memory_factor(runs: Runs) -> Floats:
    """Returns by what factor up-times with memory change the goodput of a long run with one level, `(n,)`."""
    has_memory = (runs.weibull_shape != 1.0) & runs.has_saves & (runs.mtbf_s < FOREVER_S)
    if not np.any(has_memory):
        return np.ones(len(runs))
    none_s = np.zeros(len(runs))
    memoryless = replace(runs, weibull_shape=np.ones(len(runs)))
    factor = _long_run_goodput(runs, none_s) / _long_run_goodput(memoryless, none_s)
    return np.where(has_memory & ~runs.has_live_replicas, factor, 1.0)
