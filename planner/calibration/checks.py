"""Can constants of a cluster explain these steps at all, or is a unit or a batch size wrong? Checked after the fit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from planner.calibration.fitting import Prior
from planner.text.human import digits
from simulator.errors import InputError, Problem
from simulator.table import Floats

MOST_UNEXPLAINED_RATIO = 1.5
"""Median ratio of measured to fitted step times, or its inverse, above which something other than constants must be wrong."""
AT_THE_END = 0.02
"""A constant is at an end of its range if it is closer to this end than this share of the range's width."""


class Measured(NamedTuple):
    """What is measured, and what is usually wrong if no constants explain it."""

    name: str
    column: str
    advice: str


STEPS = Measured(
    name="steps",
    column="step_time_s",
    advice="times are seconds, of one optimizer step, and that global_batch counts sequences of all accelerators",
)
KERNELS = Measured(
    name="kernels",
    column="seconds",
    advice="times are seconds, that nothing else ran, and that the device is identified correctly",
)


def check_explained(log_errors: Floats, source: str, what: Measured) -> None:
    """Refuses measurements that fitted constants do not come close to.

    Args:
        log_errors: ln(simulated / measured) with the fitted constants, `(n,)`.
        source: the file or device.
        what: what was measured.

    Raises:
        InputError: half of the measurements or more are so far off that they cannot be of these designs.
    """
    log_ratio = -float(np.median(log_errors))
    if abs(log_ratio) <= math.log(MOST_UNEXPLAINED_RATIO):
        return
    way = "longer" if log_ratio > 0 else "shorter"
    ratio = digits(math.exp(abs(log_ratio)))
    rule = f"{what.name} are {ratio} times {way} than any constants explain; check that {what.advice}"
    raise InputError([Problem(path=what.column, value="", rule=rule)], source)


def on_ends(words: Sequence[str], logs: Floats, prior: Prior) -> list[str]:
    """Returns a warning for each constant that the steps drive to an end of its range.

    Args:
        words: names of the constants, `k`.
        logs: their fitted logarithms, `(k,)`.
        prior: their ranges.
    """
    low, high = np.log(prior.low), np.log(prior.high)
    margin = AT_THE_END * (high - low)
    is_low, is_high = logs <= low + margin, logs >= high - margin
    return [
        f"{name} is at the {'lowest' if at_low else 'highest'} plausible value, so something else explains the "
        "steps; check layout, software and measured times."
        for name, at_low, at_high in zip(words, is_low.tolist(), is_high.tolist(), strict=True)
        if at_low or at_high
    ]
